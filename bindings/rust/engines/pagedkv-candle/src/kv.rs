//! Where keys and values are: [`Kv`], which [`Paged`](crate::Paged) and [`Basic`](crate::Basic)
//! are.
use candle_core::{Error, Result, Tensor};

/// Keys and values of many sequences, and attention over them.
pub trait Kv {
    /// The keys and values of one text.
    type Sequence;

    /// A forward pass over some sequences.
    type Step<'s>: Step
    where
        Self: 's;

    /// Opens a sequence for a text, and says how many of its first tokens it has already. That is
    /// never the whole text: the last token is computed, since what follows it is wanted.
    fn open(&self, tokens: &[u32]) -> Result<(Self::Sequence, usize)>;

    /// Keeps the first tokens of a sequence, and says how many these are: `length`, or fewer
    /// where the others are gone.
    fn trim(&self, sequence: &mut Self::Sequence, length: usize) -> Result<usize>;

    /// Begins a forward pass: sequences, each with the number of its new tokens. Where it fails,
    /// and where there is no room, the sequences are as they were.
    fn begin<'s>(
        &'s self,
        sequences: Vec<(&'s mut Self::Sequence, usize)>,
    ) -> Result<Begun<Self::Step<'s>>>;

    /// The longest text that there is room for, if it has all of it.
    fn longest(&self) -> usize;

    /// How many tokens at the beginning of a text are there for the next sequence that is opened.
    fn cached(&self, tokens: &[u32]) -> Result<usize>;

    /// Whether a text can begin with what another one is computing now, once that is done.
    fn shares(&self) -> bool;

    /// The most bytes that keys and values took at once so far.
    fn peak_bytes(&self) -> Result<u64>;
}

/// What came of [`Kv::begin`].
#[derive(Debug)]
pub enum Begun<S> {
    /// A forward pass.
    Step(S),
    /// There is no room for the new tokens until other sequences are dropped.
    NoRoom(Error),
}

/// One forward pass. Rows are the new tokens of the first sequence, then of the next. What is
/// dropped without a commit leaves the sequences as they were.
pub trait Step {
    /// Keeps keys and values `[rows][KV heads][dim]` of a layer, and gives the attention of
    /// queries `[rows][query heads][dim]`: `[rows][query heads * dim]`.
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor>;

    /// Ends the pass. `tokens` are the ids of all rows. Where it fails or panics, the sequences are
    /// as they were before the pass.
    fn commit(self, tokens: &[u32]) -> Result<()>;
}
