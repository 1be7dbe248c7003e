//! Rows of keys, values, queries and outputs in the caller's memory. Nothing is copied.
use crate::error::{Error, Result};
use crate::sys;
use std::marker::PhantomData;
use std::ptr::null;

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

/// The shape of the memory behind rows.
#[cfg_attr(not(feature = "ndarray"), allow(dead_code))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    /// Contiguous elements. C compares their number with the rows.
    Slice,
    /// An array of this shape; false if C cannot use its strides.
    Array([usize; 3], bool),
    /// An array whose heads and dims are one axis.
    Matrix([usize; 2], bool),
}

impl Extent {
    fn shape(&self) -> &[usize] {
        match self {
            Self::Slice => &[],
            Self::Array(shape, _) => shape,
            Self::Matrix(shape, _) => shape,
        }
    }

    /// Refuses an array of another shape.
    fn check(self, rows: usize, heads: u32, dim: u32, what: &str) -> Result<()> {
        let (heads, dim) = (heads as usize, dim as usize);
        let wanted = || format!("{what}: [{rows}][{heads}][{dim}] (rows, heads, dim) are needed");
        let (fits, usable) = match self {
            // C refuses layers without heads (of states, or elsewhere).
            _ if heads == 0 => (true, true),
            Self::Slice => (true, true),
            Self::Array(shape, usable) => (shape == [rows, heads, dim], usable),
            Self::Matrix(shape, usable) => {
                (shape[0] == rows && Some(shape[1]) == heads.checked_mul(dim), usable)
            }
        };
        if !fits {
            let shape = self.shape();
            return Err(Error::misuse(format!("{}, the array has {shape:?}", wanted())));
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
        batch_stride: i64,
        rows: &BatchRows<'_>,
        total: usize,
        heads: u32,
        dim: u32,
        what: &str,
    ) -> Result<()> {
        let (heads, dim, reach) = (heads as usize, dim as usize, rows.reach());
        let fits = match self {
            _ if total == 0 || heads == 0 => true,
            Self::Slice => true,
            Self::Array(shape, usable) => {
                batch_stride == 0 && usable && shape[0] >= reach && shape[1..] == [heads, dim]
            }
            Self::Matrix(shape, usable) => {
                batch_stride == 0
                    && usable
                    && shape[0] >= reach
                    && Some(shape[1]) == heads.checked_mul(dim)
            }
        };
        if !fits {
            let (count, shape) = (rows.lengths.len(), self.shape());
            return Err(Error::misuse(format!(
                "{what}: {count} sequences of up to {reach} rows of [{heads}][{dim}], with a batch \
                 stride of {batch_stride}, are needed, the array has {shape:?}"
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

/// A stride beyond `i64` is refused by the library as `i64::MAX`.
pub(crate) fn stride(stride: usize) -> i64 {
    i64::try_from(stride).unwrap_or(i64::MAX)
}

/// `elements` may be 0 if that is checked elsewhere.
fn tensor<E: Element>(
    data: *const E,
    elements: usize,
    row_stride: usize,
    head_stride: usize,
) -> sys::pkv_tensor {
    sys::pkv_tensor {
        data: data as *mut _,
        dtype: E::DTYPE,
        reserved: 0,
        row_stride: stride(row_stride),
        head_stride: stride(head_stride),
        batch_stride: 0,
        bytes: (elements * std::mem::size_of::<E>()) as u64,
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
                let elements = data.len();
                // To C, 0 bytes are any number of them, but NULL has no rows.
                let data = if elements == 0 { null() } else { data.$pointer() as *const E };
                let tensor = tensor(data, elements, row_stride, head_stride);
                Self { tensor, extent: Extent::Slice, memory: PhantomData }
            }

            /// Returns the C struct of this many rows, which C checks against the memory.
            #[inline]
            pub(crate) fn tensor(
                &self,
                rows: usize,
                heads: u32,
                dim: u32,
                what: &str,
            ) -> Result<sys::pkv_tensor> {
                self.extent.check(rows, heads, dim, what)?;
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

            /// Returns the C struct of the rows of a batch.
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
                let batch_stride = self.tensor.batch_stride;
                self.extent.check_batch(batch_stride, rows, total, heads, dim, what)?;
                Ok(self.tensor)
            }

            #[cfg(feature = "ndarray")]
            pub(crate) fn of_array<E: Element>(
                data: *const E,
                strides: Option<[usize; 2]>,
                extent: Extent,
            ) -> Self {
                let [row_stride, head_stride] = strides.unwrap_or_default();
                let tensor = tensor(data, 0, row_stride, head_stride);
                Self { tensor, extent, memory: PhantomData }
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
