//! The service and the method of a gRPC call as the key.

use std::borrow::Cow;

use tollgate_core::{KeyBuf, PartKind};

use crate::key::extractor::{Extracted, KeyExtractor, NoKey};

use crate::head::Head;

/// Counts by the gRPC service that is called, `weather.v1.Weather`: the first segment of the path. The key has one part of
/// [`PartKind::GRPC_SERVICE`].
///
/// A path that is not of the form `/service/method` has no key. A client may call services that do not
/// exist, and each has its own budget: such calls cost nothing but the response.
#[must_use]
pub fn grpc_service() -> GrpcService {
    GrpcService(())
}

/// The extractor that [`grpc_service()`] makes.
#[derive(Clone, Debug)]
pub struct GrpcService(());

/// Counts by the gRPC method that is called, with its service: `weather.v1.Weather/Current`. The key has one part of
/// [`PartKind::GRPC_METHOD`].
///
/// A path that is not of the form `/service/method` has no key.
#[must_use]
pub fn grpc_method() -> GrpcMethod {
    GrpcMethod(())
}

/// The extractor that [`grpc_method()`] makes.
#[derive(Clone, Debug)]
pub struct GrpcMethod(());

/// The service and the method of a path, `/weather.v1.Weather/Current`.
pub(crate) fn service_and_method(path: &str) -> Option<(&str, &str)> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    (!service.is_empty() && !method.is_empty() && !method.contains('/'))
        .then_some((service, method))
}

impl KeyExtractor for GrpcService {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        let Some((service, _)) = service_and_method(head.uri.path()) else {
            return Extracted::Nothing(NoKey::Absent);
        };
        key.push(PartKind::GRPC_SERVICE, service);
        Extracted::Key
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "grpc_service".into()
    }
}

impl KeyExtractor for GrpcMethod {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        let path = head.uri.path();
        if service_and_method(path).is_none() {
            return Extracted::Nothing(NoKey::Absent);
        }
        key.push(PartKind::GRPC_METHOD, &path[1..]);
        Extracted::Key
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "grpc_method".into()
    }
}
