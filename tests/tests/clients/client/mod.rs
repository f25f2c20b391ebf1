//! The layer for outgoing requests: over scripted providers, over sockets, under tonic.

mod client_limit;
mod contract;
mod grpc;
mod max_wait;
mod own_server;
mod provider;
mod retries;
mod server_limits;
mod sockets;
