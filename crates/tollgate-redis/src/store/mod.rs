//! The store: rules on a connection.
//!
//! The way of a request, file by file:
//!
//! 1. `redis_rule_store`: the engine of this process (`tollgate-prefilter`) decides it, or gives a query for Redis
//! 2. `in_flight`: the engine fills in what goes along in the same call: reports, leases that go back, queries for new ones. The query
//!    becomes a call of the script: keys and arguments, by `script::call`; slots have a message of `slots`
//! 3. `context`: the call is sent to the server of its hash slot
//! 4. `connection::node`: the breaker admits it, and it waits in the queue of the connection
//! 5. `connection::driver`: calls that wait at the same moment go out as one command; their answers are taken apart
//! 6. `lua/decide.lua`: the server decides
//! 7. `context`, `script::reply`: the numbers of the answer become a decision
//! 8. `in_flight`: the engine is told, and finishes the query, or asks for more: the next hash slot, or slots that were granted too late

mod builder;
mod context;
pub(crate) mod credits;
#[cfg(feature = "metrics")]
mod gauges;
mod heartbeat;
mod in_flight;
pub(crate) mod new_key_cap;
mod redis_rule_store;
mod redis_store;
mod reservations;
mod rule_set_context;
mod sender;
mod slots;
mod unsupported;

pub use self::{builder::RedisStoreBuilder, redis_store::RedisStore};
