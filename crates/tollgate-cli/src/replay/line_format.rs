//! How a line of a log is read: by a `log_format` as nginx has it, or as JSON.

use std::{borrow::Cow, collections::HashMap, net::IpAddr};

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, request::Parts};
use jiff::{Timestamp, fmt::strtime};
use serde_json::{Map, Value};
use tollgate::key::PeerAddr;
use tollgate_core::Tick;

use crate::rule_args::FieldsOfLine;

/// The known patterns, in the order in which they are tried.
pub(crate) const PATTERNS: &[(&str, &str)] = &[
    (
        "alb",
        "$- $time_iso8601 $- $client_port $- $duration_s $duration_s $duration_s $status $- $- $- \"$request\" \"$http_user_agent\"",
    ),
    (
        "envoy",
        "[$start_time] \"$request\" $status $- $- $- $duration_ms $- \"$forwarded_for\" \"$http_user_agent\" \"$http_x_request_id\" \
         \"$http_host\"",
    ),
    (
        "combined",
        "$remote_addr $- $- [$time_local] \"$request\" $status $- \"$http_referer\" \"$http_user_agent\"",
    ),
    (
        "common",
        "$remote_addr $- $- [$time_local] \"$request\" $status $-",
    ),
];

/// What a piece of a line says.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    Start,
    End,
    /// In units of so many microseconds; several add up.
    Duration(f64),
    Client,
    ClientWithPort,
    /// `X-Forwarded-For`, whose last address is the client's.
    ForwardedFor,
    Method,
    Target,
    RequestLine,
    Status,
    Header(HeaderName),
    /// A key that the service's code binds.
    Bound(String),
    Skipped,
}

#[derive(Clone, Debug)]
struct Piece {
    field: Field,
    /// What stands before it in a line; or the way to it in a document.
    before: String,
    /// What stands after it.
    after: String,
}

/// How lines are read.
#[derive(Clone, Debug)]
pub(crate) struct LineFormat {
    pieces: Vec<Piece>,
    is_json: bool,
}

/// What logs of Caddy have in an object `request`.
const CADDY: [&str; 3] = ["client_ip", "method", "uri"];

/// When a request came, and how it was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// Of its end.
    pub(crate) time: LogTime,
    pub(crate) took: Tick,
    pub(crate) status: StatusCode,
}

impl LineFormat {
    /// By a pattern with nginx' names of variables. `bound` are the keys that code binds.
    pub(crate) fn of_pattern(pattern: &str, bound: &[&str]) -> Self {
        let (mut before, rest) = pattern.split_once('$').unwrap_or((pattern, ""));
        let mut pieces = Vec::new();
        for part in rest.split('$') {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = part
                .find(|c| !is_name(c))
                .unwrap_or(part.len())
                .max(usize::from(part.starts_with('-')));
            pieces.push(Piece {
                field: Field::named(&part[..end], bound),
                before: before.to_owned(),
                after: part[end..].to_owned(),
            });
            before = &part[end..];
        }
        let is_json = false;
        Self { pieces, is_json }
    }

    /// By the names in documents of a log, and by those that are said: `request_uri` is at `request.uri`.
    pub(crate) fn of_json(sample: &[&[u8]], said: &[(String, String)], bound: &[&str]) -> Self {
        let documents = sample
            .iter()
            .filter_map(|line| serde_json::from_slice(line).ok());
        let names = documents.flat_map(|document: Map<String, Value>| document.into_iter());
        let names = names.flat_map(|(name, value)| match value {
            // As Caddy has it.
            Value::Object(parts) if name == "request" => {
                let parts = parts.into_iter().map(|(part, _)| part);
                let known = parts.filter(|it| CADDY.contains(&it.as_str()));
                let named = known.map(|part| (part.clone(), format!("request.{part}")));
                named.collect()
            }
            _ => vec![(name.clone(), name)],
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names.dedup();
        names.retain(|(name, _)| said.iter().all(|(known, _)| known != name));
        let pieces = names.iter().chain(said).map(|(name, path)| Piece {
            field: Field::named(name, bound),
            before: path.clone(),
            after: String::new(),
        });
        Self {
            pieces: pieces
                .filter(|piece| piece.field != Field::Skipped)
                .collect(),
            is_json: true,
        }
    }

    /// That of which most lines of a sample are; `None` if none is of any.
    pub(crate) fn detect(
        sample: &[&[u8]],
        said: &[(String, String)],
        bound: &[&str],
    ) -> Option<Self> {
        let patterns = PATTERNS
            .iter()
            .map(|(_, pattern)| Self::of_pattern(pattern, bound));
        let known = patterns.chain([Self::of_json(sample, said, bound)]).rev();
        let fits = known.map(|format| {
            let lines = sample.iter().filter(|line| format.answered(line).is_ok());
            (lines.count(), format)
        });
        let best = fits.max_by_key(|(lines, _)| *lines);
        best.filter(|(lines, _)| *lines > 0)
            .map(|(_, format)| format)
    }

    /// Whether a line has what a rule counts by.
    pub(crate) fn has(&self, by: &str) -> bool {
        let (kind, name) = by.split_once(':').unwrap_or((by, by));
        let header = match kind {
            "header" => name,
            "cookie" => "cookie",
            _ => kind,
        };
        let is_it = |field: &Field| match field {
            Field::Client | Field::ClientWithPort | Field::ForwardedFor => kind == "client_ip",
            Field::Method => kind == "method",
            Field::Target => ["path", "query", "grpc_service", "grpc_method"].contains(&kind),
            Field::RequestLine => {
                ["method", "path", "query", "grpc_service", "grpc_method"].contains(&kind)
            }
            Field::Header(name) => name.as_str().eq_ignore_ascii_case(header),
            Field::Bound(name) => name == by,
            _ => false,
        };
        by == "constant" || self.pieces.iter().any(|piece| is_it(&piece.field))
    }

    /// What the first lines do not have of a request: what is said to be there, and what conditions ask for.
    pub(crate) fn lacks(&self, sample: &[&[u8]], said: &[(String, String)]) -> Vec<String> {
        let documents = sample.iter().map(|line| serde_json::from_slice(line));
        let documents: Vec<Value> = documents.filter_map(Result::ok).collect();
        let missing = said
            .iter()
            .filter(|(_, path)| documents.iter().all(|it| node(it, path).is_none()));
        let fields = missing.map(|(name, path)| {
            format!("--field {name}={path}: the first lines have nothing there")
        });
        let parts = ["path", "method"].into_iter().filter(|it| !self.has(it));
        let conditions =
            parts.map(|part| format!("no line has a {part}: conditions see each request as GET /"));
        fields.chain(conditions).collect()
    }

    /// Whether lines say how long requests took.
    pub(crate) fn has_durations(&self) -> bool {
        let is_duration = |piece: &Piece| matches!(piece.field, Field::Duration(_));
        self.pieces.iter().any(is_duration)
    }

    /// When a request came, and how it was answered.
    pub(crate) fn answered(&self, line: &[u8]) -> Result<Answered, &'static str> {
        let mut found: Option<(LogTime, bool)> = None;
        let (mut took, mut status) = (0, StatusCode::OK);
        self.read(line, |field, text| {
            match field {
                // Of two spellings of one time, the one that says more.
                Field::Start | Field::End if found.is_none_or(|(it, _)| it.is_whole_second) => {
                    let time =
                        LogTime::parse(text).ok_or("its time is none, or has no time zone")?;
                    found = Some((time, *field == Field::Start));
                }
                // A load balancer writes -1 where a connection broke.
                Field::Duration(unit) if text[0] != b'-' => {
                    took += micros(text, *unit).ok_or("its duration is no number")?;
                }
                Field::Status => {
                    status = StatusCode::from_bytes(text).map_err(
                        |_| "its status is none; does the format say all of the line, as by $-?",
                    )?
                }
                _ => {}
            }
            Ok(())
        })?;
        let (mut time, is_start) = found.ok_or("it has no time")?;
        if is_start {
            time.at += took;
        }
        Ok(Answered { time, took, status })
    }

    /// The head of the request.
    pub(crate) fn head(&self, line: &[u8]) -> Result<Parts, &'static str> {
        let (mut head, ()) = Request::new(()).into_parts();
        let mut bound = HashMap::new();
        self.read(line, |field, text| {
            match field {
                Field::Client | Field::ClientWithPort | Field::ForwardedFor => {
                    let address = address(field, text).ok_or("its client has no address")?;
                    head.extensions.insert(PeerAddr((address, 0).into()));
                }
                Field::Method => head.method = method(text)?,
                Field::Target => head.uri = target(text)?,
                Field::RequestLine => {
                    let mut words = text.splitn(2, |byte| *byte == b' ');
                    head.method = method(words.next().unwrap_or_default())?;
                    let rest = words.next().ok_or("its request line is none")?;
                    let protocol = rest.iter().rposition(|byte| *byte == b' ');
                    head.uri = target(&rest[..protocol.unwrap_or(rest.len())])?;
                }
                Field::Header(name) => drop(head.headers.append(name, value(text)?)),
                Field::Bound(name) => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    bound.entry(name.clone()).or_insert(text);
                }
                _ => {}
            }
            Ok(())
        })?;
        if !bound.is_empty() {
            head.extensions.insert(FieldsOfLine(bound));
        }
        Ok(head)
    }

    /// Calls `take` with each piece that a line has.
    fn read(
        &self,
        line: &[u8],
        mut take: impl FnMut(&Field, &[u8]) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let mut take = |field: &Field, text: &[u8]| match text {
            // What servers write for nothing.
            b"" | b"-" => Ok(()),
            text => take(field, text),
        };
        if self.is_json {
            let document: Value = serde_json::from_slice(line).map_err(|_| "it is no JSON")?;
            for piece in &self.pieces {
                let found = node(&document, &piece.before);
                match found.map(|node| node.get(0).unwrap_or(node)) {
                    Some(Value::String(text)) => take(&piece.field, text.as_bytes())?,
                    Some(Value::Number(number)) => {
                        take(&piece.field, number.to_string().as_bytes())?
                    }
                    _ => {}
                }
            }
            return Ok(());
        }
        let (not_of_it, mut rest) = ("it is not of the log's format", line);
        for piece in &self.pieces {
            rest = rest
                .strip_prefix(piece.before.as_bytes())
                .ok_or(not_of_it)?;
            let found = match piece.after.as_bytes().first() {
                None => Some(rest.len()),
                Some(b'"') => closing_quote(rest),
                Some(byte) => memchr::memchr(*byte, rest),
            };
            let end = found.ok_or(not_of_it)?;
            take(&piece.field, &unescaped(&rest[..end]))?;
            rest = &rest[end..];
        }
        Ok(())
    }
}

impl Field {
    fn named(name: &str, bound: &[&str]) -> Self {
        match name {
            "time_local" | "time_iso8601" | "msec" | "time" | "timestamp" | "@timestamp" | "ts" => {
                Self::End
            }
            "start_time" => Self::Start,
            "request_time" | "duration_s" => Self::Duration(1e6),
            "duration_ms" => Self::Duration(1e3),
            "duration_us" => Self::Duration(1.0),
            "remote_addr" | "client_ip" => Self::Client,
            "client_port" => Self::ClientWithPort,
            "forwarded_for" => Self::ForwardedFor,
            "request_method" | "method" => Self::Method,
            "request_uri" | "uri" | "path" => Self::Target,
            "request" => Self::RequestLine,
            "status" => Self::Status,
            _ if bound.contains(&name) => Self::Bound(name.to_owned()),
            _ => {
                let header = name
                    .strip_prefix("http_")
                    .map(|name| name.replace('_', "-"))
                    .and_then(|name| HeaderName::try_from(name).ok());
                header.map_or(Self::Skipped, Self::Header)
            }
        }
    }
}

/// What is at `request.uri`.
fn node<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    (path.split('.')).try_fold(document, |node, name| node.get(name))
}

fn value(text: &[u8]) -> Result<HeaderValue, &'static str> {
    HeaderValue::from_bytes(text).map_err(|_| "a header of it has control characters")
}

fn method(text: &[u8]) -> Result<Method, &'static str> {
    Method::from_bytes(text).map_err(|_| "its method is none")
}

/// What the service sees of a target: its path and query.
fn target(text: &[u8]) -> Result<Uri, &'static str> {
    let uri = Uri::try_from(text).map_err(|_| "its target is no path")?;
    match (uri.scheme(), uri.path_and_query()) {
        (Some(_), Some(path)) => Ok(path.clone().into()),
        _ => Ok(uri),
    }
}

fn address(field: &Field, text: &[u8]) -> Option<IpAddr> {
    let whole = std::str::from_utf8(text).ok()?;
    let text = match field {
        Field::ClientWithPort => whole.rsplit_once(':')?.0,
        _ => whole.rsplit(',').next()?.trim(),
    };
    text.trim_matches(['[', ']']).parse().ok()
}

/// Where a quoted text ends: at a quote that is not escaped.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let end = from + memchr::memchr2(b'"', b'\\', text.get(from..)?)?;
        if text[end] == b'"' {
            return Some(end);
        }
        from = end + 2;
    }
}

/// Without the escapes of nginx and Apache: `\x22`, `\"`, `\\`, `\n`, `\t`.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(b'\\', text) else {
        return Cow::Borrowed(text);
    };
    let (mut out, mut rest) = (text[..first].to_vec(), &text[first..]);
    while let Some((byte, after)) = rest.split_first() {
        let hex = |digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let (plain, len) = match (byte, after) {
            (b'\\', [b'x', digits @ ..]) => match digits.get(..2).and_then(hex) {
                Some(byte) => (byte, 3),
                None => (b'\\', 0),
            },
            (b'\\', [b'n', ..]) => (b'\n', 1),
            (b'\\', [b't', ..]) => (b'\t', 1),
            (b'\\', [escaped, ..]) => (*escaped, 1),
            _ => (*byte, 0),
        };
        out.push(plain);
        rest = &after[len..];
    }
    Cow::Owned(out)
}

/// A time as logs write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogTime {
    pub(crate) at: Tick,
    /// Whether it has seconds only.
    pub(crate) is_whole_second: bool,
}

impl LogTime {
    /// Reads `27/Nov/2026:13:55:36 +0100`, `2026-11-27T13:55:36.5+01:00`, or seconds, milli-, micro- or nanoseconds since 1970.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let at = if text.get(2..3) == Some("/") {
            let parsed = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text);
            parsed.ok()?.to_timestamp().ok()?.as_microsecond()
        } else if text.get(4..5) == Some("-") {
            text.parse::<Timestamp>().ok()?.as_microsecond()
        } else {
            let number = text.parse::<f64>().ok()?;
            // Not NaN, and not before 1970.
            (0.0..9e18).contains(&number).then_some(())?;
            // Each form covers what the others would write for years that no log is of.
            let micros = match number {
                ..1e11 => 1e6,
                ..1e14 => 1e3,
                ..1e17 => 1.0,
                _ => 1e-3,
            };
            (number * micros).round() as i64
        };
        let is_whole_second = !text.contains(['.', ',']) && (text.len() < 13 || text.contains(':'));
        let at = Tick::try_from(at).ok()?;
        Some(Self {
            at,
            is_whole_second,
        })
    }
}

/// Microseconds of a number of seconds or of parts of one.
pub(crate) fn micros(text: &[u8], unit: f64) -> Option<Tick> {
    let number = std::str::from_utf8(text).ok()?.parse::<f64>().ok()?;
    let micros = (number * unit).round();
    (0.0..1e15).contains(&micros).then_some(micros as Tick)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_an_instant_are_one_and_jiff_agrees() {
        for (text, seconds, micros, is_whole_second) in [
            ("27/Nov/2026:13:55:36 +0100", 1_795_784_136_u64, 0, true),
            ("2026-11-27T12:55:36Z", 1_795_784_136, 0, true),
            (
                "2026-11-27 18:25:36,25+05:30",
                1_795_784_136,
                250_000,
                false,
            ),
            (
                "2026-11-27T12:55:36.1234567Z",
                1_795_784_136,
                123_456,
                false,
            ),
            ("1795784136.5", 1_795_784_136, 500_000, false),
            ("1795784136", 1_795_784_136, 0, true),
            ("1795784136123", 1_795_784_136, 123_000, false),
            ("1795784136123456", 1_795_784_136, 123_456, false),
            ("1795784136123456789", 1_795_784_136, 123_457, false),
            // The hour that a clock shows twice when summer time ends: the offset tells which.
            ("25/Oct/2026:02:30:00 +0200", 1_792_888_200, 0, true),
            ("25/Oct/2026:02:30:00 +0100", 1_792_891_800, 0, true),
            ("29/Feb/2024:00:00:00 +0000", 1_709_164_800, 0, true),
        ] {
            let time = LogTime::parse(text.as_bytes()).expect(text);
            let at = seconds * 1_000_000 + micros;
            assert_eq!(
                time,
                LogTime {
                    at,
                    is_whole_second
                },
                "{text}"
            );
            if text.contains('T') {
                let jiff: jiff::Timestamp = text.parse().expect(text);
                assert_eq!(jiff.as_microsecond() as u64, time.at);
            }
        }
        for text in [
            "",
            "-",
            "nan",
            "1e300",
            "29/Feb/2026:00:00:00 +0000",
            "27/Nov/2026:13:55:36",
            "27/Nov/2026:24:00:00 +0000",
            "2026-11-27T12:55:36",
            "2026-13-27T12:55:36Z",
            "31/Apr/2026:00:00:00 +0000",
            "12a",
            "99999999999999999999",
            "01/Jan/1969:00:00:00 +0000",
        ] {
            assert!(LogTime::parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
