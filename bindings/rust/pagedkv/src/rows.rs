//! Rows of keys, values, queries and outputs in the caller's memory. Nothing is copied.
use crate::error::{Error, Result};
use crate::sys;
use std::fmt;
use std::marker::PhantomData;

#[doc(inline)]
pub use crate::sys::pkv_dtype as Dtype;

/// A number of IEEE binary16, bit by bit. With the feature `half`, `half::f16` is also accepted.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct F16(pub u16);

/// The upper half of an `f32`, bit by bit. With the feature `half`, `half::bf16` is also accepted.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bf16(pub u16);

/// The element types of rows.
pub trait Element: Copy + sealed::Sealed + 'static {
    /// The type in C.
    const DTYPE: Dtype;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty => $dtype:ident),*) => {
        $(impl sealed::Sealed for $element {}
        impl Element for $element {
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}
elements!(f32 => F32, F16 => F16, Bf16 => BF16);
#[cfg(feature = "half")]
elements!(half::f16 => F16, half::bf16 => BF16);

/// The size or the shape of the memory behind rows.
#[cfg_attr(not(feature = "ndarray"), allow(dead_code))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    /// This many contiguous elements.
    Elements(usize),
    /// An array of this shape; false if C cannot use its strides.
    Array([usize; 3], bool),
    /// An array whose heads and dims are one axis.
    Matrix([usize; 2], bool),
}

impl fmt::Display for Extent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elements(len) => write!(out, "a slice of {len} elements"),
            Self::Array(shape, _) => write!(out, "an array of the shape {shape:?}"),
            Self::Matrix(shape, _) => write!(out, "an array of the shape {shape:?}"),
        }
    }
}

impl Extent {
    /// Refuses memory that does not hold the rows, before the library reads or writes them. It
    /// refuses layers without heads (of states, or elsewhere) by itself.
    fn check(
        self,
        tensor: &sys::pkv_tensor,
        rows: usize,
        heads: u32,
        dim: u32,
        what: &str,
    ) -> Result<()> {
        let (heads, dim) = (heads as usize, dim as usize);
        if heads == 0 {
            return Ok(());
        }
        let wanted = || format!("{what}: [{rows}][{heads}][{dim}] (rows, heads, dim) are needed");
        let (fits, usable) = match self {
            Self::Array(shape, usable) => (shape == [rows, heads, dim], usable),
            Self::Matrix(shape, usable) => {
                (shape[0] == rows && Some(shape[1]) == heads.checked_mul(dim), usable)
            }
            Self::Elements(len) if tensor.row_stride == 0 && tensor.head_stride == 0 => {
                (heads.checked_mul(dim).and_then(|n| n.checked_mul(rows)) == Some(len), true)
            }
            Self::Elements(len) => (
                strided_extent(tensor, rows, heads, dim).map_or(false, |extent| extent <= len),
                true,
            ),
        };
        if !fits {
            return Err(Error::misuse(format!("{}, this is {self}", wanted())));
        }
        if !usable {
            return Err(Error::misuse(format!(
                "{}: dims must be side by side, and heads within their row",
                wanted()
            )));
        }
        Ok(())
    }

    /// Does the same for a padded batch, and for rows with `first_rows`.
    fn check_batch(
        self,
        tensor: &sys::pkv_tensor,
        rows: &BatchRows<'_>,
        total: usize,
        heads: u32,
        dim: u32,
        what: &str,
    ) -> Result<()> {
        let (heads, dim, reach) = (heads as usize, dim as usize, rows.reach());
        let fits = match self {
            _ if total == 0 || heads == 0 => true,
            Self::Array(shape, usable) => {
                tensor.batch_stride == 0
                    && usable
                    && shape[0] >= reach
                    && shape[1..] == [heads, dim]
            }
            Self::Matrix(shape, usable) => {
                tensor.batch_stride == 0
                    && usable
                    && shape[0] >= reach
                    && Some(shape[1]) == heads.checked_mul(dim)
            }
            Self::Elements(len) => {
                let last = (rows.lengths.len() - 1).checked_mul(tensor.batch_stride as usize);
                strided_extent(tensor, reach, heads, dim)
                    .and_then(|extent| extent.checked_add(last?))
                    .map_or(false, |extent| extent <= len)
            }
        };
        if !fits {
            let (count, batch_stride) = (rows.lengths.len(), tensor.batch_stride);
            return Err(Error::misuse(format!(
                "{what}: {count} sequences of up to {reach} rows of [{heads}][{dim}], with a batch \
                 stride of {batch_stride}, are needed, this is {self}"
            )));
        }
        Ok(())
    }
}

/// The number of rows of each sequence of a batch, and its first row: see
/// [`Sequences::first_rows`](crate::Sequences::first_rows).
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRows<'a> {
    pub lengths: &'a [u32],
    pub first_rows: Option<&'a [u32]>,
}

impl BatchRows<'_> {
    /// The number of rows of all sequences.
    pub(crate) fn total(&self) -> Option<usize> {
        self.lengths.iter().try_fold(0usize, |rows, &n| rows.checked_add(n as usize))
    }

    /// The number of rows that memory needs: per entry of a padded batch, or in all.
    pub(crate) fn reach(&self) -> usize {
        let first = |i: usize| self.first_rows.map_or(0, |first| first[i]) as usize;
        let ends = self.lengths.iter().enumerate().filter(|(_, &n)| n > 0);
        ends.map(|(i, &n)| first(i) + n as usize).max().unwrap_or(0)
    }
}

/// The number of elements from the first to the last one.
fn strided_extent(
    tensor: &sys::pkv_tensor,
    rows: usize,
    heads: usize,
    dim: usize,
) -> Option<usize> {
    let head_stride =
        if tensor.head_stride != 0 { usize::try_from(tensor.head_stride).ok()? } else { dim };
    let dense = dim.checked_mul(heads)?;
    let row_stride =
        if tensor.row_stride != 0 { usize::try_from(tensor.row_stride).ok()? } else { dense };
    if rows == 0 || heads == 0 {
        return Some(0);
    }
    (rows - 1)
        .checked_mul(row_stride)?
        .checked_add((heads - 1).checked_mul(head_stride)?)?
        .checked_add(dim)
}

/// A stride beyond `i64` is refused by the library as `i64::MAX`.
pub(crate) fn stride(stride: usize) -> i64 {
    i64::try_from(stride).unwrap_or(i64::MAX)
}

fn tensor<E: Element>(data: *const E, row_stride: usize, head_stride: usize) -> sys::pkv_tensor {
    let (row_stride, head_stride) = (stride(row_stride), stride(head_stride));
    sys::pkv_tensor {
        data: data as *mut _,
        dtype: E::DTYPE,
        row_stride,
        head_stride,
        batch_stride: 0,
    }
}

macro_rules! rows {
    ($(#[$doc:meta])* $name:ident, $pointer:ident, $($mutable:ident)?) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a> {
            tensor: sys::pkv_tensor,
            extent: Extent,
            memory: PhantomData<&'a $($mutable)? [f32]>,
        }

        // Borrows of plain numbers.
        unsafe impl Send for $name<'_> {}
        unsafe impl Sync for $name<'_> {}

        impl<'a> $name<'a> {
            /// Rows with gaps: element (row, head, dim) is at `data[row * row_stride + head *
            /// head_stride + dim]`. A stride of 0 is dense, never a broadcast.
            pub fn strided<E: Element>(
                data: &'a $($mutable)? [E],
                row_stride: usize,
                head_stride: usize,
            ) -> Self {
                let tensor = tensor(data.$pointer(), row_stride, head_stride);
                Self { tensor, extent: Extent::Elements(data.len()), memory: PhantomData }
            }

            /// Returns the C struct after checking that the memory holds this many rows.
            #[inline]
            pub(crate) fn tensor(
                &self,
                rows: usize,
                heads: u32,
                dim: u32,
                what: &str,
            ) -> Result<sys::pkv_tensor> {
                self.extent.check(&self.tensor, rows, heads, dim, what)?;
                Ok(self.tensor)
            }

            /// The rows of a padded batch: each sequence begins `batch_stride` elements after the
            /// previous one. `[batch][n][heads][dim]` has one of `n * heads * dim`;
            /// `[batch][heads][n][dim]` also has strides of `dim` and `n * dim`;
            /// `[n][batch][heads][dim]` has one of `heads * dim`, and rows `batch * heads * dim`
            /// apart.
            pub fn batch_stride(mut self, batch_stride: usize) -> Self {
                self.tensor.batch_stride = stride(batch_stride);
                self
            }

            /// Returns the C struct after checking that the memory holds the rows of the batch.
            #[inline]
            pub(crate) fn batch_tensor(
                &self,
                rows: &BatchRows<'_>,
                heads: u32,
                dim: u32,
                what: &str,
            ) -> Result<sys::pkv_tensor> {
                let total = rows.total().ok_or_else(|| Error::misuse("too many rows"))?;
                if self.tensor.batch_stride == 0 && rows.first_rows.is_none() {
                    return self.tensor(total, heads, dim, what);
                }
                self.extent.check_batch(&self.tensor, rows, total, heads, dim, what)?;
                Ok(self.tensor)
            }

            #[cfg(feature = "ndarray")]
            pub(crate) fn of_array<E: Element>(
                data: *const E,
                strides: Option<[usize; 2]>,
                extent: Extent,
            ) -> Self {
                let [row_stride, head_stride] = strides.unwrap_or_default();
                Self { tensor: tensor(data, row_stride, head_stride), extent, memory: PhantomData }
            }
        }

        impl<'a, E: Element> From<&'a $($mutable)? [E]> for $name<'a> {
            /// Dense rows, `[rows][heads][dim]`.
            fn from(data: &'a $($mutable)? [E]) -> Self {
                Self::strided(data, 0, 0)
            }
        }

        impl<'a, E: Element> From<&'a $($mutable)? Vec<E>> for $name<'a> {
            fn from(data: &'a $($mutable)? Vec<E>) -> Self {
                Self::strided(data, 0, 0)
            }
        }

        impl<'a, E: Element, const N: usize> From<&'a $($mutable)? [E; N]> for $name<'a> {
            fn from(data: &'a $($mutable)? [E; N]) -> Self {
                Self::strided(data, 0, 0)
            }
        }
    };
}

rows! {
    /// Rows to read: a dense slice, a slice with strides, or (feature `ndarray`) an array with
    /// three axes, or with two if heads and dims are one axis. Shapes are checked at each use.
    Rows, as_ptr,
}
rows! {
    /// Rows to write: see [`Rows`].
    RowsMut, as_mut_ptr, mut
}

impl Clone for Rows<'_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Rows<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(data: &[f32], strides: [usize; 2], rows: usize, heads: u32, dim: u32) -> bool {
        Rows::strided(data, strides[0], strides[1]).tensor(rows, heads, dim, "x").is_ok()
    }

    #[test]
    fn dense_rows_have_just_their_elements() {
        let data = [0.0; 24];
        assert!(fits(&data, [0, 0], 3, 2, 4));
        assert!(!fits(&data, [0, 0], 2, 2, 4));
        assert!(!fits(&data, [0, 0], 4, 2, 4));
        assert!(!fits(&data, [0, 0], usize::MAX, u32::MAX, u32::MAX));
        assert!(fits(&[], [0, 0], 0, 2, 4));
    }

    #[test]
    fn padded_rows_end_within_their_slice() {
        let data = [0.0; 24];
        let fits = |stride, lengths: &[u32], first_rows, heads, strides: [usize; 2]| {
            let rows = BatchRows { lengths, first_rows };
            let padded = Rows::strided(&data, strides[0], strides[1]).batch_stride(stride);
            padded.batch_tensor(&rows, heads, 4, "x").is_ok()
        };
        assert!(fits(12, &[3, 1], None, 1, [0, 0])); // [2][3][1][4]
        assert!(!fits(13, &[3, 1], None, 1, [0, 0]));
        assert!(fits(12, &[1, 3], None, 1, [0, 0]));
        assert!(fits(8, &[1, 1], Some(&[1, 1]), 1, [0, 0]));
        assert!(!fits(20, &[1, 1], Some(&[0, 1]), 1, [0, 0]));
        assert!(fits(16, &[1, 1], None, 2, [4, 4])); // 16 + 4 + 4
        assert!(!fits(17, &[1, 1], None, 2, [4, 4]));
        assert!(fits(4, &[3, 2], None, 1, [8, 4])); // [3][2][1][4]
        assert!(!fits(5, &[3, 2], None, 1, [8, 4]));
        assert!(!fits(usize::MAX, &[1, 1], None, 2, [4, 4]));
        assert!(fits(usize::MAX, &[1], None, 2, [4, 4]));
        assert!(fits(0, &[2, 1], Some(&[0, 5]), 1, [0, 0]));
        assert!(!fits(0, &[2, 1], Some(&[0, 6]), 1, [0, 0]));
    }

    #[test]
    fn strided_rows_end_within_their_slice() {
        let data = [0.0; 24];
        assert!(fits(&data, [16, 4], 2, 2, 4)); // the last is 16 + 4 + 4
        assert!(fits(&data, [17, 0], 2, 1, 7)); // 17 + 7
        assert!(!fits(&data, [17, 4], 2, 2, 4));
        assert!(!fits(&data, [0, 13], 2, 2, 4)); // 2 * 4 + 13 + 4
        assert!(!fits(&data, [usize::MAX, 4], 2, 2, 4));
        assert!(fits(&data, [usize::MAX, 4], 1, 2, 4)); // of one row no stride is used
    }
}
