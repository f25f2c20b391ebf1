//! A request, as the command line describes it.

use std::net::IpAddr;

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, request::Parts};
use tollgate::key::PeerAddr;
use tollgate_rules::operators::Descriptor;

use crate::failure::Failure;

/// The longest header that is taken.
const LONGEST: usize = 1 << 20;

/// A request.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "The request")]
pub(crate) struct RequestArgs {
    /// Its method; default: GET.
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// Its path, with the query if there is one; default: /.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,

    /// A header; may be given several times.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,

    /// The client's address.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) client_ip: Option<String>,

    /// An entry of Envoy's descriptor, with --at edge; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = |pair: &str| parse_pair(pair, "tenant=acme"))]
    pub(crate) descriptor: Vec<(String, String)>,

    /// The domain of Envoy's filter, with --at edge.
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
}

impl RequestArgs {
    /// Whether anything of a request is given.
    pub(crate) fn is_given(&self) -> bool {
        let given = [&self.method, &self.path, &self.client_ip, &self.domain];
        given.iter().any(|it| it.is_some())
            || !self.headers.is_empty()
            || !self.descriptor.is_empty()
    }

    pub(crate) fn head(&self) -> Result<Parts, Failure> {
        let (mut head, ()) = Request::new(()).into_parts();
        if let Some(method) = &self.method {
            let wrong = |_| Failure::argument("method", method, "it is no method, as POST is");
            head.method = Method::from_bytes(method.as_bytes()).map_err(wrong)?;
        }
        if let Some(path) = &self.path {
            let uri = path.parse().ok().filter(|_| path.starts_with('/'));
            let right = "a path begins with a slash, and has spaces and other letters escaped, as /search?q=a%20b";
            head.uri = uri.ok_or_else(|| Failure::argument("path", path, right))?;
        }
        for header in &self.headers {
            let (name, value) = parse_header(header)?;
            head.headers.append(name, value);
        }
        if let Some(client) = &self.client_ip {
            let right = "write an address, as 192.0.2.7 or 2001:db8::1";
            let address = client.parse::<IpAddr>();
            let address = address.map_err(|_| Failure::argument("client-ip", client, right))?;
            head.extensions.insert(PeerAddr((address, 0).into()));
        }
        if self.domain.is_some() || !self.descriptor.is_empty() {
            let domain = self.domain.as_deref().unwrap_or_default();
            let entries = self.descriptor.iter().map(|(key, value)| (key, value));
            Descriptor::new(domain, entries).describe(&mut head);
        }
        Ok(head)
    }
}

/// A name and a value, as `example`.
pub(crate) fn parse_pair(pair: &str, example: &str) -> Result<(String, String), String> {
    match pair.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!("write it as {example}")),
    }
}

pub(crate) fn parse_header(header: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let (name, value) = header.split_once(':').unwrap_or((header, ""));
    let wrong = |what: &str| {
        let why = format!("{what}; write it as 'x-api-key: acme'");
        Failure::argument("header", name, why)
    };
    if header.len() > LONGEST {
        return Err(wrong("it has more than a megabyte"));
    }
    if name == header {
        return Err(wrong("it has no colon"));
    }
    let header = HeaderName::from_bytes(name.trim().as_bytes());
    let header = header.map_err(|_| wrong("this is not the name of a header"))?;
    let value = HeaderValue::from_bytes(value.trim().as_bytes());
    let control = "a value has no control characters, such as line feeds";
    Ok((header, value.map_err(|_| wrong(control))?))
}
