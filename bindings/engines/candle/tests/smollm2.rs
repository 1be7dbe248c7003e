//! SmolLM2 with exact weights gives the tokens of transformers (tests/smollm2.py), with both kinds
//! of memory. PAGEDKV_SMOLLM2 names the model's file.

use candle_core::Result;
use pagedkv::Dtype;
use pagedkv_candle::{
    read_tokenizer, Basic, ChatTemplate, Engine, Gguf, Kv, Model, Paged, PagedConfig, Request,
    Sampler, Weights,
};
use serde_json::Value;

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn answers<K: Kv>(model: &Model, kv: &K, requests: &[Request]) -> Result<Vec<Vec<u32>>> {
    let mut engine = Engine::new(model, kv);
    requests.iter().try_for_each(|request| engine.add(request.clone()))?;
    while !engine.step().is_empty() {}
    Ok(engine.answers().iter().map(|answer| answer.tokens().to_vec()).collect())
}

#[test]
#[ignore = "PAGEDKV_SMOLLM2 must name SmolLM2-135M-Instruct.Q4_1.gguf"]
fn tokens_are_those_of_transformers() {
    let path = std::env::var_os("PAGEDKV_SMOLLM2").expect("PAGEDKV_SMOLLM2 names the model");
    let expected: Value = serde_json::from_str(include_str!("smollm2.json")).unwrap();
    let prompts = expected["prompts"].as_array().unwrap();
    let mut file = Gguf::open(path).unwrap();
    let tokenizer = read_tokenizer(&file).unwrap();
    let template = ChatTemplate::read(&file, &tokenizer).unwrap();
    for prompt in prompts {
        let text = prompt["text"].as_str().unwrap();
        let text = template.render(&[("user".into(), text.into())]).unwrap();
        let tokens = tokenizer.encode_fast(text.as_str(), false).unwrap();
        assert_eq!(tokens.get_ids(), ids(&prompt["prompt"]), "{text}");
        assert_eq!(tokenizer.decode(tokens.get_ids(), false).unwrap(), text);
    }
    let model = Model::load(&mut file, Weights::F32).unwrap();
    let requests: Vec<_> = prompts
        .iter()
        .map(|prompt| Request {
            prompt: ids(&prompt["prompt"]),
            max_tokens: expected["max_tokens"].as_u64().unwrap() as usize,
            stops: template.stops.clone(),
            sampler: Sampler::greedy(),
        })
        .collect();
    let config = PagedConfig { tokens: 4000, sequences: 16, dtype: Dtype::F32, store: None };
    let paged = Paged::new(model.config(), &config).unwrap();
    let (paged, basic) = (
        answers(&model, &paged, &requests).unwrap(),
        answers(&model, &Basic::new(model.config()), &requests).unwrap(),
    );
    for ((prompt, paged), basic) in prompts.iter().zip(&paged).zip(&basic) {
        assert_eq!(paged, &ids(&prompt["answer"]), "paged: {}", prompt["text"]);
        assert_eq!(basic, &ids(&prompt["answer"]), "basic: {}", prompt["text"]);
    }
}
