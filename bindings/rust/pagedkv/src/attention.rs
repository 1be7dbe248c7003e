//! Parameters of attention, and attention over memory that the caller owns.
use crate::cache::Cache;
use crate::config::Layout;
use crate::error::{call, ensure_library, Error, Result, Status};
use crate::rows::{Dtype, Element, Rows, RowsMut};
use crate::sys;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ptr::null_mut;

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

    /// As C takes it, once it is clear that its arrays are as long as it says.
    pub(crate) fn raw(
        &self,
        rows: usize,
        heads: u32,
        lse: Option<&mut [f32]>,
    ) -> Result<sys::pkv_attention_params> {
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
        if let Some((words, per_row)) = self.mask {
            length("mask", words.len(), per_row.checked_mul(rows))?;
        }
        if let Some(lse) = &lse {
            length("lse", lse.len(), rows.checked_mul(heads as usize))?;
        }
        let pointer = |numbers: Option<&[f32]>| numbers.map_or(std::ptr::null(), <[f32]>::as_ptr);
        Ok(sys::pkv_attention_params {
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
        })
    }
}

/// K and V of one layer in blocks, for [`attention`].
#[derive(Clone, Copy, Debug)]
pub struct KvView<'m> {
    raw: sys::pkv_kv_view,
    memory: PhantomData<&'m [f32]>,
}

// A borrow of plain numbers.
unsafe impl Send for KvView<'_> {}
unsafe impl Sync for KvView<'_> {}

impl<'m> KvView<'m> {
    /// Memory of the caller's: K `[block][block_size][kv_heads][key_dim]` and V
    /// `[block][block_size][kv_heads][value_dim]`.
    pub fn new<E: Element>(
        k: &'m [E],
        v: &'m [E],
        block_size: u32,
        kv_heads: u32,
        key_dim: u32,
        value_dim: u32,
    ) -> Result<Self> {
        let product = |factors: [u32; 3]| {
            factors.iter().try_fold(1i64, |product, &factor| product.checked_mul(factor.into()))
        };
        let of_block = |dim| product([block_size, kv_heads, dim]).filter(|&elements| elements > 0);
        let fits = |len: usize, block: i64| {
            i64::try_from(len).ok().filter(|len| len % block == 0).map(|len| len / block)
        };
        let sizes = of_block(key_dim).zip(of_block(value_dim));
        let sizes = sizes.and_then(|(k_block, v_block)| {
            let blocks = fits(k.len(), k_block)?;
            (fits(v.len(), v_block)? == blocks).then_some((blocks as u64, k_block, v_block))
        });
        let (blocks, k_block_stride, v_block_stride) = sizes.ok_or_else(|| {
            let shape = format!(
                "[{block_size}][{kv_heads}][{key_dim}] and [{block_size}][{kv_heads}][{value_dim}]"
            );
            Error::misuse(format!(
                "{} elements of k and {} of v are not as many blocks of {shape}",
                k.len(),
                v.len()
            ))
        })?;
        let row = |dim: u32| i64::from(kv_heads) * i64::from(dim);
        let raw = sys::pkv_kv_view {
            struct_size: size_of::<sys::pkv_kv_view>() as u32,
            dtype: E::DTYPE,
            layout: Layout::PLAIN,
            block_size,
            kv_heads,
            key_dim,
            value_dim,
            value_dtype: Dtype(0),
            blocks,
            k: k.as_ptr().cast(),
            v: v.as_ptr().cast(),
            k_block_stride,
            k_row_stride: row(key_dim),
            k_head_stride: key_dim.into(),
            v_block_stride,
            v_row_stride: row(value_dim),
            v_head_stride: value_dim.into(),
        };
        Ok(Self { raw, memory: PhantomData })
    }

    /// Memory that is described as for C: other layouts and types, or what
    /// [`Cache::kv_view`](crate::Cache::kv_view) tells.
    ///
    /// # Safety
    /// All blocks can be read as described for `'m`, and nobody writes to those that are read
    /// meanwhile.
    pub unsafe fn from_raw(raw: sys::pkv_kv_view) -> Self {
        Self { raw, memory: PhantomData }
    }

    /// The memory of one layer of a cache, which cannot be closed as long as the view is there:
    ///
    /// ```compile_fail,E0505
    /// # use pagedkv::{Cache, CacheConfig, KvView, LayerGroup};
    /// # let cache = Cache::new(&CacheConfig::new(LayerGroup::new(2, 4, 2, 32)).blocks(64))?;
    /// let view = unsafe { KvView::of_cache(&cache, 0)? };
    /// drop(cache);
    /// view.as_raw();
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    ///
    /// # Safety
    /// Nobody writes to the blocks that are read meanwhile.
    pub unsafe fn of_cache(cache: &'m Cache, layer: u32) -> Result<Self> {
        Ok(Self { raw: cache.kv_view(layer)?, memory: PhantomData })
    }

    /// As C has it.
    pub fn as_raw(&self) -> &sys::pkv_kv_view {
        &self.raw
    }
}

/// A ragged set of sequences over one [`KvView`].
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'a> {
    /// A multiple of the view's KV heads.
    pub query_heads: u32,
    /// Query rows of each sequence: they are its last positions.
    pub query_lengths: &'a [u32],
    /// Positions of each sequence, the queries' own included.
    pub kv_lengths: &'a [u64],
    /// `[sequences][block_table_stride]` block ids.
    pub block_tables: &'a [u32],
    /// Entries per sequence.
    pub block_table_stride: usize,
}

impl Sequences<'_> {
    fn rows(&self) -> Option<usize> {
        self.query_lengths.iter().try_fold(0usize, |rows, &n| rows.checked_add(n as usize))
    }

    pub(crate) fn raw(&self) -> Result<sys::pkv_attention_sequences> {
        let count = self.query_lengths.len();
        let (lengths, entries) = (self.kv_lengths.len(), self.block_tables.len());
        if lengths != count || self.block_table_stride.checked_mul(count) != Some(entries) {
            let given = format!("{lengths} kv_lengths and {entries} entries of block tables");
            let stride = self.block_table_stride;
            return Err(Error::misuse(format!(
                "{given} are given for {count} sequences with {stride} entries each"
            )));
        }
        Ok(sys::pkv_attention_sequences {
            struct_size: size_of::<sys::pkv_attention_sequences>() as u32,
            query_heads: self.query_heads,
            count: count as u64,
            query_lengths: self.query_lengths.as_ptr(),
            kv_lengths: self.kv_lengths.as_ptr(),
            block_tables: self.block_tables.as_ptr(),
            block_table_stride: self.block_table_stride as u64,
        })
    }
}

/// Attention without a cache, over a view and block tables of the caller's: queries
/// `[rows][query_heads][key_dim]` to outputs `[rows][query_heads][value_dim]`, and to `lse`
/// `[rows][query_heads]` where wanted.
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
///     };
/// let mut out = [0.0f32; 16];
/// attention(&view, &sequences, &AttentionParams::new(), &[1.0f32; 16], &mut out, None)?;
/// assert!((out[0] - 3.0 * 16.0 / 20.0).abs() < 1e-6);
/// # Ok::<(), pagedkv::Error>(())
/// ```
pub fn attention<'a, 'b>(
    kv: &KvView<'_>,
    sequences: &Sequences<'_>,
    params: &AttentionParams<'_>,
    q: impl Into<Rows<'a>>,
    out: impl Into<RowsMut<'b>>,
    lse: Option<&mut [f32]>,
) -> Result<()> {
    ensure_library()?;
    let too_many = || Error::new(Status::OVERFLOW, "the sum of query_lengths does not fit");
    let (raw, rows) = (sequences.raw()?, sequences.rows().ok_or_else(too_many)?);
    let params = params.raw(rows, sequences.query_heads, lse)?;
    let q = q.into().tensor(rows, sequences.query_heads, kv.raw.key_dim, "q")?;
    let out = out.into().tensor(rows, sequences.query_heads, kv.raw.value_dim, "out")?;
    call(|| unsafe { sys::pkv_attention(&kv.raw, &raw, &params, &q, &out) })
}

/// Combines results of attention over the same queries and different positions, each with its
/// `lse`, to `merged` and `merged_lse`: all `[rows][heads][dim]` and `[rows][heads]`.
pub fn merge_states<'b>(
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
