//! A source of rules of one's own: a flag service that is asked over HTTP.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::Uri;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tollgate_rules::{Format, RuleText, Source, SourceError};

/// Rules that a flag service has under an address: YAML, and their number in the header field `x-revision`.
#[derive(Debug)]
pub struct FlagSource {
    flag: Uri,
    /// Until the service is asked next; nothing for the first time.
    pause: Duration,
}

impl FlagSource {
    /// The rules at this address.
    #[must_use]
    pub fn new(flag: Uri) -> Self {
        let pause = Duration::ZERO;
        Self { flag, pause }
    }
}

impl Source for FlagSource {
    async fn next(&mut self) -> Result<RuleText, SourceError> {
        tokio::time::sleep(std::mem::replace(
            &mut self.pause,
            Duration::from_millis(500),
        ))
        .await;
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        let response = client.get(self.flag.clone()).await?;
        if !response.status().is_success() {
            return Err(format!("{} answers {}", self.flag, response.status()).into());
        }
        let revision = response
            .headers()
            .get("x-revision")
            .ok_or("no x-revision")?
            .to_str()?
            .parse()?;
        let text = to_bytes(Body::new(response.into_body()), 1 << 20).await?;
        let text = String::from_utf8(text.into())?;
        Ok(RuleText::named(self.flag.to_string(), text, Format::Yaml).with_revision(revision))
    }
}
