use axum::{Form, Router, response::Redirect, routing::{get, post}};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE, request};
use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, RuleError, key::client_ip};

const FORM: &str = r#"<form method="post" action="/human">What is three plus four? <input name="answer"><button>Go on</button></form>"#;

pub fn app() -> Result<Router, RuleError> {
    let searches = Rule::new("searches", Quota::sliding_log(100, MINUTE))
        .threshold("many-searches", Quota::sliding_log(3, MINUTE))
        .by(client_ip())
        .challenge("many-searches", |_head, _verdict| {
            let mut page = Response::new(Bytes::from_static(FORM.as_bytes()));
            *page.status_mut() = StatusCode::UNAUTHORIZED;
            let html = HeaderValue::from_static("text/html; charset=utf-8");
            page.headers_mut().insert(CONTENT_TYPE, html);
            Some(page)
        });
    let answers = Rule::new("answers", Quota::sliding_log(5, MINUTE)).by(client_ip());
    let store = MemoryStore::new();
    let searches = RateLimitLayer::new(store.clone(), [searches])?;
    let answers = RateLimitLayer::new(store, [answers])?;
    let limits = searches.clone();
    let human = async move |head: request::Parts, Form(form): Form<Vec<(String, String)>>| {
        let solved = form.iter().any(|(name, value)| name == "answer" && value.trim() == "7");
        if let Some(key) = limits.key_of("searches", &head).filter(|_| solved)
            && let Ok(reset) = limits.limiter().reset("searches", &key)
        {
            // Should the store fail, the form comes once more.
            let _ = reset.await;
        }
        Redirect::to("/search")
    };
    Ok(Router::new()
        .route("/search", get(async || "found").layer(searches))
        .route("/human", post(human).layer(answers)))
}
