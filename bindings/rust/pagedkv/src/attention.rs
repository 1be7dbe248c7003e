//! Parameters of attention, and attention over memory that the caller owns.
use crate::compute::{handle_of, Compute};
use crate::error::{call, ensure_library, Error, Result, Status};
use crate::kv::{KvView, Sequences};
use crate::rows::{stride, BatchRows, Rows, RowsMut, F16};
use crate::structs::{address, setters, Numbers};
use crate::sys;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};

/// Refuses an array whose length is not the product of its sizes.
fn check_length(what: &str, found: usize, sizes: &[usize]) -> Result<()> {
    if sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size)) == Some(found) {
        return Ok(());
    }
    Err(Error::misuse(format!("{what}: {found} numbers are given for {sizes:?}")))
}

/// Returns the address of an array after checking its length; null for none.
fn array<T>(what: &str, given: Option<&[T]>, sizes: &[usize]) -> Result<*const T> {
    given.map_or(Ok(null()), |given| {
        check_length(what, given.len(), sizes)?;
        Ok(given.as_ptr())
    })
}

fn array_mut<T>(what: &str, given: Option<&mut [T]>, sizes: &[usize]) -> Result<*mut T> {
    given.map_or(Ok(null_mut()), |given| {
        check_length(what, given.len(), sizes)?;
        Ok(given.as_mut_ptr())
    })
}

/// Which positions each query sees, in addition to the causal rule and the window.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a> {
    /// Which new tokens of its own session a new token sees.
    Bits {
        /// `[rows][words_per_row]`: bit `j % 64` of word `j / 64` of a row stands for the session's
        /// new token `j`.
        words: &'a [u64],
        /// Words per row.
        words_per_row: usize,
        /// `[rows]`: the position of each token in its text; needed with a window or slopes.
        positions: Option<&'a [i64]>,
    },
    /// A tree of new tokens: the parent of each, its index among the new tokens of its session, or
    /// -1. A token sees itself and its ancestors; windows, sinks and slopes count from its depth.
    Parents(&'a [i32]),
    /// A byte or a number for each query and position.
    Columns(ColumnMask<'a>),
}

impl Mask<'_> {
    /// Returns the struct of C after checking the lengths.
    fn raw(&self, batch: &BatchRows<'_>, rows: usize, heads: usize) -> Result<sys::pkv_mask> {
        Ok(match *self {
            Self::Bits { words, words_per_row, positions } => sys::pkv_mask {
                kind: sys::pkv_mask_kind::TREE_BITS,
                data: array("mask [rows][words]", Some(words), &[rows, words_per_row])?.cast(),
                row_stride: stride(words_per_row),
                positions: array("positions [rows]", positions, &[rows])?,
                ..Default::default()
            },
            Self::Parents(parents) => sys::pkv_mask {
                kind: sys::pkv_mask_kind::TREE_PARENTS,
                data: array("parents [rows]", Some(parents), &[rows])?.cast(),
                ..Default::default()
            },
            Self::Columns(mask) => mask.raw(batch, heads)?,
        })
    }
}

/// The elements of a [`ColumnMask`].
#[derive(Clone, Copy, Debug)]
pub enum MaskData<'a> {
    /// 0 hides the position.
    Bytes(&'a [u8]),
    /// Numbers that are added to scores; -infinity hides the position.
    F16(&'a [F16]),
    /// The same in `f32`.
    F32(&'a [f32]),
}

impl Default for MaskData<'_> {
    fn default() -> Self {
        Self::Bytes(&[])
    }
}

/// An element for query `i` of sequence `s` and column `c`, at
/// `data[s * batch_stride + i * row_stride + c]`. Column `c` stands for position
/// `first_positions[s] + c`; a negative one is padding on the left.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColumnMask<'a> {
    /// The elements.
    pub data: MaskData<'a>,
    /// Columns, up to the last position of every sequence.
    pub columns: usize,
    /// Elements from query to query; 0: all queries have the same row.
    pub row_stride: usize,
    /// Elements from sequence to sequence; 0: all have the same rows.
    pub batch_stride: usize,
    /// The position of column 0 in each sequence; `None`: 0.
    pub first_positions: Option<&'a [i64]>,
    /// Numbers are multiplied by those of the query heads; `None`: 1.
    pub head_factors: Option<&'a [f32]>,
}

impl ColumnMask<'_> {
    fn raw(&self, batch: &BatchRows<'_>, heads: usize) -> Result<sys::pkv_mask> {
        let (kind, data, given): (_, *const c_void, _) = match self.data {
            MaskData::Bytes(data) => (sys::pkv_mask_kind::BYTES, data.as_ptr().cast(), data.len()),
            MaskData::F16(data) => (sys::pkv_mask_kind::F16, data.as_ptr().cast(), data.len()),
            MaskData::F32(data) => (sys::pkv_mask_kind::F32, data.as_ptr().cast(), data.len()),
        };
        let count = batch.lengths.len();
        let rows = (batch.reach().max(1) - 1).checked_mul(self.row_stride);
        let reach = (count.max(1) - 1)
            .checked_mul(self.batch_stride)
            .and_then(|sequences| rows?.checked_add(sequences)?.checked_add(self.columns));
        if reach.map_or(true, |reach| reach > given) {
            return Err(Error::misuse(format!(
                "mask: {given} elements are given for {count} sequences of up to {} rows",
                batch.reach()
            )));
        }
        Ok(sys::pkv_mask {
            kind,
            data,
            row_stride: stride(self.row_stride),
            batch_stride: stride(self.batch_stride),
            columns: self.columns as u64,
            first_positions: array("first_positions [sequences]", self.first_positions, &[count])?,
            head_factors: array("head_factors [query heads]", self.head_factors, &[heads])?,
            ..Default::default()
        })
    }
}

/// Experimental: which blocks queries read, instead of all of them: for each KV head those that are
/// chosen, those with their own tokens, the first ones and the last ones before their own (one
/// each, unless [`first_blocks`](Self::first_blocks) and [`last_blocks`](Self::last_blocks) say
/// otherwise).
#[derive(Clone, Copy, Debug)]
pub struct ChosenBlocks<'a> {
    c: Numbers<sys::pkv_chosen_blocks>,
    lists: Option<&'a [u32]>,
}

impl<'a> ChosenBlocks<'a> {
    /// The `count` blocks whose keys may score highest. Only in a cache.
    pub fn top_blocks(count: u32) -> Self {
        let numbers = sys::pkv_chosen_blocks {
            top_blocks: count,
            first_blocks: 1,
            last_blocks: 1,
            ..Default::default()
        };
        Self { c: Numbers(numbers), lists: None }
    }

    /// The listed blocks, `[choices][kv_heads][blocks_per_head]`: indices in the block table in
    /// ascending order, [`NO_BLOCK_ID`](crate::NO_BLOCK_ID) after the last.
    pub fn lists(blocks: &'a [u32], blocks_per_head: u32) -> Self {
        let mut chosen = Self { lists: Some(blocks), ..Self::top_blocks(0) };
        chosen.c.0.list_blocks = blocks_per_head;
        chosen
    }

    sys::pkv_chosen_blocks_setters! {}

    /// How often blocks are chosen for a KV head.
    fn choices(&self, batch: &BatchRows<'_>) -> usize {
        let tokens = self.c.0.tokens_per_choice.max(1);
        let choices_of = |rows: &u32| (rows / tokens + u32::from(rows % tokens != 0)) as usize;
        batch.lengths.iter().map(choices_of).sum()
    }

    fn raw(&self, batch: &BatchRows<'_>, kv_heads: usize) -> Result<sys::pkv_chosen_blocks> {
        let sizes = [self.choices(batch), kv_heads, self.c.0.list_blocks as usize];
        let lists = array("lists [choices][KV heads][blocks]", self.lists, &sizes)?;
        Ok(sys::pkv_chosen_blocks { lists, ..self.c.0 })
    }
}

/// Receives results of attention besides its outputs.
#[derive(Debug, Default)]
pub struct AttentionOutputs<'a> {
    /// `[rows][query_heads]`: the logarithms of the sums of exp(score).
    pub lse: Option<&'a mut [f32]>,
    /// Experimental. `[choices][kv_heads][count]`: the blocks that [`ChosenBlocks::top_blocks`]
    /// chose, in the form of [`ChosenBlocks::lists`], for example for another layer.
    pub chosen: Option<&'a mut [u32]>,
    /// Experimental. `[sequences][query_heads][mass_blocks]`: the attention mass of each block of
    /// the block tables, the sum of the weights that queries give to its tokens. Entries beyond the
    /// blocks of a sequence do not change. Not with chosen blocks.
    pub masses: Option<&'a mut [f32]>,
    /// Experimental. Entries of `masses` per query head: those of the longest block table, or more.
    pub mass_blocks: usize,
    /// Experimental. Only this many last new tokens of each session count in `masses`; 0: all.
    pub mass_queries: u32,
}

impl<'a> AttentionOutputs<'a> {
    /// Only [`lse`](Self::lse).
    pub fn lse(lse: &'a mut [f32]) -> Self {
        Self { lse: Some(lse), ..Self::default() }
    }

    /// Returns the structs of C after checking the lengths of all arrays. The second one is for
    /// `blocks` of the first.
    fn raw(
        self,
        chosen_blocks: Option<&ChosenBlocks<'_>>,
        batch: &BatchRows<'_>,
        rows: usize,
        [heads, kv_heads]: [usize; 2],
    ) -> Result<(sys::pkv_attention_outputs, sys::pkv_block_outputs)> {
        let choices = match (chosen_blocks, &self.chosen) {
            (Some(blocks), _) => [blocks.choices(batch), kv_heads, blocks.c.0.top_blocks as usize],
            (None, Some(_)) => return Err(Error::misuse("the parameters have no chosen_blocks")),
            (None, None) => [0; 3],
        };
        let sizes = [batch.lengths.len(), heads, self.mass_blocks];
        let outputs = sys::pkv_attention_outputs {
            lse: array_mut("lse [rows][query heads]", self.lse, &[rows, heads])?,
            ..Default::default()
        };
        let block_outputs = sys::pkv_block_outputs {
            mass_queries: self.mass_queries,
            chosen: array_mut("chosen [choices][KV heads][blocks]", self.chosen, &choices)?,
            masses: array_mut("masses [sequences][query heads][blocks]", self.masses, &sizes)?,
            mass_blocks: self.mass_blocks as u64,
            ..Default::default()
        };
        Ok((outputs, block_outputs))
    }
}

/// Variants of attention. They combine freely. Calls can share them.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionParams<'a> {
    c: Numbers<sys::pkv_attention_params>,
    kv_head_windows: Option<&'a [u32]>,
    kv_head_sink_tokens: Option<&'a [u32]>,
    alibi_slopes: Option<&'a [f32]>,
    sink_logits: Option<&'a [f32]>,
    mask: Option<Mask<'a>>,
    chosen_blocks: Option<ChosenBlocks<'a>>,
}

impl<'a> AttentionParams<'a> {
    /// Causal attention with the scale 1 / sqrt(key_dim), and the window and sinks of the layer.
    pub fn new() -> Self {
        Self::default()
    }

    sys::pkv_attention_params_setters! {}

    setters! {
        /// A window for each KV head, in place of [`window`](Self::window); 0: the layer's.
        kv_head_windows(tokens: &'a [u32]) = Some(tokens);
        /// Sinks for each KV head, in place of [`sink_tokens`](Self::sink_tokens).
        kv_head_sink_tokens(tokens: &'a [u32]) = Some(tokens);
        /// A slope per query head (ALiBi).
        alibi_slopes(slopes: &'a [f32]) = Some(slopes);
        /// A logit per query head that takes part in the softmax without a value.
        sink_logits(logits: &'a [f32]) = Some(logits);
        /// Which positions each query sees.
        mask(mask: Mask<'a>) = Some(mask);
        /// Experimental. Which blocks each query reads. Not with ALiBi.
        chosen_blocks(blocks: ChosenBlocks<'a>) = Some(blocks);
    }

    /// Calls `use_it` with the structs of C after checking the lengths of all arrays. `heads` are
    /// those of queries and of keys.
    pub(crate) fn with_raw<T, F>(
        &self,
        batch: &BatchRows<'_>,
        heads: [u32; 2],
        outputs: Option<AttentionOutputs<'_>>,
        use_it: F,
    ) -> Result<T>
    where
        F: FnOnce(&sys::pkv_attention_params, *const sys::pkv_attention_outputs) -> Result<T>,
    {
        let too_many = || Error::new(Status::OVERFLOW, "the sum of the rows does not fit");
        let rows = batch.total().ok_or_else(too_many)?;
        let sizes @ [heads, kv_heads] = heads.map(|heads| heads as usize);
        let mask = self.mask.map(|mask| mask.raw(batch, rows, heads)).transpose()?;
        let chosen_blocks = self.chosen_blocks.map(|blocks| blocks.raw(batch, kv_heads));
        let chosen_blocks = chosen_blocks.transpose()?;
        let outputs =
            outputs.map(|outputs| outputs.raw(self.chosen_blocks.as_ref(), batch, rows, sizes));
        let outputs = outputs.transpose()?;
        let outputs = outputs.as_ref().map(|(outputs, block_outputs)| sys::pkv_attention_outputs {
            block_outputs,
            ..*outputs
        });
        let params = sys::pkv_attention_params {
            kv_head_windows: array(
                "kv_head_windows [KV heads]",
                self.kv_head_windows,
                &[kv_heads],
            )?,
            kv_head_sink_tokens: array(
                "kv_head_sink_tokens [KV heads]",
                self.kv_head_sink_tokens,
                &[kv_heads],
            )?,
            alibi_slopes: array("alibi_slopes [query heads]", self.alibi_slopes, &[heads])?,
            sink_logits: array("sink_logits [query heads]", self.sink_logits, &[heads])?,
            mask: address(&mask),
            chosen_blocks: address(&chosen_blocks),
            ..self.c.0
        };
        use_it(&params, address(&outputs))
    }
}

/// Attention without a cache, over the caller's view and block tables: queries
/// `[rows][query_heads][key_dim]` to results `[rows][query_heads][value_dim]`, and the other
/// `outputs` that are wanted. Without `compute` it runs on all CPUs.
///
/// ```
/// use pagedkv::{kv_attend, AttentionParams, KvView, Sequences};
///
/// // Two blocks of 16 tokens; the sequence has the second one first. All keys are equal, so
/// // attention gives the mean of the values.
/// let (k, mut v) = ([1.0f32; 2 * 16 * 16], [0.0f32; 2 * 16 * 16]);
/// v[16 * 16..].fill(3.0);
/// let view = KvView::new(&k, &v, 16, 1, 16, 16)?;
/// let sequences =
///     Sequences {
///         query_heads: 1,
///         query_lengths: &[1],
///         kv_lengths: &[20],
///         block_tables: &[1, 0],
///         block_table_stride: 2,
///         ..Sequences::default()
///     };
/// let mut out = [0.0f32; 16];
/// kv_attend(None, &view, &sequences, &AttentionParams::new(), &[1.0f32; 16], &mut out, None)?;
/// assert!((out[0] - 3.0 * 16.0 / 20.0).abs() < 1e-6);
/// # Ok::<(), pagedkv::Error>(())
/// ```
pub fn kv_attend<'a, 'b>(
    compute: Option<&Compute>,
    kv: &KvView<'_>,
    sequences: &Sequences<'_>,
    params: &AttentionParams<'_>,
    q: impl Into<Rows<'a>>,
    out: impl Into<RowsMut<'b>>,
    outputs: Option<AttentionOutputs<'_>>,
) -> Result<()> {
    ensure_library()?;
    let (raw, batch) = (sequences.raw()?, sequences.batch_rows());
    let view = kv.as_raw();
    let q = q.into().batch_tensor(&batch, sequences.query_heads, view.key_dim, "q")?;
    let out = out.into().batch_tensor(&batch, sequences.query_heads, view.value_dim, "out")?;
    let heads = [sequences.query_heads, view.kv_heads];
    params.with_raw(&batch, heads, outputs, |params, outputs| {
        let compute = handle_of(compute);
        call(|| unsafe { sys::pkv_kv_attend(compute, view, &raw, params, &q, &out, outputs) })
    })
}

/// Combines results of attention over the same queries and different positions, each with its
/// `lse`, to `merged` and `merged_lse`: all `[rows][heads][dim]` and `[rows][heads]`.
pub fn attention_merge<'b>(
    compute: Option<&Compute>,
    states: &[(Rows<'_>, &[f32])],
    [rows, heads, dim]: [usize; 3],
    merged: impl Into<RowsMut<'b>>,
    merged_lse: Option<&mut [f32]>,
) -> Result<()> {
    ensure_library()?;
    let too_large = |_| {
        Error::new(
            Status::OVERFLOW,
            format!("[{rows}][{heads}][{dim}] (rows, heads, dim) is too large"),
        )
    };
    let (heads, dim) =
        (u32::try_from(heads).map_err(too_large)?, u32::try_from(dim).map_err(too_large)?);
    let outs = states
        .iter()
        .map(|(out, _)| out.tensor(rows, heads, dim, "outs"))
        .collect::<Result<Vec<_>>>()?;
    let (lse_of, sizes) = ("lse [rows][heads]", [rows, heads as usize]);
    let lse = states
        .iter()
        .map(|(_, lse)| array(lse_of, Some(lse), &sizes))
        .collect::<Result<Vec<_>>>()?;
    let merged = merged.into().tensor(rows, heads, dim, "merged")?;
    let merged_lse = array_mut(lse_of, merged_lse, &sizes)?;
    call(|| unsafe {
        sys::pkv_attention_merge(
            handle_of(compute),
            outs.len(),
            outs.as_ptr(),
            lse.as_ptr(),
            rows,
            heads,
            dim,
            &merged,
            merged_lse,
        )
    })
}
