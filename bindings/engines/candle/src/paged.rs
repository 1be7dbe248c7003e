//! Keys and values in a cache of pagedkv: see [`Paged`].
use crate::config::ModelConfig;
use crate::kv::{Begun, Kv, Step};
use candle_core::utils::barrier_pool;
use candle_core::{bail, CpuStorage, Device, Error, Result, Storage, Tensor};
use pagedkv::{
    AttentionParams, Batch, Cache, CacheConfig, Dtype, LayerGroup, PrefixConfig, Rows, Salt,
    Session, Status, StoreConfig, Tasks,
};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keys and values in blocks, which are shared by texts with the same beginning.
#[derive(Debug)]
pub struct Paged {
    cache: Cache,
    /// Bytes of a block of each group.
    block_bytes: Vec<u64>,
    query_heads: usize,
    dim: usize,
    longest: usize,
    params: AttentionParams<'static>,
}

/// The configuration of a [`Paged`].
#[derive(Clone, Debug)]
pub struct PagedConfig {
    /// The capacity in tokens of all sequences.
    pub tokens: usize,
    /// The most sequences at once: each may leave a part of a block empty.
    pub sequences: usize,
    /// How keys and values are stored.
    pub dtype: Dtype,
    /// Where prefixes are stored outside of memory.
    pub store: Option<StoreConfig>,
}

const BLOCK: usize = 16;

impl Paged {
    /// Creates a cache for a model. Memory is touched when it is first used.
    pub fn new(model: &ModelConfig, config: &PagedConfig) -> Result<Self> {
        let blocks = config.tokens.div_ceil(BLOCK).saturating_add(config.sequences);
        let every_token_stays = model.windows.contains(&0);
        let groups = groups(model, config.dtype, blocks as u64);
        let count = groups.len() as u32;
        let mut raw = CacheConfig::with_groups(groups)
            .block_size(BLOCK as u32)
            .prefix(PrefixConfig::new())
            .runner(barrier_pool().n_workers() as u32 + 1, run);
        if let Some(store) = &config.store {
            raw = raw.store(store.clone());
        }
        let block_bytes = |group| Ok(raw.sizes_of(group)?.bytes_per_token * BLOCK as u64);
        Ok(Self {
            cache: Cache::new(&raw).map_err(Error::wrap)?,
            block_bytes: (0..count)
                .map(block_bytes)
                .collect::<pagedkv::Result<_>>()
                .map_err(Error::wrap)?,
            query_heads: model.query_heads,
            dim: model.dim,
            longest: if every_token_stays { blocks.saturating_mul(BLOCK) } else { usize::MAX },
            params: AttentionParams::new().scale(model.scale),
        })
    }

    /// The cache, for its statistics and files.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}

/// Layers with the same window are a group.
fn groups(model: &ModelConfig, dtype: Dtype, blocks: u64) -> Vec<LayerGroup> {
    let mut windows = model.windows.clone();
    windows.sort_unstable();
    windows.dedup();
    let group = |window: u32| {
        let layers = (0..).zip(&model.windows).filter(|(_, of_layer)| **of_layer == window);
        let layers: Vec<u32> = layers.map(|(layer, _)| layer).collect();
        let (heads, kv_heads) = (model.query_heads as u32, model.kv_heads as u32);
        LayerGroup::new(layers.len() as u32, heads, kv_heads, model.dim as u32)
            .layer_indices(layers)
            .window(window)
            .dtype(dtype)
            .blocks(blocks)
    };
    windows.into_iter().map(group).collect()
}

/// Runs attention on the threads of candle's matmuls. They spin for a while after each product, and
/// other threads would have to wait for them.
fn run(tasks: &Tasks<'_>) {
    let next = AtomicUsize::new(0);
    barrier_pool().execute(|worker| loop {
        match next.fetch_add(1, Ordering::Relaxed) {
            task if task < tasks.count() => tasks.run(task, worker as u32),
            _ => break,
        }
    });
}

fn ids(tokens: &[u32]) -> Vec<i32> {
    tokens.iter().map(|&token| token as i32).collect()
}

impl Kv for Paged {
    type Sequence = Session;
    type Step<'s> = PagedStep<'s>;

    fn open(&self, tokens: &[u32]) -> Result<(Session, usize)> {
        let mut session = self.cache.open_session().map_err(Error::wrap)?;
        let matchable = &tokens[..tokens.len().saturating_sub(1)];
        let cached = session.admit(&ids(matchable), 0).map_err(Error::wrap)?;
        Ok((session, cached as usize))
    }

    fn trim(&self, session: &mut Session, length: usize) -> Result<usize> {
        // Blocks that left the window of a layer are freed, so such a sequence starts again.
        if session.trim(length as u64).is_ok() {
            return Ok(length);
        }
        session.trim(0).map_err(Error::wrap)?;
        Ok(0)
    }

    fn begin<'s>(
        &'s self,
        sequences: Vec<(&'s mut Session, usize)>,
    ) -> Result<Begun<PagedStep<'s>>> {
        let new = sequences.into_iter().map(|(session, n)| (session, n as u32));
        match self.cache.begin(new) {
            Ok(batch) => Ok(Begun::Step(PagedStep { kv: self, batch })),
            Err(error) => match error.status() {
                Status::OUT_OF_BLOCKS | Status::BATCH_TOO_LARGE => {
                    Ok(Begun::NoRoom(Error::wrap(error)))
                }
                _ => Err(Error::wrap(error)),
            },
        }
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn cached(&self, tokens: &[u32]) -> Result<usize> {
        Ok(self.cache.prefix().probe(Salt::None, &ids(tokens)).map_err(Error::wrap)? as usize)
    }

    fn shares(&self) -> bool {
        true
    }

    fn peak_bytes(&self) -> Result<u64> {
        let of_group = |(group, block): (u32, &u64)| {
            Ok(self.cache.pool_stats_of(group).map_err(Error::wrap)?.held_blocks_peak * block)
        };
        (0..).zip(&self.block_bytes).map(of_group).sum()
    }
}

/// A batch of pagedkv over candle's tensors, without copies.
#[derive(Debug)]
pub struct PagedStep<'s> {
    kv: &'s Paged,
    batch: Batch<'s>,
}

impl Step for PagedStep<'_> {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (rows, width) = (self.batch.rows(), self.kv.query_heads * self.kv.dim);
        let mut out = vec![0f32; rows * width];
        let layer = layer as u32;
        with_rows(k, |k| with_rows(v, |v| self.batch.write(layer, k, v).map_err(Error::wrap)))?;
        let params = &self.kv.params;
        with_rows(q, |q| {
            self.batch.attend_with(layer, params, q, &mut out, None).map_err(Error::wrap)
        })?;
        Tensor::from_vec(out, (rows, width), &Device::Cpu)
    }

    fn commit(self, tokens: &[u32]) -> Result<()> {
        self.batch.commit(&ids(tokens)).map_err(Error::wrap)
    }
}

/// Calls `use_them` with the numbers of a tensor `[rows][heads][dim]`, without a copy if the dims
/// of a head are contiguous and nothing is broadcast: a stride of 0 means dense rows to pagedkv.
fn with_rows<T>(tensor: &Tensor, use_them: impl FnOnce(Rows<'_>) -> Result<T>) -> Result<T> {
    let (dims, strides) = (tensor.dims(), tensor.stride());
    let broadcast = (0..2).any(|axis| dims[axis] > 1 && strides[axis] == 0);
    let usable = strides[2] == 1 && !broadcast;
    let tensor = if usable { tensor.clone() } else { tensor.contiguous()? };
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(CpuStorage::F32(numbers)) = &*storage else {
        bail!("pagedkv reads f32 in the memory of the CPU, this is {:?}", tensor.dtype())
    };
    let (row, head) = (layout.stride()[0], layout.stride()[1]);
    use_them(Rows::strided(&numbers[layout.start_offset()..], row, head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagedkv::{CacheConfig, LayerGroup};

    #[test]
    fn broadcast_tensors_are_written_as_they_are() -> Result<()> {
        const SHAPE: (usize, usize, usize) = (3, 2, 16);
        let numbers = (0..3 * 2 * 16).map(|i| i as f32).collect::<Vec<_>>();
        let whole = Tensor::from_vec(numbers, SHAPE, &Device::Cpu)?;
        for part in [
            whole.clone(),
            whole.narrow(0, 0, 1)?,
            whole.narrow(1, 1, 1)?,
            whole.narrow(0, 0, 1)?.narrow(1, 0, 1)?,
            whole.narrow(2, 0, 1)?,
        ] {
            let tensor = part.broadcast_as(SHAPE)?;
            let config = CacheConfig::new(LayerGroup::new(1, 2, 2, 16).blocks(1));
            let cache = pagedkv::Cache::new(&config).map_err(Error::wrap)?;
            let mut session = cache.open_session().map_err(Error::wrap)?;
            let mut batch = cache.begin([(&mut session, 3)]).map_err(Error::wrap)?;
            with_rows(&tensor, |rows| batch.write(0, rows, rows).map_err(Error::wrap))?;
            batch.commit(None).map_err(Error::wrap)?;
            let (mut k, mut v) = ([0f32; 96], [0f32; 96]);
            session.read(0, 0..3, &mut k, &mut v).map_err(Error::wrap)?;
            let expected = tensor.contiguous()?.flatten_all()?.to_vec1::<f32>()?;
            assert_eq!((&k[..], &v[..]), (&expected[..], &expected[..]), "{:?}", part.layout());
        }
        Ok(())
    }
}
