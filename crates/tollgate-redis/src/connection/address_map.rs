//! Servers that are reached elsewhere than they say.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::address::Place;

/// Where servers are reached that other servers name. Without one, there.
#[derive(Clone, Default)]
pub(crate) struct AddressMap(Option<Arc<Function>>);

type Function = dyn Fn(&str, u16) -> Option<(String, u16)> + Send + Sync;

impl AddressMap {
    pub(crate) fn new(
        function: impl Fn(&str, u16) -> Option<(String, u16)> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(function)))
    }

    /// Where the server is reached that is named so.
    pub(super) fn place(&self, host: String, port: u16) -> Place {
        let mapped = self.0.as_ref().and_then(|function| {
            // One that panics has said nothing.
            catch_unwind(AssertUnwindSafe(|| function(&host, port))).unwrap_or_default()
        });
        let (host, port) = mapped.unwrap_or((host, port));
        Place::Tcp(host, port)
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "AddressMap(..)"
        } else {
            "AddressMap(none)"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_panics_has_named_no_other_place() {
        let map = AddressMap::new(|host, port| {
            assert!(host != "inside", "it is a test");
            Some(("outside".to_owned(), port))
        });
        let places = ["inside", "other"].map(|host| map.place(host.to_owned(), 6379));
        let expected = ["inside", "outside"].map(|host| Place::Tcp(host.to_owned(), 6379));
        assert_eq!(places, expected);
    }
}
