//! Servers of tonic with a layer around them.

use std::{future::Future, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::message::MessageLimitLayer;
use tollgate_tests::weather::{
    Mild,
    v1::{weather_client::WeatherClient, weather_server::WeatherServer},
};
use tonic::transport::{Channel, Endpoint, Server};
use tower::service_fn;

/// A wait that no test comes near: it turns a hang into a failure.
pub(crate) const HANGS: Duration = Duration::from_secs(60);

/// A server, until it is dropped.
pub(crate) struct Served {
    pub(crate) client: WeatherClient<Channel>,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server on a port of its own, with this layer around it.
pub(crate) async fn served(weather: &Mild, limits: MessageLimitLayer) -> Served {
    let router = Server::builder()
        .layer(limits)
        .add_service(WeatherServer::new(weather.clone()));
    listening(|incoming| router.serve_with_incoming(incoming)).await
}

/// Whatever serves connections, on a port of its own.
pub(crate) async fn listening<F>(serve: impl FnOnce(TcpListenerStream) -> F) -> Served
where
    F: Future<Output = Result<(), tonic::transport::Error>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let serve = serve(TcpListenerStream::new(listener));
    let task = tokio::spawn(async move { serve.await.expect("it serves") });
    let endpoint = Endpoint::new(format!("http://{address}")).expect("an address");
    let channel = endpoint.connect().await.expect("the server listens");
    Served {
        client: WeatherClient::new(channel),
        task,
    }
}

/// A server at the other end of a pipe in memory, so that time can stand still.
pub(crate) async fn piped(weather: &Mild, limits: MessageLimitLayer) -> Served {
    let (here, there) = tokio::io::duplex(1 << 16);
    let router = Server::builder()
        .layer(limits)
        .add_service(WeatherServer::new(weather.clone()));
    let incoming = tokio_stream::iter([Ok::<_, std::io::Error>(there)]);
    let task = tokio::spawn(async move {
        router
            .serve_with_incoming(incoming)
            .await
            .expect("it serves");
        std::future::pending::<()>().await;
    });
    let mut here = Some(here);
    let connect = service_fn(move |_: http::Uri| {
        let here = here.take().map(TokioIo::new);
        async move { here.ok_or_else(|| std::io::Error::other("one connection is enough")) }
    });
    let endpoint = Endpoint::from_static("http://pipe");
    let channel = endpoint.connect_with_connector(connect).await;
    Served {
        client: WeatherClient::new(channel.expect("a pipe")),
        task,
    }
}
