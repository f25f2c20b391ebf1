//! Who asks for what, and when.

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
