//! Whom a request counts against (docs later)

mod extractor;

pub use self::extractor::{Extracted, KeyExtractor, NoKey};
