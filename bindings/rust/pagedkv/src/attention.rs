//! Parameters of attention, and attention over memory that the caller owns.
use crate::compute::{handle_of, Compute};
use crate::error::{call, ensure_library, Error, Result, Status};
use crate::kv::{KvView, Sequences};
use crate::rows::{BatchRows, Rows, RowsMut};
use crate::sys;
use std::mem::size_of;
use std::ptr::{null, null_mut};

/// Which positions each query sees, a byte for query `i` of sequence `s` and column `c`, at
/// `data[s * batch_stride + i * row_stride + c]`; 0 hides. Column `c` stands for position
/// `first_positions[s] + c`; a negative one is padding on the left.
#[derive(Clone, Copy, Debug, Default)]
pub struct BoolMask<'a> {
    /// The bytes.
    pub data: &'a [u8],
    /// Columns, up to the last position of every sequence.
    pub columns: usize,
    /// Bytes from query to query; 0: all queries have the same row.
    pub row_stride: usize,
    /// Bytes from sequence to sequence; 0: all have the same rows.
    pub batch_stride: usize,
    /// The position of column 0 in each sequence; `None`: 0.
    pub first_positions: Option<&'a [i64]>,
}

impl BoolMask<'_> {
    /// As C takes it, once it is clear that its bytes reach as far as it says.
    fn fill(&self, raw: &mut sys::pkv_attention_params, batch: &BatchRows<'_>) -> Result<()> {
        let count = batch.lengths.len();
        let rows = (batch.reach().max(1) - 1).checked_mul(self.row_stride);
        let reach = (count.max(1) - 1)
            .checked_mul(self.batch_stride)
            .and_then(|sequences| rows?.checked_add(sequences)?.checked_add(self.columns));
        let positions = self.first_positions.map_or(count, <[i64]>::len);
        if positions != count || reach.map_or(true, |reach| reach > self.data.len()) {
            let given = format!("{} bytes and {positions} first positions", self.data.len());
            return Err(Error::misuse(format!(
                "bool_mask: {given} are given for {count} sequences of up to {} rows",
                batch.reach()
            )));
        }
        let stride = |stride: usize| i64::try_from(stride).unwrap_or(i64::MAX);
        raw.bool_mask = self.data.as_ptr();
        raw.bool_mask_columns = self.columns as u64;
        raw.bool_mask_row_stride = stride(self.row_stride);
        raw.bool_mask_batch_stride = stride(self.batch_stride);
        raw.bool_mask_first_positions = self.first_positions.map_or(null(), <[i64]>::as_ptr);
        Ok(())
    }
}

/// What an attention tells besides its outputs.
#[derive(Default)]
pub(crate) struct Told<'a> {
    pub lse: Option<&'a mut [f32]>,
    pub chosen_blocks: Option<&'a mut [u32]>,
    /// With the number of blocks of each query head.
    pub block_mass: Option<(&'a mut [f32], usize)>,
}

impl<'a> Told<'a> {
    pub fn lse(lse: Option<&'a mut [f32]>) -> Self {
        Self { lse, ..Self::default() }
    }
}

/// Variants of attention. They combine freely.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionParams<'a> {
    scale: f32,
    full: bool,
    window: Option<u32>,
    sinks: Option<u32>,
    softcap: f32,
    alibi_slopes: Option<&'a [f32]>,
    sink_logits: Option<&'a [f32]>,
    mask: Option<(&'a [u64], usize)>,
    parents: Option<&'a [i32]>,
    bool_mask: Option<BoolMask<'a>>,
    top_blocks: u32,
    block_mass_queries: u32,
    first_blocks: Option<u32>,
    last_blocks: Option<u32>,
    block_lists: Option<(&'a [u32], usize)>,
    head_windows: Option<&'a [u32]>,
    head_sinks: Option<&'a [u32]>,
    choose_together: bool,
}

impl<'a> AttentionParams<'a> {
    /// Causal attention with the scale 1 / sqrt(key_dim), and the window and sinks of the layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Factor of the scores.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = scale;
        self
    }

    /// A query sees all of its sequence, not only what is before it.
    pub fn not_causal(mut self) -> Self {
        self.full = true;
        self
    }

    /// A query sees its own position and `tokens - 1` before it; 0: all.
    pub fn window(mut self, tokens: u32) -> Self {
        self.window = Some(tokens);
        self
    }

    /// First positions seen whatever the window.
    pub fn sinks(mut self, tokens: u32) -> Self {
        self.sinks = Some(tokens);
        self
    }

    /// A window for each KV head, in place of [`window`](Self::window); 0: all.
    pub fn head_windows(mut self, tokens: &'a [u32]) -> Self {
        self.head_windows = Some(tokens);
        self
    }

    /// Sinks for each KV head, in place of [`sinks`](Self::sinks).
    pub fn head_sinks(mut self, tokens: &'a [u32]) -> Self {
        self.head_sinks = Some(tokens);
        self
    }

    /// Scores become softcap * tanh(score / softcap).
    pub fn softcap(mut self, softcap: f32) -> Self {
        self.softcap = softcap;
        self
    }

    /// A slope per query head (ALiBi).
    pub fn alibi_slopes(mut self, slopes: &'a [f32]) -> Self {
        self.alibi_slopes = Some(slopes);
        self
    }

    /// A logit per query head that takes part in the softmax without a value.
    pub fn sink_logits(mut self, logits: &'a [f32]) -> Self {
        self.sink_logits = Some(logits);
        self
    }

    /// Which new tokens of its own session a new token sees, `[rows][words_per_row]`: bit `j % 64`
    /// of word `j / 64` of a row stands for the session's new token `j`.
    pub fn mask(mut self, words: &'a [u64], words_per_row: usize) -> Self {
        self.mask = Some((words, words_per_row));
        self
    }

    /// A tree of new tokens: the parent of each, its index among the new tokens of its session, or
    /// -1. A token sees itself and its ancestors.
    pub fn parents(mut self, parents: &'a [i32]) -> Self {
        self.parents = Some(parents);
        self
    }

    /// Which positions each query sees.
    pub fn bool_mask(mut self, mask: BoolMask<'a>) -> Self {
        self.bool_mask = Some(mask);
        self
    }

    /// Each row reads, for each KV head, the `count` blocks whose keys may score highest, and
    /// besides [`first_blocks`](Self::first_blocks), [`last_blocks`](Self::last_blocks) and those
    /// with tokens of the step; 0: all blocks. In a cache only.
    pub fn top_blocks(mut self, count: u32) -> Self {
        self.top_blocks = count;
        self
    }

    /// Only so many last new tokens of each session count for the mass that
    /// [`Batch::attend_weighing`](crate::Batch::attend_weighing) tells. Without this all do.
    pub fn block_mass_queries(mut self, count: u32) -> Self {
        self.block_mass_queries = count;
        self
    }

    /// The new tokens of a session choose the same [`top_blocks`](Self::top_blocks), by the sums of
    /// their bounds, and read them together: for trees, say.
    pub fn choose_together(mut self) -> Self {
        self.choose_together = true;
        self
    }

    /// With chosen blocks, so many first blocks are read, too. Without this one is.
    pub fn first_blocks(mut self, count: u32) -> Self {
        self.first_blocks = Some(count);
        self
    }

    /// With chosen blocks, so many blocks before those of the step are read, too. Without this one
    /// is.
    pub fn last_blocks(mut self, count: u32) -> Self {
        self.last_blocks = Some(count);
        self
    }

    /// The blocks that each row reads for each KV head in place of
    /// [`top_blocks`](Self::top_blocks), `[rows][kv_heads][blocks_per_head]`: indices in the block
    /// table, rising, [`NO_BLOCK`](crate::NO_BLOCK) after the last.
    pub fn block_lists(mut self, blocks: &'a [u32], blocks_per_head: usize) -> Self {
        self.block_lists = Some((blocks, blocks_per_head));
        self
    }

    /// As C takes it, once it is clear that its arrays are as long as it says. `heads` are those of
    /// queries and of keys.
    pub(crate) fn raw(
        &self,
        batch: &BatchRows<'_>,
        heads: [u32; 2],
        told: Told<'_>,
    ) -> Result<sys::pkv_attention_params> {
        let too_many = || Error::new(Status::OVERFLOW, "the sum of the rows does not fit");
        let rows = batch.total().ok_or_else(too_many)?;
        let Told { lse, chosen_blocks, block_mass } = told;
        let [heads, kv_heads] = heads;
        let length = |what: &str, found: usize, wanted: Option<usize>| match wanted {
            Some(wanted) if wanted == found => Ok(()),
            _ => Err(Error::misuse(format!(
                "{what}: {found} numbers are given for {rows} rows and {heads} query heads"
            ))),
        };
        for (what, numbers) in
            [("alibi_slopes", self.alibi_slopes), ("sink_logits", self.sink_logits)]
        {
            numbers.map_or(Ok(()), |numbers| length(what, numbers.len(), Some(heads as usize)))?;
        }
        for (what, numbers) in
            [("head_windows", self.head_windows), ("head_sinks", self.head_sinks)]
        {
            if let Some(found) = numbers.map(<[u32]>::len).filter(|&n| n != kv_heads as usize) {
                return Err(Error::misuse(format!(
                    "{what}: {found} numbers are given for {kv_heads} KV heads"
                )));
            }
        }
        if let Some((words, per_row)) = self.mask {
            length("mask", words.len(), per_row.checked_mul(rows))?;
        }
        if let Some(parents) = self.parents {
            length("parents", parents.len(), Some(rows))?;
        }
        if let Some(lse) = &lse {
            length("lse", lse.len(), rows.checked_mul(heads as usize))?;
        }
        let blocks = |what: &str, found: usize, per_head: usize| {
            let wanted = per_head.checked_mul(kv_heads as usize).and_then(|n| n.checked_mul(rows));
            if wanted == Some(found) {
                return Ok(());
            }
            Err(Error::misuse(format!(
                "{what}: {found} blocks are given for {rows} rows and {kv_heads} KV heads of \
                 {per_head}"
            )))
        };
        if let Some((lists, per_head)) = self.block_lists {
            blocks("block_lists", lists.len(), per_head)?;
        }
        if let Some(chosen) = &chosen_blocks {
            blocks("chosen_blocks", chosen.len(), self.top_blocks as usize)?;
        }
        let per_head = block_mass.as_ref().map_or(0, |&(_, per_head)| per_head);
        if let Some((mass, _)) = &block_mass {
            let wanted = per_head.checked_mul(heads as usize);
            let sessions = batch.lengths.len();
            if wanted.and_then(|n| n.checked_mul(sessions)) != Some(mass.len()) {
                return Err(Error::misuse(format!(
                    "block_mass: {} numbers are given for {sessions} sessions and {heads} query \
                     heads of {per_head} blocks",
                    mass.len()
                )));
            }
        }
        let pointer = |numbers: Option<&[f32]>| numbers.map_or(std::ptr::null(), <[f32]>::as_ptr);
        let mut raw = sys::pkv_attention_params {
            struct_size: size_of::<sys::pkv_attention_params>() as u32,
            scale: self.scale,
            causal: (!self.full).into(),
            window: self.window.unwrap_or(sys::PKV_WINDOW_OF_LAYER),
            softcap: self.softcap,
            alibi_slopes: pointer(self.alibi_slopes),
            sink_logits: pointer(self.sink_logits),
            mask: self.mask.map_or(std::ptr::null(), |(words, _)| words.as_ptr()),
            mask_words: self.mask.map_or(0, |(_, per_row)| per_row as u64),
            sinks: self.sinks.unwrap_or(sys::PKV_SINKS_OF_LAYER),
            lse: lse.map_or(null_mut(), <[f32]>::as_mut_ptr),
            parents: self.parents.map_or(null(), <[i32]>::as_ptr),
            bool_mask: null(),
            bool_mask_columns: 0,
            bool_mask_row_stride: 0,
            bool_mask_batch_stride: 0,
            bool_mask_first_positions: null(),
            top_blocks: self.top_blocks,
            first_blocks: self.first_blocks.unwrap_or(1),
            last_blocks: self.last_blocks.unwrap_or(1),
            block_mass_queries: self.block_mass_queries,
            block_lists: self.block_lists.map_or(null(), |(lists, _)| lists.as_ptr()),
            block_list_size: self.block_lists.map_or(0, |(_, per_head)| per_head as u64),
            chosen_blocks: chosen_blocks.map_or(null_mut(), <[u32]>::as_mut_ptr),
            block_mass: block_mass.map_or(null_mut(), |(mass, _)| mass.as_mut_ptr()),
            block_mass_size: per_head as u64,
            head_windows: self.head_windows.map_or(null(), <[u32]>::as_ptr),
            head_sinks: self.head_sinks.map_or(null(), <[u32]>::as_ptr),
            choose_together: self.choose_together.into(),
            reserved: 0,
        };
        if let Some(mask) = &self.bool_mask {
            mask.fill(&mut raw, batch)?;
        }
        Ok(raw)
    }
}

/// Attention without a cache, over a view and block tables of the caller's: queries
/// `[rows][query_heads][key_dim]` to outputs `[rows][query_heads][value_dim]`, and to `lse`
/// `[rows][query_heads]` where wanted. Without `compute` it runs on all processors.
///
/// ```
/// use pagedkv::{attention, AttentionParams, KvView, Sequences};
///
/// // Two blocks of 16 tokens; the sequence has the second one first. All keys are alike: attention
/// // gives the mean of the values.
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
/// attention(None, &view, &sequences, &AttentionParams::new(), &[1.0f32; 16], &mut out, None)?;
/// assert!((out[0] - 3.0 * 16.0 / 20.0).abs() < 1e-6);
/// # Ok::<(), pagedkv::Error>(())
/// ```
pub fn attention<'a, 'b>(
    compute: Option<&Compute>,
    kv: &KvView<'_>,
    sequences: &Sequences<'_>,
    params: &AttentionParams<'_>,
    q: impl Into<Rows<'a>>,
    out: impl Into<RowsMut<'b>>,
    lse: Option<&mut [f32]>,
) -> Result<()> {
    ensure_library()?;
    let (raw, batch) = (sequences.raw()?, sequences.batch_rows());
    let view = kv.as_raw();
    let params = params.raw(&batch, [sequences.query_heads, view.kv_heads], Told::lse(lse))?;
    let q = q.into().batch_tensor(&batch, sequences.query_heads, view.key_dim, "q")?;
    let out = out.into().batch_tensor(&batch, sequences.query_heads, view.value_dim, "out")?;
    call(|| unsafe { sys::pkv_attention(handle_of(compute), view, &raw, &params, &q, &out) })
}

/// Combines results of attention over the same queries and different positions, each with its
/// `lse`, to `merged` and `merged_lse`: all `[rows][heads][dim]` and `[rows][heads]`.
pub fn merge_states<'b>(
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
    let numbers = rows.checked_mul(heads as usize);
    let lse_of =
        states.iter().map(|(_, lse)| lse.len()).chain(merged_lse.as_ref().map(|lse| lse.len()));
    if let Some(found) = lse_of.into_iter().find(|&found| Some(found) != numbers) {
        return Err(Error::misuse(format!(
            "lse: {found} numbers are given for {rows} rows and {heads} heads"
        )));
    }
    let outs = states
        .iter()
        .map(|(out, _)| out.tensor(rows, heads, dim, "outs"))
        .collect::<Result<Vec<_>>>()?;
    let lse: Vec<_> = states.iter().map(|(_, lse)| lse.as_ptr()).collect();
    let merged = merged.into().tensor(rows, heads, dim, "merged")?;
    let merged_lse = merged_lse.map_or(null_mut(), <[f32]>::as_mut_ptr);
    call(|| unsafe {
        sys::pkv_merge_states(
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
