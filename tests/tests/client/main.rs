//! The client's layer as its users meet it: over scripted providers, over sockets, under tonic.

mod contract;
mod grpc;
mod own_quota;
mod own_server;
mod patience;
mod provider;
mod retries;
mod sockets;
mod telling;
