//! A request, as the command line describes it.

use std::net::IpAddr;

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, request::Parts};
use tollgate::key::PeerAddr;
use tollgate_rules::operators::Descriptor;

use crate::{bound_names::BoundNames, failure::Failure};

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
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_entry)]
    pub(crate) descriptor: Vec<(String, String)>,

    /// The domain of Envoy's filter, with --at edge.
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
}

impl RequestArgs {
    /// Whether anything of a request is given.
    pub(crate) fn is_given(&self) -> bool {
        let is_given = [&self.method, &self.path, &self.client_ip];
        is_given.iter().any(|one| one.is_some())
            || self.domain.is_some()
            || !self.headers.is_empty()
            || !self.descriptor.is_empty()
    }

    /// The head, with what the service's code would have added.
    pub(crate) fn head(&self, bound: &BoundNames) -> Result<Parts, Failure> {
        let (mut head, ()) = Request::new(()).into_parts();
        if let Some(method) = &self.method {
            head.method = Method::from_bytes(method.as_bytes()).map_err(|_| {
                Failure::usage(format!(
                    "--method {}: it is no method, as POST is",
                    short(method)
                ))
            })?;
        }
        if let Some(path) = &self.path {
            let uri = path.parse().ok().filter(|_| path.starts_with('/'));
            head.uri = uri.ok_or_else(|| {
                Failure::usage(format!(
                    "--path {}: a path begins with a slash, and has spaces and other letters escaped, as /search?q=a%20b",
                    short(path)
                ))
            })?;
        }
        for header in &self.headers {
            let (name, value) = parse_header(header)?;
            head.headers.append(name, value);
        }
        if let Some(address) = &self.client_ip {
            let address = address.parse::<IpAddr>().map_err(|_| {
                Failure::usage(format!(
                    "--client-ip {}: write an address, as 192.0.2.7 or 2001:db8::1",
                    short(address)
                ))
            })?;
            head.extensions.insert(PeerAddr((address, 0).into()));
        }
        if self.domain.is_some() || !self.descriptor.is_empty() {
            let domain = self.domain.as_deref().unwrap_or_default();
            let entries = self.descriptor.iter().map(|(key, value)| (key, value));
            Descriptor::new(domain, entries).describe(&mut head);
        }
        head.extensions.insert(bound.plans());
        Ok(head)
    }
}

fn parse_entry(entry: &str) -> Result<(String, String), String> {
    let parts = entry
        .split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    parts.ok_or_else(|| "write it as tenant=acme".to_owned())
}

pub(crate) fn parse_header(header: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let wrong = |what: &str| {
        let name = header.split(':').next().unwrap_or_default();
        Failure::usage(format!(
            "--header {}: {what}; write it as 'x-api-key: acme'",
            short(name)
        ))
    };
    if header.len() > LONGEST {
        return Err(wrong("it has more than a megabyte"));
    }
    let (name, value) = header
        .split_once(':')
        .ok_or_else(|| wrong("it has no colon"))?;
    let name = HeaderName::from_bytes(name.trim().as_bytes())
        .map_err(|_| wrong("this is not the name of a header"))?;
    let value = HeaderValue::from_bytes(value.trim().as_bytes())
        .map_err(|_| wrong("a value has no control characters, such as line feeds"))?;
    Ok((name, value))
}

/// For messages.
fn short(text: &str) -> String {
    crate::printable::line(text, 60)
}
