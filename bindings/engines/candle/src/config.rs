//! The shape of a model: see [`ModelConfig`].
use crate::gguf::Gguf;
use candle_core::{bail, Result};

/// The families of models that differ in the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama, and models of the same shape: SmolLM2, TinyLlama, Mistral.
    Llama,
    /// Qwen2: biases of queries, keys and values.
    Qwen2,
    /// Qwen3: norms of queries and keys.
    Qwen3,
    /// Gemma 3: norms of queries and keys and around each part of a layer, windows, two rope bases.
    Gemma3,
}

impl Family {
    const ALL: [(&'static str, Self); 4] = [
        ("llama", Self::Llama),
        ("qwen2", Self::Qwen2),
        ("qwen3", Self::Qwen3),
        ("gemma3", Self::Gemma3),
    ];
}

/// Rotary position embeddings of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// The base of the frequencies.
    pub base: f32,
    /// Positions are divided by this factor.
    pub factor: f32,
}

/// The shape of a model, from its file.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// The family of the model.
    pub family: Family,
    /// The model's name, if it has one.
    pub name: String,
    /// Layers.
    pub layers: usize,
    /// Width of the rows between layers.
    pub width: usize,
    /// Width inside the feed-forward part.
    pub inner: usize,
    /// Query heads.
    pub query_heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Head dim.
    pub dim: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// The longest text the model was trained for.
    pub context: usize,
    /// Added to variances in norms.
    pub epsilon: f32,
    /// Factor of the scores of attention.
    pub scale: f32,
    /// Window of each layer; 0: full attention.
    pub windows: Vec<u32>,
    /// Rope of each layer.
    pub ropes: Vec<Rope>,
}

impl ModelConfig {
    /// Reads the shape; an error names the feature that is not supported.
    pub fn read(file: &Gguf) -> Result<Self> {
        const ARCHITECTURE: &str = "general.architecture";
        let architecture = file.needed(ARCHITECTURE, file.text(ARCHITECTURE)?)?.to_string();
        let known = Family::ALL.iter().find(|(name, _)| *name == architecture);
        let Some(&(_, family)) = known else {
            let names: Vec<_> = Family::ALL.iter().map(|(name, _)| *name).collect();
            let (path, names) = (file.path().display(), names.join(", "));
            bail!("{path} is a model of the family {architecture:?}; supported are {names}")
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let needed = |name: &str| match file.needed(&key(name), file.count(&key(name))?)? {
            0 => bail!("{}: {} is 0", file.path().display(), key(name)),
            number => Ok(number),
        };
        let layers = needed("block_count")?;
        let last = format!("blk.{}.attn_norm.weight", layers - 1);
        if !file.has(&last) {
            bail!("{} has {layers} layers and no tensor {last}", file.path().display())
        }
        let (width, query_heads) = (needed("embedding_length")?, needed("attention.head_count")?);
        let kv_heads = file.count(&key("attention.head_count_kv"))?.unwrap_or(query_heads);
        if kv_heads == 0 || query_heads % kv_heads != 0 {
            bail!("{query_heads} query heads are not a multiple of {kv_heads} KV heads")
        }
        let dim = file.count(&key("attention.key_length"))?.unwrap_or(width / query_heads);
        let value_dim = file.count(&key("attention.value_length"))?.unwrap_or(dim);
        let rotated = file.count(&key("rope.dimension_count"))?.unwrap_or(dim);
        if dim == 0 || dim % 2 != 0 {
            bail!("{}: the head dim is {dim}; it must be even", file.path().display())
        }
        if value_dim != dim || rotated != dim {
            bail!("keys of {dim}, values of {value_dim}, {rotated} rotated: only equal ones work")
        }
        if file.count(&key("expert_count"))?.unwrap_or(0) > 0 {
            bail!("{} is a mixture of experts, which is not supported", file.path().display())
        }
        let (windows, ropes) = layers_of(file, family, &architecture, layers)?;
        let epsilon_key = key("attention.layer_norm_rms_epsilon");
        Ok(Self {
            family,
            name: file.text("general.name")?.unwrap_or(&architecture).to_string(),
            layers,
            width,
            inner: needed("feed_forward_length")?,
            query_heads,
            kv_heads,
            dim,
            vocabulary: file.needed("token_embd.weight", file.rows("token_embd.weight"))?,
            context: needed("context_length")?,
            epsilon: file.needed(&epsilon_key, file.real(&epsilon_key)?)?,
            scale: scale(family, layers, width, query_heads, dim),
            windows,
            ropes,
        })
    }

    /// The elements of the keys, or values, of one token in one layer.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.dim
    }
}

/// The largest Gemma 3 (62 layers) scales by the width per head, all other models by the head dim.
fn scale(family: Family, layers: usize, width: usize, heads: usize, dim: usize) -> f32 {
    let per_head = family == Family::Gemma3 && layers == 62;
    ((if per_head { width / heads } else { dim }) as f32).powf(-0.5)
}

/// Windows and ropes. In Gemma 3 every sixth layer has full attention and the model's rope; the
/// others have the window and another rope.
fn layers_of(
    file: &Gguf,
    family: Family,
    architecture: &str,
    layers: usize,
) -> Result<(Vec<u32>, Vec<Rope>)> {
    let key = |name: &str| format!("{architecture}.{name}");
    let base = file.real(&key("rope.freq_base"))?.unwrap_or(10_000.0);
    let kind = file.text(&key("rope.scaling.type"))?.unwrap_or("none").to_string();
    let factor = match kind.as_str() {
        "none" => 1.0,
        "linear" => file.real(&key("rope.scaling.factor"))?.unwrap_or(1.0),
        other => bail!("rope scaling {other:?} is not supported, only \"linear\""),
    };
    let full = Rope { base, factor };
    if family != Family::Gemma3 {
        return Ok((vec![0; layers], vec![full; layers]));
    }
    let window_key = key("attention.sliding_window");
    let window = file.needed(&window_key, file.number(&window_key)?)?;
    let pattern = file.count(&key("attention.sliding_window_pattern"))?.unwrap_or(6).max(1);
    let local =
        Rope { base: file.real(&key("rope.freq_base_swa"))?.unwrap_or(10_000.0), factor: 1.0 };
    let is_full = |layer: usize| layer % pattern == pattern - 1;
    Ok((0..layers).map(|l| if is_full(l) { (0, full) } else { (window, local) }).unzip())
}
