//! The guide: limits in files, page by page.

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/from-code-to-a-file.md")]
pub mod from_code_to_a_file {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/limits-in-a-file.md")]
pub mod limits_in_a_file {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/reference.md")]
pub mod reference {}
