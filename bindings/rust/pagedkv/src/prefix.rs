//! Prefix reuse: see [`Prefix`].
use crate::cache::Cache;
use crate::error::{call, ensure_library, Result};
use crate::stats::PrefixStats;
use crate::structs::filled;
use crate::sys;
use std::os::raw::c_void;

#[doc(inline)]
pub use crate::sys::{pkv_prefix_event as PrefixEvent, pkv_prefix_event_kind as PrefixEventKind};

/// The sessions that a call is about: a salt separates tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Salt<'a> {
    /// Sessions without a salt.
    None,
    /// Sessions with this salt.
    Of(&'a [u8]),
    /// All sessions. Functions that need one salt return an error.
    All,
}

impl<'a> Salt<'a> {
    pub(crate) fn raw(self) -> (*const c_void, usize) {
        match self {
            Self::None => (std::ptr::null(), 0),
            Self::Of(bytes) => (bytes.as_ptr().cast(), bytes.len()),
            Self::All => (std::ptr::null(), sys::PKV_ALL_SALTS),
        }
    }

    /// Returns a text for C, which points to the salt and the tokens.
    pub(crate) fn text(self, tokens: &[i32]) -> sys::pkv_prompt {
        let (salt, salt_size) = self.raw();
        let (salt_size, n) = (salt_size as u64, tokens.len() as u64);
        let struct_size = std::mem::size_of::<sys::pkv_prompt>() as u32;
        sys::pkv_prompt { struct_size, reserved: 0, salt, salt_size, tokens: tokens.as_ptr(), n }
    }
}

impl<'a> From<&'a str> for Salt<'a> {
    fn from(text: &'a str) -> Self {
        Self::Of(text.as_bytes())
    }
}

/// How much of one salt may stay cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// [`PrefixConfig::max_tokens_per_salt`](crate::PrefixConfig::max_tokens_per_salt).
    OfConfig,
    /// No limit.
    Unlimited,
    /// At most this many tokens, rounded down to whole blocks: at least one.
    Tokens(u64),
}

/// Events of the prefix index, in order.
#[derive(Clone, Debug)]
pub struct PrefixEvents {
    /// The events, at most the requested number.
    pub events: Vec<PrefixEvent>,
    /// The number to pass to the next call.
    pub next: u64,
    /// How many requested events were already overwritten.
    pub lost: u64,
}

/// The prefix index of a cache. Blocks of ended sessions stay cached until their memory is needed.
/// A new session with the same first tokens reuses them
/// ([`Session::admit`](crate::Session::admit)).
///
/// All functions return `UNSUPPORTED` if the cache was created without
/// [`CacheConfig::prefix`](crate::CacheConfig::prefix).
///
/// ```
/// use pagedkv::{Cache, CacheConfig, Hint, HintAction, LayerGroup, PrefixConfig, Salt};
///
/// let layers = LayerGroup::new(1, 2, 1, 16).blocks(8);
/// let cache = Cache::new(&CacheConfig::new(layers).prefix(PrefixConfig::new()))?;
/// let (text, kv) = ([7; 40], [0.5; 40 * 16]);
/// let mut session = cache.open_session()?;
/// let mut batch = cache.begin([(&mut session, 40)])?;
/// batch.write(0, &kv, &kv)?;
/// batch.commit(&text)?;
/// drop(session);
///
/// assert_eq!(cache.prefix().probe(Salt::None, &text)?, 32); // whole blocks
/// assert_eq!(cache.hint(Salt::None, &text, Hint::new(HintAction::PIN))?.tokens, 32);
/// assert_eq!(cache.open_session()?.admit(&text, 0)?, 32);
/// # Ok::<(), pagedkv::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Prefix<'c>(pub(crate) &'c Cache);

impl Cache {
    /// Returns the prefix index.
    pub fn prefix(&self) -> Prefix<'_> {
        Prefix(self)
    }
}

impl Prefix<'_> {
    /// Returns the statistics of one salt or of all.
    pub fn stats(&self, salt: Salt<'_>) -> Result<PrefixStats> {
        let (salt, size) = salt.raw();
        filled(|out| unsafe { sys::pkv_prefix_get_stats(self.0.as_raw(), salt, size, out) })
    }

    /// Drops every cached block that is neither in use nor pinned, of one salt or of all.
    pub fn clear(&self, salt: Salt<'_>) -> Result<()> {
        let (salt, size) = salt.raw();
        call(|| unsafe { sys::pkv_prefix_clear(self.0.as_raw(), salt, size) })
    }

    /// Returns how many tokens of a text are cached in whole blocks. It holds and counts nothing
    /// and does not change the order of eviction.
    pub fn probe(&self, salt: Salt<'_>, tokens: &[i32]) -> Result<u64> {
        let (text, mut cached) = (salt.text(tokens), 0);
        call(|| unsafe { sys::pkv_prefix_probe(self.0.as_raw(), &text, &mut cached) })?;
        Ok(cached)
    }

    /// Limits the cached blocks of one salt from now on.
    pub fn set_quota(&self, salt: Salt<'_>, quota: Quota) -> Result<()> {
        let (salt, size) = salt.raw();
        let tokens = match quota {
            Quota::OfConfig => 0,
            Quota::Unlimited => sys::PKV_NO_QUOTA,
            Quota::Tokens(tokens) => tokens,
        };
        call(|| unsafe { sys::pkv_prefix_set_quota(self.0.as_raw(), salt, size, tokens) })
    }

    /// Returns at most `room` events from number `next` on: 0 at first, then
    /// [`PrefixEvents::next`]. A reader sees the events of all salts.
    pub fn read_events(&self, next: u64, room: usize) -> Result<PrefixEvents> {
        let empty = PrefixEvent {
            number: 0,
            hash: 0,
            parent: 0,
            position: 0,
            kind: PrefixEventKind(0),
            reserved: 0,
        };
        let (mut next, mut count, mut lost, mut events) = (next, 0, 0, vec![empty; room]);
        call(|| unsafe {
            sys::pkv_prefix_read_events(
                self.0.as_raw(),
                &mut next,
                room,
                events.as_mut_ptr(),
                &mut count,
                &mut lost,
            )
        })?;
        events.truncate(count);
        Ok(PrefixEvents { events, next, lost })
    }
}

/// Returns the hashes of the whole blocks of a text, as in events. Equal hashes say where a text is
/// probably cached; they do not prove that texts are equal.
pub fn hash_blocks(salt: Salt<'_>, block_size: u32, tokens: &[i32]) -> Result<Vec<u64>> {
    ensure_library()?;
    let text = salt.text(tokens);
    let mut hashes = vec![0; tokens.len() / block_size.max(1) as usize];
    call(|| unsafe { sys::pkv_prefix_hash_blocks(&text, block_size, hashes.as_mut_ptr()) })?;
    Ok(hashes)
}
