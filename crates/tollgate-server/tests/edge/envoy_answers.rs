//! What Envoy's clients see of an answer.

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::support::{
    envoy::{Asks, Envoy, VERSIONS},
    server::Server,
    upstream::upstream,
};

/// What a client has got.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields
            .get(name)
            .map_or("", |value| value.to_str().expect("it is text"))
    }
}

pub(crate) async fn get(url: &str, fields: &[(&str, &str)]) -> Answer {
    let request = reqwest::Client::new().get(url);
    let request = fields.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    let response = request.send().await.expect("it is answered");
    Answer {
        status: response.status(),
        fields: response.headers().clone(),
        body: response.text().await.expect("it is text"),
    }
}

#[tokio::test]
async fn a_denial_has_the_fields_and_the_body_of_a_service() {
    for version in VERSIONS {
        let rules = "version = 1\n[[rules]]\nname = 'per-key'\nlimit = 'fixed_window 2/h'\nby = 'header:x-api-key'\n\
                     when = { path = '/search/{*rest}', methods = ['GET'] }\n";
        let server = Server::grpc(rules);
        let upstream = upstream().await;
        let asks = Asks {
            filter: "enable_x_ratelimit_headers: DRAFT_VERSION_03",
            ..Asks::head(&server.addresses[..1])
        };
        let envoy = Envoy::start(version, upstream, asks).await;
        let search = format!("{}/search/a?q=b", envoy.url);
        let key = [("x-api-key", "acme")];

        let allowed = get(&search, &key).await;
        assert_eq!(allowed.status, 200, "{version}");
        assert_eq!(allowed.field("ratelimit-policy"), "\"per-key\";q=2;w=3600");
        assert!(allowed.field("ratelimit").starts_with("\"per-key\";r=1;t="));
        assert_eq!(
            allowed.field("x-ratelimit-limit"),
            "2, 2;w=3600;name=\"per-key\""
        );
        assert_eq!(allowed.field("x-ratelimit-remaining"), "1");
        assert_eq!(get(&search, &key).await.status, 200);

        let denied = get(&search, &key).await;
        assert_eq!(denied.status, 429);
        assert_eq!(denied.field("x-envoy-ratelimited"), "true");
        assert_eq!(denied.field("content-type"), "application/problem+json");
        assert_eq!(denied.field("cache-control"), "no-store");
        let body: Value = serde_json::from_str(&denied.body).expect("it is JSON");
        assert_eq!(body["violated-policies"][0], "per-key", "{body}");
        // What Envoy writes by the status is no earlier than the field.
        let after: u64 = denied.field("retry-after").parse().expect("seconds");
        let reset: u64 = denied.field("x-ratelimit-reset").parse().expect("seconds");
        assert!(after > 0 && reset >= after, "{after} {reset}");

        // Other clients, paths and methods are none of the rule's.
        assert_eq!(get(&search, &[("x-api-key", "b")]).await.status, 200);
        let other = get(&format!("{}/other", envoy.url), &key).await;
        assert_eq!((other.status.as_u16(), other.field("ratelimit")), (200, ""));
        // One path, however it is spelt.
        let spelt = get(&format!("{}//search//a", envoy.url), &key).await;
        assert_eq!(spelt.status, 429, "{}", spelt.body);
        assert_eq!(
            (
                envoy.counter("over_limit").await,
                envoy.counter("error").await
            ),
            (2, 0)
        );
        let metrics = server.metrics().await;
        assert!(
            metrics.contains(
                "tollgate_checks_total{door=\"grpc\",domain=\"edge\",code=\"over_limit\"} 2"
            ),
            "{metrics}"
        );
    }
}
