//! Arrays of ndarray as rows, without copies.
use crate::rows::{Element, Extent, Rows, RowsMut};
use ndarray::{ArrayBase, ArrayView, ArrayViewMut, Data, DataMut, Ix2, Ix3};

/// Returns the row and head stride if C supports them: dims side by side, heads within their row.
/// The stride of an axis with one entry does not matter.
fn strides(shape: [usize; 3], strides: [isize; 3]) -> Option<[usize; 2]> {
    let [rows, heads, dim] = shape;
    let positive = |stride: isize| usize::try_from(stride).ok();
    if dim > 1 && strides[2] != 1 && rows * heads > 0 {
        return None;
    }
    let head_stride = if heads > 1 { positive(strides[1])? } else { dim };
    let extent = heads.saturating_sub(1) * head_stride + dim;
    let row_stride = if rows > 1 { positive(strides[0])? } else { extent };
    (head_stride >= dim && row_stride >= extent).then_some([row_stride, head_stride])
}

macro_rules! conversions {
    ($rows:ident, $view:ident, $data:ident, $($mutable:ident)?) => {
        impl<'a, E: Element> From<$view<'a, E, Ix3>> for $rows<'a> {
            fn from($($mutable)? view: $view<'a, E, Ix3>) -> Self {
                let ((rows, heads, dim), s) = (view.dim(), view.strides());
                let strides = strides([rows, heads, dim], [s[0], s[1], s[2]]);
                let extent = Extent::Array([rows, heads, dim], strides.is_some());
                $rows::of_array(pointer!(view, $($mutable)?), strides, extent)
            }
        }

        impl<'a, E: Element> From<$view<'a, E, Ix2>> for $rows<'a> {
            /// Heads and dims as one axis.
            fn from($($mutable)? view: $view<'a, E, Ix2>) -> Self {
                let ((rows, width), s) = (view.dim(), view.strides());
                let strides = strides([rows, 1, width], [s[0], 0, s[1]]);
                let dense_heads = strides.map(|[row_stride, _]| [row_stride, 0]);
                let extent = Extent::Matrix([rows, width], strides.is_some());
                $rows::of_array(pointer!(view, $($mutable)?), dense_heads, extent)
            }
        }

        impl<'a, E: Element, S: $data<Elem = E>> From<&'a $($mutable)? ArrayBase<S, Ix3>>
            for $rows<'a>
        {
            fn from(array: &'a $($mutable)? ArrayBase<S, Ix3>) -> Self {
                view!(array, $($mutable)?).into()
            }
        }

        impl<'a, E: Element, S: $data<Elem = E>> From<&'a $($mutable)? ArrayBase<S, Ix2>>
            for $rows<'a>
        {
            fn from(array: &'a $($mutable)? ArrayBase<S, Ix2>) -> Self {
                view!(array, $($mutable)?).into()
            }
        }
    };
}

macro_rules! pointer {
    ($view:ident, mut) => {
        $view.as_mut_ptr() as *const E
    };
    ($view:ident,) => {
        $view.as_ptr()
    };
}

macro_rules! view {
    ($array:ident, mut) => {
        $array.view_mut()
    };
    ($array:ident,) => {
        $array.view()
    };
}

conversions!(Rows, ArrayView, Data,);
conversions!(RowsMut, ArrayViewMut, DataMut, mut);
