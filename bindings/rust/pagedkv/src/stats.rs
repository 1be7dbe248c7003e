//! Structs with statistics that the library fills.
#[doc(inline)]
pub use crate::sys::{
    pkv_cache_info as CacheInfo, pkv_cache_stats as CacheStats, pkv_compute_info as ComputeInfo,
    pkv_pool_stats as PoolStats, pkv_prefix_stats as PrefixStats, pkv_session_info as SessionInfo,
};
