//! curl, as a client of HTTP/1.1 and of HTTP/2.

use std::net::SocketAddr;

use serde_json::Value;

use crate::program::run;

/// A version of HTTP, as curl's option for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    /// At once, without an upgrade.
    Http2,
}

pub(crate) const BOTH: [Version; 2] = [Version::Http1, Version::Http2];

/// What curl got.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Each head in turn: of what was followed, and at the end the one that counts. As it was on the wire.
    heads: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// What curl says of the transfer.
    pub(crate) transfer: Value,
}

/// Sends a request. `more` are arguments of curl.
pub(crate) async fn curl(
    version: Version,
    server: SocketAddr,
    path: &str,
    more: &[&str],
) -> Answer {
    curl_with("", version, server, path, more).await
}

/// The same, with this on its standard input: `@-`.
pub(crate) async fn curl_with(
    input: &str,
    version: Version,
    server: SocketAddr,
    path: &str,
    more: &[&str],
) -> Answer {
    let version = match version {
        Version::Http1 => "--http1.1",
        Version::Http2 => "--http2-prior-knowledge",
    };
    let url = format!("http://{server}{path}");
    let reported = ["--write-out", "%{stderr}%{json}"];
    let mut arguments = vec!["--silent", "--include", version];
    arguments.extend(reported);
    arguments.extend(more);
    arguments.push(&url);
    let output = run("curl", &arguments, input).await;
    let transfer: Value = serde_json::from_slice(&output.stderr).expect("curl tells in JSON");
    assert!(output.status.success(), "{transfer}");
    let mut rest = output.stdout;
    let mut heads = Vec::new();
    while rest.starts_with(b"HTTP/") {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n");
        let body = rest.split_off(end.expect("a whole head") + 4);
        heads.push(String::from_utf8(rest).expect("a head in UTF-8"));
        rest = body;
    }
    Answer {
        heads,
        body: rest,
        transfer,
    }
}

impl Answer {
    pub(crate) fn status(&self) -> u64 {
        self.transfer["response_code"].as_u64().expect("a status")
    }

    /// The statuses in turn, informational ones and those that were followed among them.
    pub(crate) fn statuses(&self) -> Vec<&str> {
        let lines = self.heads.iter().filter_map(|head| head.lines().next());
        lines.filter_map(|line| line.split(' ').nth(1)).collect()
    }

    /// The header fields of the last head, spelt as on the wire and sorted, without the date.
    pub(crate) fn fields(&self) -> Vec<(&str, &str)> {
        fields(self.heads.last().expect("a head"))
    }

    /// The value of a field that is there once.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.fields();
        let mut values = fields.iter().filter(|(field, _)| *field == name);
        let value = values.next()?.1;
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        Some(value)
    }
}

fn fields(head: &str) -> Vec<(&str, &str)> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let mut fields: Vec<_> = fields.filter(|(name, _)| *name != "date").collect();
    fields.sort_unstable();
    fields
}
