//! The lease protocol on small bounds, explored to the last state: processes that crash and fall silent, a network that
//! delays, reorders and loses, a store whose clock goes back.

/// A test for each of these worlds.
macro_rules! worlds {
    ($($name:ident => $check:expr;)+) => {$(
        #[test]
        fn $name() {
            $check;
        }
    )+};
}

mod alive;
mod bucket;
mod buckets;
mod explore;
mod fault;
mod scheduled;
mod slots;
mod step;
mod system;
mod window;
mod windows;
mod world;
