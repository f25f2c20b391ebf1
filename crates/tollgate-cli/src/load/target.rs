//! The server that is asked: its address, and connections to it.

use std::{
    fmt::Display,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::Bytes,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpStream, lookup_host},
    sync::Semaphore,
    time::timeout,
};

use crate::{
    failure::Failure,
    load::{answer::Answer, load_args::LoadArgs},
    printable,
};

/// A server, and what each request to it has.
pub(crate) struct Target {
    address: SocketAddr,
    path: Uri,
    method: Method,
    headers: Vec<(HeaderName, HeaderValue)>,
    denials: Vec<u16>,
    patience: Duration,
    idle: Mutex<Vec<SendRequest<Empty<Bytes>>>>,
    /// As many as there may be connections.
    connections: Semaphore,
}

impl Target {
    /// Finds the server, which is on this machine unless it is said to be one's own.
    pub(crate) async fn find(args: &LoadArgs) -> Result<Self, Failure> {
        let shown = printable::line(&args.url, 200);
        let wrong = |why: &str| {
            Failure::usage(format!(
                "{shown}: {why}; write it as http://127.0.0.1:3000/search"
            ))
        };
        let uri: Uri = args.url.parse().map_err(|_| wrong("it is no URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong(
                "only http is spoken; ask the service behind its proxy",
            ));
        }
        let authority = uri.authority().filter(|it| !it.as_str().contains('@'));
        let authority = authority.ok_or_else(|| wrong("it has no host, or a user"))?;
        let host = authority.host().trim_matches(['[', ']']);
        let addresses = lookup_host((host, authority.port_u16().unwrap_or(80))).await;
        let addresses = addresses.map_err(|why| Failure::failed(format!("{shown}: {why}")))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let is_here = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
        if !args.target_is_mine && !addresses.iter().all(is_here) {
            return Err(Failure::usage(format!(
                "{shown} is not on this machine: a load on another's server is an attack. If it is yours, and may be loaded, say so with \
                 --target-is-mine"
            )));
        }
        let mut headers = args.headers()?;
        if headers.iter().all(|(name, _)| *name != header::HOST) {
            let host = HeaderValue::from_str(authority.as_str());
            headers.extend(host.map(|host| (header::HOST, host)));
        }
        let path = uri.path_and_query().map(|path| path.clone().into());
        Ok(Self {
            address: *addresses
                .first()
                .ok_or_else(|| wrong("its host has no address"))?,
            path: path.unwrap_or_default(),
            method: args.method.clone(),
            headers,
            denials: args.denied.clone(),
            patience: Duration::from_secs(args.patience),
            idle: Mutex::default(),
            connections: Semaphore::new(args.connections as usize),
        })
    }

    /// Sends a request, with a header of its own, and calls `sent` when it goes out.
    pub(crate) async fn ask(
        &self,
        own: Option<(HeaderName, HeaderValue)>,
        sent: impl FnOnce(),
    ) -> Answer {
        // It is never closed.
        let _place = self.connections.acquire().await;
        match timeout(self.patience, self.send(own, sent)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => Answer::failed(&*why),
            Err(_) => Answer::failed(&format_args!("no answer within {:?}", self.patience)),
        }
    }

    async fn send(
        &self,
        own: Option<(HeaderName, HeaderValue)>,
        sent: impl FnOnce(),
    ) -> Result<Answer, Box<dyn Display + Send + Sync>> {
        let mut connection = self.connection().await?;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.clone();
        request
            .headers_mut()
            .extend(self.headers.iter().cloned().chain(own));
        sent();
        let response = connection.send_request(request).await.map_err(boxed)?;
        let (head, mut body) = response.into_parts();
        while let Some(frame) = body.frame().await {
            frame.map_err(boxed)?;
        }
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        Ok(Answer::of(head.status, &head.headers, &self.denials))
    }

    /// One that is free, or a new one.
    async fn connection(
        &self,
    ) -> Result<SendRequest<Empty<Bytes>>, Box<dyn Display + Send + Sync>> {
        let free = || {
            self.idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop()
        };
        while let Some(mut free) = free() {
            // The server may have closed it meanwhile.
            if free.ready().await.is_ok() {
                return Ok(free);
            }
        }
        let stream = TcpStream::connect(self.address).await.map_err(boxed)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(boxed)?;
        // It ends with the program, at the latest.
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn boxed(wrong: impl Display + Send + Sync + 'static) -> Box<dyn Display + Send + Sync> {
    Box::new(wrong)
}
