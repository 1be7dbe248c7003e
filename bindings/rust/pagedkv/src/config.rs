//! The configuration of a cache: layers, memory, threads.
use crate::error::{ensure_library, Error, Result};
use crate::hooks::{Allocator, BlockHooks, BlockIo, Clock, Hooks, LogLevel, Logger, Runner, Tasks};
use crate::paths::path_of_c;
use crate::rows::{BatchRows, Dtype, Rows, RowsMut};
use crate::store::StoreConfig;
use crate::structs::{address, filled, setters, Numbers};
use crate::sys;
use std::alloc::GlobalAlloc;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[doc(inline)]
pub use crate::sys::{
    pkv_cache_sizes as CacheSizes, pkv_eviction as Eviction, pkv_huge_pages as HugePages,
    pkv_isa as Isa, pkv_layer_kind as LayerKind, pkv_layout as Layout, pkv_rotation as Rotation,
    pkv_storage as Storage,
};

/// Layers of the same shape.
#[derive(Clone, Debug)]
pub struct LayerGroup {
    c: Numbers<sys::pkv_layer_group>,
    indices: Option<Vec<u32>>,
    key_rotation: Option<Vec<f32>>,
    value_rotation: Option<Vec<f32>>,
}

impl LayerGroup {
    /// Layers with full attention, stored as `f32`, with values as wide as keys. `query_heads` must
    /// be a multiple of `kv_heads`, and `key_dim` a multiple of 16 from 16 to 576.
    pub fn new(layers: u32, query_heads: u32, kv_heads: u32, key_dim: u32) -> Self {
        let numbers =
            sys::pkv_layer_group { layers, query_heads, kv_heads, key_dim, ..Default::default() };
        Self { c: Numbers(numbers), indices: None, key_rotation: None, value_rotation: None }
    }

    /// Layers that keep a state of this many bytes each, instead of keys and values (linear
    /// attention, state spaces, short convolutions): see [`Batch::states`](crate::Batch::states).
    /// They have no heads, dims, types, window or sinks.
    pub fn states(layers: u32, layer_bytes: u64) -> Self {
        Self::of_kind(LayerKind::STATES, layers, layer_bytes)
    }

    /// Layers whose keys and values only the engine can read, for example on a device. Each layer
    /// has this many bytes in a block. They have no heads, dims, types or rotation.
    pub fn opaque_kv(layers: u32, layer_bytes: u64) -> Self {
        Self::of_kind(LayerKind::OPAQUE_KV, layers, layer_bytes)
    }

    /// Layers with states that only the engine can read.
    pub fn opaque_states(layers: u32, layer_bytes: u64) -> Self {
        Self::of_kind(LayerKind::OPAQUE_STATES, layers, layer_bytes)
    }

    fn of_kind(kind: LayerKind, layers: u32, layer_bytes: u64) -> Self {
        let mut group = Self::new(layers, 0, 0, 0);
        group.c.0.kind = kind;
        group.c.0.layer_bytes = layer_bytes;
        group
    }

    /// V is the first `value_dim` dims of K and is stored once, with it: see
    /// [`Batch::write_latent`](crate::Batch::write_latent).
    pub fn latent(mut self) -> Self {
        self.c.0.kind = LayerKind::LATENT;
        self
    }

    /// The numbers of these layers in the model. Default: those after the previous groups' layers.
    pub fn layer_indices(mut self, indices: impl Into<Vec<u32>>) -> Self {
        self.indices = Some(indices.into());
        self
    }

    sys::pkv_layer_group_setters! {}

    setters! {
        /// Experimental. An orthogonal matrix for K, `[key_dim][key_dim]`, instead of
        /// [`rotation`](Self::rotation).
        key_rotation(matrix: impl Into<Vec<f32>>) = Some(matrix.into());
        /// Experimental. An orthogonal matrix for V, `[value_dim][value_dim]`, instead of
        /// [`rotation`](Self::rotation).
        value_rotation(matrix: impl Into<Vec<f32>>) = Some(matrix.into());
    }

    /// The matrices for C, if there are any.
    fn matrices(&self) -> Result<Option<sys::pkv_rotation_matrices>> {
        let matrices = sys::pkv_rotation_matrices {
            key: matrix(&self.key_rotation, self.c.0.key_dim, "key_rotation")?,
            value: matrix(&self.value_rotation, self.values_dim(), "value_rotation")?,
            ..Default::default()
        };
        let any = self.key_rotation.is_some() || self.value_rotation.is_some();
        Ok(any.then_some(matrices))
    }

    /// The struct of C, which points to the indices and the matrices.
    pub(crate) fn raw(
        &self,
        matrices: &Option<sys::pkv_rotation_matrices>,
    ) -> Result<sys::pkv_layer_group> {
        let numbers = self.c.0;
        let given = self.indices.as_ref().map(Vec::len);
        if let Some(given) = given.filter(|&given| given != numbers.layers as usize) {
            return Err(Error::misuse(format!(
                "{given} layer_indices are given for {} layers",
                numbers.layers
            )));
        }
        Ok(sys::pkv_layer_group {
            layer_indices: self.indices.as_ref().map_or(std::ptr::null(), |list| list.as_ptr()),
            rotation_matrices: address(matrices),
            ..numbers
        })
    }

    /// Head dim of values: that of keys by default.
    fn values_dim(&self) -> u32 {
        match self.c.0.value_dim {
            0 => self.c.0.key_dim,
            dim => dim,
        }
    }
}

/// Returns the address of a matrix `[dim][dim]`; null for none.
fn matrix(given: &Option<Vec<f32>>, dim: u32, name: &str) -> Result<*const f32> {
    match given {
        None => Ok(std::ptr::null()),
        Some(matrix) if matrix.len() as u64 == u64::from(dim) * u64::from(dim) => {
            Ok(matrix.as_ptr())
        }
        Some(matrix) => {
            Err(Error::misuse(format!("{name} has {} elements, not {dim} * {dim}", matrix.len())))
        }
    }
}

/// The prefix index of a cache: see [`Prefix`](crate::Prefix).
#[derive(Clone, Debug, Default)]
pub struct PrefixConfig {
    c: Numbers<sys::pkv_prefix_config>,
}

impl PrefixConfig {
    /// The default eviction policy, no quota, no events.
    pub fn new() -> Self {
        Self::default()
    }

    sys::pkv_prefix_config_setters! {}
}

/// The configuration of a [`Cache`](crate::Cache). Set `blocks` of all groups, or `memory_bytes`.
///
/// ```
/// use pagedkv::{CacheConfig, Dtype, LayerGroup};
///
/// // Llama 3 8B with keys and values in bfloat16: 128 KiB per token.
/// let layers = LayerGroup::new(32, 32, 8, 128).dtype(Dtype::BF16);
/// let config = CacheConfig::new(layers).memory_bytes(4 << 30);
/// let plan = config.sizes()?;
/// assert_eq!(plan.bytes_per_token, 32 * 2 * 8 * 128 * 2);
/// assert_eq!(plan.tokens, (4 << 30) / plan.bytes_per_token);
/// # Ok::<(), pagedkv::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CacheConfig {
    c: Numbers<sys::pkv_cache_config>,
    groups: Vec<LayerGroup>,
    memory_directory: Option<PathBuf>,
    prefix: Option<PrefixConfig>,
    store: Option<StoreConfig>,
    pub(crate) hooks: Hooks,
}

impl CacheConfig {
    /// A model whose layers are all alike.
    pub fn new(layers: LayerGroup) -> Self {
        Self::with_groups([layers])
    }

    /// A hybrid model: for example one group of full and one of sliding-window layers.
    pub fn with_groups(groups: impl IntoIterator<Item = LayerGroup>) -> Self {
        Self {
            c: Numbers::default(),
            groups: groups.into_iter().collect(),
            memory_directory: None,
            prefix: None,
            store: None,
            hooks: Hooks::default(),
        }
    }

    sys::pkv_cache_config_setters! {}

    setters! {
        /// Keys and values, and states, are in an unnamed file in this directory, of which the
        /// OS keeps as much in memory as fits: for texts that are larger than memory and read by
        /// chosen blocks. Only with storage `INTERNAL`. Default: memory.
        memory_directory(directory: impl Into<PathBuf>) = Some(directory.into());
        /// Keeps the blocks of ended sessions for new ones that begin with the same tokens.
        prefix(prefix: PrefixConfig) = Some(prefix);
        /// Where blocks of the prefix index are stored when memory is short. Only with storage
        /// `INTERNAL` and [`prefix`](Self::prefix).
        store(store: StoreConfig) = Some(store);
    }

    /// Allocates the memory for keys and values, pools, tokens and block tables.
    pub fn allocator(mut self, allocator: impl GlobalAlloc + Send + Sync + 'static) -> Self {
        self.hooks.allocator = Some(Arc::new(Allocator(Box::new(allocator))));
        self
    }

    /// Receives each log line, without a newline, on any thread. The library itself never prints. A
    /// panic of the logger is ignored.
    pub fn logger(mut self, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.hooks.logger = Some(Arc::new(Logger(Box::new(log))));
        self
    }

    /// Returns the time by which durations of hints end, since any moment, on any thread: for
    /// tests. It may stand still; a time before an earlier one counts as that one. Default: the
    /// system's clock.
    pub fn clock(mut self, now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.hooks.clock = Some(Arc::new(Clock(Box::new(now))));
        self
    }

    /// Computes attention on the program's own threads instead of the library's.
    ///
    /// ```
    /// # use pagedkv::{Cache, CacheConfig, LayerGroup, Tasks};
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// fn run(tasks: &Tasks<'_>) {
    ///     let next = AtomicUsize::new(0);
    ///     let work = |worker| loop {
    ///         match next.fetch_add(1, Ordering::Relaxed) {
    ///             i if i < tasks.count() => tasks.run(i, worker),
    ///             _ => break,
    ///         }
    ///     };
    ///     std::thread::scope(|scope| {
    ///         scope.spawn(|| work(1));
    ///         work(0);
    ///     });
    /// }
    ///
    /// let layers = LayerGroup::new(2, 4, 2, 32).blocks(64);
    /// let cache = Cache::new(&CacheConfig::new(layers).runner(2, run))?;
    /// assert_eq!(cache.info()?.threads, 2);
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    pub fn runner(
        mut self,
        threads: u32,
        run: impl Fn(&Tasks<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.hooks.runner = Some(Arc::new(Runner { threads, run: Box::new(run) }));
        self
    }

    /// Copies the blocks of groups that are [opaque](LayerGroup::opaque_kv), which need it.
    pub fn block_io(mut self, io: impl BlockIo + 'static) -> Self {
        let of_group =
            |group: &LayerGroup| (u64::from(group.c.0.layers) * group.c.0.layer_bytes) as usize;
        let block_bytes = self.groups.iter().map(of_group).collect();
        self.hooks.block_io = Some(Arc::new(BlockHooks { io: Box::new(io), block_bytes }));
        self
    }

    /// Computes the sizes of K and V of all groups. Nothing is allocated.
    pub fn sizes(&self) -> Result<CacheSizes> {
        self.sizes_of(sys::PKV_ALL_GROUPS)
    }

    /// Computes the same for one group.
    pub fn sizes_of(&self, group: u32) -> Result<CacheSizes> {
        self.with_raw(|raw| filled(|out| unsafe { sys::pkv_cache_compute_sizes(raw, group, out) }))
    }

    /// As [`with_raw`](Self::with_raw), with a store that is opened for the cache to take.
    pub(crate) fn with_store<T>(
        &self,
        create: impl FnOnce(&sys::pkv_cache_config) -> Result<T>,
    ) -> Result<T> {
        self.with_raw(|raw| {
            let mut store = self.store.as_ref().map(StoreConfig::open).transpose()?;
            let config = self
                .store
                .as_ref()
                .zip(store.as_mut())
                .map(|(config, store)| config.raw(&mut store.0));
            create(&sys::pkv_cache_config { store: address(&config), ..*raw })
        })
    }

    /// Calls `use_it` with the config of C and all that it points to, except a store.
    pub(crate) fn with_raw<T>(
        &self,
        use_it: impl FnOnce(&sys::pkv_cache_config) -> Result<T>,
    ) -> Result<T> {
        ensure_library()?;
        let matrices = self.groups.iter().map(LayerGroup::matrices).collect::<Result<Vec<_>>>()?;
        let groups = self.groups.iter().zip(&matrices).map(|(group, matrices)| group.raw(matrices));
        let groups = groups.collect::<Result<Vec<_>>>()?;
        let prefix = self.prefix.as_ref().map(|prefix| prefix.c.0);
        let directory = self.memory_directory.as_deref();
        let directory = directory.map(|path| path_of_c(path, "memory_directory")).transpose()?;
        let allocator = self.hooks.allocator.as_ref().map(Allocator::raw);
        let logger = self.hooks.logger.as_ref().map(Logger::raw);
        let runner = self.hooks.runner.as_ref().map(Runner::raw);
        let block_io = self.hooks.block_io.as_ref().map(BlockHooks::raw);
        let clock = self.hooks.clock.as_ref().map(Clock::raw);
        use_it(&sys::pkv_cache_config {
            group_count: u32::try_from(groups.len())
                .map_err(|_| Error::misuse("too many layer groups"))?,
            groups: groups.as_ptr(),
            memory_directory: directory.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
            prefix: address(&prefix),
            allocator: address(&allocator),
            runner: address(&runner),
            logger: address(&logger),
            block_io: address(&block_io),
            clock: address(&clock),
            ..self.c.0
        })
    }

    /// The shape of every layer of the model. The library must have accepted the config.
    pub(crate) fn shapes(&self) -> Vec<Shape> {
        let mut shapes =
            vec![Shape::default(); self.groups.iter().map(|group| group.c.0.layers as usize).sum()];
        let mut next = 0;
        for (number, group) in (0..).zip(&self.groups) {
            let numbers = group.c.0;
            let shape = Shape {
                query_heads: numbers.query_heads,
                kv_heads: numbers.kv_heads,
                key_dim: numbers.key_dim,
                value_dim: group.values_dim(),
                group: number,
                state_bytes: match numbers.kind {
                    LayerKind::STATES => numbers.layer_bytes as usize, // the library took it
                    _ => 0,
                },
            };
            let following: Vec<u32> = (next..next + numbers.layers).collect();
            for &layer in group.indices.as_ref().unwrap_or(&following) {
                shapes[layer as usize] = shape;
            }
            next += numbers.layers;
        }
        shapes
    }
}

/// The shape of a layer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    pub query_heads: u32,
    pub kv_heads: u32,
    pub key_dim: u32,
    pub value_dim: u32,
    pub group: u32,
    pub state_bytes: usize, // 0: the layer keeps no states
}

impl Shape {
    /// Rows of keys of a batch as C takes them.
    #[inline]
    pub(crate) fn batch_keys(&self, rows: &BatchRows<'_>, k: Rows<'_>) -> Result<sys::pkv_tensor> {
        k.batch_tensor(rows, self.kv_heads, self.key_dim, "k")
    }

    #[inline]
    pub(crate) fn batch_kv(
        &self,
        rows: &BatchRows<'_>,
        k: Rows<'_>,
        v: Rows<'_>,
    ) -> Result<(sys::pkv_tensor, sys::pkv_tensor)> {
        let v = v.batch_tensor(rows, self.kv_heads, self.value_dim, "v")?;
        Ok((self.batch_keys(rows, k)?, v))
    }

    /// Queries and outputs.
    #[inline]
    pub(crate) fn q_and_out(
        &self,
        rows: &BatchRows<'_>,
        q: Rows<'_>,
        out: RowsMut<'_>,
    ) -> Result<(sys::pkv_tensor, sys::pkv_tensor)> {
        let (heads, key_dim, value_dim) = (self.query_heads, self.key_dim, self.value_dim);
        let out = out.batch_tensor(rows, heads, value_dim, "out")?;
        Ok((q.batch_tensor(rows, heads, key_dim, "q")?, out))
    }
}
