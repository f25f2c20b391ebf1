//! Looking at states, and the script from other programs.
//!
//! # Looking a client up, and letting it start anew
//!
//! In code, by the same key that the rule counts by. Behind a layer,
//! `RateLimitLayer::key_of` makes it of a request's head and `RateLimitLayer::limiter` is the limiter:
//!
//! ```no_run
//! use tollgate::{HOUR, Key, Limiter, Quota, Rule};
//! use tollgate_redis::{Keys, RedisStore, Secret};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = Keys::hashed(Secret::from_env("TOLLGATE_SECRET")?);
//! let store = RedisStore::builder("redis://localhost", "shop", keys).connect()?;
//! let limiter = Limiter::new(store, [Rule::new("exports", Quota::sliding_log(5, HOUR))])?;
//! let account = Key::of("account-7");
//! let look = limiter.check("exports", &account)?.with_cost(0);
//! let seen = limiter.peek(&[look]).await;
//! println!("{} of 5 left", seen.verdicts()[0].remaining());
//! // Everybody who asks for it nicely starts anew.
//! limiter.reset("exports", &account)?.await?;
//! # Ok(())
//! # }
//! ```
//!
//! In Redis, the key of a state is `shop:{client}:rule:a1` or, under [`Partition::One`](crate::Partition::One),
//! `{shop}:client:rule:a1`: the namespace, the client as 22 letters of a hash, the rule's name, the algorithm as `a` (token
//! bucket, GCRA, leaky bucket), `f` (fixed window), `w` (sliding window), `l` (log) or `b` (sub-buckets), and the version of the
//! state's [format](super::upgrading). Behind the name of a rule that [resets](tollgate_core::OnChange::Reset) when its quota
//! changes, there is `~` and a hash of the quota. Deleting one is
//! always allowed, and lets the client start anew; leases that processes hold are spent on top, which a reset counts. Of the second
//! form:
//!
//! ```text
//! $ redis-cli --scan --pattern '{shop}:*:exports:l1' | head   # never KEYS, which blocks the server
//! $ redis-cli PTTL '{shop}:AAAAAAAAAAAAAAAAAAAAAH:exports:l1'  # ms until it equals a fresh one
//! $ redis-cli --scan --pattern '{shop}:*:exports:??' | xargs -n 100 redis-cli UNLINK    # everybody, under one rule
//! ```
//!
//! # The script
//!
//! There is one script for everything. Print it with `cargo run -p tollgate-redis --example script > script.lua`, in the version
//! that the services run. Its head says what it takes and returns; states and arguments may change with any release until
//! 1.0. The version of a state's format is in its key, and in the upper half of its first byte.
//!
//! `KEYS` are the states that a request touches. `ARGV[1]` is the time, or empty for that of the server. Each further argument
//! is a check, packed with little-endian numbers, 38 bytes:
//!
//! | bytes | as | what |
//! | --- | --- | --- |
//! | 0 | u8 | 0 take, 1 look, 2 give back, 3 take more as far as there is, 4 forget, but for what is out in leases |
//! | 1 | u8 | 0 the rule is enforced, 1 a shadow, 2 a mark |
//! | 2 | u8 | 1 if the next check belongs to the same request |
//! | 3, 4 | u16 | which of `KEYS`, from 1 |
//! | 5 to 12 | f64 | units |
//! | 13, 14 | u16 | the rule's number, one for each rule of the request |
//! | 15, 16 | u16 | for a shadow, the rule that it replaces; 65 535 otherwise |
//! | 17 to 37 | u8, f64, f64, u32 | the quota: algorithm, and three numbers |
//!
//! A rule whose requests wait has algorithm 16 in the place of 17, and 24 bytes more: the head of the script says which.
//!
//! An argument of two bytes behind a check that takes (0) or looks (1), alone in its request, repeats the check: it is a u16,
//! the number of the keys that follow the check's own, each for one more request.
//!
//! The reply is a list of integers: the time in µs, then three for each check. The second of the three is what is left, and the
//! third the µs until the state equals a fresh one. The first is one of these:
//!
//! | first number | the units |
//! | --- | --- |
//! | 0 or more | do not fit; they do in so many µs |
//! | -1 | fit, and as many are left |
//! | -2 | never fit |
//! | -3 | were not counted: the key holds something else |
//! | -4 or less | fit, and fewer are left; they fit again in -4 less this µs |
//!
//! A unit of a budget of 60 an hour, with `redis-cli` (which reads `\x` in lines that it is given, not in its arguments):
//!
//! ```text
//! $ redis-cli -x SCRIPT LOAD < script.lua
//! 127.0.0.1:6379> EVALSHA <the hash> 1 shop:by-hand "" "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\xff\xff\x11\x00\x00\x00\x00\x38\x9c\x8c\x41\x00\x00\x00\x00\x00\x00\x4e\x40\x01\x00\x00\x00"
//! 1) (integer) 1763740800123456
//! 2) (integer) -1
//! 3) (integer) 59
//! 4) (integer) 60000000
//! ```
//!
//! The same in Python, without a library:
//!
//! ```python
#![doc = include_str!("take.py")]
//! ```
//!
//! To take of a budget that a Rust service counts too, use its key and its very quota: a state that another quota wrote is
//! converted when units are taken, and two that take turns convert it each time.
