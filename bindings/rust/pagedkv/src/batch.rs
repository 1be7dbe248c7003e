use crate::attention::{AttentionOutputs, AttentionParams};
use crate::cache::{Cache, Owned};
use crate::closing::{close, Handle};
use crate::error::{call, fill, Error, Result};
use crate::hooks::Hooks;
use crate::rows::{BatchRows, Rows, RowsMut};
use crate::session::{Session, SessionId};
use crate::sys;
use std::fmt;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::Arc;

#[doc(inline)]
pub use crate::sys::pkv_index_unit as IndexUnit;

/// One forward pass over many sessions: see [`Cache::begin`](crate::Cache::begin). Rows are in the
/// order of the sessions, and within a session in the order of its new tokens.
///
/// It borrows its sessions until it is committed or dropped; dropping it leaves all of them as they
/// were. A batch may be sent to another thread, but only one thread may use it at a time:
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<pagedkv::Batch>();
/// ```
pub struct Batch<'s> {
    handle: sys::pkv_batch, // null once it is committed or aborted
    cache: Arc<Owned>,
    sessions: Box<[&'s mut Session]>,
    rows: usize,
    new_tokens: Box<[u32]>,
    first_rows: Option<Box<[u32]>>,
}

// "Driven by one thread at a time", which may be any thread. The handle keeps it from being Sync.
unsafe impl Send for Batch<'_> {}

/// The blocks or slots that each session reads, in compressed rows: see [`Batch::kv_indices`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvIndices {
    /// Session `i` reads `indices[indptr[i]..indptr[i + 1]]`.
    pub indptr: Vec<u32>,
    /// Block ids or slots, in token order.
    pub indices: Vec<u32>,
    /// The number of tokens in the last block of each session.
    pub last_block_length: Vec<u32>,
}

/// The states of one session in one layer: see [`Batch::states`]. Addresses are multiples of 64.
#[derive(Debug)]
pub struct SessionStates<'b> {
    /// The state before the new tokens. `None`: the session has no token yet.
    pub before: Option<&'b [u8]>,
    /// The new tokens after which a state is kept (0: the first), and where to write it.
    pub after: Vec<(u32, &'b mut [u8])>,
}

/// The blocks of the states that are kept: see [`Batch::state_blocks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateBlocks {
    /// The block of each session's current state; [`NO_BLOCK_ID`](crate::NO_BLOCK_ID): it has no
    /// token yet.
    pub before: Vec<u32>,
    /// Session `i` keeps the states after its new tokens `tokens[indptr[i]..indptr[i + 1]]`.
    pub indptr: Vec<u32>,
    /// Indices of new tokens of each session in ascending order; 0 is the first.
    pub tokens: Vec<u32>,
    /// The blocks to write, one for each of `tokens`.
    pub after: Vec<u32>,
}

/// The argument of [commit](Batch::commit): the ids of the new tokens as a slice, an array or a
/// `Vec`, or `None`.
pub trait IntoTokens<'a> {
    /// The ids, if there are any.
    fn into_tokens(self) -> Option<&'a [i32]>;
}

impl<'a, T: AsRef<[i32]> + ?Sized> IntoTokens<'a> for &'a T {
    fn into_tokens(self) -> Option<&'a [i32]> {
        Some(self.as_ref())
    }
}

impl<'a> IntoTokens<'a> for Option<&'a [i32]> {
    fn into_tokens(self) -> Option<&'a [i32]> {
        self
    }
}

impl Cache {
    /// Begins a step over sessions, each with its number of new tokens. It reserves the blocks of
    /// all of them, or fails and reserves none ([`Error::blocks_short`]). The batch borrows its
    /// sessions:
    ///
    /// ```compile_fail,E0502
    /// # use pagedkv::{Cache, CacheConfig, LayerGroup};
    /// # let cache = Cache::new(&CacheConfig::new(LayerGroup::new(2, 4, 2, 32).blocks(64)))?;
    /// let mut session = cache.open_session()?;
    /// let batch = cache.begin([(&mut session, 1)])?;
    /// session.length()?; // in use by the batch; use batch.session(0).length() batch.abort()?;
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    ///
    /// A session can be in a step only once:
    ///
    /// ```compile_fail,E0499
    /// # use pagedkv::{Cache, CacheConfig, LayerGroup};
    /// # let cache = Cache::new(&CacheConfig::new(LayerGroup::new(2, 4, 2, 32).blocks(64)))?;
    /// let mut session = cache.open_session()?;
    /// let batch = cache.begin([(&mut session, 1), (&mut session, 2)])?;
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    pub fn begin<'s>(
        &self,
        sessions: impl IntoIterator<Item = (&'s mut Session, u32)>,
    ) -> Result<Batch<'s>> {
        Batch::begin(&self.0, sessions)
    }

    /// Returns sessions to suspend or drop so that [`begin`](Self::begin) with the rest of this
    /// list gets its blocks: the lowest priority first, and of equal ones the session opened last.
    /// They may be in the list. The answer is valid until another call allocates or frees blocks.
    pub fn choose_victims<'s>(
        &self,
        sessions: impl IntoIterator<Item = (&'s Session, u32)>,
    ) -> Result<Vec<SessionId>> {
        let (handles, new_tokens): (Vec<_>, Vec<_>) =
            sessions.into_iter().map(|(session, n)| (session.as_raw(), n)).unzip();
        let victims = fill(std::ptr::null_mut(), |capacity, victims, count| unsafe {
            let (cache, sessions, tokens) = (self.0.handle, handles.as_ptr(), new_tokens.as_ptr());
            sys::pkv_batch_choose_victims(
                cache,
                handles.len(),
                sessions,
                tokens,
                capacity,
                victims,
                count,
            )
        })?;
        Ok(victims.into_iter().map(SessionId::of).collect())
    }
}

impl<'s> Batch<'s> {
    pub(crate) fn begin(
        cache: &Arc<Owned>,
        sessions: impl IntoIterator<Item = (&'s mut Session, u32)>,
    ) -> Result<Self> {
        let (sessions, new_tokens): (Vec<_>, Vec<_>) = sessions.into_iter().unzip();
        let handles: Vec<_> =
            sessions.iter().map(|session: &&mut Session| session.as_raw()).collect();
        let mut handle = null_mut();
        call(|| unsafe {
            let (sessions, tokens) = (handles.as_ptr(), new_tokens.as_ptr());
            sys::pkv_batch_begin(cache.handle, handles.len(), sessions, tokens, &mut handle)
        })?;
        let rows = new_tokens.iter().map(|&n| n as usize).sum();
        let (cache, new_tokens) = (cache.clone(), new_tokens.into_boxed_slice());
        Ok(Self { handle, cache, sessions: sessions.into(), rows, new_tokens, first_rows: None })
    }

    fn batch_rows(&self) -> BatchRows<'_> {
        BatchRows { lengths: &self.new_tokens, first_rows: self.first_rows.as_deref() }
    }

    /// The handle of C, for functions of `pagedkv-sys`. It stays this batch's.
    pub fn as_raw(&self) -> sys::pkv_batch {
        self.handle
    }

    /// The number of rows: the sum of the new tokens.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Session number `i` of the batch, for reading: its getters see the step in progress.
    ///
    /// # Panics
    /// If there is no such session.
    pub fn session(&self, i: usize) -> &Session {
        self.sessions[i]
    }

    /// Sets where the rows of each session begin in the rows to write and attend: after left
    /// padding, or after gaps. `None`: the default again.
    pub fn set_first_rows(&mut self, first_rows: Option<&[u32]>) -> Result<()> {
        let (count, list) = first_rows.map_or((0, null()), |rows| (rows.len(), rows.as_ptr()));
        call(|| unsafe { sys::pkv_batch_set_first_rows(self.handle, count, list) })?;
        self.first_rows = first_rows.map(Box::from);
        Ok(())
    }

    /// Stores keys `[rows][kv_heads][key_dim]` and values `[rows][kv_heads][value_dim]` of one
    /// layer.
    #[inline]
    pub fn write<'a>(
        &mut self,
        layer: u32,
        k: impl Into<Rows<'a>>,
        v: impl Into<Rows<'a>>,
    ) -> Result<()> {
        let (k, v) = self.cache.shape(layer)?.batch_kv(&self.batch_rows(), k.into(), v.into())?;
        call(|| unsafe { sys::pkv_batch_write(self.handle, layer, &k, &v) })
    }

    /// Stores keys of a layer whose values are inside them.
    pub fn write_latent<'a>(&mut self, layer: u32, k: impl Into<Rows<'a>>) -> Result<()> {
        let k = self.cache.shape(layer)?.batch_keys(&self.batch_rows(), k.into())?;
        call(|| unsafe { sys::pkv_batch_write(self.handle, layer, &k, null()) })
    }

    /// Attention of all rows over their sessions, the new tokens included: queries
    /// `[rows][query_heads][key_dim]` to outputs `[rows][query_heads][value_dim]`.
    #[inline]
    pub fn attend<'a, 'b>(
        &mut self,
        layer: u32,
        q: impl Into<Rows<'a>>,
        out: impl Into<RowsMut<'b>>,
    ) -> Result<()> {
        let shape = self.cache.shape(layer)?;
        let (q, out) = shape.q_and_out(&self.batch_rows(), q.into(), out.into())?;
        call(|| unsafe { sys::pkv_batch_attend(self.handle, layer, null(), &q, &out, null()) })
    }

    /// As [`attend`](Self::attend), with parameters, and the other `outputs` that are wanted.
    pub fn attend_with<'a, 'b>(
        &mut self,
        layer: u32,
        params: &AttentionParams<'_>,
        q: impl Into<Rows<'a>>,
        out: impl Into<RowsMut<'b>>,
        outputs: Option<AttentionOutputs<'_>>,
    ) -> Result<()> {
        let shape = self.cache.shape(layer)?;
        let (q, out) = shape.q_and_out(&self.batch_rows(), q.into(), out.into())?;
        let heads = [shape.query_heads, shape.kv_heads];
        params.with_raw(&self.batch_rows(), heads, outputs, |params, outputs| {
            call(|| unsafe { sys::pkv_batch_attend(self.handle, layer, params, &q, &out, outputs) })
        })
    }

    /// Keeps only some of the new tokens of session number `i`, by indices in ascending order: the
    /// accepted path of a tree of speculative tokens. [`commit`](Self::commit) still takes one id
    /// per row.
    pub fn accept(&mut self, i: usize, kept: &[u32]) -> Result<()> {
        call(|| unsafe { sys::pkv_batch_accept(self.handle, i, kept.len(), kept.as_ptr()) })
    }

    /// Ends the step: adds the new tokens to every session, one id per row. With `None` their ids
    /// are [`UNKNOWN_TOKEN`](crate::UNKNOWN_TOKEN), or those that [`Session::suspend`] remembered.
    /// If it fails, the step is aborted; see [`try_commit`](Self::try_commit).
    ///
    /// A step ends only once:
    ///
    /// ```compile_fail,E0382
    /// # use pagedkv::{Cache, CacheConfig, LayerGroup};
    /// # let cache = Cache::new(&CacheConfig::new(LayerGroup::new(2, 4, 2, 32).blocks(64)))?;
    /// let mut session = cache.open_session()?;
    /// let batch = cache.begin([(&mut session, 0)])?;
    /// batch.commit(None)?;
    /// batch.rows();
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    pub fn commit<'a>(self, tokens: impl IntoTokens<'a>) -> Result<()> {
        self.try_commit(tokens).map_err(|(_, error)| error)
    }

    /// As [`commit`](Self::commit), but returns the batch if it fails: for example to write a
    /// missing layer.
    pub fn try_commit<'a>(mut self, tokens: impl IntoTokens<'a>) -> Result<(), (Self, Error)> {
        let (n, tokens) = tokens.into_tokens().map_or((0, null()), |ids| (ids.len(), ids.as_ptr()));
        match call(|| unsafe { sys::pkv_batch_commit(self.handle, n, tokens) }) {
            Ok(()) => {
                self.handle = null_mut();
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    /// Undoes the step. Dropping the batch does the same. If this call fails, a later call of the
    /// library undoes the step.
    pub fn abort(mut self) -> Result<()> {
        call(|| unsafe { sys::pkv_batch_abort(self.handle) })?;
        self.handle = null_mut();
        Ok(())
    }

    /// Returns the slots of all new tokens in one group: an engine with its own memory writes
    /// there.
    pub fn slot_mapping(&self, group: u32) -> Result<Vec<i64>> {
        fill(0, |capacity, slots, n| unsafe {
            sys::pkv_batch_get_slot_mapping(self.handle, group, capacity, slots, n)
        })
    }

    /// Returns the shared, part-filled blocks that begin replaced in one group, as (from, to). With
    /// storage `NONE` the engine must copy them before it writes.
    pub fn block_copies(&self, group: u32) -> Result<Vec<(u32, u32)>> {
        let mut to = Vec::new();
        let from = fill(0, |capacity, from, n| {
            to.resize(capacity, 0);
            unsafe {
                sys::pkv_batch_get_block_copies(
                    self.handle,
                    group,
                    capacity,
                    from,
                    to.as_mut_ptr(),
                    n,
                )
            }
        })?;
        Ok(from.into_iter().zip(to).collect())
    }

    /// Returns the blocks or slots that each session reads in one group: with the new tokens,
    /// without those that left the window.
    pub fn kv_indices(&self, group: u32, unit: IndexUnit) -> Result<KvIndices> {
        let (mut indptr, mut last_block_length) =
            (vec![0; self.sessions.len() + 1], vec![0; self.sessions.len()]);
        let (starts, lengths) = (indptr.as_mut_ptr(), last_block_length.as_mut_ptr());
        let indices = fill(0, |capacity, indices, n| unsafe {
            sys::pkv_batch_get_kv_indices(
                self.handle,
                group,
                unit,
                starts,
                capacity,
                indices,
                n,
                lengths,
            )
        })?;
        Ok(KvIndices { indptr, indices, last_block_length })
    }

    /// The states of one layer of a group [with states](crate::LayerGroup::states), session by
    /// session: what each has, and where those after its new tokens are written.
    ///
    /// There is always a place for the state after the last new token. A step that reaches past a
    /// [checkpoint](crate::LayerGroup::checkpoint_interval) has places for the states there and
    /// after the last full block, too, and a [draft](crate::LayerGroup::max_verify_tokens) one
    /// after each token: the state of that token and what precedes it in its branch. Write all of
    /// them before the commit; until then they hold any bytes.
    ///
    /// ```
    /// use pagedkv::{Cache, CacheConfig, LayerGroup, SessionStates};
    ///
    /// let cache = Cache::new(&CacheConfig::new(LayerGroup::states(1, 8).blocks(64)))?;
    /// let mut session = cache.open_session()?;
    /// for token in [3u64, 4] {
    ///     let mut batch = cache.begin([(&mut session, 1)])?;
    ///     for SessionStates { before, after } in batch.states(0)? {
    ///         let sum = before.map_or(0, |state| u64::from_le_bytes(state.try_into().unwrap()));
    ///         for (_, state) in after {
    ///             state.copy_from_slice(&(sum + token).to_le_bytes());
    ///         }
    ///     }
    ///     batch.commit(&[token as i32])?;
    /// }
    /// let mut state = [0; 8];
    /// session.state(0, 2, &mut state)?;
    /// assert_eq!(u64::from_le_bytes(state), 7);
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    ///
    /// States are valid only in this step:
    ///
    /// ```compile_fail,E0505
    /// # use pagedkv::{Cache, CacheConfig, LayerGroup};
    /// # let cache = Cache::new(&CacheConfig::new(LayerGroup::states(1, 8).blocks(64)))?;
    /// # let mut session = cache.open_session()?;
    /// let mut batch = cache.begin([(&mut session, 1)])?;
    /// let mut states = batch.states(0)?;
    /// batch.commit(&[1])?;
    /// states[0].after[0].1.fill(1); // it belongs to the session and its forks now
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    ///
    /// They cannot be borrowed twice:
    ///
    /// ```compile_fail,E0499
    /// # use pagedkv::{Cache, CacheConfig, LayerGroup};
    /// # let cache = Cache::new(&CacheConfig::new(LayerGroup::states(1, 8).blocks(64)))?;
    /// # let mut session = cache.open_session()?;
    /// let mut batch = cache.begin([(&mut session, 1)])?;
    /// let (first, second) = (batch.states(0)?, batch.states(0)?);
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    pub fn states(&mut self, layer: u32) -> Result<Vec<SessionStates<'_>>> {
        let shape = self.cache.any_shape(layer)?;
        let mut before = vec![null(); self.sessions.len()];
        let after = fill(null_mut(), |capacity, after, n| unsafe {
            sys::pkv_batch_get_states(self.handle, layer, before.as_mut_ptr(), capacity, after, n)
        })?;
        let StateBlocks { indptr, tokens, .. } = self.state_blocks(shape.group)?;
        let mut after = tokens.into_iter().zip(after).map(|(token, state)| {
            // The addresses differ, the library's memory has a value in every byte, and the borrow
            // of the batch ends before the step does.
            (token, unsafe { from_raw_parts_mut(state.cast(), shape.state_bytes) })
        });
        let of_session = |(state, ends): (*const c_void, &[u32])| SessionStates {
            // The current state of a session does not change during its step.
            before: (!state.is_null())
                .then(|| unsafe { from_raw_parts(state.cast(), shape.state_bytes) }),
            after: after.by_ref().take((ends[1] - ends[0]) as usize).collect(),
        };
        Ok(before.into_iter().zip(indptr.windows(2)).map(of_session).collect())
    }

    /// Returns the new tokens after which a group keeps a state, and the blocks of these states:
    /// for engines with their own memory (storage `NONE`) or kernels that take ids.
    pub fn state_blocks(&self, group: u32) -> Result<StateBlocks> {
        let sessions = self.sessions.len();
        let (mut before, mut indptr, mut after) =
            (vec![0; sessions], vec![0; sessions + 1], Vec::new());
        let (blocks, starts) = (before.as_mut_ptr(), indptr.as_mut_ptr());
        let tokens = fill(0, |capacity, tokens, n| {
            after.resize(capacity, 0);
            let (handle, after) = (self.handle, after.as_mut_ptr());
            unsafe {
                sys::pkv_batch_get_state_blocks(
                    handle, group, blocks, starts, capacity, tokens, after, n,
                )
            }
        })?;
        after.truncate(tokens.len());
        Ok(StateBlocks { before, indptr, tokens, after })
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            close(Handle::Batch(self.handle), Hooks::default());
        }
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("handle", &self.handle).field("rows", &self.rows).finish()
    }
}
