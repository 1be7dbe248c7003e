//! The functions of a library that the program is linked to.
use crate::raw::*;
use std::os::raw::{c_char, c_void};

macro_rules! declare {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        extern "C" {
            $(pub fn $name($($argument: $kind),*) -> $result;)*
        }
    };
}
for_each_function!(declare);

/// The library is there, or the program would not run. With the feature `dlopen` this opens it.
pub fn ensure() -> Result<(), String> {
    Ok(())
}
