//! Keys and values in candle's tensors `[block][...]`, which may be on a device. pagedkv keeps the
//! block tables, and moves blocks to a store and back by [`Hooks`]; nothing else here knows about
//! the store.
use candle_core::{Device, Error, Result, Tensor};
use candle_nn::ops::softmax_last_dim;
use pagedkv::{
    Batch, BlockIo, Cache, CacheConfig, IndexUnit, LayerGroup, PrefixConfig, Salt, Session, Status,
    Storage, StoreConfig,
};
use pagedkv_candle::{Begun, Kv, ModelConfig, Step};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const BLOCK: usize = 16;

/// Layers with the same window.
struct Group {
    window: usize,
    layers: Vec<usize>,
    /// `[block * layer * (K or V) * token][KV head * dim]`: rows by which slots are read and set.
    rows: Tensor,
}

impl Group {
    /// The rows of the keys (0) or values (1) of slots.
    fn rows_of(&self, layer: usize, part: usize, slots: &[i64]) -> Vec<u32> {
        let layer = self.layers.iter().position(|known| *known == layer).unwrap();
        let row = |slot: usize| {
            ((slot / BLOCK * self.layers.len() + layer) * 2 + part) * BLOCK + slot % BLOCK
        };
        slots.iter().map(|&slot| row(slot as usize) as u32).collect()
    }

    /// The same memory as `[block][numbers of a block]`.
    fn blocks(&self) -> Result<Tensor> {
        let numbers = self.layers.len() * 2 * BLOCK * self.rows.dim(1)?;
        self.rows.reshape(((), numbers))
    }

    fn select(tensor: &Tensor, ids: &[u32]) -> Result<Tensor> {
        tensor.index_select(&Tensor::new(ids, tensor.device())?, 0)
    }

    fn copy(&self, from: u32, to: u32) -> Result<()> {
        let blocks = self.blocks()?;
        blocks.slice_set(&Self::select(&blocks, &[from])?, 0, to as usize)
    }
}

/// Copies blocks between the tensors and memory, on threads of the cache.
struct Hooks {
    groups: Arc<Vec<Group>>,
    fetched: Arc<AtomicUsize>,
}

const NUMBER: usize = std::mem::size_of::<f32>();

impl BlockIo for Hooks {
    fn read(&self, group: u32, blocks: &[u32], tokens: &[u32], to: &mut [u8]) -> io::Result<()> {
        let group = &self.groups[group as usize];
        let read = || Group::select(&group.blocks()?, blocks)?.to_vec2::<f32>();
        let numbers = read().map_err(io::Error::other)?;
        let width = group.rows.dim(1).map_err(io::Error::other)?;
        let to_blocks = to.chunks_exact_mut(to.len() / blocks.len());
        for ((block, &count), to) in numbers.iter().zip(tokens).zip(to_blocks) {
            let rows = block.chunks_exact(width).zip(to.chunks_exact_mut(width * NUMBER));
            // Other slots may be those of other texts.
            let held = rows.enumerate().filter(|(row, _)| row % BLOCK < count as usize);
            for (number, to) in held.flat_map(|(_, (r, to))| r.iter().zip(to.chunks_mut(NUMBER))) {
                to.copy_from_slice(&number.to_ne_bytes());
            }
        }
        Ok(())
    }

    fn write(&self, group: u32, blocks: &[u32], from: &[u8]) -> io::Result<()> {
        let numbers = from.chunks_exact(NUMBER).map(|n| f32::from_ne_bytes(n.try_into().unwrap()));
        let write = || {
            let ours = self.groups[group as usize].blocks()?;
            let new = Tensor::from_iter(numbers, ours.device())?.reshape((blocks.len(), ()))?;
            let set = |(i, &block): (usize, &u32)| {
                ours.slice_set(&new.narrow(0, i, 1)?, 0, block as usize)
            };
            blocks.iter().enumerate().try_for_each(set)
        };
        self.fetched.fetch_add(blocks.len(), Ordering::Relaxed);
        write().map_err(io::Error::other)
    }
}

/// Keys and values of many texts in candle's tensors.
pub struct Elsewhere {
    pub cache: Cache,
    model: ModelConfig,
    groups: Arc<Vec<Group>>,
    tokens: usize,
    /// Blocks that came back from the store.
    pub fetched: Arc<AtomicUsize>,
}

impl Elsewhere {
    pub fn new(model: &ModelConfig, blocks: usize, store: Option<StoreConfig>) -> Result<Self> {
        let mut windows = model.windows.clone();
        windows.sort_unstable();
        windows.dedup();
        let group = |window: u32| {
            let layers = (0..model.layers).filter(|&i| model.windows[i] == window);
            let layers: Vec<usize> = layers.collect();
            let shape = (blocks * layers.len() * 2 * BLOCK, model.kv_width());
            let rows = Tensor::zeros(shape, candle_core::DType::F32, &Device::Cpu)?;
            Ok(Group { window: window as usize, layers, rows })
        };
        let groups = Arc::new(windows.into_iter().map(group).collect::<Result<Vec<_>>>()?);
        let layer_group = |group: &Group| {
            let layers = group.layers.len();
            let bytes = 2 * BLOCK * model.kv_width() * NUMBER;
            let group_of_layers = LayerGroup::opaque_kv(layers as u32, bytes as u64);
            group_of_layers.window(group.window as u32).blocks(blocks as u64)
        };
        let fetched = Arc::new(AtomicUsize::new(0));
        let mut config = CacheConfig::with_groups(groups.iter().map(layer_group))
            .storage(Storage::EXTERNAL)
            .block_size(BLOCK as u32)
            .prefix(PrefixConfig::new())
            .block_io(Hooks { groups: groups.clone(), fetched: fetched.clone() });
        if let Some(store) = store {
            config = config.store(store);
        }
        let cache = Cache::new(&config).map_err(Error::wrap)?;
        Ok(Self { cache, model: model.clone(), groups, tokens: blocks * BLOCK, fetched })
    }
}

fn ids(tokens: &[u32]) -> Vec<i32> {
    tokens.iter().map(|&token| token as i32).collect()
}

impl Kv for Elsewhere {
    type Sequence = Session;
    type Step<'s> = ElsewhereStep<'s>;

    fn open(&self, tokens: &[u32]) -> Result<(Session, usize)> {
        let mut session = self.cache.open_session().map_err(Error::wrap)?;
        let matched = session.admit(&ids(&tokens[..tokens.len() - 1]), 0);
        Ok((session, matched.map_err(Error::wrap)? as usize))
    }

    fn trim(&self, session: &mut Session, length: usize) -> Result<usize> {
        session.trim(length as u64).map_err(Error::wrap)?;
        Ok(length)
    }

    fn begin<'s>(
        &'s self,
        sequences: Vec<(&'s mut Session, usize)>,
    ) -> Result<Begun<ElsewhereStep<'s>>> {
        let length = |(session, n): &(&mut Session, usize)| Ok((session.length()? as usize, *n));
        let lengths = sequences.iter().map(length).collect::<pagedkv::Result<_>>();
        let lengths: Vec<(usize, usize)> = lengths.map_err(Error::wrap)?;
        let batch = match self.cache.begin(sequences.into_iter().map(|(s, n)| (s, n as u32))) {
            Ok(batch) => batch,
            Err(error) if error.status() == Status::OUT_OF_BLOCKS => {
                return Ok(Begun::NoRoom(Error::wrap(error)))
            }
            Err(error) => return Err(Error::wrap(error)),
        };
        for (number, group) in (0..).zip(self.groups.iter()) {
            let copies = batch.block_copies(number).map_err(Error::wrap)?;
            copies.into_iter().try_for_each(|(from, to)| group.copy(from, to))?;
        }
        Ok(Begun::Step(ElsewhereStep { kv: self, batch, lengths }))
    }

    fn longest(&self) -> usize {
        self.tokens
    }

    fn cached(&self, tokens: &[u32]) -> Result<usize> {
        Ok(self.cache.prefix().probe(Salt::None, &ids(tokens)).map_err(Error::wrap)? as usize)
    }

    fn shares(&self) -> bool {
        true
    }

    fn peak_bytes(&self) -> Result<u64> {
        Ok(self.groups.iter().map(|group| (group.rows.elem_count() * NUMBER) as u64).sum())
    }
}

pub struct ElsewhereStep<'s> {
    kv: &'s Elsewhere,
    batch: Batch<'s>,
    /// Of each sequence, before the step, with the number of its new tokens.
    lengths: Vec<(usize, usize)>,
}

impl Step for ElsewhereStep<'_> {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let of_layer = |group: &Group| group.layers.contains(&layer);
        let number = self.kv.groups.iter().position(of_layer).unwrap();
        let group = &self.kv.groups[number];
        let new = self.batch.slot_mapping(number as u32).map_err(Error::wrap)?;
        for (part, tensor) in [k, v].into_iter().enumerate() {
            let tensor = tensor.reshape((new.len(), self.kv.model.kv_width()))?.contiguous()?;
            for (i, row) in group.rows_of(layer, part, &new).into_iter().enumerate() {
                group.rows.slice_set(&tensor.narrow(0, i, 1)?, 0, row as usize)?;
            }
        }
        let read = self.batch.kv_indices(number as u32, IndexUnit::SLOTS).map_err(Error::wrap)?;
        let mut outputs = Vec::new();
        let mut first = 0;
        for (i, &(length, rows)) in self.lengths.iter().enumerate() {
            let slots = &read.indices[read.indptr[i] as usize..read.indptr[i + 1] as usize];
            let slots: Vec<i64> = slots.iter().map(|&slot| slot as i64).collect();
            let [k, v] =
                [0, 1].map(|part| Group::select(&group.rows, &group.rows_of(layer, part, &slots)));
            let begin = length + rows - slots.len(); // the position of the first slot
            let mask = mask(begin..length + rows, length, group.window)?;
            outputs.push(self.kv.attention(&q.narrow(0, first, rows)?, &k?, &v?, &mask)?);
            first += rows;
        }
        Tensor::cat(&outputs, 0)
    }

    fn commit(self, tokens: &[u32]) -> Result<()> {
        self.batch.commit(&ids(tokens)).map_err(Error::wrap)
    }
}

/// `[rows][positions]` for the rows from position `first_row` to the last one.
fn mask(positions: std::ops::Range<usize>, first_row: usize, window: usize) -> Result<Tensor> {
    let hidden = |row, at| at > row || (window > 0 && at + window <= row);
    let number = |row, at| if hidden(row, at) { f32::NEG_INFINITY } else { 0.0 };
    let rows = first_row..positions.end;
    let shape = (rows.len(), positions.len());
    let numbers = rows.flat_map(|row| positions.clone().map(move |at| number(row, at)));
    Tensor::from_iter(numbers, &Device::Cpu)?.reshape(shape)
}

impl Elsewhere {
    /// Attention of `[rows][heads][dim]` over keys and values `[tokens][KV heads * dim]`.
    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (heads, kv_heads, dim) = (self.model.query_heads, self.model.kv_heads, self.model.dim);
        let (rows, tokens) = mask.dims2()?;
        // Query heads of one KV head share its keys: [KV head][tokens][dim] -> [head][tokens][dim].
        let of_heads = |t: &Tensor| {
            let t = t.reshape((tokens, kv_heads, 1, dim))?;
            let t = t.broadcast_as((tokens, kv_heads, heads / kv_heads, dim))?;
            t.reshape((tokens, heads, dim))?.transpose(0, 1)?.contiguous()
        };
        let q = (q.transpose(0, 1)?.contiguous()? * f64::from(self.model.scale))?;
        let scores = q.matmul(&of_heads(k)?.transpose(1, 2)?)?.broadcast_add(mask)?;
        let out = softmax_last_dim(&scores)?.matmul(&of_heads(v)?)?;
        out.transpose(0, 1)?.reshape((rows, heads * dim))
    }
}
