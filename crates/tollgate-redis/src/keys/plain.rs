//! Keys as people read them.

use std::{collections::HashMap, mem, sync::Arc};

use tollgate_core::{
    KeyBuf, PartKind,
    store::Fingerprint,
    sync::{Mutex, lock},
};

/// The longest text. What does not fit ends in a hash of the whole.
const LONGEST: usize = 96;

/// The keys that are remembered are this many, and up to as many again.
const KEYS: usize = 1 << 16;

/// The texts of the keys that were seen last, and of those before them: a check carries a fingerprint, not its key.
#[derive(Default)]
pub(crate) struct Plain(Mutex<[HashMap<u128, Arc<str>>; 2]>);

impl Plain {
    pub(crate) fn remember(&self, fingerprint: Fingerprint, key: &KeyBuf) {
        let [last, before] = &mut *lock(&self.0);
        if last.contains_key(&fingerprint.bits()) {
            return;
        }
        let known = before.remove(&fingerprint.bits());
        let text = known.unwrap_or_else(|| text(key).into());
        if last.len() >= KEYS {
            *before = mem::take(last);
        }
        last.insert(fingerprint.bits(), text);
    }

    /// `None` where it was forgotten.
    pub(crate) fn text(&self, fingerprint: Fingerprint) -> Option<Arc<str>> {
        let seen = lock(&self.0);
        let mut texts = seen.iter().filter_map(|it| it.get(&fingerprint.bits()));
        texts.next().cloned()
    }
}

/// The parts with their kinds, so that no two keys have one text. What has a meaning in a name is escaped: braces, which
/// decide about hash slots, and colons.
fn text(key: &KeyBuf) -> String {
    let mut text = String::new();
    for (kind, part) in key.parts() {
        if !text.is_empty() {
            text.push(',');
        }
        let number = kind.number();
        match KINDS.get(usize::from(number)) {
            Some(name) => text.push_str(name),
            None => text.push_str(&format!("kind-{number}")),
        }
        text.push('=');
        match (kind, part) {
            (PartKind::ADDRESS, [4, prefix, a, b, c, d]) => {
                text.push_str(&format!("{a}.{b}.{c}.{d}/{prefix}"));
            }
            (PartKind::ADDRESS, [6, prefix, network @ ..]) if network.len() == 16 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(network);
                text.push_str(&format!("{}/{prefix}", std::net::Ipv6Addr::from(octets)));
            }
            _ => escape(&mut text, part),
        }
        if text.len() > LONGEST {
            break;
        }
    }
    if text.len() > LONGEST {
        // Only ASCII is in it.
        text.truncate(LONGEST - 33);
        text.push('~');
        text.push_str(&blake3::hash(key.as_bytes()).to_hex()[..32]);
    }
    text
}

/// The kinds of parts, in the order of their numbers. There is no authority any more: it keeps those behind it in place.
const KINDS: [&str; 17] = [
    "shared",
    "constant",
    "value",
    "header",
    "address",
    "extension",
    "method",
    "route",
    "path-parameter",
    "query-parameter",
    "cookie",
    "look-up",
    "path",
    "authority",
    "grpc-service",
    "grpc-method",
    "metadata",
];

fn escape(text: &mut String, part: &[u8]) {
    // Above the longest text whatever follows is in the hash only.
    for byte in part.iter().take(LONGEST + 1) {
        if byte.is_ascii_alphanumeric() || b"_./@+-".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Key;

    use super::*;

    fn of(kind: PartKind, part: impl AsRef<[u8]>) -> String {
        let mut key = KeyBuf::new();
        key.push(kind, part);
        text(&key)
    }

    #[test]
    fn a_key_is_readable() {
        assert_eq!(
            text(Key::of(["acme", "k1"]).as_ref()),
            "value=acme,value=k1"
        );
        assert_eq!(
            of(PartKind::ADDRESS, [4, 32, 192, 0, 2, 1]),
            "address=192.0.2.1/32"
        );
        let mut v6 = vec![6, 64, 0x20, 0x01, 0x0d, 0xb8];
        v6.resize(18, 0);
        assert_eq!(of(PartKind::ADDRESS, v6), "address=2001:db8::/64");
        assert_eq!(of(PartKind::METADATA, "x"), "metadata=x");
        assert_eq!(of(PartKind::custom(2), "x"), "kind-130=x");
    }

    #[test]
    fn what_could_change_the_meaning_of_a_name_is_escaped() {
        assert_eq!(
            of(PartKind::VALUE, "}a{,b=%\0ü"),
            "value=%7Da%7B%2Cb%3D%25%00%C3%BC"
        );
        assert_eq!(of(PartKind::ADDRESS, [9, 9]), "address=%09%09");
    }

    #[test]
    fn a_text_is_whole_up_to_the_longest() {
        let of_length = |length: usize| of(PartKind::VALUE, "x".repeat(length - 6));
        let longest = of_length(LONGEST);
        assert_eq!(longest.len(), LONGEST);
        assert!(longest.ends_with('x') && !longest.contains('~'));
        let cut = of_length(LONGEST + 1);
        assert_eq!((cut.len(), cut.find('~')), (LONGEST, Some(LONGEST - 33)));
    }

    #[test]
    fn the_texts_before_the_last_ones_are_known_and_stay_so_where_they_come_again() {
        let plain = Plain::default();
        let remember = |bits: u128| {
            plain.remember(Fingerprint::from_bits(bits), &KeyBuf::from(Key::of("a")));
        };
        let is_known = |bits: u128| plain.text(Fingerprint::from_bits(bits)).is_some();
        let keys = KEYS as u128;
        (0..=keys).for_each(remember);
        assert!(is_known(0) && is_known(1) && is_known(keys));
        remember(0);
        (keys + 1..2 * keys).for_each(remember);
        assert!(is_known(0) && !is_known(1));
    }
}
