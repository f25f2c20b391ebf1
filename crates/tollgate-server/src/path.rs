//! Paths as a proxy has them, for conditions of rules.

use bytes::Bytes;
use http::uri::PathAndQuery;

/// The most bytes that a path may have for `http`, with its query, is a little more.
const MAX: usize = 65_000;

/// A path with its query, as services have them: without `.`, `..` and `//`, and with letters, digits and `-._~` as they are (RFC 3986
/// §6.2.2), so that no client gets around a condition that its backend does not tell apart. What no path can have is encoded, and
/// what is too long is cut.
pub(crate) fn normal_path(raw: &Bytes) -> PathAndQuery {
    if is_normal(raw)
        && let Ok(path) = PathAndQuery::from_maybe_shared(raw.clone())
    {
        return path;
    }
    let mut pieces = origin_form(raw).split(|byte| *byte == b'#');
    let raw = pieces.next().unwrap_or_default();
    let (path, query) = match raw.iter().position(|byte| *byte == b'?') {
        Some(at) => raw.split_at(at),
        None => (raw, &[][..]),
    };
    let mut all = String::with_capacity(raw.len() + 2);
    let mut is_folder = true;
    for segment in path.split(|byte| *byte == b'/') {
        let end = all.len();
        all.push('/');
        encode(&decoded(segment), &mut all);
        let kept = match &all[end + 1..] {
            "" | "." => Some(end),
            ".." => Some(all[..end].rfind('/').unwrap_or(0)),
            _ => None,
        };
        is_folder = kept.is_some();
        all.truncate(kept.unwrap_or(all.len()));
    }
    if is_folder {
        all.push('/');
    }
    encode(query, &mut all);
    // Not before: what is cut off must not have been what a condition is about.
    all.truncate(MAX);
    // All that is left is allowed.
    all.parse()
        .unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

/// What comes after the host in a target that names one, as clients write it to a proxy: by any scheme.
fn origin_form(target: &[u8]) -> &[u8] {
    let Some(colon) = target.windows(3).position(|three| three == b"://") else {
        return target;
    };
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    if !target[..colon].iter().all(is_of_scheme) {
        return target;
    }
    let behind = &target[colon + 3..];
    let host = behind.iter().take_while(|byte| !b"/?#".contains(byte));
    &behind[host.count()..]
}

/// Whether nothing has to be done, as for most.
fn is_normal(raw: &[u8]) -> bool {
    let path = raw
        .iter()
        .position(|byte| *byte == b'?')
        .map_or(raw, |at| &raw[..at]);
    let is_plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_~!$&'()*+,;=:@.%?".contains(byte);
    let is_odd = |two: &[u8]| two[0] == b'/' && b"/.".contains(&two[1]);
    raw.starts_with(b"/")
        && raw.len() <= MAX
        && raw.iter().all(is_plain)
        && !path.contains(&b'%')
        && !path.windows(2).any(is_odd)
}

/// With what needs no `%`.
fn decoded(segment: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(segment.len()), segment);
    while let Some((&first, behind)) = rest.split_first() {
        let code = behind
            .get(..2)
            .filter(|_| first == b'%')
            .and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 16).ok())
            .filter(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(byte));
        plain.push(code.unwrap_or(first));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    plain
}

fn encode(bytes: &[u8], text: &mut String) {
    for &byte in bytes {
        if byte.is_ascii_graphic() && !b"<>`\"\\^{|}".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let digit = |four: u8| char::from(b"0123456789ABCDEF"[usize::from(four)]);
            text.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_its_backend_takes_it_for() {
        for (raw, normal) in [
            ("/a/b?c=d", "/a/b?c=d"),
            ("/head//a/../b/%2e%2e/c%2Fd", "/head/c%2Fd"),
            ("//", "/"),
            ("/a/.", "/a/"),
            ("/../../a/", "/a/"),
            ("/a/b/%2E.", "/a/"),
            ("", "/"),
            ("a", "/a"),
            ("?x=/../", "/?x=/../"),
            ("/a#/../b", "/a"),
            ("/a b\"<\u{fc}?>", "/a%20b%22%3C%C3%BC?%3E"),
            ("http://shop/a?b", "/a?b"),
            ("HTTP://shop/a//b", "/a/b"),
            ("ftp://shop?c=/d", "/?c=/d"),
            ("https://shop", "/"),
            ("/a://b/c", "/a:/b/c"),
            ("/%6C%6fgin?%6C", "/login?%6C"),
            ("/%256c/%+4a/%4", "/%256c/%+4a/%4"),
        ] {
            assert_eq!(
                normal_path(&Bytes::from_static(raw.as_bytes())),
                normal,
                "{raw:?}"
            );
        }
        let long =
            |start: &str| Bytes::from([start.as_bytes(), b"a", &[b'\xff'; 100_000][..]].concat());
        assert_eq!(normal_path(&long("/")).as_str().len(), MAX);
        let behind = normal_path(&long(&"/".repeat(99_999)));
        assert!(behind.as_str().starts_with("/a%FF"));
    }
}
