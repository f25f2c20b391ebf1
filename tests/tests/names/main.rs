//! Names and pages: words that have a usual one in the field, links that lead somewhere, a guide that is a book and rustdoc, and
//! imports that run one way.

mod guide;
mod identifiers;
mod imports;
mod links;
mod packages;
mod page;
mod source;
mod words;
