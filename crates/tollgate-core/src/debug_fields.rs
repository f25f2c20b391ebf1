/// `Debug` of a type that shows these fields and hides the others: keys, secrets, closures. For the crates of tollgate.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_fields {
    ($type:ident) => { $crate::debug_fields!($type, _it =>); };
    ($type:ident, $it:ident => $($name:ident: $value:expr),*) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let $it = self;
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($name), &$value))*
                    .finish_non_exhaustive()
            }
        }
    };
}
