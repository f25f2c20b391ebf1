//! The guide: limits in files, page by page.

tollgate_core::guide_pages! {
    edge: "../guide/edge.md";
    files: "../guide/files.md";
    reference: "../guide/reference.md";
}
