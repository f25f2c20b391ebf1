//! Everything that a document says can be said in code: both decide the same requests alike.

use std::convert::Infallible;

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tollgate::{
    Head, MINUTE, MemoryStore, Missing, Quota, RateLimitLayer, RequestRule, Rule,
    clock::{Clock, ManualClock},
    condition::{any_of, client_in, method_in, not, path as path_is, path_under},
    key::{PeerAddr, constant, header},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{Caller, START, get, one, request, toml};

/// What a client sees of an answer.
type Answer = (StatusCode, Vec<String>);

fn with(mut request: Request<String>, name: &'static str, value: &'static str) -> Request<String> {
    let value = HeaderValue::from_static(value);
    request
        .headers_mut()
        .insert(HeaderName::from_static(name), value);
    request
}

/// Requests that differ in all that a document may ask about.
fn requests() -> Vec<Request<String>> {
    let planned = |tenant, plan| {
        let mut request = get("/users/7");
        request.extensions_mut().insert(Caller { tenant, plan });
        request
    };
    let mut elsewhere = get("/users/7");
    let peer: std::net::IpAddr = [10, 0, 0, 1].into();
    elsewhere
        .extensions_mut()
        .insert(PeerAddr((peer, 1).into()));
    let call = |name: &str| {
        let call = request(Method::POST, &format!("/weather.v1.Weather/{name}"));
        with(call, "content-type", "application/grpc")
    };
    vec![
        get("/"),
        get("/users/7"),
        get("/users/8?q=a%20b"),
        get("/users/8?q=c&words"),
        get("/users/7/posts"),
        request(Method::POST, "/users/7"),
        request(Method::DELETE, "/other"),
        with(get("/"), "x-api-key", "ann"),
        with(get("/users/7"), "x-api-key", "bob"),
        with(get("/"), "cookie", "a=b; session=1"),
        with(get("/"), "cookie", "session=2"),
        with(get("/"), "x-beta", "1"),
        with(get("/"), "x-beta", "2"),
        with(get("/"), "x-cost", "2"),
        with(get("/"), "x-cost", "many"),
        with(get("/"), "x-limit", "fixed_window 5/min"),
        with(get("/"), "x-plan", "gold"),
        with(get("/"), "x-respond", "401"),
        with(get("/"), "x-respond", "500"),
        with(get("/"), "x-tokens-used", "2"),
        planned("acme", None),
        planned("acme", Some("gold")),
        planned("other", Some("silver")),
        elsewhere,
        call("Current"),
        call("Watch"),
    ]
}

/// What becomes of these requests, three times each, while time stands still.
async fn answers(rules: Vec<RequestRule>) -> (Vec<tollgate_core::Rule>, Vec<Answer>) {
    let clock = Clock::from(ManualClock::new(START));
    let store = MemoryStore::builder().clock(clock).build();
    let layer = RateLimitLayer::new(store, rules).expect("valid rules");
    let given = layer.limiter().rules().given().to_vec();
    let service = layer.layer(service_fn(|request: Request<String>| async move {
        let mut response = Response::new(String::new());
        let status = request.headers().get("x-respond");
        let status = status.and_then(|status| status.to_str().ok()?.parse().ok());
        *response.status_mut() = status.unwrap_or(StatusCode::OK);
        if let Some(used) = request.headers().get("x-tokens-used") {
            response.headers_mut().insert("x-tokens-used", used.clone());
        }
        Ok::<_, Infallible>(response)
    }));
    let mut answers = Vec::new();
    for _ in 0..3 {
        for request in requests() {
            let Ok(response) = service.clone().oneshot(request).await;
            let fields = [
                "ratelimit-policy",
                "ratelimit",
                "retry-after",
                "grpc-status",
            ];
            let fields = fields.map(|name| format!("{:?}", response.headers().get(name)));
            answers.push((response.status(), fields.to_vec()));
        }
    }
    (given, answers)
}

/// Rules in a document, and the same in code.
type Case = (String, Vec<RequestRule>);

fn rule() -> Rule {
    Rule::new("rule", Quota::fixed_window(2, MINUTE))
}

fn conditions() -> Vec<Case> {
    let users = || path_is("/users/{id}").expect("a pattern");
    let by = || rule().by(constant("all"));
    let has_beta = |head: &Head<'_>| head.headers.contains_key("x-beta");
    let beta_is_1 = |head: &Head<'_>| head.headers.get("x-beta").is_some_and(|value| value == "1");
    let is_in = |network: &'static str| client_in([network]).expect("a network");
    let cases: Vec<(&str, RequestRule)> = vec![
        ("when = { path = '/users/{id}' }", by().when(users())),
        (
            "when = { path = '/users/{*rest}' }",
            by().when(path_is("/users/{*rest}").expect("a pattern")),
        ),
        (
            "when = { methods = ['POST', 'DELETE'] }",
            by().when(method_in([Method::POST, Method::DELETE])),
        ),
        ("when = { header = 'x-beta' }", by().when(has_beta)),
        (
            "when = { header = { name = 'x-beta', equals = '1' } }",
            by().when(beta_is_1),
        ),
        (
            "when = { grpc_service = 'weather.v1.Weather' }",
            by().when(path_under("/weather.v1.Weather")),
        ),
        (
            "when = { grpc_method = 'weather.v1.Weather/Watch' }",
            by().when(path_is("/weather.v1.Weather/Watch").expect("a pattern")),
        ),
        (
            "when = { client_in = '10.0.0.0/8' }",
            by().when(is_in("10.0.0.0/8")),
        ),
        ("when = 'beta'", by().when(has_beta)),
        ("when = { not = 'beta' }", by().when(not(has_beta))),
        (
            "when = { any = ['beta', { path = '/users/{id}' }] }",
            by().when(any_of(has_beta, users())),
        ),
        (
            "when = { all = ['beta', { header = { name = 'x-beta', equals = '1' } }] }",
            by().when(has_beta).when(beta_is_1),
        ),
        (
            "unless = { client_in = '10.0.0.0/8' }",
            by().exempt(is_in("10.0.0.0/8")),
        ),
    ];
    let cases = cases.into_iter();
    cases
        .map(|(when, rule)| (one("'constant'", when), vec![rule]))
        .collect()
}

fn settings() -> Vec<Case> {
    let by_key = |rule: Rule| rule.by(header("x-api-key"));
    let words = |head: &Head<'_>| head.uri.query().map_or(1, |query| query.len() as u64);
    let in_header = |head: &Head<'_>| {
        let cost = head
            .headers
            .get("x-cost")
            .and_then(|cost| cost.to_str().ok()?.parse().ok());
        cost.map_or(2, |cost: u64| cost.clamp(1, 2))
    };
    let token = |head: &Head<'_>| head.headers.get("x-limit")?.to_str().ok()?.parse().ok();
    let cases: Vec<(&str, RequestRule)> = vec![
        ("cost = 'words'", by_key(rule()).cost_by(words)),
        (
            "cost = { header = 'x-cost', max = 2 }",
            by_key(rule()).cost_by(in_header),
        ),
        (
            "cost_by_response = { header = 'x-tokens-used' }",
            by_key(rule())
                .cost_by_response(|response| response.header("x-tokens-used")?.parse().ok()),
        ),
        (
            "count_if = { status = [401, '5xx'] }",
            by_key(rule())
                .count_if(|response| matches!(response.status().as_u16(), 401 | 500..=599)),
        ),
        (
            "plan = 'plan'\nplans = { gold = '5/min', silver = 'unlimited' }",
            by_key(
                rule()
                    .plan("gold", Quota::fixed_window(5, MINUTE))
                    .plan("silver", Quota::unlimited()),
            )
            .plan_by(|head| head.extensions.get::<Caller>()?.plan),
        ),
        (
            "plan = { header = 'x-plan' }\nplans = { gold = '5/min' }",
            by_key(rule().plan("gold", Quota::fixed_window(5, MINUTE)))
                .plan_by(|head| Some(head.headers.get("x-plan")?.to_str().ok()?.to_owned())),
        ),
        ("quota_by = 'token'", by_key(rule()).quota_by(token)),
        ("mode = 'off'", by_key(rule().off())),
        (
            "missing = 'skip'",
            by_key(rule()).when_missing(Missing::Skip),
        ),
        (
            "missing = 401",
            by_key(rule()).when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
        ),
        ("keep_on_error = true", by_key(rule()).keep_on_error()),
    ];
    let cases = cases.into_iter();
    cases
        .map(|(setting, rule)| (one("'header:x-api-key'", setting), vec![rule]))
        .collect()
}

/// What a document says besides its rules.
fn entries() -> Vec<Case> {
    let by_key = |rule: Rule| rule.by(header("x-api-key"));
    let keyed = |more: &str| format!("{}{more}", one("'header:x-api-key'", ""));
    let acme = || {
        let request = with(get("/"), "x-api-key", "ann");
        let key = RateLimitLayer::new(MemoryStore::new(), [by_key(rule())]);
        let head = request.into_parts().0;
        key.expect("valid")
            .key_of("rule", &head)
            .expect("it has a key")
    };
    let groups = "version = 1\n[[rules]]\nname = 'users'\nlimit = 'fixed_window 2/min'\nby = 'constant'\n\
        when = { path = '/users/{id}' }\n[[rules]]\nname = 'rest'\nlimit = 'fixed_window 3/min'\nby = 'constant'\n\
        [[groups]]\nname = 'all'\nrules = ['rest', 'users']\n";
    let users = || path_is("/users/{id}").expect("a pattern");
    let quota = Quota::fixed_window(5, MINUTE);
    vec![
        (
            keyed("[[overrides]]\nrule = 'rule'\nkey = 'ann'\nlimit = '5/min'\n"),
            vec![by_key(rule().plan("override 1", quota)).plan_for_key(acme(), "override 1")],
        ),
        (
            groups.to_owned(),
            vec![
                Rule::new("users", Quota::fixed_window(2, MINUTE))
                    .by(constant("all"))
                    .when(users()),
                Rule::new("rest", Quota::fixed_window(3, MINUTE))
                    .by(constant("all"))
                    .when(not(users())),
            ],
        ),
    ]
}

#[tokio::test]
async fn a_document_and_the_same_rules_in_code_decide_alike() {
    let (_, without) = answers(vec![rule().off().by(constant("all"))]).await;
    let groups = [conditions(), settings(), entries()];
    for (text, in_code) in groups.into_iter().flatten() {
        let document = toml(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        let (given, decided) = answers(document.rules_at(START)).await;
        let (expected, in_code) = answers(in_code).await;
        assert_eq!(given, expected, "{text}");
        for (index, (decided, in_code)) in decided.iter().zip(&in_code).enumerate() {
            assert_eq!(decided, in_code, "{text}\nrequest {index}");
        }
        // It says something of these requests, unless it denies none and shows nothing.
        let is_silent = ["'off'", "\"unlimited\""];
        let is_silent = is_silent.iter().any(|word| text.contains(word));
        assert_eq!(decided == without, is_silent, "{text}");
    }
}
