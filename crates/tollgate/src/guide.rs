#![doc = include_str!("../guide/links.md")]
#![doc = include_str!("../guide/README.md")]

// The pages are those of the book, `docs/guide/`. rustdoc finds their links in `guide/links.md` and their pictures in
// `guide/pictures.md`; readers of the book find both at the foot of each page, which the test `names` writes. A page whose programs
// need features has them only with these. Not by a macro of another crate: rustdoc would not check the links.

#[doc = include_str!("../guide/links.md")]
#[cfg_attr(feature = "axum", doc = include_str!("../guide/abuse.md"))]
pub mod abuse {}

#[doc = include_str!("../guide/links.md")]
#[cfg_attr(feature = "axum", doc = include_str!("../guide/budgets.md"))]
pub mod budgets {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/pictures.md")]
#[cfg_attr(feature = "axum", doc = include_str!("../guide/choosing.md"))]
pub mod choosing {}

#[doc = include_str!("../guide/links.md")]
#[cfg_attr(all(feature = "axum", feature = "tonic"), doc = include_str!("../guide/grpc.md"))]
pub mod grpc {}

#[doc = include_str!("../guide/links.md")]
#[cfg_attr(feature = "axum", doc = include_str!("../guide/migrating.md"))]
pub mod migrating {}

#[doc = include_str!("../guide/links.md")]
#[cfg_attr(feature = "axum", doc = include_str!("../guide/operating.md"))]
pub mod operating {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/pictures.md")]
#[cfg_attr(feature = "axum", doc = include_str!("../guide/overload.md"))]
pub mod overload {}

#[doc = include_str!("../guide/links.md")]
#[cfg_attr(feature = "axum", doc = include_str!("../guide/recipes.md"))]
pub mod recipes {}

#[doc = include_str!("../guide/links.md")]
#[cfg_attr(feature = "axum", doc = include_str!("../guide/start.md"))]
pub mod start {}

#[doc = include_str!("../guide/links.md")]
#[cfg_attr(feature = "axum", doc = include_str!("../guide/waiting.md"))]
pub mod waiting {}
