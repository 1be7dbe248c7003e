use crate::closing::{close, Handle};
use crate::error::{call, ensure_library, Result};
use crate::hooks::{Allocator, Hooks};
use crate::stats::PoolStats;
use crate::structs::{address, filled, Numbers};
use crate::sys;
use std::alloc::GlobalAlloc;
use std::fmt;
use std::sync::Arc;

/// A reference to one block of a [`Pool`].
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub sys::pkv_block_ref);

impl Block {
    /// The id, as in block tables and slots.
    pub fn id(self) -> u32 {
        self.0 as u32
    }

    /// How often this id had been freed when the block was allocated.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The configuration of a [`Pool`].
#[derive(Clone, Debug)]
pub struct PoolConfig {
    c: Numbers<sys::pkv_pool_config>,
    hooks: Hooks,
}

impl PoolConfig {
    /// A pool of this many blocks.
    pub fn new(blocks: u32) -> Self {
        let numbers = sys::pkv_pool_config { blocks, ..Default::default() };
        Self { c: Numbers(numbers), hooks: Hooks::default() }
    }

    /// Allocates the pool's own tables.
    pub fn allocator(mut self, allocator: impl GlobalAlloc + Send + Sync + 'static) -> Self {
        self.hooks.allocator = Some(Arc::new(Allocator(Box::new(allocator))));
        self
    }

    /// The config of C; it points to the allocator.
    pub(crate) fn raw(&self, allocator: &Option<sys::pkv_allocator>) -> sys::pkv_pool_config {
        sys::pkv_pool_config { allocator: address(allocator), ..self.c.0 }
    }
}

/// A lock-free allocator of reference-counted block ids, for engines that keep the bytes elsewhere.
/// All threads may use it at once.
///
/// ```
/// use pagedkv::{Pool, PoolConfig, Status};
///
/// let pool = Pool::new(&PoolConfig::new(100))?;
/// let blocks = pool.alloc(3)?;
/// pool.retain(&blocks[..1])?;
/// pool.release(&blocks)?;
/// assert_eq!(pool.stats()?.held_blocks, 1);
/// assert_eq!(pool.release(&blocks[1..]).unwrap_err().status(), Status::NOT_HELD);
/// # Ok::<(), pagedkv::Error>(())
/// ```
pub struct Pool {
    handle: sys::pkv_pool,
    blocks: u32,
    hooks: Hooks,
}

// "Any thread at any time", except destroy, which is the drop.
unsafe impl Send for Pool {}
unsafe impl Sync for Pool {}

impl Pool {
    /// Creates a pool with all blocks free.
    pub fn new(config: &PoolConfig) -> Result<Self> {
        ensure_library()?;
        let allocator = config.hooks.allocator.as_ref().map(Allocator::raw);
        let raw = config.raw(&allocator);
        let mut handle = std::ptr::null_mut();
        call(|| unsafe { sys::pkv_pool_create(&raw, &mut handle) })?;
        Ok(Self { handle, blocks: raw.blocks, hooks: config.hooks.clone() })
    }

    /// The handle of C, for functions of `pagedkv-sys`. It stays this pool's.
    pub fn as_raw(&self) -> sys::pkv_pool {
        self.handle
    }

    /// Allocates `n` blocks, all or none, each with one reference.
    pub fn alloc(&self, n: usize) -> Result<Vec<Block>> {
        // A number above the pool's size is refused without allocating memory.
        let room = n.min(self.blocks as usize + 1);
        let mut blocks = vec![Block::default(); room];
        call(|| unsafe { sys::pkv_pool_alloc(self.handle, room, blocks.as_mut_ptr().cast()) })?;
        Ok(blocks)
    }

    /// Fills `blocks` with newly allocated ones, all or none.
    pub fn alloc_into(&self, blocks: &mut [Block]) -> Result<()> {
        call(|| unsafe {
            sys::pkv_pool_alloc(self.handle, blocks.len(), blocks.as_mut_ptr().cast())
        })
    }

    /// Adds one reference to each block, all or none.
    pub fn retain(&self, blocks: &[Block]) -> Result<()> {
        call(|| unsafe { sys::pkv_pool_retain(self.handle, blocks.len(), blocks.as_ptr().cast()) })
    }

    /// Drops one reference of each block, all or none. A block without references is freed.
    pub fn release(&self, blocks: &[Block]) -> Result<()> {
        call(|| unsafe { sys::pkv_pool_release(self.handle, blocks.len(), blocks.as_ptr().cast()) })
    }

    /// Returns statistics, which are exact while no other thread uses the pool.
    pub fn stats(&self) -> Result<PoolStats> {
        filled(|out| unsafe { sys::pkv_pool_get_stats(self.handle, out) })
    }

    /// Checks all invariants; `INTERNAL` names one that does not hold. Call it while no other
    /// thread uses the pool.
    pub fn validate(&self) -> Result<()> {
        call(|| unsafe { sys::pkv_pool_validate(self.handle) })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A pool that cannot be closed at this moment may still call its hooks.
        close(Handle::Pool(self.handle), std::mem::take(&mut self.hooks));
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("handle", &self.handle).finish()
    }
}
