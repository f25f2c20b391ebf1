#![doc = include_str!("../guide/links.md")]
#![doc = include_str!("../guide/README.md")]

// The pages are those of the book, `docs/guide/`. rustdoc finds their links in `guide/links.md` and their pictures in
// `guide/pictures.md`; readers of the book find both at the foot of each page, which the test `names` writes. A page whose programs
// need features has them only with these.

tollgate_core::guide_pages! {
    abuse: "../guide/abuse.md" if feature = "axum";
    budgets: "../guide/budgets.md" if all(feature = "axum", feature = "tokio");
    choosing: "../guide/choosing.md" with "../guide/pictures.md" if feature = "axum";
    grpc: "../guide/grpc.md" if all(feature = "axum", feature = "tonic");
    migrating: "../guide/migrating.md" if all(feature = "axum", feature = "tokio");
    operating: "../guide/operating.md" if feature = "axum";
    overload: "../guide/overload.md" with "../guide/pictures.md" if feature = "axum";
    recipes: "../guide/recipes.md" if all(feature = "axum", feature = "tokio");
    start: "../guide/start.md" if all(feature = "axum", feature = "tokio");
    waiting: "../guide/waiting.md" if all(feature = "axum", feature = "tokio");
}
