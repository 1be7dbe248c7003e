//! The KV cache and attention of an inference engine: safe bindings to [libpagedkv]. It stores keys
//! and values of thousands of sequences in fixed-size blocks, shares, forks and trims them, and
//! computes attention over the blocks in place, on all cores.
//!
//! * [`Cache`] is the memory of a model, described by a [`CacheConfig`] of [`LayerGroup`]s.
//! * [`Session`] is one sequence. [`Batch`] is a forward pass over some of them: begin, then per
//!   layer write and attend, then commit.
//! * [`Batch::states`] is for layers that keep a state instead of keys and values.
//! * [`Session::fork`], [`Snapshot`] and [`Prefix`] reuse computed keys and values.
//! * [`Cache::save`] and [`Cache::load`] store sessions in files.
//! * [`Pool`] allocates block ids only. [`kv_attend()`] works on your own block tables, in memory
//!   that [`KvMemory`] writes, on the threads of a [`Compute`].
//!
//! Rows of keys, values, queries and outputs are slices, or arrays of `ndarray` (with the feature
//! of that name). They are never copied: see [`Rows`].
//!
//! # What the types guarantee
//!
//! A batch borrows its sessions (`&mut`). Snapshots and forks live independently. A cache is closed
//! when nothing refers to it any more, in any order of drops. [`Cache`],
//! [`Pool`] and [`Snapshot`] may be used from all threads at once, a [`Session`] by one writer or
//! several readers, a [`Batch`] by one thread at a time:
//!
//! ```
//! fn shared<T: Send + Sync>() {}
//! fn sent<T: Send>() {}
//! shared::<(pagedkv::Cache, pagedkv::Session, pagedkv::Snapshot, pagedkv::Pool)>();
//! sent::<pagedkv::Batch>();
//! ```
//!
//! A failed call returns an [`Error`] with the library's sentence, and has changed nothing. The raw
//! C interface is `pagedkv::sys`; `as_raw` returns its handles.
//!
//! # Where the library comes from
//!
//! See [`sys`]: it is linked from where `PAGEDKV_LIB_DIR` or `pkg-config` point, else built from
//! the sources in `pagedkv-sys`. With the feature `dlopen` it is opened at run time.
//!
//! [libpagedkv]: https://crates.io/crates/pagedkv-sys
#![warn(missing_docs, missing_debug_implementations)]

pub use pagedkv_sys as sys;

#[cfg(feature = "ndarray")]
mod arrays;
mod attention;
mod batch;
mod cache;
mod closing;
mod compute;
mod config;
mod error;
#[cfg(test)]
mod fields;
mod file;
mod hint;
mod hooks;
mod kv;
mod open_store;
mod paths;
mod pool;
mod prefetch;
mod prefix;
#[cfg(feature = "redis")]
mod redis;
mod rows;
mod secret;
mod session;
mod snapshot;
mod stats;
mod store;
mod structs;

pub use attention::{
    attention_merge, kv_attend, AttentionOutputs, AttentionParams, ChosenBlocks, ColumnMask, Mask,
    MaskData,
};
pub use batch::{Batch, IndexUnit, IntoTokens, KvIndices, SessionStates, StateBlocks};
pub use cache::Cache;
pub use compute::Compute;
pub use config::{
    CacheConfig, CacheSizes, Eviction, HugePages, Isa, LayerGroup, LayerKind, Layout, PrefixConfig,
    Rotation, Storage,
};
pub use error::{Error, Result, Status};
pub use file::{inspect_file, FileConfig, FileInfo, Saved, Sink, Source};
pub use hint::{Hint, HintAction, HintOutcome, HintReason, HintResult};
pub use hooks::{BlockIo, LogLevel, Tasks};
pub use kv::{KvMemory, KvView, Sequences};
pub use pool::{Block, Pool, PoolConfig};
pub use prefetch::StoreStats;
pub use prefix::{hash_blocks, Prefix, PrefixEvent, PrefixEventKind, PrefixEvents, Quota, Salt};
#[cfg(feature = "redis")]
pub use redis::{RedisConfig, TlsConfig};
pub use rows::{Bf16, Dtype, Element, Rows, RowsMut, F16};
pub use session::{PrefixUse, Resumed, Retention, Session, SessionConfig, SessionId};
pub use snapshot::Snapshot;
pub use stats::{CacheInfo, CacheStats, ComputeInfo, PoolStats, PrefixStats, SessionInfo};
pub use store::StoreConfig;
#[doc(inline)]
pub use sys::{
    PKV_NO_BLOCK_ID as NO_BLOCK_ID, PKV_NO_SINK_TOKENS as NO_SINK_TOKENS,
    PKV_RETURN_NEVER as RETURN_NEVER, PKV_UNKNOWN_TOKEN as UNKNOWN_TOKEN,
};

/// The slot of a padding row: nothing is written or read for it.
pub const NO_SLOT: i64 = sys::PKV_NO_SLOT as i64;

use std::ffi::CStr;
use std::os::raw::c_char;

/// Returns the version of the loaded library, for example "1.0.0".
pub fn version() -> Result<String> {
    error::ensure_library()?;
    let found = unsafe { sys::pkv_version() };
    Ok(format!("{}.{}.{}", found / 1_000_000, found / 1000 % 1000, found % 1000))
}

/// Returns the name of an instruction set, for example "avx512"; "unknown" for other values.
pub fn isa_name(isa: Isa) -> Result<&'static str> {
    error::ensure_library()?;
    Ok(static_text(unsafe { sys::pkv_isa_name(isa) }))
}

/// Converts a name or version of the library, which is in static storage.
fn static_text(text: *const c_char) -> &'static str {
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}
