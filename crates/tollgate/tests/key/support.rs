//! Heads of requests, and what an extractor finds in them.

use std::{
    net::IpAddr,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{HeaderValue, Request, request::Parts};
use tollgate::{
    Head,
    key::{ClientIp, Extracted, KeyBuf, KeyExtractor, NoKey, PartKind, PeerAddr},
};

/// A head without anything.
pub(crate) fn empty() -> Parts {
    Request::new(()).into_parts().0
}

/// A head with lines of a header.
pub(crate) fn with_lines(name: &'static str, lines: &[impl AsRef<[u8]>]) -> Parts {
    let mut head = empty();
    for line in lines {
        let value =
            HeaderValue::from_bytes(line.as_ref()).expect("a test writes legal header values");
        head.headers.append(name, value);
    }
    head
}

/// A head with this target.
pub(crate) fn with_uri(uri: &str) -> Parts {
    Request::get(uri)
        .body(())
        .expect("a test writes legal targets")
        .into_parts()
        .0
}

/// The same head from this peer.
pub(crate) fn from(peer: &str, mut head: Parts) -> Parts {
    let peer: IpAddr = peer.parse().expect("a test writes an address");
    head.extensions.insert(PeerAddr((peer, 40_000).into()));
    head
}

/// The key, which is there at once.
pub(crate) fn key(extractor: &impl KeyExtractor, head: &Parts) -> Result<KeyBuf, NoKey> {
    let mut key = KeyBuf::new();
    match extractor.extract(&Head::from(head), &mut key) {
        Extracted::Key => Ok(key),
        Extracted::Nothing(why) => Err(why),
        _ => panic!("the key comes later"),
    }
}

/// The key, after as many polls as it takes.
pub(crate) fn key_later(extractor: &impl KeyExtractor, head: &Parts) -> Result<KeyBuf, NoKey> {
    let mut key = KeyBuf::new();
    let Extracted::Later(later) = extractor.extract(&Head::from(head), &mut key) else {
        panic!("the key does not come later")
    };
    assert!(key.is_empty(), "a key that comes later adds nothing yet");
    let mut later = pin!(later);
    loop {
        if let Poll::Ready(found) = later.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return found;
        }
    }
}

/// A key of these parts.
pub(crate) fn parts<const N: usize>(parts: [(PartKind, &str); N]) -> KeyBuf {
    let mut key = KeyBuf::new();
    for (kind, part) in parts {
        key.push(kind, part);
    }
    key
}

/// The client's address as text.
pub(crate) fn resolved(client: &ClientIp, head: &Parts) -> String {
    client.validate().expect("the settings are right");
    client.address(head).expect("there is a peer").to_string()
}
