//! K and V of one layer in the caller's memory, and sequences over it.
use crate::cache::Cache;
use crate::compute::{handle_of, Compute};
use crate::config::{Layout, Rotation};
use crate::error::{call, ensure_library, Error, Result};
use crate::rows::{BatchRows, Dtype, Element, Rows, RowsMut};
use crate::sys;
use std::marker::PhantomData;
use std::ptr::null;

/// K and V of one layer in blocks, for [`kv_attend`](crate::kv_attend()).
#[derive(Clone, Copy, Debug)]
pub struct KvView<'m> {
    raw: sys::pkv_kv_view,
    memory: PhantomData<&'m [f32]>,
}

// A borrow of plain numbers.
unsafe impl Send for KvView<'_> {}
unsafe impl Sync for KvView<'_> {}

impl<'m> KvView<'m> {
    /// The caller's memory: K `[block][block_size][kv_heads][key_dim]` and V
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
            layout: Layout::PLAIN,
            block_size,
            kv_heads,
            key_dim,
            value_dim,
            dtype: E::DTYPE,
            blocks,
            k: k.as_ptr() as *mut _, // attention only reads it
            v: v.as_ptr() as *mut _,
            k_block_stride,
            k_row_stride: row(key_dim),
            k_head_stride: key_dim.into(),
            v_block_stride,
            v_row_stride: row(value_dim),
            v_head_stride: value_dim.into(),
            ..Default::default()
        };
        Ok(Self { raw, memory: PhantomData })
    }

    /// Memory described by the struct of C: for other layouts and types, or from
    /// [`Cache::kv_view`](crate::Cache::kv_view).
    ///
    /// # Safety
    /// All blocks must be readable as described for `'m`, and nothing may write to a block while it
    /// is read.
    pub unsafe fn from_raw(raw: sys::pkv_kv_view) -> Self {
        Self { raw, memory: PhantomData }
    }

    /// The memory of one layer of a cache. The cache cannot be closed while the view exists:
    ///
    /// ```compile_fail,E0505
    /// # use pagedkv::{Cache, CacheConfig, KvView, LayerGroup};
    /// # let cache = Cache::new(&CacheConfig::new(LayerGroup::new(2, 4, 2, 32).blocks(64)))?;
    /// let view = unsafe { KvView::of_cache(&cache, 0)? };
    /// drop(cache);
    /// view.as_raw();
    /// # Ok::<(), pagedkv::Error>(())
    /// ```
    ///
    /// # Safety
    /// Nothing may write to a block while it is read.
    pub unsafe fn of_cache(cache: &'m Cache, layer: u32) -> Result<Self> {
        Ok(Self { raw: cache.kv_view(layer)?, memory: PhantomData })
    }

    /// The struct of C.
    pub fn as_raw(&self) -> &sys::pkv_kv_view {
        &self.raw
    }
}

/// A ragged set of sequences over one [`KvView`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequences<'a> {
    /// A multiple of the view's KV heads.
    pub query_heads: u32,
    /// Query rows of each sequence: they are its last positions.
    pub query_lengths: &'a [u32],
    /// Positions of each sequence, including those of the queries.
    pub kv_lengths: &'a [u64],
    /// `[sequences][block_table_stride]` block ids.
    pub block_tables: &'a [u32],
    /// Entries per sequence.
    pub block_table_stride: usize,
    /// The first row of each sequence: after the padding of a padded batch, or counted over all
    /// rows. `None`: rows follow each other, or have no padding before them.
    pub first_rows: Option<&'a [u32]>,
    /// The position of each query, if they are not the last ones.
    pub query_positions: Option<&'a [i64]>,
}

impl Sequences<'_> {
    pub(crate) fn batch_rows(&self) -> BatchRows<'_> {
        BatchRows { lengths: self.query_lengths, first_rows: self.first_rows }
    }

    pub(crate) fn raw(&self) -> Result<sys::pkv_kv_sequences> {
        let count = self.query_lengths.len();
        let (lengths, entries) = (self.kv_lengths.len(), self.block_tables.len());
        if lengths != count || self.block_table_stride.checked_mul(count) != Some(entries) {
            let given = format!("{lengths} kv_lengths and {entries} entries of block tables");
            let stride = self.block_table_stride;
            return Err(Error::misuse(format!(
                "{given} are given for {count} sequences with {stride} entries each"
            )));
        }
        let first_rows = self.first_rows.map_or(count, <[u32]>::len);
        let rows = self.batch_rows().total();
        let positions = self.query_positions.map_or(rows, |positions| Some(positions.len()));
        if first_rows != count || positions != rows {
            return Err(Error::misuse(format!(
                "{first_rows} first_rows and {positions:?} query_positions are given for {count} \
                 sequences with {rows:?} queries"
            )));
        }
        Ok(sys::pkv_kv_sequences {
            query_heads: self.query_heads,
            count: count as u64,
            query_lengths: self.query_lengths.as_ptr(),
            kv_lengths: self.kv_lengths.as_ptr(),
            block_tables: self.block_tables.as_ptr(),
            block_table_stride: self.block_table_stride as u64,
            first_rows: self.first_rows.map_or(null(), <[u32]>::as_ptr),
            query_positions: self.query_positions.map_or(null(), <[i64]>::as_ptr),
            ..Default::default()
        })
    }
}

/// Memory for K and V of one layer that the program owns and writes, with the layout of a cache.
///
/// ```
/// use pagedkv::{kv_attend, AttentionParams, Dtype, KvMemory, Layout, Sequences};
///
/// // 4 blocks of 16 tokens in int8. Two tokens are written to slots 20 and 21, in block 1.
/// let mut memory = KvMemory::new(Layout::PACKED, Dtype::INT8, [4, 16, 1, 32])?;
/// memory.write_slots(None, &[20, 21], &[1.0f32; 64], &[0.5f32; 64])?;
/// let sequences =
///     Sequences {
///         query_heads: 1,
///         query_lengths: &[1],
///         kv_lengths: &[6],
///         block_tables: &[1],
///         block_table_stride: 1,
///         ..Sequences::default()
///     };
/// let mut out = [0.0f32; 32];
/// let params = AttentionParams::new().window(2);
/// kv_attend(None, &memory.view(), &sequences, &params, &[1.0f32; 32], &mut out, None)?;
/// assert!((out[0] - 0.5).abs() < 0.01);
/// # Ok::<(), pagedkv::Error>(())
/// ```
#[derive(Debug)]
pub struct KvMemory {
    raw: sys::pkv_kv_view,
    _memory: Vec<u8>,
}

// It owns the memory that it points to.
unsafe impl Send for KvMemory {}
unsafe impl Sync for KvMemory {}

impl KvMemory {
    /// Memory of zeros for `blocks` blocks of `block_size` tokens, with `kv_heads` heads for keys
    /// and values of one dim: `[blocks, block_size, kv_heads, dim]`.
    pub fn new(layout: Layout, dtype: Dtype, sizes: [u32; 4]) -> Result<Self> {
        Self::with_rotation(layout, dtype, sizes, Rotation::NONE)
    }

    /// The same with rows that are rotated before they are stored. There are no matrices here.
    pub fn with_rotation(
        layout: Layout,
        dtype: Dtype,
        [blocks, block_size, kv_heads, dim]: [u32; 4],
        rotation: Rotation,
    ) -> Result<Self> {
        ensure_library()?;
        let mut raw = sys::pkv_kv_view {
            layout,
            block_size,
            kv_heads,
            key_dim: dim,
            value_dim: dim,
            dtype,
            value_dtype: dtype,
            blocks: blocks.into(),
            rotation,
            ..Default::default()
        };
        let mut bytes = 0;
        call(|| unsafe { sys::pkv_kv_view_init(&mut raw, &mut bytes) })?;
        let too_large = || Error::misuse(format!("{bytes} bytes are too many"));
        let mut memory = Vec::new();
        let size = usize::try_from(bytes).map_err(|_| too_large())?;
        memory.try_reserve_exact(size).map_err(|_| too_large())?;
        memory.resize(size, 0u8);
        raw.k = memory.as_mut_ptr().cast();
        call(|| unsafe { sys::pkv_kv_view_init(&mut raw, &mut bytes) })?;
        Ok(Self { raw, _memory: memory })
    }

    /// The view for [`kv_attend`](crate::kv_attend()).
    pub fn view(&self) -> KvView<'_> {
        KvView { raw: self.raw, memory: PhantomData }
    }

    /// Stores the rows of the last positions of each sequence, or of its `query_positions`: keys
    /// and values `[rows][kv_heads][dim]`.
    pub fn write<'a>(
        &mut self,
        compute: Option<&Compute>,
        sequences: &Sequences<'_>,
        k: impl Into<Rows<'a>>,
        v: impl Into<Rows<'a>>,
    ) -> Result<()> {
        let (raw, batch) = (sequences.raw()?, sequences.batch_rows());
        let k = k.into().batch_tensor(&batch, self.raw.kv_heads, self.raw.key_dim, "k")?;
        let v = v.into().batch_tensor(&batch, self.raw.kv_heads, self.raw.value_dim, "v")?;
        call(|| unsafe { sys::pkv_kv_write(handle_of(compute), &self.raw, &raw, &k, &v) })
    }

    /// Copies the keys and values of the positions that [`write`](Self::write) stores.
    pub fn read<'a>(
        &self,
        compute: Option<&Compute>,
        sequences: &Sequences<'_>,
        k: impl Into<RowsMut<'a>>,
        v: impl Into<RowsMut<'a>>,
    ) -> Result<()> {
        let (raw, batch) = (sequences.raw()?, sequences.batch_rows());
        let k = k.into().batch_tensor(&batch, self.raw.kv_heads, self.raw.key_dim, "k")?;
        let v = v.into().batch_tensor(&batch, self.raw.kv_heads, self.raw.value_dim, "v")?;
        call(|| unsafe { sys::pkv_kv_read(handle_of(compute), &self.raw, &raw, &k, &v) })
    }

    /// Stores a row of keys and values in each slot, block * block_size + offset; those of
    /// [`NO_SLOT`](crate::NO_SLOT) are padding.
    pub fn write_slots<'a>(
        &mut self,
        compute: Option<&Compute>,
        slots: &[i64],
        k: impl Into<Rows<'a>>,
        v: impl Into<Rows<'a>>,
    ) -> Result<()> {
        let k = k.into().tensor(slots.len(), self.raw.kv_heads, self.raw.key_dim, "k")?;
        let v = v.into().tensor(slots.len(), self.raw.kv_heads, self.raw.value_dim, "v")?;
        let (n, slots) = (slots.len(), slots.as_ptr());
        let compute = handle_of(compute);
        call(|| unsafe { sys::pkv_kv_write_slots(compute, &self.raw, n, slots, &k, &v) })
    }

    /// Copies the keys and values of these slots.
    pub fn read_slots<'a>(
        &self,
        compute: Option<&Compute>,
        slots: &[i64],
        k: impl Into<RowsMut<'a>>,
        v: impl Into<RowsMut<'a>>,
    ) -> Result<()> {
        let k = k.into().tensor(slots.len(), self.raw.kv_heads, self.raw.key_dim, "k")?;
        let v = v.into().tensor(slots.len(), self.raw.kv_heads, self.raw.value_dim, "v")?;
        let (n, slots) = (slots.len(), slots.as_ptr());
        let compute = handle_of(compute);
        call(|| unsafe { sys::pkv_kv_read_slots(compute, &self.raw, n, slots, &k, &v) })
    }
}
