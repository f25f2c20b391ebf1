//! What a [`Store`](crate::Store) is set up with, is given and answers, for code that decides without the layer's help.
//!
//! A store of one's own is written against [`tollgate-core`](tollgate_core), whose module [`store`](tollgate_core::store) says how, and is tested by
//! the suite in the folder `tests/conformance` of the repository.
//!
//! ```
//! use tollgate::{
//!     MINUTE, Quota,
//!     store::{RuleSet, StoreErrorKind},
//! };
//!
//! let rules = RuleSet::new([tollgate_core::Rule::new("api", Quota::gcra(60, MINUTE))])?;
//! assert_eq!(rules.rules().len(), 1);
//! // A store that is busy may be asked again; one that is set up wrongly may not.
//! assert_ne!(StoreErrorKind::Overloaded, StoreErrorKind::Misconfigured);
//! # Ok::<(), tollgate::RuleError>(())
//! ```

pub use tollgate_core::{
    LeaseShare, RuleSet, Step, StoreError, StoreErrorKind, memory::MemoryStoreBuilder,
};
