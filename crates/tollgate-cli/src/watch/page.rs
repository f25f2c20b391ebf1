//! A page of a service: fetched.

use std::time::Duration;

use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(5);
/// The largest page that is read.
const LARGEST: usize = 64 << 20;

/// A page of a service, as messages name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    /// The option that says where it is.
    pub(crate) option: &'static str,
    pub(crate) example: &'static str,
    /// What is on it.
    pub(crate) what: &'static str,
}

impl Page {
    /// Its text.
    pub(crate) async fn fetch(&self, url: &str) -> Result<String, Failure> {
        timeout(PATIENCE, self.get(url)).await.map_err(|_| {
            Failure::failed(format!(
                "{url} has not answered within {PATIENCE:?}; does the service run?"
            ))
        })?
    }

    async fn get(&self, url: &str) -> Result<String, Failure> {
        let wrong = |why: &str| {
            Failure::usage(format!(
                "{} {url}: {why}; write it as {}",
                self.option, self.example
            ))
        };
        let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong(
                "only http is fetched, from a service on this machine or network",
            ));
        }
        let host = uri.host().ok_or_else(|| wrong("it has no host"))?;
        let port = match uri.port_u16() {
            Some(port) => port,
            // Only what is no number of a port follows the host then.
            None if uri
                .authority()
                .is_some_and(|all| !all.as_str().ends_with(host)) =>
            {
                return Err(wrong("its port is not a number from 1 to 65535"));
            }
            None => 80,
        };
        let failed = |why: &dyn std::fmt::Display| {
            Failure::failed(format!(
                "{url} cannot be fetched: {why}; does the service run, and serve {} there?",
                self.what
            ))
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, port))
            .await
            .map_err(|wrong| failed(&wrong))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|wrong| failed(&wrong))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(
                header::HOST,
                uri.authority().map_or(host, |authority| authority.as_str()),
            )
            .header(header::ACCEPT, "*/*")
            .body(Empty::<Bytes>::new())
            .map_err(|wrong| failed(&wrong))?;
        // It ends with the program, at the latest.
        tokio::spawn(connection);
        let response = sender.send_request(request).await;
        let response = response.map_err(|wrong| failed(&wrong))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(|wrong| failed(&wrong))?.to_bytes();
        match status.is_success() {
            true => Ok(String::from_utf8_lossy(&body).into_owned()),
            false => Err(failed(&format_args!("it answers {}", status.as_u16()))),
        }
    }
}
