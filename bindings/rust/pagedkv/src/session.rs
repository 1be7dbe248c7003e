use crate::cache::{Cache, Owned};
use crate::closing::{close, Handle};
use crate::error::{call, fill, Error, Result, Status};
use crate::hooks::Hooks;
use crate::rows::RowsMut;
use crate::stats::SessionInfo;
use crate::structs::{address, bytes, filled, setters, Numbers};
use crate::sys;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

#[doc(inline)]
pub use crate::sys::{pkv_prefix_use as PrefixUse, pkv_retention as Retention};

/// Options for [`Cache::open_session_with`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionConfig<'a> {
    c: Numbers<sys::pkv_session_config>,
    salt: Option<&'a [u8]>,
}

impl<'a> SessionConfig<'a> {
    /// Priority 0; prefixes are shared with all sessions that have no salt.
    pub fn new() -> Self {
        Self::default()
    }

    sys::pkv_session_config_setters! {}

    setters! {
        /// Sessions share prefixes only with those of the same salt; up to 256 bytes.
        salt(salt: &'a (impl AsRef<[u8]> + ?Sized)) = Some(salt.as_ref());
    }

    pub(crate) fn raw(&self) -> sys::pkv_session_config {
        let (salt, salt_size) = bytes(self.salt);
        sys::pkv_session_config { salt, salt_size, ..self.c.0 }
    }
}

/// Identifies a session, also after it is closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(usize);

impl SessionId {
    pub(crate) fn of(handle: sys::pkv_session) -> Self {
        Self(handle as usize)
    }
}

/// The tokens that a resumed session must compute again: see [`Session::resume`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resumed {
    /// Tokens that have keys and values.
    pub length: u64,
    /// Tokens to reach: those at positions `length..total` must be computed again.
    pub total: u64,
}

/// One sequence: its tokens and its block tables. Dropping it frees the blocks that only it holds.
///
/// Several threads may read a session at once; methods that change it take `&mut self`.
pub struct Session {
    handle: sys::pkv_session,
    pub(crate) cache: Arc<Owned>,
}

// One writer or several readers, on any threads: `&mut self` and `&self` here.
unsafe impl Send for Session {}
unsafe impl Sync for Session {}

impl Cache {
    /// Opens an empty session.
    pub fn open_session(&self) -> Result<Session> {
        self.open_session_with(&SessionConfig::new())
    }

    /// Opens an empty session with options.
    pub fn open_session_with(&self, config: &SessionConfig<'_>) -> Result<Session> {
        let raw = config.raw();
        Session::opened(&self.0, |out| unsafe { sys::pkv_session_open(self.0.handle, &raw, out) })
    }
}

impl Session {
    pub(crate) fn opened(
        cache: &Arc<Owned>,
        open: impl FnOnce(*mut sys::pkv_session) -> Status,
    ) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        call(|| open(&mut handle))?;
        Ok(Self::adopted(cache, handle))
    }

    /// Takes over a handle that nothing else closes.
    pub(crate) fn adopted(cache: &Arc<Owned>, handle: sys::pkv_session) -> Self {
        Self { handle, cache: cache.clone() }
    }

    /// The handle of C, for functions of `pagedkv-sys`. It stays this session's.
    pub fn as_raw(&self) -> sys::pkv_session {
        self.handle
    }

    /// The id that [`Cache::choose_victims`](crate::Cache::choose_victims) returns.
    pub fn id(&self) -> SessionId {
        SessionId::of(self.handle)
    }

    /// Committed tokens; 0 while the session is suspended.
    pub fn length(&self) -> Result<u64> {
        let mut tokens = 0;
        call(|| unsafe { sys::pkv_session_get_length(self.handle, &mut tokens) })?;
        Ok(tokens)
    }

    /// Returns the token ids at these positions: committed ones, and those that
    /// [`suspend`](Self::suspend) remembers. An unknown id is
    /// [`UNKNOWN_TOKEN`](crate::UNKNOWN_TOKEN).
    pub fn tokens(&self, positions: Range<u64>) -> Result<Vec<i32>> {
        let n = count(&positions)?;
        let end = self.info()?.total;
        if positions.end > end {
            return Err(Error::new(
                Status::OUT_OF_RANGE,
                format!("tokens {positions:?} of a session that has {end}"),
            ));
        }
        let mut tokens = vec![0; n];
        call(|| unsafe {
            sys::pkv_session_get_tokens(self.handle, positions.start, n, tokens.as_mut_ptr())
        })?;
        Ok(tokens)
    }

    /// Sets the ids of positions, from `first` on, that were committed without ids.
    pub fn set_tokens(&mut self, first: u64, tokens: &[i32]) -> Result<()> {
        call(|| unsafe {
            sys::pkv_session_set_tokens(self.handle, first, tokens.len(), tokens.as_ptr())
        })
    }

    /// Reserves blocks for a length of `total_tokens`: steps up to there cannot run out of blocks.
    pub fn reserve(&mut self, total_tokens: u64) -> Result<()> {
        call(|| unsafe { sys::pkv_session_reserve(self.handle, total_tokens) })
    }

    /// Keeps the first `length` tokens and frees all blocks beyond them.
    pub fn trim(&mut self, length: u64) -> Result<()> {
        call(|| unsafe { sys::pkv_session_trim(self.handle, length) })
    }

    /// Returns the longest length, up to `limit`, that [`trim`](Self::trim) can keep; with a window
    /// or with states it cannot keep every length. 0 if there is no other.
    pub fn trim_point(&self, limit: u64) -> Result<u64> {
        let mut length = 0;
        call(|| unsafe { sys::pkv_session_get_trim_point(self.handle, limit, &mut length) })?;
        Ok(length)
    }

    /// Experimental. Frees blocks in the middle, by their indices in the block table of a group, in
    /// ascending order. Later tokens do not see the tokens of these blocks.
    pub fn drop_blocks(&mut self, group: u32, indices: &[u32]) -> Result<()> {
        call(|| unsafe {
            sys::pkv_session_drop_blocks(self.handle, group, indices.len(), indices.as_ptr())
        })
    }

    /// Opens a session with the same tokens. Blocks are shared; a session that writes to the
    /// part-filled last block copies it first.
    pub fn fork(&self) -> Result<Session> {
        Self::opened(&self.cache, |out| unsafe { sys::pkv_session_fork(self.handle, out) })
    }

    /// Frees the blocks that only this session holds, and remembers the token ids.
    pub fn suspend(&mut self) -> Result<()> {
        call(|| unsafe { sys::pkv_session_suspend(self.handle) })
    }

    /// Ends the suspension: reserves the blocks that the remembered tokens need, and returns which
    /// of them must be computed again. A commit without ids uses the remembered ones.
    pub fn resume(&mut self) -> Result<Resumed> {
        let (mut length, mut total) = (0, 0);
        call(|| unsafe { sys::pkv_session_resume(self.handle, &mut length, &mut total) })?;
        Ok(Resumed { length, total })
    }

    /// Gives an empty session the longest cached prefix of a text, and reserves blocks for
    /// `total_tokens` in all (0: none); or fails with
    /// [`Status::OUT_OF_BLOCKS`](crate::Status::OUT_OF_BLOCKS) and does neither. Returns the number
    /// of cached tokens. Leave out the last token if you need its output.
    pub fn admit(&mut self, tokens: &[i32], total_tokens: u64) -> Result<u64> {
        let mut matched = 0;
        call(|| unsafe {
            let (n, ids) = (tokens.len(), tokens.as_ptr());
            sys::pkv_session_admit(self.handle, n, ids, total_tokens, &mut matched)
        })?;
        Ok(matched)
    }

    /// Changes the priority: see [`SessionConfig::priority`].
    pub fn set_priority(&mut self, priority: i32) -> Result<()> {
        call(|| unsafe { sys::pkv_session_set_priority(self.handle, priority) })
    }

    /// Returns the length, the number of blocks, and whether the session is suspended.
    pub fn info(&self) -> Result<SessionInfo> {
        filled(|out| unsafe { sys::pkv_session_get_info(self.handle, out) })
    }

    /// Returns the block table of one group. A block that left the window is
    /// [`NO_BLOCK_ID`](crate::NO_BLOCK_ID).
    pub fn block_table(&self, group: u32) -> Result<Vec<u32>> {
        fill(0, |capacity, ids, n| unsafe {
            sys::pkv_session_get_block_table(self.handle, group, capacity, ids, n)
        })
    }

    /// Reads keys and values of one layer as rows `[positions][kv_heads][dim]`.
    pub fn read<'a>(
        &self,
        layer: u32,
        positions: Range<u64>,
        k: impl Into<RowsMut<'a>>,
        v: impl Into<RowsMut<'a>>,
    ) -> Result<()> {
        self.read_rows(layer, positions, Some(k.into()), Some(v.into()))
    }

    /// As [`read`](Self::read), but only the keys.
    pub fn read_keys<'a>(
        &self,
        layer: u32,
        positions: Range<u64>,
        k: impl Into<RowsMut<'a>>,
    ) -> Result<()> {
        self.read_rows(layer, positions, Some(k.into()), None)
    }

    /// As [`read`](Self::read), but only the values.
    pub fn read_values<'a>(
        &self,
        layer: u32,
        positions: Range<u64>,
        v: impl Into<RowsMut<'a>>,
    ) -> Result<()> {
        self.read_rows(layer, positions, None, Some(v.into()))
    }

    /// Copies the state of one layer after `tokens` committed tokens; `state` must be as long as
    /// the states of the layer. A session holds the states after the last token, after the last
    /// full block and at [checkpoints](crate::LayerGroup::checkpoint_interval).
    pub fn state(&self, layer: u32, tokens: u64, state: &mut [u8]) -> Result<()> {
        let (size, state) = (state.len(), state.as_mut_ptr().cast());
        call(|| unsafe { sys::pkv_session_get_state(self.handle, layer, tokens, size, state) })
    }

    fn read_rows(
        &self,
        layer: u32,
        positions: Range<u64>,
        k: Option<RowsMut<'_>>,
        v: Option<RowsMut<'_>>,
    ) -> Result<()> {
        let (shape, n) = (self.cache.shape(layer)?, count(&positions)?);
        let k = k.map(|k| k.tensor(n, shape.kv_heads, shape.key_dim, "k")).transpose()?;
        let v = v.map(|v| v.tensor(n, shape.kv_heads, shape.value_dim, "v")).transpose()?;
        let (k, v) = (address(&k), address(&v));
        call(|| unsafe { sys::pkv_session_read(self.handle, layer, positions.start, n, k, v) })
    }
}

fn count(positions: &Range<u64>) -> Result<usize> {
    let n = positions.end.checked_sub(positions.start).and_then(|n| usize::try_from(n).ok());
    n.ok_or_else(|| {
        Error::new(Status::OUT_OF_RANGE, format!("positions {positions:?} end before they begin"))
    })
}

impl Drop for Session {
    fn drop(&mut self) {
        close(Handle::Session(self.handle), Hooks::default());
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("handle", &self.handle).finish()
    }
}
