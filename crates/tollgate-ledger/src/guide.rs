//! The guide: the public tables, and what is promised.

tollgate_core::guide_pages! {
    ledger: "../guide/ledger.md";
}
