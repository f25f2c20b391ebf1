//! HTTP, as the commands speak it.

use std::{error::Error, time::Duration};

use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::time::timeout;

use crate::report::{self, Failure};

const PATIENCE: Duration = Duration::from_secs(5);
/// The largest page that is read.
const LARGEST: usize = 64 << 20;

pub(crate) type HttpClient = Client<HttpConnector, Empty<Bytes>>;

pub(crate) fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

/// A URL that can be asked; `example` is one that is right.
pub(crate) fn uri(url: &str, example: &str) -> Result<Uri, Failure> {
    let wrong = |why: &str| {
        let url = report::line(url, 200);
        Err(Failure::usage(format!(
            "{url}: {why}; write it as {example}"
        )))
    };
    let Ok(uri) = url.parse::<Uri>() else {
        return wrong("it is no URL");
    };
    if uri.scheme_str() != Some("http") {
        return wrong("only http is spoken; ask the service behind its proxy");
    }
    match uri.authority() {
        None => wrong("it has no host, or a user"),
        Some(it) if it.as_str().contains('@') => wrong("it has no host, or a user"),
        // Only what is no number of a port follows the host then.
        Some(it) if it.port_u16().is_none() && it.as_str() != it.host() => {
            wrong("its port is not a number from 1 to 65535")
        }
        Some(_) => Ok(uri),
    }
}

/// The text of a page of a service.
pub(crate) async fn fetch(url: &str) -> Result<String, Failure> {
    let uri = uri(url, "http://127.0.0.1:3000/top-keys")?;
    let request = Request::get(uri).body(Empty::new());
    let page = async {
        let response = client().request(request?).await?;
        if !response.status().is_success() {
            return Err(format!("it answers {}", response.status().as_u16()).into());
        }
        let body = Limited::new(response.into_body(), LARGEST);
        let page = body.collect().await?.to_bytes();
        Ok(String::from_utf8_lossy(&page).into_owned())
    };
    let failed = |why: String| {
        Failure::failed(format!(
            "{url} cannot be fetched: {why}; does the service run, and serve a TopKeysEndpoint there?"
        ))
    };
    match timeout(PATIENCE, page).await {
        Ok(page) => page.map_err(|wrong: Box<dyn Error + Send + Sync>| failed(causes(&*wrong))),
        Err(_) => Err(failed(format!("it has not answered within {PATIENCE:?}"))),
    }
}

/// An error with its causes.
pub(crate) fn causes(wrong: &(dyn Error + 'static)) -> String {
    let mut text = wrong.to_string();
    let mut cause = wrong.source();
    while let Some(wrong) = cause {
        text += &format!(": {wrong}");
        cause = wrong.source();
    }
    text
}
