//! The forward pass of all families: see [`Model`].
use crate::config::{Family, ModelConfig, Rope};
use crate::gguf::Gguf;
use crate::kv::Step;
use crate::weight::{Weight, Weights};
use candle_core::quantized::{QStorage, QTensor};
use candle_core::{bail, Device, Result, Tensor};
use candle_nn::ops::rms_norm;
use candle_nn::rotary_emb::rope_thd;
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// The new tokens of one forward pass: those of each sequence, one sequence after the other.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// The position of each in its own sequence.
    pub positions: Vec<u32>,
    /// The rows whose logits are needed.
    pub wanted: Vec<u32>,
}

impl Rows {
    /// Appends the next tokens of a sequence of `length` tokens. `logits`: those of the last one
    /// are needed.
    pub fn push(&mut self, length: usize, tokens: &[u32], logits: bool) {
        self.tokens.extend(tokens);
        self.positions.extend((length..length + tokens.len()).map(|at| at as u32));
        if logits {
            self.wanted.push(self.tokens.len() as u32 - 1);
        }
    }
}

/// The result of a forward pass.
#[derive(Clone, Debug)]
pub struct Output {
    /// `[requested rows][vocabulary]`; none if no row was requested.
    pub logits: Option<Tensor>,
    /// Time spent in writing K and V and in attention.
    pub attention: Duration,
}

/// A decoder for all families: parts that a family does not have are `None`.
#[derive(Debug)]
pub struct Model {
    config: ModelConfig,
    embedding: Weight,
    layers: Vec<Layer>,
    norm: Tensor,
    output: Weight,
    frequency_factors: Option<Vec<f32>>,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Tensor,
    query: Linear,
    key: Linear,
    value: Linear,
    query_norm: Option<Tensor>,
    key_norm: Option<Tensor>,
    output: Linear,
    after_attention: Option<Tensor>,
    feed_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
    after_feed: Option<Tensor>,
}

#[derive(Debug)]
struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
}

impl Linear {
    fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        let product = self.weight.forward(rows)?;
        match &self.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }
}

impl Model {
    /// Reads a model with all its weights.
    pub fn load(file: &mut Gguf, weights: Weights) -> Result<Self> {
        let config = ModelConfig::read(file)?;
        let weights = match weights {
            Weights::Auto if file.numbers() <= 1_000_000_000 => Weights::F32,
            Weights::Auto => Weights::File,
            chosen => chosen,
        };
        let mut loader = Loader { file, weights };
        let (width, vocabulary) = (config.width, config.vocabulary);
        let embedding = loader.matrix("token_embd", vocabulary, width)?;
        let output = if loader.file.has("output.weight") {
            loader.matrix("output", vocabulary, width)?
        } else {
            embedding.clone()
        };
        let factors = "rope_freqs.weight";
        Ok(Self {
            embedding,
            output,
            layers: (0..config.layers).map(|i| loader.layer(&config, i)).collect::<Result<_>>()?,
            norm: loader.vector("output_norm", width)?,
            frequency_factors: match loader.file.has(factors) {
                true => Some(loader.vector("rope_freqs", config.dim / 2)?.to_vec1()?),
                false => None,
            },
            config,
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Computes all rows, with K and V of `step`.
    pub fn forward(&self, rows: &Rows, step: &mut impl Step) -> Result<Output> {
        let config = &self.config;
        let count = rows.tokens.len();
        let tokens = Tensor::from_slice(&rows.tokens, count, &Device::Cpu)?;
        let mut x = self.embedding.embedding(&tokens)?;
        if config.family == Family::Gemma3 {
            x = (x * (config.width as f64).sqrt())?;
        }
        let mut angles = Angles::new(self, &rows.positions);
        let mut attention = Duration::ZERO;
        for (i, layer) in self.layers.iter().enumerate() {
            let h = rms_norm(&x, &layer.attention_norm, config.epsilon)?;
            let angles = angles.of(config.ropes[i])?;
            let heads = |x: Tensor, heads| x.reshape((count, heads, config.dim));
            let q = heads(layer.query.forward(&h)?, config.query_heads)?;
            let k = heads(layer.key.forward(&h)?, config.kv_heads)?;
            let v = heads(layer.value.forward(&h)?, config.kv_heads)?;
            let q = self.rotated(q, &layer.query_norm, angles)?;
            let k = self.rotated(k, &layer.key_norm, angles)?;
            let begin = Instant::now();
            let out = step.attend(i, &q, &k, &v)?;
            attention += begin.elapsed();
            let h = self.normed(layer.output.forward(&out)?, &layer.after_attention)?;
            x = (x + h)?;
            let h = rms_norm(&x, &layer.feed_norm, config.epsilon)?;
            let gate = layer.gate.forward(&h)?;
            let gate = if config.family == Family::Gemma3 { gate.gelu() } else { gate.silu() }?;
            let h = layer.down.forward(&(gate * layer.up.forward(&h)?)?)?;
            x = (x + self.normed(h, &layer.after_feed)?)?;
        }
        Ok(Output { logits: self.logits(&x, &rows.wanted)?, attention })
    }

    fn normed(&self, x: Tensor, norm: &Option<Tensor>) -> Result<Tensor> {
        norm.as_ref().map_or(Ok(x.clone()), |norm| rms_norm(&x, norm, self.config.epsilon))
    }

    /// Applies the norm, if the family has one, and the positions to queries or keys.
    fn rotated(
        &self,
        x: Tensor,
        norm: &Option<Tensor>,
        (cos, sin): &(Tensor, Tensor),
    ) -> Result<Tensor> {
        rope_thd(&self.normed(x, norm)?.unsqueeze(0)?, cos, sin)?.squeeze(0)
    }

    fn logits(&self, x: &Tensor, wanted: &[u32]) -> Result<Option<Tensor>> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let wanted = Tensor::from_slice(wanted, wanted.len(), &Device::Cpu)?;
        let last = rms_norm(&x.index_select(&wanted, 0)?, &self.norm, self.config.epsilon)?;
        self.output.forward(&last).map(Some)
    }
}

/// Cosines and sines of the rows' angles, for each rope of the layers.
struct Angles<'a> {
    model: &'a Model,
    positions: &'a [u32],
    of_rope: Vec<(Rope, (Tensor, Tensor))>,
}

impl<'a> Angles<'a> {
    fn new(model: &'a Model, positions: &'a [u32]) -> Self {
        Self { model, positions, of_rope: Vec::new() }
    }

    fn of(&mut self, rope: Rope) -> Result<&(Tensor, Tensor)> {
        if let Some(at) = self.of_rope.iter().position(|(known, _)| *known == rope) {
            return Ok(&self.of_rope[at].1);
        }
        let half = self.model.config.dim / 2;
        let factors = self.model.frequency_factors.as_deref();
        let frequencies: Vec<f32> = (0..half)
            .map(|i| {
                let divisor = factors.map_or(1.0, |factors| factors[i]) * rope.factor;
                1.0 / (rope.base.powf(i as f32 / half as f32) * divisor)
            })
            .collect();
        let angles = self
            .positions
            .iter()
            .flat_map(|&at| frequencies.iter().map(move |frequency| at as f32 * frequency))
            .collect::<Vec<_>>();
        let angles = Tensor::from_vec(angles, (self.positions.len(), half), &Device::Cpu)?;
        self.of_rope.push((rope, (angles.cos()?, angles.sin()?)));
        Ok(&self.of_rope[self.of_rope.len() - 1].1)
    }
}

struct Loader<'a> {
    file: &'a mut Gguf,
    weights: Weights,
}

impl Loader<'_> {
    fn layer(&mut self, config: &ModelConfig, i: usize) -> Result<Layer> {
        let (width, inner) = (config.width, config.inner);
        let (q_width, kv_width) = (config.query_heads * config.dim, config.kv_width());
        let name = |part: &str| format!("blk.{i}.{part}");
        // The files of Llama have each pair of numbers that is rotated side by side, all others
        // have the halves of a head.
        let pairs = (config.family == Family::Llama).then_some(config.dim);
        Ok(Layer {
            attention_norm: self.vector(&name("attn_norm"), width)?,
            query: self.linear(&name("attn_q"), q_width, width, pairs)?,
            key: self.linear(&name("attn_k"), kv_width, width, pairs)?,
            value: self.linear(&name("attn_v"), kv_width, width, None)?,
            query_norm: self.optional(&name("attn_q_norm"), config.dim)?,
            key_norm: self.optional(&name("attn_k_norm"), config.dim)?,
            output: self.linear(&name("attn_output"), width, q_width, None)?,
            after_attention: self.optional(&name("post_attention_norm"), width)?,
            feed_norm: self.vector(&name("ffn_norm"), width)?,
            gate: self.linear(&name("ffn_gate"), inner, width, None)?,
            up: self.linear(&name("ffn_up"), inner, width, None)?,
            down: self.linear(&name("ffn_down"), width, inner, None)?,
            after_feed: self.optional(&name("post_ffw_norm"), width)?,
        })
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Tensor> {
        self.file.tensor(&format!("{name}.weight"), &[length])?.dequantize(&Device::Cpu)
    }

    fn optional(&mut self, name: &str, length: usize) -> Result<Option<Tensor>> {
        let there = self.file.has(&format!("{name}.weight"));
        there.then(|| self.vector(name, length)).transpose()
    }

    fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Result<Weight> {
        let tensor = self.file.tensor(&format!("{name}.weight"), &[rows, columns])?;
        Weight::new(tensor, self.weights)
    }

    fn linear(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
        pairs: Option<usize>,
    ) -> Result<Linear> {
        let tensor = self.file.tensor(&format!("{name}.weight"), &[rows, columns])?;
        let bias_name = format!("{name}.bias");
        let bias = match self.file.has(&bias_name) {
            true => Some(self.file.tensor(&bias_name, &[rows])?),
            false => None,
        };
        let order = |tensor| match pairs {
            Some(dim) => halves_of_pairs(tensor, dim),
            None => Ok(tensor),
        };
        Ok(Linear {
            weight: Weight::new(order(tensor)?, self.weights)?,
            bias: bias.map(|bias| order(bias)?.dequantize(&Device::Cpu)).transpose()?,
        })
    }
}

/// Rows 0, 2, 4, ... of each head, then rows 1, 3, 5, ... of it, for any type of numbers.
fn halves_of_pairs(tensor: QTensor, dim: usize) -> Result<QTensor> {
    let (shape, bytes) = (tensor.shape().clone(), tensor.data()?);
    let row = bytes.len() / shape.dims()[0];
    if tensor.dtype().block_size() > 1 && shape.rank() < 2 {
        bail!("a vector of the type {:?} cannot be put into another order", tensor.dtype())
    }
    let of_head = |head: &[u8]| -> Vec<u8> {
        let rows = (0..dim).step_by(2).chain((1..dim).step_by(2));
        rows.flat_map(|i| head[i * row..(i + 1) * row].to_vec()).collect()
    };
    let ordered: Vec<u8> = bytes.chunks(dim * row).flat_map(of_head).collect();
    let storage = QStorage::from_data(Cow::Owned(ordered), &Device::Cpu, tensor.dtype())?;
    QTensor::new(storage, shape)
}
