//! An entry of a gRPC call's metadata as the key.

use std::fmt::Debug;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::HeaderValue;
use tollgate_core::{KeyBuf, PartKind};

use crate::{
    head::Head,
    key::{
        extractor::{Extracted, KeyExtractor, NoKey, extractor},
        header::header_name,
        value::{exactly_one, push_named},
    },
};

/// Padding is optional (gRPC over HTTP/2 §Custom-Metadata).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Counts by an entry of a gRPC call's metadata. The key has two parts of [`PartKind::METADATA`], the name and the bytes of
/// the value.
///
/// The name of a binary entry ends in `-bin`; its value is decoded, so that each spelling of a value is the same key. An empty
/// value, or one that is not base64, is no key; a repeated one is [`NoKey::Ambiguous`].
///
/// Clients may send any value: see [choosing a key](crate::key#choosing-a-key).
///
/// ```
/// use tollgate::{Head, key::{Extracted, KeyBuf, KeyExtractor, metadata}};
///
/// let key_of = |written: &str| {
///     let call = http::Request::post("/weather.v1.Weather/Current").header("tenant-bin", written);
///     let mut key = KeyBuf::new();
///     let found = metadata("tenant-bin").extract(&Head::from(&call.body(()).unwrap()), &mut key);
///     matches!(found, Extracted::Key).then_some(key)
/// };
/// assert_eq!(key_of("/w=="), key_of("/w"));
/// assert!(key_of("/w").is_some());
/// assert!(key_of("?").is_none());
/// ```
pub fn metadata(name: impl AsRef<str>) -> impl KeyExtractor + Clone + Debug {
    let name = header_name(name.as_ref());
    let mistake = name.clone().err();
    let extract = move |head: &Head<'_>, key: &mut KeyBuf| {
        let name = match &name {
            Ok(name) => name,
            Err(mistake) => {
                return Extracted::Nothing(NoKey::Misconfigured(mistake.clone().into()));
            }
        };
        let value = exactly_one(head.headers.get_all(name).iter());
        let value = value.map(HeaderValue::as_bytes).map(<[u8]>::trim_ascii);
        if !name.as_str().ends_with("-bin") {
            return push_named(key, PartKind::METADATA, name.as_str(), value);
        }
        let value = match value {
            // A line may have several values, separated by commas.
            Ok(value) if value.contains(&b',') => Err(NoKey::Ambiguous),
            Ok(value) => BASE64.decode(value).map_err(|_| NoKey::Absent),
            Err(why) => Err(why),
        };
        push_named(key, PartKind::METADATA, name.as_str(), value)
    };
    extractor("metadata", extract).with_mistake(mistake)
}
