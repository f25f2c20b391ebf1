//! The pictures of the documentation, drawn from the code that they are about.
//!
//! Each is a pure function of the code: it runs the algorithms, the store in memory or the engine of the prefilter, and draws
//! what they answer. Two are not: `figures` draws what was measured, from the table in `benches/README.md`, and `request` is drawn
//! by hand.

mod arrivals;
mod bytes;
mod client;
mod crossover;
mod exchange;
mod figures;
mod guide_links;
mod leases;
mod list;
mod request;
mod sub_buckets;
mod svg;
mod turn;

pub use self::{
    guide_links::guide_links,
    list::{Picture, all},
};
