//! Requests: by which process, for which key, and when.

mod attacks;
mod crowds;
mod denials;
mod faults;
mod list;
mod scene;

pub use self::{
    list::Workload,
    scene::{Request, Scene},
};
