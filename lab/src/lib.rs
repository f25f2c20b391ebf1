//! The laboratory in which the prefilter is measured and tuned.
//!
//! Virtual processes with virtual clocks, on a virtual network in front of a virtual store, run the engine of
//! `tollgate-prefilter`: the same code that a store runs over its connections. Everything is drawn from one seed.
//!
//! ```
//! use tollgate_lab::{Consistency, Network, Workload, run};
//!
//! let hot: Workload = "hot".parse()?;
//! let scene = hot.draw(1, 5.0);
//! let figures = run(&scene, Consistency::Leased(100), Network::new(500), 1).expect("a bucket");
//! assert_eq!(figures.over, 0.0);
//! assert!(figures.calls_per_request() < 0.5);
//! # Ok::<(), String>(())
//! ```

mod clock;
mod consistency;
mod engine;
mod figures;
mod network;
mod oracle;
pub mod overload;
mod process;
pub mod regions;
mod schedule;
mod server;
pub mod table;
mod workload;
mod world;

pub use self::{
    consistency::Consistency,
    figures::Figures,
    network::Network,
    workload::{Request, Scene, Workload},
    world::run,
};
