//! A service of four permits under more load than it can serve, in virtual time: the real layer, on tokio's paused clock.

mod limit_finder;
mod scene;
mod service;

pub use self::{
    scene::{Outcome, Scene},
    service::Stack,
};
