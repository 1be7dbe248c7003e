//! Hints: what an engine knows about the future of cached tokens.
use crate::cache::Cache;
use crate::error::Result;
use crate::prefix::Salt;
use crate::session::{Retention, Session};
use crate::structs::filled;
use crate::sys;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

#[doc(inline)]
pub use crate::sys::{
    pkv_hint_action as HintAction, pkv_hint_outcome as HintOutcome, pkv_hint_reason as HintReason,
    pkv_hint_result as HintResult,
};

/// What to do with the blocks of a text or session: an action, and its bounds.
///
/// ```
/// use pagedkv::{Hint, HintAction};
/// use std::time::Duration;
///
/// let hint = Hint::new(HintAction::PIN).range(0..1024).duration(Duration::from_secs(60));
/// # let _ = hint;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Hint(sys::pkv_hint);

impl Hint {
    /// All of the target.
    pub fn new(action: HintAction) -> Self {
        let end = if action == HintAction::EXPECT_RETURN { 0 } else { sys::PKV_TO_END };
        Hint(sys::pkv_hint { action, end, ..Default::default() })
    }

    /// These tokens; `32..` is all from 32 on. Actions that are not about a range (`PIN`, `UNPIN`,
    /// `PREFETCH`, `STORE`) begin at 0.
    pub fn range(mut self, tokens: impl RangeBounds<u64>) -> Self {
        self.0.first = match tokens.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        self.0.end = match tokens.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => sys::PKV_TO_END,
        };
        self
    }

    /// For `SET_RETENTION` and `PREFETCH`.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.0.retention = retention;
        self
    }

    /// For how long; of `EXPECT_RETURN`, until when. Zero: without an end; others last at least a
    /// millisecond.
    pub fn duration(mut self, duration: Duration) -> Self {
        let (ms, never) = ((duration.as_nanos() + 999_999) / 1_000_000, sys::PKV_RETURN_NEVER);
        self.0.duration_ms = ms.min(u128::from(never)) as u64;
        self
    }
}

/// These need a prefix index ([`CacheConfig::prefix`](crate::CacheConfig::prefix)), else
/// `UNSUPPORTED`.
impl Cache {
    /// Gives a hint about a text, and returns what came of it.
    pub fn hint(&self, salt: Salt<'_>, tokens: &[i32], hint: Hint) -> Result<HintResult> {
        let text = salt.text(tokens);
        filled(|out| unsafe { sys::pkv_hint_prompt(self.as_raw(), &text, &hint.0, out) })
    }
}

impl Session {
    /// Gives a hint about the session, and returns what came of it.
    pub fn hint(&self, hint: Hint) -> Result<HintResult> {
        filled(|out| unsafe { sys::pkv_hint_session(self.as_raw(), &hint.0, out) })
    }
}
