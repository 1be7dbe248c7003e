//! Keys and values in candle's tensors: see [`Basic`].
use crate::config::ModelConfig;
use crate::kv::{Begun, Kv, Step};
use candle_core::{Device, Result, Tensor};
use candle_nn::attention::{flash_attn, AttnMask};
use candle_nn::kv_cache::{Cache, KvCache};
use candle_nn::ops::softmax_last_dim;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Contiguous keys and values of each sequence in candle's [`KvCache`], and candle's attention: one
/// call for each sequence of a pass, because one call takes sequences of one length. Decode steps
/// use candle's flash attention for CPUs; prompts use its matmuls and softmax, which are faster for
/// them.
#[derive(Debug)]
pub struct Basic {
    model: ModelConfig,
    memory: Arc<Memory>,
}

/// Bytes of all sequences.
#[derive(Debug, Default)]
struct Memory {
    used: AtomicU64,
    peak: AtomicU64,
}

impl Basic {
    /// Creates the storage for a model.
    pub fn new(model: &ModelConfig) -> Self {
        Self { model: model.clone(), memory: Arc::default() }
    }
}

/// The keys and values of one sequence.
#[derive(Debug)]
pub struct BasicSequence {
    layers: Vec<KvCache>,
    /// Committed rows. Layers have more rows after a pass that was not committed.
    length: usize,
    bytes: u64,
    memory: Arc<Memory>,
}

/// Rows that memory grows by.
const GROWTH: usize = 512;

impl BasicSequence {
    fn count_bytes(&mut self) {
        let allocated = |cache: &KvCache| {
            let parts = [cache.k_cache().all_data(), cache.v_cache().all_data()];
            parts.into_iter().flatten().map(|t| t.elem_count() as u64 * 4).sum::<u64>()
        };
        let bytes = self.layers.iter().map(allocated).sum();
        let used = &self.memory.used;
        let before = used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        self.memory.peak.fetch_max(before + bytes - self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// Keeps the first rows of all layers, also if some layers have more than others after a pass
    /// that was not committed.
    fn keep(&mut self, length: usize) -> Result<()> {
        let rows = |cache: &KvCache| [cache.k_cache(), cache.v_cache()].map(Cache::current_seq_len);
        for cache in self.layers.iter_mut().filter(|cache| rows(cache) != [length; 2]) {
            let mut kept = KvCache::new(1, GROWTH);
            if let (Some(k), Some(v), true) = (cache.k()?, cache.v()?, length > 0) {
                let first = |t: Tensor| t.narrow(1, 0, length)?.contiguous();
                kept.append(&first(k)?, &first(v)?)?;
            }
            *cache = kept;
        }
        self.length = length;
        Ok(())
    }
}

impl Drop for BasicSequence {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Kv for Basic {
    type Sequence = BasicSequence;
    type Step<'s> = BasicStep<'s>;

    fn open(&self, _tokens: &[u32]) -> Result<(BasicSequence, usize)> {
        let layers = (0..self.model.layers).map(|_| KvCache::new(1, GROWTH)).collect();
        let memory = self.memory.clone();
        Ok((BasicSequence { layers, length: 0, bytes: 0, memory }, 0))
    }

    fn trim(&self, sequence: &mut BasicSequence, length: usize) -> Result<usize> {
        sequence.keep(length)?;
        Ok(length)
    }

    fn begin<'s>(
        &'s self,
        sequences: Vec<(&'s mut BasicSequence, usize)>,
    ) -> Result<Begun<BasicStep<'s>>> {
        let attention = Attention { model: &self.model, masks: Vec::new() };
        let mut step = BasicStep { sequences, attention };
        step.sequences.iter_mut().try_for_each(|(sequence, _)| sequence.keep(sequence.length))?;
        Ok(Begun::Step(step))
    }

    fn longest(&self) -> usize {
        usize::MAX
    }

    fn cached(&self, _tokens: &[u32]) -> Result<usize> {
        Ok(0)
    }

    fn shares(&self) -> bool {
        false
    }

    fn peak_bytes(&self) -> Result<u64> {
        Ok(self.memory.peak.load(Ordering::Relaxed))
    }
}

/// A forward pass over sequences of candle's caches.
#[derive(Debug)]
pub struct BasicStep<'s> {
    sequences: Vec<(&'s mut BasicSequence, usize)>,
    attention: Attention<'s>,
}

impl Step for BasicStep<'_> {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let mut outputs = Vec::with_capacity(self.sequences.len());
        let mut first = 0;
        for (sequence, rows) in &mut self.sequences {
            let own = |t: &Tensor| t.narrow(0, first, *rows)?.unsqueeze(0);
            let (k, v) = sequence.layers[layer].append(&own(k)?, &own(v)?)?;
            outputs.push(self.attention.compute(layer, &own(q)?, &k, &v)?);
            first += *rows;
        }
        match &outputs[..] {
            [output] => Ok(output.clone()),
            _ => Tensor::cat(&outputs, 0),
        }
    }

    fn commit(mut self, _tokens: &[u32]) -> Result<()> {
        for (sequence, rows) in &mut self.sequences {
            sequence.length += *rows;
            sequence.count_bytes();
        }
        Ok(())
    }
}

/// The most rows of a prompt whose scores are in memory at once.
const CHUNK: usize = 256;

/// Attention of queries `[1][rows][heads][dim]` over `[1][tokens][KV heads][dim]`, whose last
/// tokens are the rows: `[rows][heads * dim]`.
#[derive(Debug)]
struct Attention<'s> {
    model: &'s ModelConfig,
    /// The masks of this pass, by rows, tokens and window. All layers use the same ones.
    masks: Vec<([usize; 3], Tensor)>,
}

impl Attention<'_> {
    fn compute(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (rows, tokens) = (q.dim(1)?, k.dim(1)?);
        let window = self.model.windows[layer] as usize;
        if rows == 1 {
            return self.decode(window, q, k, v);
        }
        let mut outputs = Vec::new();
        for first in (0..rows).step_by(CHUNK) {
            let n = CHUNK.min(rows - first);
            let end = tokens - rows + first + n; // of the tokens that the last of these rows sees
            let begin = if window > 0 { (end + 1).saturating_sub(n + window) } else { 0 };
            let seen = |t: &Tensor| t.narrow(1, begin, end - begin);
            outputs.push(self.masked(window, &q.narrow(1, first, n)?, &seen(k)?, &seen(v)?)?);
        }
        Tensor::cat(&outputs, 0)
    }

    fn decode(&self, window: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let tokens = k.dim(1)?;
        let seen = if window > 0 { window.min(tokens) } else { tokens };
        let last = |t: &Tensor| t.narrow(1, tokens - seen, seen);
        let mask = AttnMask::causal_with_offset(seen - 1);
        let out = flash_attn::<f32>(q, &last(k)?, &last(v)?, self.model.scale, mask, None, None)?;
        out.transpose(1, 2)?.reshape((1, self.model.query_heads * self.model.dim))
    }

    fn masked(&mut self, window: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (rows, tokens) = (q.dim(1)?, k.dim(1)?);
        let ModelConfig { query_heads: heads, kv_heads, dim, .. } = *self.model;
        let group = heads / kv_heads;
        // The rows of the query heads of one KV head, one head after the other.
        let q = q.squeeze(0)?.reshape((rows, kv_heads, group, dim))?.permute((1, 2, 0, 3))?;
        let q = (q.reshape((kv_heads, group * rows, dim))? * f64::from(self.model.scale))?;
        let k = k.squeeze(0)?.permute((1, 2, 0))?.contiguous()?;
        let v = v.squeeze(0)?.transpose(0, 1)?.contiguous()?;
        let scores = q.matmul(&k)?.reshape((heads, rows, tokens))?;
        let weights = softmax_last_dim(&scores.broadcast_add(self.mask(rows, tokens, window)?)?)?;
        let out = weights.reshape((kv_heads, group * rows, tokens))?.matmul(&v)?;
        let out = out.reshape((kv_heads, group, rows, dim))?.permute((2, 0, 1, 3))?;
        out.reshape((rows, heads * dim))
    }

    fn mask(&mut self, rows: usize, tokens: usize, window: usize) -> Result<&Tensor> {
        let shape = [rows, tokens, window];
        let known = self.masks.iter().position(|(of, _)| *of == shape);
        let at = match known {
            Some(at) => at,
            None => {
                let hidden = |row: usize, at: usize| {
                    let own = tokens - rows + row;
                    at > own || (window > 0 && at + window <= own)
                };
                let number = |row, at| if hidden(row, at) { f32::NEG_INFINITY } else { 0.0 };
                let numbers: Vec<f32> =
                    (0..rows).flat_map(|row| (0..tokens).map(move |at| number(row, at))).collect();
                let mask = Tensor::from_vec(numbers, (1, rows, tokens), &Device::Cpu)?;
                self.masks.push((shape, mask));
                self.masks.len() - 1
            }
        };
        Ok(&self.masks[at].1)
    }
}
