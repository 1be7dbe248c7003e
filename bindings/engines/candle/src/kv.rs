//! Storage of keys and values: [`Kv`], implemented by [`Paged`](crate::Paged) and
//! [`Basic`](crate::Basic).
use candle_core::{Error, Result, Tensor};

/// Keys and values of many sequences, and attention over them.
pub trait Kv {
    /// The keys and values of one text.
    type Sequence;

    /// A forward pass over some sequences.
    type Step<'s>: Step
    where
        Self: 's;

    /// Opens a sequence for a text. Returns how many of its first tokens are cached: never all of
    /// them, because the output of the last token is needed.
    fn open(&self, tokens: &[u32]) -> Result<(Self::Sequence, usize)>;

    /// Keeps the first tokens of a sequence. Returns how many these are: `length`, or fewer if the
    /// others were freed.
    fn trim(&self, sequence: &mut Self::Sequence, length: usize) -> Result<usize>;

    /// Begins a forward pass over sequences, each with its number of new tokens. If it fails, or if
    /// memory is short, the sequences are unchanged.
    fn begin<'s>(
        &'s self,
        sequences: Vec<(&'s mut Self::Sequence, usize)>,
    ) -> Result<Begun<Self::Step<'s>>>;

    /// The longest text that fits, if it has all the memory.
    fn longest(&self) -> usize;

    /// Returns how many first tokens of a text the next sequence would find cached.
    fn cached(&self, tokens: &[u32]) -> Result<usize>;

    /// Returns whether a text can reuse the tokens that another one is computing now.
    fn shares(&self) -> bool;

    /// The peak of the bytes of keys and values so far.
    fn peak_bytes(&self) -> Result<u64>;
}

/// The result of [`Kv::begin`].
#[derive(Debug)]
pub enum Begun<S> {
    /// A forward pass.
    Step(S),
    /// The new tokens do not fit until other sequences are dropped.
    NoRoom(Error),
}

/// One forward pass. Rows are the new tokens of the first sequence, then of the next. If it is
/// dropped without a commit, the sequences are unchanged.
pub trait Step {
    /// Stores keys and values `[rows][KV heads][dim]` of a layer. Returns the attention of queries
    /// `[rows][query heads][dim]`: `[rows][query heads * dim]`.
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor>;

    /// Ends the pass. `tokens` are the ids of all rows. If it fails or panics, the sequences are
    /// unchanged.
    fn commit(self, tokens: &[u32]) -> Result<()>;
}
