//! The service and the method of a gRPC call as the key.

use std::fmt::Debug;

use tollgate_core::PartKind;

use crate::key::extractor::{Extracted, KeyExtractor, NoKey, extractor};

/// Counts by the gRPC service that is called, `weather.v1.Weather`: the first segment of the path. The key has one part of
/// [`PartKind::GRPC_SERVICE`].
///
/// A path that is not of the form `/service/method` has no key. A client may call services that do not
/// exist, and each has its own budget: such calls cost nothing but the response.
#[must_use]
pub fn grpc_service() -> impl KeyExtractor + Clone + Debug {
    extractor("grpc_service", |head, key| {
        let Some((service, _)) = service_and_method(head.uri.path()) else {
            return Extracted::Nothing(NoKey::Absent);
        };
        key.push(PartKind::GRPC_SERVICE, service);
        Extracted::Key
    })
}

/// Counts by the gRPC method that is called, with its service: `weather.v1.Weather/Current`. The key has one part of
/// [`PartKind::GRPC_METHOD`].
///
/// A path that is not of the form `/service/method` has no key.
#[must_use]
pub fn grpc_method() -> impl KeyExtractor + Clone + Debug {
    extractor("grpc_method", |head, key| {
        let path = head.uri.path();
        if service_and_method(path).is_none() {
            return Extracted::Nothing(NoKey::Absent);
        }
        key.push(PartKind::GRPC_METHOD, &path[1..]);
        Extracted::Key
    })
}

/// The service and the method of a path, `/weather.v1.Weather/Current`.
pub(crate) fn service_and_method(path: &str) -> Option<(&str, &str)> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    (!service.is_empty() && !method.is_empty() && !method.contains('/'))
        .then_some((service, method))
}
