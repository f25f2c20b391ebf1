//! A page of metrics, as Prometheus reads it: fetched and taken apart.

use std::{collections::BTreeMap, time::Duration};

use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(5);
/// The largest page that is read.
const LARGEST: usize = 64 << 20;

/// One series and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Fetches a page and reads it.
pub(crate) async fn fetch(url: &str) -> Result<Vec<Sample>, Failure> {
    let text = timeout(PATIENCE, get(url)).await.map_err(|_| {
        Failure::failed(format!(
            "{url} has not answered within {PATIENCE:?}; does the service run?"
        ))
    })??;
    Ok(samples(&text))
}

async fn get(url: &str) -> Result<String, Failure> {
    let wrong = |why: &str| {
        Failure::usage(format!(
            "--metrics {url}: {why}; write it as http://127.0.0.1:3000/metrics"
        ))
    };
    let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
    if uri.scheme_str() != Some("http") {
        return Err(wrong(
            "only http is fetched, from a service on this machine or network",
        ));
    }
    let host = uri.host().ok_or_else(|| wrong("it has no host"))?;
    let port = uri.port_u16().unwrap_or(80);
    let failed = |why: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "{url} cannot be fetched: {why}; does the service run, and serve its metrics there?"
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
        .header(header::ACCEPT, "text/plain")
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

/// The samples of a page. A line that cannot be read is left out.
pub(crate) fn samples(text: &str) -> Vec<Sample> {
    text.lines().filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, value) = rest.split_once("=\"")?;
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => text.push(match chars.next()?.1 {
                    'n' => '\n',
                    escaped => escaped,
                }),
                (_, c) => text.push(c),
            }
        };
        labels.insert(name.trim().to_owned(), text);
        rest = &value[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_with_all_that_labels_may_hold() {
        let page = "\
# HELP a_total What it is.
# TYPE a_total counter
a_total{rule=\"api\",decision=\"denied\"} 12
a_total{rule=\"q\\\"u\\\\o\\nte, }\",} 3.5 1395066363000
b 1e3
nothing
broken{rule=\"x} 1
c{} NaN
";
        let samples = samples(page);
        let shown: Vec<_> = samples
            .iter()
            .map(|sample| (&*sample.name, sample.labels.len()))
            .collect();
        assert_eq!(shown, [("a_total", 2), ("a_total", 1), ("b", 0), ("c", 0)]);
        assert_eq!(samples[0].labels["decision"], "denied");
        assert_eq!(samples[1].labels["rule"], "q\"u\\o\nte, }");
        assert_eq!(
            (samples[0].value, samples[1].value, samples[2].value),
            (12.0, 3.5, 1_000.0)
        );
        assert!(samples[3].value.is_nan());
    }
}
