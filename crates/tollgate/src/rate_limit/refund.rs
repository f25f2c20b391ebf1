//! Responses that give back what their requests took.

/// An extension of a response: gives back what the layers around took for the request, because it was not served.
///
/// An inner service that answers with an error says so by that. Where something between has made a response of the error, or
/// has shed the load itself, it puts this into the response's extensions. As the handler of a `HandleErrorLayer` of axum:
///
/// ```
/// use axum::{BoxError, Extension, http::StatusCode, response::IntoResponse};
/// use tollgate::Refund;
///
/// async fn shed(_: BoxError) -> impl IntoResponse {
///     (StatusCode::SERVICE_UNAVAILABLE, Extension(Refund), "busy; try again")
/// }
/// ```
///
/// The response then carries no fields about the quota: what they would say of what is left is not true any more. What a
/// handler has asked for itself ([`Admission::acquire`](crate::Admission::acquire)) is not given back, nor is what a handler
/// holds as a [`Ticket`](crate::Admission::ticket), nor what a rule [keeps](crate::RequestRule::keep_on_error).
///
/// # What a client can gain
///
/// A client that can bring such a response about is not counted for it. Put it on answers that cost nothing and tell nothing:
/// load that was shed. On a wrong password it would make guessing free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refund;
