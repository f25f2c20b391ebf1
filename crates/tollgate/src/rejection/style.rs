//! The style of rejections, and the response in the protocol of the request.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::Response;
use tollgate_core::RuleError;

use crate::{header::template::Template, rejection::denial::Denial};

/// The response to a denial. See the [module documentation](crate::rejection).
#[must_use]
#[derive(Clone, Default)]
pub struct Rejection(pub(super) Style);

type Custom = dyn Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync;

#[derive(Clone, Default)]
pub(super) enum Style {
    #[default]
    Problem,
    Json,
    Text,
    Empty,
    Template(Arc<Template>),
    Custom(Arc<Custom>),
}

impl Rejection {
    /// `application/problem+json`: `type`, `title`, `status`, `detail`, `violated-policies` and `retry_after_ms`. The
    /// default.
    pub fn problem() -> Self {
        Self(Style::Problem)
    }

    /// `application/json`: `error` (`rate_limit_exceeded`, `cost_too_high`, `too_many_at_once`, `too_many_waiting`,
    /// `waited_too_long`, `no_key`, `blocked`, `unavailable`; `refused` if it is hidden), `message`, `rule` (the first that was
    /// exceeded) and `retry_after_ms`.
    pub fn json() -> Self {
        Self(Style::Json)
    }

    /// `application/json` of your own: a text in which `{reason}`, `{reset}`, `{reset_at}`, and of the first rule that was
    /// exceeded `{rule}`, `{limit}`, `{window}`, `{remaining}` and `{used}` stand for JSON, words with quotes of their own. What is not known,
    /// or hidden, is `null`. `{reset}` is the retry time in seconds, and `{reset_at}` that moment since the Unix epoch.
    ///
    /// ```
    /// use tollgate::Rejection;
    ///
    /// let rejection = Rejection::json_template(r#"{"error": {"code": {reason}, "wait": {reset}, "max": {limit}}}"#)?;
    /// let error = Rejection::json_template(r#"{"wait": {retry}}"#).unwrap_err();
    /// assert!(error.to_string().contains("reset"), "{error}");
    /// # let _ = rejection;
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A variable that is not known, or a word inside of a text.
    pub fn json_template(template: &str) -> Result<Self, RuleError> {
        Ok(Self(Style::Template(Arc::new(Template::parse_json(
            template,
        )?))))
    }

    /// `text/plain`: a sentence with the retry time.
    pub fn text() -> Self {
        Self(Style::Text)
    }

    /// No body.
    pub fn empty() -> Self {
        Self(Style::Empty)
    }

    /// The response of a closure, including its status: use [`Denial::status`].
    ///
    /// Not every denial is by a quota: see [`Denial::reason`] for a failed store, which is a 503, or a missing key. A body that
    /// calls each of them a rate limit blames clients for outages.
    ///
    /// The layer adds `Retry-After` where the time is known, and the quota's fields where a rule has counted. If [`Denial::hides_quota`], the closure should name no rule.
    pub fn custom(
        respond: impl Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        Self(Style::Custom(Arc::new(respond)))
    }

    /// Whether a closure makes the response.
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.0, Style::Custom(_))
    }
}

impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Style::Problem => "Rejection::problem",
            Style::Json => "Rejection::json",
            Style::Text => "Rejection::text",
            Style::Empty => "Rejection::empty",
            Style::Template(_) => "Rejection::json_template",
            Style::Custom(_) => "Rejection::custom",
        })
    }
}
