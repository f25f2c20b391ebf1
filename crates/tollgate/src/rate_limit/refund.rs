//! Responses that refund their requests.

/// An extension of a response: the outer layers refund the units that the request took, because it was not served.
///
/// If the inner service returns an error, the layer refunds the request by itself. A middleware that turns errors into
/// responses, or sheds load itself, adds this extension to the response. As the handler of a `HandleErrorLayer` of axum:
///
/// ```
/// use axum::{BoxError, Extension, http::StatusCode, response::IntoResponse};
/// use tollgate::service::Refund;
///
/// async fn shed(_: BoxError) -> impl IntoResponse {
///     (StatusCode::SERVICE_UNAVAILABLE, Extension(Refund), "busy; try again")
/// }
/// ```
///
/// The response then carries no quota fields: the remaining units in them would be wrong. A [shadow](crate::Rule::shadow) gets its
/// units back too, as if it were enforced. Not refunded are the units that a
/// handler acquired itself ([`Admission::acquire`](crate::Admission::acquire)) or holds as a
/// [`Ticket`](crate::Admission::ticket), and those of a rule with [`keep_on_error`](crate::RequestRule::keep_on_error).
///
/// To give back by status or by a header field, without this extension, see
/// [`RequestRule::count_if`](crate::RequestRule::count_if).
///
/// # Abuse
///
/// A client that can provoke such a response is not limited. Use it for responses that cost nothing and reveal nothing, such
/// as shed load. On a wrong password it would make guessing free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refund;
