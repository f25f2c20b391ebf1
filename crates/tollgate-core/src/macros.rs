//! What the crates of tollgate would write again and again.

use std::time::Duration;

/// `Debug` of a type that shows these fields and hides the others: keys, secrets, closures. Of an error it is what is displayed,
/// with its source. For the crates of tollgate.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_fields {
    ($type:ident as Display) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
    ($type:ident as Error) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)?;
                let source = ::std::error::Error::source(self);
                source.map_or(Ok(()), |source| write!(f, ": {source}"))
            }
        }
    };
    ($type:ident $(<$($param:tt),+>)? $(where $who:ident: $bound:path)? $(, $it:ident => $($name:ident: $value:expr),*)?) => {
        impl $(<$($param),+>)? ::std::fmt::Debug for $type $(<$($param),+>)? $(where $who: $bound)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                $(let $it = self;)?
                f.debug_struct(stringify!($type))
                    $($(.field(stringify!($name), &$value))*)?
                    .finish_non_exhaustive()
            }
        }
    };
}

/// The names of metrics, each with its kind and its description, and `describe`, which tells them to the recorder, once in a process.
/// `seconds` is a histogram of times, `bytes` a gauge. For the crates of tollgate.
#[doc(hidden)]
#[macro_export]
macro_rules! metric_names {
    ($($kind:ident $name:ident $text:literal $about:literal)*) => {
        $(pub(super) const $name: &str = $text;)*

        /// Describes them to the recorder.
        pub(super) fn describe() {
            static ONCE: std::sync::Once = std::sync::Once::new();
            ONCE.call_once(|| { $($crate::metric_names!(@$kind $name $about);)* });
        }
    };
    (@counter $name:ident $about:literal) => { metrics::describe_counter!($name, $about) };
    (@gauge $name:ident $about:literal) => { metrics::describe_gauge!($name, $about) };
    (@bytes $name:ident $about:literal) => { metrics::describe_gauge!($name, metrics::Unit::Bytes, $about) };
    (@ratio $name:ident $about:literal) => { metrics::describe_histogram!($name, $about) };
    (@seconds $name:ident $about:literal) => { metrics::describe_histogram!($name, metrics::Unit::Seconds, $about) };
}

/// What [`fnv`] begins with.
#[doc(hidden)]
pub const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, a hash that is the same in all processes and versions, of what was hashed before and these bytes. For the crates of tollgate.
#[doc(hidden)]
#[must_use]
pub fn fnv(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The time of a gRPC field `grpc-timeout`: at most eight digits and a unit. For the crates of tollgate.
#[doc(hidden)]
#[must_use]
pub fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}
