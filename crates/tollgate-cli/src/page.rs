//! A page of a service: fetched over HTTP.

use std::{fmt::Display, time::Duration};

use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(5);
/// The largest page that is read.
const LARGEST: usize = 64 << 20;

/// Its text.
pub(crate) async fn fetch(url: &str) -> Result<String, Failure> {
    timeout(PATIENCE, get(url)).await.map_err(|_| {
        Failure::failed(format!(
            "{url} has not answered within {PATIENCE:?}; does the service run?"
        ))
    })?
}

async fn get(url: &str) -> Result<String, Failure> {
    let wrong = |why: &str| {
        Failure::usage(format!(
            "--keys {url}: {why}; write it as http://127.0.0.1:3000/top-keys"
        ))
    };
    let failed = |why: &dyn Display| {
        Failure::failed(format!(
            "{url} cannot be fetched: {why}; does the service run, and serve a TopKeysEndpoint there?"
        ))
    };
    let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
    if uri.scheme_str() != Some("http") {
        return Err(wrong(
            "only http is fetched, from a service on this machine or network",
        ));
    }
    let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
    let port = match authority.port_u16() {
        Some(port) => port,
        None if authority.as_str().ends_with(authority.host()) => 80,
        // Only what is no number of a port follows the host then.
        None => return Err(wrong("its port is not a number from 1 to 65535")),
    };
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, port)).await;
    let stream = TokioIo::new(stream.map_err(|wrong| failed(&wrong))?);
    let (mut sender, connection) = http1::handshake(stream)
        .await
        .map_err(|wrong| failed(&wrong))?;
    // It ends with the program, at the latest.
    tokio::spawn(connection);
    let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, authority.as_str())
        .header(header::ACCEPT, "*/*")
        .body(Empty::<Bytes>::new())
        .map_err(|wrong| failed(&wrong))?;
    let response = sender.send_request(request).await;
    let (head, body) = response.map_err(|wrong| failed(&wrong))?.into_parts();
    if !head.status.is_success() {
        return Err(failed(&format_args!("it answers {}", head.status.as_u16())));
    }
    let read = Limited::new(body, LARGEST).collect().await;
    let page = read.map_err(|wrong| failed(&wrong))?.to_bytes();
    Ok(String::from_utf8_lossy(&page).into_owned())
}
