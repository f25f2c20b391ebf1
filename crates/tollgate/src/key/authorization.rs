//! Credentials as the key.

use std::{borrow::Cow, fmt::Debug};

use http::header;
use tollgate_core::PartKind;

use crate::key::{
    extractor::{KeyExtractor, NoKey},
    extractor_fn::named,
    fields::only_line,
};

/// Counts by the credentials in `Authorization`, in one spelling: `Bearer s`, `bearer s` and `BEARER  s` are one client.
///
/// What checks credentials compares the scheme and the names of parameters without regard to case (RFC 9110 §11.1 and §11.2), and
/// takes any number of spaces, parameters in quotes or without, and in any order. With [`header("authorization")`](crate::key::header()),
/// each of these spellings has a budget of its own. A token counts as it is written.
///
/// Of credentials with parameters, a client may add some that the check ignores, and has another budget for each: count by what the
/// check has found.
///
/// A scheme without credentials is no key. Several fields, and what is neither a token nor a list of parameters, are
/// [`NoKey::Ambiguous`].
///
/// The key has two parts of [`PartKind::HEADER`]: `authorization`, and the credentials. A client can invent them: in front of
/// authentication, add a rule by [`client_ip`](crate::key::client_ip()); behind it, count by an
/// [`extension`](crate::key::extension()) that holds who was found.
///
/// ```
/// use tollgate::{Head, Key, key::{Extracted, KeyBuf, KeyExtractor, authorization}};
///
/// let key_of = |credentials: &str| {
///     let request = http::Request::builder().header("authorization", credentials);
///     let (head, ()) = request.body(()).unwrap().into_parts();
///     let mut key = KeyBuf::new();
///     assert!(matches!(authorization().extract(&Head::from(&head), &mut key), Extracted::Key));
///     Key::from(key)
/// };
/// assert_eq!(key_of("Bearer a7"), key_of("bearer  a7"));
/// assert_ne!(key_of("Bearer a7"), key_of("Bearer A7"));
/// ```
#[must_use]
pub fn authorization() -> impl KeyExtractor + Clone + Debug {
    let name = Ok(header::AUTHORIZATION);
    named("authorization", PartKind::HEADER, name, |head, name| {
        in_one_spelling(only_line(head, name)?).map(Cow::Owned)
    })
}

/// The credentials (RFC 9110 §11.4): the scheme in lower case, and a token as it is, or the parameters in their order by name.
fn in_one_spelling(credentials: &[u8]) -> Result<Vec<u8>, NoKey> {
    let credentials = credentials.trim_ascii();
    let Some(space) = credentials.iter().position(u8::is_ascii_whitespace) else {
        return Err(NoKey::Absent);
    };
    let (scheme, rest) = credentials.split_at(space);
    let rest = rest.trim_ascii();
    let mut one = scheme.to_ascii_lowercase();
    one.push(b' ');
    if is_token68(rest) {
        one.extend_from_slice(rest);
    } else if let Some(parameters) = parameters(rest) {
        for (name, value) in parameters {
            one.extend_from_slice(&name);
            // As a quoted string has it, so that no value is two parameters.
            one.extend_from_slice(format!("={:?},", value.escape_ascii().to_string()).as_bytes());
        }
    } else if rest
        .iter()
        .any(|b| b.is_ascii_whitespace() || b",\"".contains(b))
    {
        // Who reads it anyway reads one thing or another.
        return Err(NoKey::Ambiguous);
    } else {
        // A token with characters that it should not have.
        one.extend_from_slice(rest);
    }
    Ok(one)
}

fn is_token68(text: &[u8]) -> bool {
    let end = text
        .iter()
        .rposition(|b| *b != b'=')
        .map_or(0, |last| last + 1);
    let is_of_token = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(b);
    end > 0 && text[..end].iter().all(is_of_token)
}

/// The parameters by name, with values as they are meant. `None`: it is no list of them.
fn parameters(mut rest: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut parameters = Vec::new();
    loop {
        // Empty elements of a list mean nothing (RFC 9110 §5.6.1).
        while let [b',' | b' ' | b'\t', behind @ ..] = rest {
            rest = behind;
        }
        if rest.is_empty() {
            parameters.sort();
            return Some(parameters);
        }
        let equals = rest.iter().position(|b| *b == b'=')?;
        let (name, behind) = (
            rest[..equals].trim_ascii(),
            rest[equals + 1..].trim_ascii_start(),
        );
        if name.is_empty() || !name.iter().all(is_tchar) {
            return None;
        }
        let (value, behind) = match behind {
            [b'"', quoted @ ..] => unquoted(quoted)?,
            _ => {
                let end = behind
                    .iter()
                    .position(|b| b.is_ascii_whitespace() || *b == b',' || *b == b'"')
                    .unwrap_or(behind.len());
                (behind[..end].to_vec(), &behind[end..])
            }
        };
        parameters.push((name.to_ascii_lowercase(), value));
        rest = behind.trim_ascii_start();
        if !matches!(rest, [] | [b',', ..]) {
            return None;
        }
    }
}

/// A quoted string behind its first quote, and what follows it.
fn unquoted(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    loop {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        match byte {
            b'"' => return Some((value, rest)),
            b'\\' => {
                let (escaped, behind) = rest.split_first()?;
                value.push(*escaped);
                rest = behind;
            }
            byte => value.push(*byte),
        }
    }
}

fn is_tchar(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_standard_says_is_equal_is_one_key_and_nothing_else_is() {
        let one = |credentials: &str| in_one_spelling(credentials.as_bytes());
        for equal in [
            &["Bearer s==", "bearer s==", "BEARER   s==", " Bearer\ts== "][..],
            &[
                "Digest username=\"ann\", realm=\"a,\\\"b\"",
                "digest REALM = \"a,\\\"b\" ,, Username=ann",
            ],
            &["Key a:b|c", "key  a:b|c"],
        ] {
            for other in equal {
                assert_eq!(one(other), one(equal[0]), "{other}");
                assert!(one(other).is_ok());
            }
        }
        let different = [
            "Bearer s",
            "Bearer S",
            "Basic s",
            "Bearer s=",
            "Digest username=ann",
            "Digest username=Ann",
            "Digest user=name, ann=x",
            "Digest user=\"name=\\\"\\\",ann\"",
        ];
        for (index, first) in different.iter().enumerate() {
            for second in &different[..index] {
                assert_ne!(one(first), one(second), "{first} {second}");
            }
        }
        for absent in ["", "Bearer", "Bearer  "] {
            assert_eq!(one(absent), Err(NoKey::Absent), "{absent}");
        }
        for ambiguous in ["Bearer a b", "Bearer a,b", "Digest a=\"b", "Digest a=b c=d"] {
            assert_eq!(one(ambiguous), Err(NoKey::Ambiguous), "{ambiguous}");
        }
    }
}
