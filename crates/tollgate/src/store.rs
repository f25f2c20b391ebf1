//! What a [`Store`](crate::Store) is set up with and answers, for code that decides without the layer's help.
//!
//! A store of one's own is written against [`tollgate-core`](tollgate_core), whose module [`store`](tollgate_core::store) says how, and is tested by
//! the suite in the folder `tests/conformance` of the repository.
//!
//! ```
//! use tollgate::store::{StoreError, StoreErrorKind};
//!
//! // A store that is busy may be asked again; one that is set up wrongly may not.
//! assert!(StoreError::new(StoreErrorKind::Overloaded, "busy").is_transient());
//! assert!(!StoreError::new(StoreErrorKind::Misconfigured, "no password").is_transient());
//! ```

pub use tollgate_core::{LeaseShare, StoreError, StoreErrorKind};
