//! Names and pages: words that have a usual one in the field, links that lead somewhere, and a guide that is a book and rustdoc.

mod guide;
mod identifiers;
mod links;
mod packages;
mod page;
mod words;
