//! The console as operators meet it: in a browser, and by hand.

mod browser;
mod by_hand;
mod fleet;
mod pages;
mod service;
