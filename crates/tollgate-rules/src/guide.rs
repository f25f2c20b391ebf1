//! The guide: limits in files, page by page.

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/edge.md")]
pub mod edge {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/files.md")]
pub mod files {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/reference.md")]
pub mod reference {}
