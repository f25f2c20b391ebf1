//! Who asks, and what goes to a backend.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// The tenant of a request. Its API keys share what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant(&'static str);

impl Tenant {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        TENANTS.iter().map(|(tenant, _)| *tenant)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.0
    }
}

/// The tenants and their API keys. A service has them in its database, hashed.
const TENANTS: [(Tenant, &[&str]); 2] = [
    (Tenant("acme"), &["acme-1", "acme-2"]),
    (Tenant("globex"), &["globex-1"]),
];

/// Finds the tenant, in front of all limits: what is counted has been checked.
pub(crate) async fn authenticate(mut request: Request, next: Next) -> Response {
    let key = request.headers().get("x-api-key");
    let known = |(_, keys): &&(Tenant, &[&str])| {
        keys.iter().any(|known| key.is_some_and(|key| key == known))
    };
    let Some(&(tenant, _)) = TENANTS.iter().find(known) else {
        return (StatusCode::UNAUTHORIZED, "x-api-key: acme-1\n").into_response();
    };
    request.extensions_mut().insert(tenant);
    next.run(request).await
}

/// The backends, and what is needed to ask them.
#[derive(Clone)]
pub(crate) struct Gateway(Arc<Backends>);

struct Backends {
    client: Client<HttpConnector, Body>,
    items: String,
    model: String,
    read_on: Duration,
    _in_use: Sender<Infallible>,
}

impl Gateway {
    /// Of backends at these addresses, `127.0.0.1:8000`. The receiver ends when no clone is in use any more.
    pub(crate) fn new(
        items: String,
        model: String,
        read_on: Duration,
    ) -> (Self, Receiver<Infallible>) {
        let (in_use, ended) = mpsc::channel(1);
        let backends = Backends {
            client: Client::builder(TokioExecutor::new()).build_http(),
            items,
            model,
            read_on,
            _in_use: in_use,
        };
        (Self(Arc::new(backends)), ended)
    }

    /// For how long the answer of the model is read after its client hung up.
    pub(crate) fn read_on(&self) -> Duration {
        self.0.read_on
    }

    /// The answer of the model.
    pub(crate) async fn ask_model(
        &self,
        tenant: Tenant,
        completion: Vec<u8>,
    ) -> Result<Response, NoAnswer> {
        let request = Request::post("/v1/completions")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(completion))
            .map_err(|_| NoAnswer { was_sent: false })?;
        self.ask(&self.0.model, tenant, request).await
    }

    async fn ask(
        &self,
        backend: &str,
        tenant: Tenant,
        mut request: Request,
    ) -> Result<Response, NoAnswer> {
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
        let uri: Uri = format!("http://{backend}{path}")
            .parse()
            .map_err(|_| NoAnswer { was_sent: false })?;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        without_hops(headers);
        headers.remove(header::HOST);
        // The secret of a client is nothing for a backend, which trusts the name.
        headers.remove("x-api-key");
        headers.insert("x-tenant", HeaderValue::from_static(tenant.0));
        let answer = self.0.client.request(request).await;
        let answer = answer.map_err(|error| NoAnswer {
            was_sent: !error.is_connect(),
        })?;
        let mut answer = answer.map(Body::new);
        without_hops(answer.headers_mut());
        Ok(answer)
    }
}

/// A backend that has not answered.
pub(crate) struct NoAnswer {
    /// Whether it may have got the request, and works on it.
    pub(crate) was_sent: bool,
}

impl IntoResponse for NoAnswer {
    fn into_response(self) -> Response {
        StatusCode::BAD_GATEWAY.into_response()
    }
}

/// Removes the fields that are for one connection (RFC 9110, section 7.6.1).
fn without_hops(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        header::CONNECTION,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ] {
        headers.remove(name);
    }
}

/// `GET /items`, as the backend answers it.
pub(crate) async fn items(
    State(gateway): State<Gateway>,
    Extension(tenant): Extension<Tenant>,
    request: Request,
) -> Result<Response, NoAnswer> {
    gateway.ask(&gateway.0.items, tenant, request).await
}
