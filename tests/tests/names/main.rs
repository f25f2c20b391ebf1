//! Pages and imports: links that lead somewhere, a guide that is a book and rustdoc, and
//! imports that run one way.

mod guide;
mod imports;
mod links;
mod packages;
mod page;
