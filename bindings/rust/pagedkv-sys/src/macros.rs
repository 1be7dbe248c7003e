//! Macros for the files that generate_raw.py makes.
/// An enum of C: an integer that may have values which this version does not know.
macro_rules! c_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $constant:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub c_int);
        impl $name {
            $($(#[$doc])* pub const $constant: Self = Self($value);)*
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.0 {
                    $($value => f.write_str(stringify!($constant)),)*
                    unknown => write!(f, "{}({})", stringify!($name), unknown),
                }
            }
        }
    };
}

/// A handle of C: never an address, and never looked into.
macro_rules! handle {
    ($object:ident, $handle:ident) => {
        #[doc(hidden)]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $object {
            _opaque: [u8; 0],
        }
        pub type $handle = *mut $object;
    };
}

/// A struct of C. One that begins with its size has defaults.
macro_rules! c_struct {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$doc])* pub $field: $kind,)*
        }
        c_struct!(default $name $($field)*);
    };
    (default $name:ident struct_size $($field:ident)*) => {
        impl Default for $name {
            /// The size of the struct; 0 in every other field.
            fn default() -> Self {
                // Numbers, addresses, and functions that may be missing: 0 is a value of each.
                let zeros: Self = unsafe { std::mem::zeroed() };
                Self { struct_size: std::mem::size_of::<Self>() as u32, ..zeros }
            }
        }
    };
    (default $name:ident $($field:ident)*) => {};
}

/// A test of the size, the alignment and the offsets of each struct.
#[cfg(test)]
macro_rules! layout {
    ($($name:ident $size:literal $alignment:literal: $($field:ident $offset:literal),*;)*) => {$(
        #[test]
        fn $name() {
            use std::mem::{align_of, size_of, MaybeUninit};
            assert_eq!((size_of::<$name>(), align_of::<$name>()), ($size, $alignment));
            let place = MaybeUninit::<$name>::uninit();
            let base = place.as_ptr();
            $({
                // Nothing is read: these are addresses of fields only.
                let field = unsafe { std::ptr::addr_of!((*base).$field) };
                assert_eq!(field as usize - base as usize, $offset, stringify!($field));
            })*
        }
    )*};
}
