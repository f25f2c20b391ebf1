//! A tonic service on a socket.

use std::net::SocketAddr;

use tokio::{net::TcpListener, task::JoinHandle};
use tonic::transport::{
    Channel, Endpoint,
    server::{Router, TcpIncoming},
};
use tower_service::Service;

use crate::weather::v1::weather_client::WeatherClient;

/// A tonic service on a port of its own, until it is dropped.
#[derive(Debug)]
pub struct GrpcServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl GrpcServer {
    /// Serves what the router holds.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub async fn start<L, B>(router: Router<L>) -> Self
    where
        L: tower_layer::Layer<tonic::service::Routes> + Send + 'static,
        L::Service: Service<http::Request<tonic::body::Body>, Response = http::Response<B>>
            + Clone
            + Send
            + 'static,
        <L::Service as Service<http::Request<tonic::body::Body>>>::Future: Send,
        <L::Service as Service<http::Request<tonic::body::Body>>>::Error:
            Into<Box<dyn std::error::Error + Send + Sync>> + Send,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let serve = async move {
            let incoming = TcpIncoming::from(listener);
            router
                .serve_with_incoming(incoming)
                .await
                .expect("it serves");
        };
        Self {
            address,
            task: tokio::spawn(serve),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection to it.
    pub async fn channel(&self) -> Channel {
        channel(self.address).await
    }

    /// A client on a connection of its own.
    pub async fn client(&self) -> WeatherClient<Channel> {
        WeatherClient::new(self.channel().await)
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection to a server of gRPC.
///
/// # Panics
///
/// If there is no listener.
pub async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("the server listens")
}
