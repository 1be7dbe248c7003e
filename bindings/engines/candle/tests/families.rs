//! Small random models of every family. Tokens do not depend on where keys and values are stored,
//! nor on other requests in the pass; with exact weights they are those of transformers.
mod elsewhere;
mod tiny;

use candle_core::quantized::GgmlDType;
use elsewhere::Elsewhere;
use pagedkv::{Dtype, Salt, StoreConfig};
use pagedkv_candle::{
    Basic, Engine, Gguf, Kv, Model, Paged, PagedConfig, Request, Sampler, Weights,
};
use std::sync::atomic::Ordering;
use std::time::Duration;

const TOKENS: usize = 40;
const LONG: Duration = Duration::from_secs(60);

fn request(prompt: &[u32]) -> Request {
    let (prompt, sampler) = (prompt.to_vec(), Sampler::greedy());
    Request { prompt, max_tokens: TOKENS, stops: Vec::new(), sampler }
}

fn answers<K: Kv>(model: &Model, kv: &K, prompts: &[Vec<u32>], rows: usize) -> Vec<Vec<u32>> {
    let mut engine = Engine::new(model, kv).max_rows(rows);
    for prompt in prompts {
        engine.add(request(prompt)).unwrap();
    }
    while !engine.step().is_empty() {}
    engine.answers().iter().map(|answer| answer.tokens().to_vec()).collect()
}

fn paged(model: &Model, dtype: Dtype) -> Paged {
    let config = PagedConfig { tokens: 2000, sequences: 16, dtype, store: None };
    Paged::new(model.config(), &config).unwrap()
}

fn load(folder: &tiny::Folder, family: &str, dtype: GgmlDType, weights: Weights) -> Model {
    tiny::use_one_thread();
    let path = folder.file(&format!("{family}-{dtype:?}.gguf"));
    tiny::write(&path, family, dtype);
    Model::load(&mut Gguf::open(&path).unwrap(), weights).unwrap()
}

#[test]
fn tokens_are_the_same_wherever_keys_and_values_are() {
    let folder = tiny::Folder::new("same");
    for family in tiny::FAMILIES {
        for dtype in [GgmlDType::F32, GgmlDType::Q8_0, GgmlDType::Q4_1] {
            let model = load(&folder, family, dtype, Weights::F32);
            let (basic, prompts) = (Basic::new(model.config()), tiny::prompts());
            let alone: Vec<_> = prompts
                .iter()
                .map(|prompt| answers(&model, &basic, std::slice::from_ref(prompt), 512).remove(0))
                .collect();
            assert!(alone.iter().all(|tokens| tokens.len() == TOKENS));
            let together = answers(&model, &basic, &prompts, 23);
            assert_eq!(together, alone, "basic, {family} {dtype:?}");
            for rows in [512, 23] {
                let together = answers(&model, &paged(&model, Dtype::F32), &prompts, rows);
                assert_eq!(together, alone, "paged, {family} {dtype:?}, {rows} rows");
            }
        }
    }
}

/// The last bits of candle's quantised products depend on more, so texts diverge at some word.
#[test]
fn quantised_weights_give_almost_the_same() {
    let folder = tiny::Folder::new("quantised");
    for family in tiny::FAMILIES {
        let prompts = tiny::prompts();
        let of = |weights| {
            let model = load(&folder, family, GgmlDType::Q8_0, weights);
            answers(&model, &paged(&model, Dtype::F32), &prompts, 512)
        };
        let exact = of(Weights::F32);
        for weights in [Weights::File, Weights::Q8] {
            let quantised = of(weights);
            let same = quantised.iter().zip(&exact).filter(|(a, b)| a[..2] == b[..2]).count();
            assert!(same >= 4, "{family} {weights:?}: {same} of 6 share a prefix");
        }
    }
}

/// Four conversations do not fit into memory at once, and each round begins as after a restart.
#[test]
fn tokens_are_the_same_if_tensors_go_to_a_store_and_come_back() {
    let folder = tiny::Folder::new("elsewhere");
    for family in tiny::FAMILIES {
        let model = load(&folder, family, GgmlDType::F32, Weights::F32);
        let store = StoreConfig::directory(folder.file(family)).wait(LONG).max_queued_tokens(1024);
        let (basic, mut said) = (Basic::new(model.config()), tiny::prompts().split_off(2));
        let kv = Elsewhere::new(model.config(), 14, Some(store)).unwrap();
        for round in 0..3 {
            let expected = answers(&model, &basic, &said, 512);
            assert_eq!(answers(&model, &kv, &said, 512), expected, "{family}, round {round}");
            said.iter_mut().zip(expected).for_each(|(text, answer)| text.extend(answer));
            assert_eq!(kv.cache.flush_store(LONG).unwrap(), 0);
            kv.cache.prefix().clear(Salt::All).unwrap();
        }
        assert!(kv.fetched.load(Ordering::Relaxed) > 0, "{family}: no block came back");
        assert_eq!(kv.cache.stats().unwrap().block_io_failures, 0);
        kv.cache.validate().unwrap();
    }
}

#[test]
fn prompts_that_begin_alike_are_computed_once() {
    let folder = tiny::Folder::new("shared");
    let model = load(&folder, "llama", GgmlDType::F32, Weights::F32);
    let kv = paged(&model, Dtype::F32);
    let prompts = tiny::prompts();
    let mut engine = Engine::new(&model, &kv);
    engine.add(request(&prompts[4])).unwrap();
    engine.add(request(&prompts[5])).unwrap();
    while !engine.step().is_empty() {}
    assert_eq!(engine.answers()[1].cached, 64); // of 70, the whole blocks
    assert_eq!(engine.figures().cached_tokens, 64);
    kv.cache().validate().unwrap();
}

#[test]
fn the_next_turn_goes_on_from_what_is_there() {
    let folder = tiny::Folder::new("turns");
    for family in tiny::FAMILIES {
        let model = load(&folder, family, GgmlDType::F32, Weights::F32);
        fn second<K: Kv>(model: &Model, kv: &K, prompt: &[u32]) -> (Vec<u32>, usize) {
            let mut first = Engine::new(model, kv);
            first.add(request(prompt)).unwrap();
            while !first.step().is_empty() {}
            let mut answers = first.into_answers();
            let next = [prompt, answers[0].tokens(), &[7, 8, 9]].concat();
            let mut engine = Engine::new(model, kv);
            engine.add_after(request(&next), answers.pop()).unwrap();
            while !engine.step().is_empty() {}
            (engine.answers()[0].tokens().to_vec(), engine.answers()[0].cached)
        }
        let prompt = &tiny::prompts()[2];
        let (basic, cached) = second(&model, &Basic::new(model.config()), prompt);
        assert_eq!(cached, 50 + TOKENS - 1, "{family}");
        let (tokens, cached) = second(&model, &paged(&model, Dtype::F32), prompt);
        assert_eq!(tokens, basic, "{family}");
        assert_eq!(cached, 50 + TOKENS - 1, "{family}");
    }
}

#[test]
fn every_storage_type_gives_an_answer() {
    let folder = tiny::Folder::new("types");
    let model = load(&folder, "gemma3", GgmlDType::Q8_0, Weights::F32);
    let exact = answers(&model, &paged(&model, Dtype::F32), &tiny::prompts(), 512);
    for dtype in [Dtype::F16, Dtype::BF16, Dtype::INT8, Dtype::INT4, Dtype::FP8_E4M3] {
        let tokens = answers(&model, &paged(&model, dtype), &tiny::prompts(), 512);
        let same = tokens.iter().zip(&exact).filter(|(a, b)| a[..1] == b[..1]).count();
        assert!(same >= 3, "{dtype:?}: {same} of {} share a prefix", exact.len());
    }
}

#[test]
fn a_cache_that_is_too_small_says_so() {
    let folder = tiny::Folder::new("small");
    let model = load(&folder, "llama", GgmlDType::F32, Weights::F32);
    let config = PagedConfig { tokens: 32, sequences: 0, dtype: Dtype::F32, store: None };
    let kv = Paged::new(model.config(), &config).unwrap();
    let mut engine = Engine::new(&model, &kv);
    let error = engine.add(request(&tiny::prompts()[2])).unwrap_err().to_string();
    assert!(error.contains("90 tokens; there is room for 32"), "{error}");
}

/// Tokens from tests/families.py.
#[test]
fn tokens_are_those_of_transformers() {
    let expected: serde_json::Value = serde_json::from_str(include_str!("families.json")).unwrap();
    let folder = match std::env::var_os("PAGEDKV_TINY_FOLDER") {
        Some(folder) => std::mem::ManuallyDrop::new(tiny::Folder(folder.into())),
        None => std::mem::ManuallyDrop::new(tiny::Folder::new("exact")),
    };
    for family in tiny::FAMILIES {
        let model = load(&folder, family, GgmlDType::F32, Weights::F32);
        let kv = paged(&model, Dtype::F32);
        let tokens = answers(&model, &kv, &tiny::prompts(), 512);
        if std::env::var_os("PAGEDKV_TINY_FOLDER").is_none() {
            assert_eq!(serde_json::json!(tokens), expected[family], "{family}");
        }
    }
}
