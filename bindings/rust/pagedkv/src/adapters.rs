//! A cache behind a small trait, as engines define it: fill with a prompt, push a row, read all
//! rows back, length, snapshot. The engine computes attention itself and chooses the kind of memory
//! at run time.
//!
//! ```
//! use pagedkv::adapters::{KvMemory, Kind};
//!
//! for kind in ["basic", "paged"] {
//!     // Layers, KV heads, head dim, blocks.
//!     let memory = KvMemory::new(kind.parse()?, 2, 1, 16, 64)?;
//!     let mut cache = memory.open()?;
//!     for layer in 0..2 {
//!         cache.set_prefill(layer, &[0.5; 3 * 16], &[0.25; 3 * 16])?;
//!     }
//!     let frozen = cache.snapshot()?;
//!     for layer in 0..2 {
//!         cache.push(layer, &[1.5; 16], &[1.25; 16])?;
//!     }
//!     assert_eq!((cache.seq_len()?, frozen.seq_len()?), (4, 3));
//!     let (k, v) = cache.materialize(1)?;
//!     assert_eq!((k[2 * 16], k[3 * 16], v[3 * 16]), (0.5, 1.5, 1.25));
//! }
//! # Ok::<(), pagedkv::Error>(())
//! ```
use crate::{Batch, Cache, CacheConfig, Error, LayerGroup, Result, Session, Storage};
use std::fmt;
use std::str::FromStr;

/// Keys and values of one sequence, rows of `kv_heads * head_dim` numbers.
pub trait KvCache: Send {
    /// Replaces the rows of a layer with those of a prompt. Every layer gets the same number.
    fn set_prefill(&mut self, layer: u32, keys: &[f32], values: &[f32]) -> Result<()>;

    /// Appends one row to a layer. Every layer gets one before any layer gets the next.
    fn push(&mut self, layer: u32, key: &[f32], value: &[f32]) -> Result<()>;

    /// Returns all rows of a layer, dense, including a token that other layers do not have yet.
    fn materialize(&self, layer: u32) -> Result<(Vec<f32>, Vec<f32>)>;

    /// Returns the number of tokens that every layer has.
    fn seq_len(&self) -> Result<usize>;

    /// Returns an independent cache with the same rows.
    fn snapshot(&self) -> Result<Box<dyn KvCache>>;
}

/// How rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One growing tensor per sequence and layer; a snapshot copies.
    Basic,
    /// Blocks that sequences share until one of them writes.
    Paged,
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "basic" => Ok(Self::Basic),
            "paged" => Ok(Self::Paged),
            _ => Err(Error::misuse(format!("the kind of a cache is basic or paged, not '{text}'"))),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Basic => "basic",
            Self::Paged => "paged",
        })
    }
}

/// Memory for the caches of a model's sequences.
#[derive(Clone, Debug)]
pub struct KvMemory {
    cache: Cache,
    layers: usize,
    width: usize,
}

impl KvMemory {
    /// For `blocks` blocks of 16 tokens.
    pub fn new(kind: Kind, layers: u32, kv_heads: u32, head_dim: u32, blocks: u64) -> Result<Self> {
        let storage = match kind {
            Kind::Basic => Storage::CONTIGUOUS,
            Kind::Paged => Storage::PAGED,
        };
        let group = LayerGroup::new(layers, kv_heads, kv_heads, head_dim);
        let cache = Cache::new(&CacheConfig::new(group).storage(storage).blocks(blocks))?;
        let (layers, width) = (layers as usize, kv_heads as usize * head_dim as usize);
        Ok(Self { cache, layers, width })
    }

    /// An empty cache for one sequence.
    pub fn open(&self) -> Result<Box<dyn KvCache>> {
        Ok(Box::new(Sequence {
            session: self.cache.open_session()?,
            width: self.width,
            next: vec![Default::default(); self.layers],
        }))
    }
}

struct Sequence {
    session: Session,
    width: usize,
    /// The keys and values of the next tokens, in the layers that have them.
    next: Vec<(Vec<f32>, Vec<f32>)>,
}

impl Sequence {
    /// Takes the next rows of a layer. Those of the last layer complete a step of the session.
    fn add(&mut self, layer: u32, keys: &[f32], values: &[f32]) -> Result<()> {
        let layers = self.next.len();
        let next = self
            .next
            .get_mut(layer as usize)
            .ok_or_else(|| Error::misuse(format!("layer {layer} of a cache that has {layers}")))?;
        *next = (keys.to_vec(), values.to_vec());
        if self.next.iter().any(|(keys, _)| keys.is_empty()) {
            return Ok(());
        }
        let cache = self.session.cache.clone();
        let rows = (keys.len() / self.width) as u32;
        let mut batch = Batch::begin(&cache, [(&mut self.session, rows)])?;
        for (layer, (keys, values)) in (0..).zip(&self.next) {
            batch.write(layer, keys, values)?;
        }
        batch.commit(None)?;
        self.next.fill(Default::default());
        Ok(())
    }
}

impl KvCache for Sequence {
    fn set_prefill(&mut self, layer: u32, keys: &[f32], values: &[f32]) -> Result<()> {
        // The first layer of a prompt removes the rows of all layers.
        if self.session.length()? > 0 {
            self.session.trim(0)?;
            self.next.fill(Default::default());
        }
        self.add(layer, keys, values)
    }

    fn push(&mut self, layer: u32, key: &[f32], value: &[f32]) -> Result<()> {
        self.add(layer, key, value)
    }

    fn materialize(&self, layer: u32) -> Result<(Vec<f32>, Vec<f32>)> {
        let rows = self.session.layer_length(layer)?;
        let (mut keys, mut values) =
            (vec![0.0; rows as usize * self.width], vec![0.0; rows as usize * self.width]);
        self.session.read(layer, 0..rows, &mut keys, &mut values)?;
        keys.extend(&self.next[layer as usize].0);
        values.extend(&self.next[layer as usize].1);
        Ok((keys, values))
    }

    fn seq_len(&self) -> Result<usize> {
        Ok(self.session.length()? as usize)
    }

    fn snapshot(&self) -> Result<Box<dyn KvCache>> {
        let (session, next) = (self.session.fork()?, self.next.clone());
        Ok(Box::new(Self { session, width: self.width, next }))
    }
}
