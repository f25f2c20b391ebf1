//! Paths as a proxy has them, for conditions of rules.

use bytes::Bytes;
use http::uri::PathAndQuery;

/// The most bytes that a path may have for `http`, with its query, is a little more.
const MAX: usize = 65_000;

/// A path with its query, as services have them: without `.`, `..` and `//`, and with letters, digits and `-._~` as they are (RFC 3986
/// §6.2.2), so that no client gets around a condition that its backend does not tell apart. What no path can have is encoded, and
/// what is too long is cut.
pub(crate) fn normal_path(raw: &[u8]) -> PathAndQuery {
    let mut pieces = origin_form(raw).split(|byte| *byte == b'#');
    let raw = pieces.next().unwrap_or_default();
    let (path, query) = match raw.iter().position(|byte| *byte == b'?') {
        Some(at) => raw.split_at(at),
        None => (raw, &[][..]),
    };
    let mut all = Vec::with_capacity(raw.len() + 2);
    let mut is_folder = true;
    for segment in path.split(|byte| *byte == b'/') {
        let end = all.len();
        all.push(b'/');
        append(segment, is_unreserved, &mut all);
        let kept = match &all[end + 1..] {
            b"" | b"." => Some(end),
            b".." => Some(
                all[..end]
                    .iter()
                    .rposition(|byte| *byte == b'/')
                    .unwrap_or(0),
            ),
            _ => None,
        };
        is_folder = kept.is_some();
        all.truncate(kept.unwrap_or(all.len()));
    }
    if is_folder {
        all.push(b'/');
    }
    append(query, |_| false, &mut all);
    // Not before: what is cut off must not have been what a condition is about.
    all.truncate(MAX);
    // All that is left is allowed.
    PathAndQuery::from_maybe_shared(Bytes::from(all))
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

/// What needs no `%`.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Appends bytes: those that are `plain` without a `%` that they have, and what no path can have with one.
fn append(mut bytes: &[u8], plain: fn(u8) -> bool, text: &mut Vec<u8>) {
    while let Some((&first, behind)) = bytes.split_first() {
        let code = behind.get(..2).filter(|_| first == b'%');
        let decoded = code
            .and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 16).ok())
            .filter(|byte| plain(*byte));
        bytes = match decoded {
            Some(_) => &behind[2..],
            None => behind,
        };
        let byte = decoded.unwrap_or(first);
        let is_bad = matches!(
            byte,
            b'<' | b'>' | b'`' | b'"' | b'\\' | b'^' | b'{' | b'|' | b'}'
        );
        if byte.is_ascii_graphic() && !is_bad {
            text.push(byte);
        } else {
            let digit = |four: u8| b"0123456789ABCDEF"[usize::from(four)];
            text.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
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
            assert_eq!(normal_path(raw.as_bytes()), normal, "{raw:?}");
        }
        let long = |start: &str| [start.as_bytes(), b"a", &[b'\xff'; 100_000][..]].concat();
        assert_eq!(normal_path(&long("/")).as_str().len(), MAX);
        let behind = normal_path(&long(&"/".repeat(99_999)));
        assert!(behind.as_str().starts_with("/a%FF"));
    }
}
