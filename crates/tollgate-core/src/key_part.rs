//! What keys are made of.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use crate::key::{Key, KeyBuf, PartKind};

/// A value that is a part of a key, or several parts.
///
/// | value | part |
/// | --- | --- |
/// | text, bytes (`&str`, `String`, `&[u8]`, `[u8; N]`, …) | as it is |
/// | integers of 16 bits and more, `Uuid` (feature `uuid`) | the text that it prints: `7_u64`, `7_i32` and `"7"` are one key |
/// | [`IpAddr`](std::net::IpAddr), [`Ipv4Addr`](std::net::Ipv4Addr), [`Ipv6Addr`](std::net::Ipv6Addr) | its [`Network`](crate::Network): an IPv4 address alone, the /64 of an IPv6 address |
/// | `HeaderValue`, `Method` (feature `http`) | as it is |
/// | tuples of up to six, arrays, a [`Key`] | each of their parts, in order |
///
/// `u8` is no part, so that `[u8; N]` is bytes. Lists whose length may vary are none either, because `(["a"], ["b"])` and
/// `([], ["a", "b"])` would be one key; [`Key`] can be collected from an iterator.
///
/// Implement it for your own types by delegation, so that they are the same key as the value in them:
///
/// ```
/// use tollgate_core::{Key, KeyBuf, KeyPart, PartKind};
///
/// struct AccountId(u64);
///
/// impl KeyPart for AccountId {
///     fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
///         self.0.add_to(key, kind);
///     }
/// }
///
/// assert_eq!(Key::of(AccountId(7)), Key::of(7));
/// assert_ne!(Key::of(AccountId(7)), Key::of(AccountId(8)));
/// ```
///
/// What prints differently in two versions of a program, a float or a `Debug` text, is a bad part: the client would have
/// another budget after a deployment.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a key",
    label = "not a part of a key",
    note = "text, bytes, integers of 16 bits and more, IP addresses, `Uuid` (feature `uuid`), and tuples and arrays of these can",
    note = "for a type of your own: impl KeyPart for {Self} {{ fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {{ self.0.add_to(key, kind) }} }}"
)]
pub trait KeyPart {
    /// Adds this value to `key`. Its parts are of `kind`, which tells where the value comes from, unless the value
    /// itself is of a kind: an address always is a [`PartKind::ADDRESS`].
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind);
}

impl Key {
    /// A key of this part, or of the parts of a tuple or an array, in their order: see [`KeyPart`].
    ///
    /// The parts are of [`PartKind::VALUE`]; addresses are of [`PartKind::ADDRESS`].
    pub fn of(parts: impl KeyPart) -> Self {
        let mut key = KeyBuf::new();
        parts.add_to(&mut key, PartKind::VALUE);
        key.into()
    }
}

/// A key of any number of parts, as [`Key::of`] makes it of an array.
impl<P: KeyPart> FromIterator<P> for Key {
    fn from_iter<I: IntoIterator<Item = P>>(parts: I) -> Self {
        let mut key = KeyBuf::new();
        for part in parts {
            part.add_to(&mut key, PartKind::VALUE);
        }
        key.into()
    }
}

macro_rules! bytes {
    ($($(#[$feature:meta])* $type:ty => $bytes:expr;)+) => {$(
        $(#[$feature])*
        impl KeyPart for $type {
            fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
                let bytes: fn(&Self) -> &[u8] = $bytes;
                key.push(kind, bytes(self));
            }
        }
    )+};
}

bytes! {
    str => |text| text.as_bytes();
    String => |text| text.as_bytes();
    [u8] => |bytes| bytes;
    Vec<u8> => |bytes| bytes;
    #[cfg(feature = "http")]
    http::HeaderValue => |value| value.as_bytes();
    #[cfg(feature = "http")]
    http::Method => |method| method.as_str().as_bytes();
}

impl<const N: usize> KeyPart for [u8; N] {
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
        key.push(kind, self);
    }
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl KeyPart for $type {
            fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
                key.push(kind, itoa::Buffer::new().format(*self));
            }
        }
    )+};
}

integers!(u16, u32, u64, u128, usize, i16, i32, i64, i128, isize);

#[cfg(feature = "uuid")]
impl KeyPart for uuid::Uuid {
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        key.push(kind, self.hyphenated().encode_lower(&mut text).as_bytes());
    }
}

impl KeyPart for Key {
    fn add_to(&self, key: &mut KeyBuf, _: PartKind) {
        key.append(self.as_ref());
    }
}

impl<P: KeyPart, const N: usize> KeyPart for [P; N] {
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
        for part in self {
            part.add_to(key, kind);
        }
    }
}

macro_rules! tuples {
    ($(($($type:ident $field:tt),+))+) => {$(
        impl<$($type: KeyPart),+> KeyPart for ($($type,)+) {
            fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
                $(self.$field.add_to(key, kind);)+
            }
        }
    )+};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

macro_rules! pointers {
    ($($type:ty),+) => {$(
        impl<P: KeyPart + ?Sized> KeyPart for $type {
            fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
                (**self).add_to(key, kind);
            }
        }
    )+};
}

pointers!(&P, Box<P>, Rc<P>, Arc<P>);

impl<P: KeyPart + ToOwned + ?Sized> KeyPart for Cow<'_, P> {
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
        (**self).add_to(key, kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_key_of_the_text_that_it_prints() {
        macro_rules! check {
            ($($type:ty)+) => {$(
                for number in [<$type>::MIN, 0, 1, 9, 10, 99, 100, 12_345, <$type>::MAX / 10, <$type>::MAX] {
                    assert_eq!(Key::of(number), Key::of(number.to_string()), "{number}");
                }
            )+};
        }
        check!(u16 u32 u64 u128 usize i16 i32 i64 i128 isize);
        for number in [-1, -10, -12_345] {
            assert_eq!(Key::of(number), Key::of(number.to_string()));
        }
        let around = u128::from(u64::MAX);
        for number in [
            around - 1,
            around,
            around + 1,
            around * 10,
            around * 10 + 10,
        ] {
            assert_eq!(Key::of(number), Key::of(number.to_string()), "{number}");
        }
    }

    #[test]
    fn a_part_alone_in_an_array_in_a_tuple_and_collected_is_one_key() {
        let key = Key::of("ab");
        assert_eq!(key, Key::of("ab"));
        assert_eq!(key, Key::of(("ab",)));
        assert_eq!(key, ["ab"].into_iter().collect());
        let two = Key::of(["ab", "7"]);
        assert_eq!(two, Key::of(("ab", 7)));
        assert_eq!(two, vec!["ab", "7"].into_iter().collect());
        assert_eq!(two, Key::of((Key::of("ab"), 7)));
        assert_eq!(Key::of((("a", "b"), "c")), Key::of(["a", "b", "c"]));
        assert_eq!(Key::of((1, 2, 3, 4, 5, 6)), Key::of([1, 2, 3, 4, 5, 6]));
        assert_ne!(two, Key::of("ab7"));
        assert_ne!(two, Key::of(("a", "b7")));
        assert_ne!(two, Key::of((7, "ab")));
    }

    #[cfg(feature = "uuid")]
    #[test]
    fn a_uuid_is_the_key_of_the_text_that_it_prints() {
        let id = uuid::Uuid::from_u128(0x0b5a_97c4_93cf_4c6d_a8a8_61d6_8cd5_0001);
        assert_eq!(Key::of(id), Key::of(id.to_string()));
    }

    #[cfg(feature = "http")]
    #[test]
    fn the_value_of_a_header_and_a_method_are_the_keys_of_their_text() {
        assert_eq!(
            Key::of(http::HeaderValue::from_static("k-1")),
            Key::of("k-1")
        );
        assert_eq!(Key::of(http::Method::POST), Key::of("POST"));
    }
}
