//! The attention of a model over candle's `KvCache` and `ConcatKvCache`, and over [`Paged`].
mod tiny;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::kv_cache::{ConcatKvCache, KvCache};
use candle_nn::ops::softmax_last_dim;
use pagedkv_candle::{Begun, Family, Kv, ModelConfig, Paged, PagedConfig, PagedStep, Step};

const LAYERS: usize = 2;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 16;

/// Stands for the projections of a layer: queries, keys and values `[1][heads][tokens][dim]`.
fn project(layer: usize, tokens: &[u32]) -> Result<[Tensor; 3]> {
    let rows = |part: usize, heads: usize| {
        let number = |head: usize, token: u32, d: usize| {
            ((token as usize * 31 + (layer * 3 + part) * 17 + head * 7 + d * 5) as f32).sin()
        };
        let numbers: Vec<f32> = (0..heads)
            .flat_map(|head| tokens.iter().map(move |&token| (head, token)))
            .flat_map(|(head, token)| (0..DIM).map(move |d| number(head, token, d)))
            .collect();
        Tensor::from_vec(numbers, (1, heads, tokens.len(), DIM), &Device::Cpu)
    };
    Ok([rows(0, HEADS)?, rows(1, KV_HEADS)?, rows(2, KV_HEADS)?])
}

/// Causal attention over all tokens so far, as in candle's models: `[tokens][heads * dim]`.
fn attend(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (new, all) = (q.dim(2)?, k.dim(2)?);
    let repeat = |t: &Tensor| {
        let shape = (1, KV_HEADS, HEADS / KV_HEADS, all, DIM);
        t.unsqueeze(2)?.expand(shape)?.reshape((1, HEADS, all, DIM))
    };
    let hidden = |row: usize, at: usize| {
        if at > all - new + row {
            f32::NEG_INFINITY
        } else {
            0.0
        }
    };
    let mask = (0..new).flat_map(|row| (0..all).map(move |at| hidden(row, at)));
    let mask = Tensor::from_iter(mask, &Device::Cpu)?.reshape((1, 1, new, all))?;
    let scores = (q.matmul(&repeat(k)?.t()?)? / (DIM as f64).sqrt())?.broadcast_add(&mask)?;
    let out = softmax_last_dim(&scores)?.matmul(&repeat(v)?)?;
    out.transpose(1, 2)?.reshape((new, HEADS * DIM))
}

// [before]
fn layer_before(kv: &mut KvCache, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (k, v) = kv.append(k, v)?; // all keys and values so far
    attend(q, &k, &v)
}
// [before end]

// [after]
fn layer_after(step: &mut PagedStep<'_>, layer: usize, [q, k, v]: [&Tensor; 3]) -> Result<Tensor> {
    let rows = |t: &Tensor| t.squeeze(0)?.transpose(0, 1); // [tokens][heads][dim], not copied
    step.attend(layer, &rows(q)?, &rows(k)?, &rows(v)?)
}
// [after end]

/// All layers of one pass over a sequence: the sum of their outputs.
fn pass(kv: &Paged, sequence: &mut <Paged as Kv>::Sequence, tokens: &[u32]) -> Result<Tensor> {
    let mut sum = Tensor::zeros((tokens.len(), HEADS * DIM), DType::F32, &Device::Cpu)?;
    // [pass]
    let Begun::Step(mut step) = kv.begin(vec![(sequence, tokens.len())])? else {
        panic!("there are too few blocks"); // a server would drop another sequence
    };
    for layer in 0..LAYERS {
        let [q, k, v] = project(layer, tokens)?;
        sum = (sum + layer_after(&mut step, layer, [&q, &k, &v])?)?;
    }
    step.commit(tokens)?;
    // [pass end]
    Ok(sum)
}

/// The same with candle's two caches, which must agree.
fn pass_before(caches: &mut [(KvCache, ConcatKvCache)], tokens: &[u32]) -> Result<Tensor> {
    let mut sum = Tensor::zeros((tokens.len(), HEADS * DIM), DType::F32, &Device::Cpu)?;
    for (layer, (growing, joined)) in caches.iter_mut().enumerate() {
        let [q, k, v] = project(layer, tokens)?;
        let out = layer_before(growing, &q, &k, &v)?;
        let (k, v) = joined.append(&k, &v)?;
        assert_close(&out, &attend(&q, &k, &v)?);
        sum = (sum + out)?;
    }
    Ok(sum)
}

fn assert_close(a: &Tensor, b: &Tensor) {
    let difference = (a - b).unwrap().abs().unwrap().max_all().unwrap();
    assert!(difference.to_scalar::<f32>().unwrap() < 1e-5, "{difference}");
}

fn candles() -> Vec<(KvCache, ConcatKvCache)> {
    (0..LAYERS).map(|_| (KvCache::new(2, 8), ConcatKvCache::new(2))).collect()
}

fn paged() -> Paged {
    tiny::use_one_thread();
    let model = ModelConfig {
        family: Family::Llama,
        name: "toy".into(),
        layers: LAYERS,
        width: HEADS * DIM,
        inner: 1,
        query_heads: HEADS,
        kv_heads: KV_HEADS,
        dim: DIM,
        vocabulary: 100,
        context: 100,
        epsilon: 1e-5,
        scale: 1.0 / (DIM as f32).sqrt(),
        windows: vec![0; LAYERS],
        ropes: Vec::new(),
    };
    let dtype = pagedkv::Dtype::F32;
    Paged::new(&model, &PagedConfig { tokens: 200, sequences: 3, dtype, store: None }).unwrap()
}

#[test]
fn outputs_are_those_of_candles_caches() {
    let (kv, mut caches) = (paged(), candles());
    let prompt: Vec<u32> = (0..40).collect();
    let (mut sequence, cached) = kv.open(&prompt).unwrap();
    assert_eq!(cached, 0);
    let before = pass_before(&mut caches, &prompt).unwrap();
    assert_close(&before, &pass(&kv, &mut sequence, &prompt).unwrap());
    for token in 40..45 {
        let before = pass_before(&mut caches, &[token]).unwrap();
        assert_close(&before, &pass(&kv, &mut sequence, &[token]).unwrap());
    }

    // Tokens are removed, which candle's caches cannot do: they begin again.
    assert_eq!(kv.trim(&mut sequence, 30).unwrap(), 30);
    caches.iter_mut().for_each(|(growing, joined)| (growing.reset(), joined.reset()).1);
    pass_before(&mut caches, &prompt[..30]).unwrap();
    let before = pass_before(&mut caches, &[90, 91]).unwrap();
    assert_close(&before, &pass(&kv, &mut sequence, &[90, 91]).unwrap());

    // A second sequence has the cached part of its prompt.
    let (mut second, cached) = kv.open(&prompt).unwrap();
    assert_eq!(cached, 32); // the full blocks of the first one
    let mut caches = candles();
    let before = pass_before(&mut caches, &prompt).unwrap();
    let last = pass(&kv, &mut second, &prompt[cached..]).unwrap();
    assert_close(&before.narrow(0, cached, 40 - cached).unwrap(), &last);
}

#[test]
fn a_fork_is_independent_and_a_clone_is_not() {
    let kv = paged();
    let (mut sequence, _) = kv.open(&[1]).unwrap();
    pass(&kv, &mut sequence, &[1, 2, 3]).unwrap();
    let mut fork = sequence.fork().unwrap();
    pass(&kv, &mut fork, &[9]).unwrap();
    let mut caches = candles();
    pass_before(&mut caches, &[1, 2, 3]).unwrap();
    pass_before(&mut caches, &[4]).unwrap();
    let expected = pass_before(&mut caches, &[5]).unwrap();
    pass(&kv, &mut sequence, &[4]).unwrap();
    pass(&kv, &mut fork, &[8]).unwrap();
    assert_close(&expected, &pass(&kv, &mut sequence, &[5]).unwrap());

    // The clone of a KvCache writes into the memory of the original.
    let rows = |token: u32| project(0, &[token]).map(|[_, k, v]| (k, v)).unwrap();
    let (mut original, mut joined) = (KvCache::new(2, 8), ConcatKvCache::new(2));
    for token in [1, 2] {
        let (k, v) = rows(token);
        original.append(&k, &v).unwrap();
        joined.append(&k, &v).unwrap();
    }
    let (mut clone, mut joined_clone) = (original.clone(), joined.clone());
    let ((k, v), (other_k, other_v)) = (rows(3), rows(4));
    original.append(&k, &v).unwrap();
    joined.append(&k, &v).unwrap();
    clone.append(&other_k, &other_v).unwrap();
    joined_clone.append(&other_k, &other_v).unwrap();
    let last = |t: &Tensor| t.narrow(2, 2, 1).unwrap().flatten_all().unwrap();
    let numbers = |t: Tensor| t.to_vec1::<f32>().unwrap();
    let (k, other_k) = (numbers(k.flatten_all().unwrap()), numbers(other_k.flatten_all().unwrap()));
    assert_eq!(numbers(last(&original.k().unwrap().unwrap())), other_k);
    assert_eq!(numbers(last(joined.k().unwrap())), k);
}
