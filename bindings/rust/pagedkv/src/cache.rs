use crate::closing::{close, close_waiting, Handle};
use crate::config::{CacheConfig, Shape};
use crate::error::{call, check, Error, Result, Status};
use crate::hooks::Hooks;
use crate::stats::{CacheInfo, CacheStats, PoolStats};
use crate::structs::filled;
use crate::sys;
use std::fmt;
use std::sync::Arc;

/// The KV memory of a model. Clones are the same cache, which is closed when the last clone,
/// session and snapshot is dropped.
///
/// Any thread may use it; different sessions may be used from different threads at once.
///
/// ```
/// use pagedkv::{Cache, CacheConfig, LayerGroup};
///
/// let cache = Cache::new(&CacheConfig::new(LayerGroup::new(2, 4, 2, 32).blocks(64)))?;
/// let mut session = cache.open_session()?;
/// let (rows, q, kv) = (5, [1.0; 5 * 4 * 32], [1.0; 5 * 2 * 32]);
/// let mut out = [0.0; 5 * 4 * 32];
///
/// let mut batch = cache.begin([(&mut session, rows)])?;
/// for layer in 0..2 {
///     batch.write(layer, &kv, &kv)?;
///     batch.attend(layer, &q, &mut out)?;
/// }
/// batch.commit(&[11, 12, 13, 14, 15])?;
/// assert_eq!(session.length()?, 5);
/// # Ok::<(), pagedkv::Error>(())
/// ```
#[derive(Clone)]
pub struct Cache(pub(crate) Arc<Owned>);

/// The handle, the hooks that C borrows, and the shapes of the layers.
pub(crate) struct Owned {
    pub handle: sys::pkv_cache,
    shapes: Vec<Shape>,
    hooks: Hooks,
}

// "Any function may be called from any thread"; destroy is called when no other call can be in
// progress.
unsafe impl Send for Owned {}
unsafe impl Sync for Owned {}

impl Owned {
    /// The shape of a layer that keeps keys and values.
    #[inline]
    pub(crate) fn shape(&self, layer: u32) -> Result<Shape> {
        let shape = self.any_shape(layer)?;
        if shape.state_bytes > 0 {
            return Err(Error::new(
                Status::UNSUPPORTED,
                format!("layer {layer} keeps a state, and no keys and values"),
            ));
        }
        Ok(shape)
    }

    /// The shape of any layer.
    #[inline]
    pub(crate) fn any_shape(&self, layer: u32) -> Result<Shape> {
        let shape = self.shapes.get(layer as usize).copied();
        shape.ok_or_else(|| {
            Error::new(
                Status::OUT_OF_RANGE,
                format!("layer {layer}; the cache has {}", self.shapes.len()),
            )
        })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A cache that cannot be closed at this moment may still call its hooks.
        close(Handle::Cache(self.handle), std::mem::take(&mut self.hooks));
    }
}

impl Cache {
    /// Creates a cache. Memory is touched when blocks are first used, unless
    /// [`CacheConfig::prefault`] is set.
    pub fn new(config: &CacheConfig) -> Result<Self> {
        config.with_store(|raw| {
            let mut handle = std::ptr::null_mut();
            call(|| unsafe { sys::pkv_cache_create(raw, &mut handle) })?;
            Ok(Self(Arc::new(Owned {
                handle,
                shapes: config.shapes(),
                hooks: config.hooks.clone(),
            })))
        })
    }

    /// The handle of C, for functions of `pagedkv-sys`. It stays this cache's.
    pub fn as_raw(&self) -> sys::pkv_cache {
        self.0.handle
    }

    /// Returns the options of the cache, with defaults filled in.
    pub fn info(&self) -> Result<CacheInfo> {
        filled(|out| unsafe { sys::pkv_cache_get_info(self.0.handle, out) })
    }

    /// Returns statistics over all groups. They are exact while no other thread uses the cache.
    pub fn stats(&self) -> Result<CacheStats> {
        filled(|out| unsafe { sys::pkv_cache_get_stats(self.0.handle, out) })
    }

    /// Returns statistics of the pools of all groups.
    pub fn pool_stats(&self) -> Result<PoolStats> {
        self.pool_stats_of(sys::PKV_ALL_GROUPS)
    }

    /// Returns statistics of the pool of one group.
    pub fn pool_stats_of(&self, group: u32) -> Result<PoolStats> {
        filled(|out| unsafe { sys::pkv_cache_get_pool_stats(self.0.handle, group, out) })
    }

    /// Returns the statistics of the cache in the text format of Prometheus.
    pub fn metrics(&self) -> Result<String> {
        close_waiting();
        let mut text = vec![0u8; 8192];
        loop {
            let mut size = 0;
            let status = unsafe {
                sys::pkv_cache_format_metrics(
                    self.0.handle,
                    text.len(),
                    text.as_mut_ptr().cast(),
                    &mut size,
                )
            };
            if status == Status::BUFFER_TOO_SMALL {
                text.resize(size + 256, 0); // counts change while other threads use the cache
                continue;
            }
            check(status)?;
            text.truncate(size.saturating_sub(1)); // without the final NUL
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
    }

    /// Checks all invariants; `INTERNAL` names one that does not hold. Call it while no other
    /// thread uses the cache.
    pub fn validate(&self) -> Result<()> {
        call(|| unsafe { sys::pkv_cache_validate(self.0.handle) })
    }

    /// Returns the addresses of one layer of a cache with storage `INTERNAL`, for engines with
    /// their own kernels. They are valid as long as the cache. Reading from them is `unsafe`.
    pub fn kv_view(&self, layer: u32) -> Result<sys::pkv_kv_view> {
        filled(|out| unsafe { sys::pkv_cache_get_kv_view(self.0.handle, layer, out) })
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("handle", &self.0.handle)
            .field("layers", &self.0.shapes.len())
            .finish()
    }
}
