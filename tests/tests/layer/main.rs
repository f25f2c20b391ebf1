//! The layer as its users meet it: in stacks, over sockets, in handlers, in metrics and events.

mod aborts;
mod construction;
mod contract;
mod defaults;
mod failing;
mod handler;
mod keys;
mod limiters;
mod limits_endpoint;
mod live;
mod messages;
mod names;
mod observed;
mod paths;
mod priorities;
mod proxies;
mod rejected_rules;
mod request_parts;
mod rules;
mod settled;
mod shed;
mod slots;
mod stacks;
mod top_keys_endpoint;
mod waits;
mod wire;
