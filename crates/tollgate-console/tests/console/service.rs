//! A service with a console, which can go and come back on its port.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tokio::{net::TcpListener, runtime::Runtime};
use tollgate::{MemoryStore, RateLimitLayer};
use tollgate_console::{Access, Console};
use tollgate_rules::{Bindings, Format, LiveRules};

/// Rules of which some deny, one is a shadow, and one keeps its top keys with labels.
pub(crate) const LIMITS: &str = r#"
version = 1

[[rules]]
name = "items-per-key"
limit = "fixed_window 30/h"
by = "header:x-api-key"
when = { path = "/items" }
top_keys = true
label = "key"

[[rules]]
name = "writes-per-key"
limit = "30/min burst 3"
by = "header:x-api-key"
when = { path = "/items", methods = ["POST"] }

[[rules]]
name = "per-ip"
limit = "5/min"
mode = "shadow"
by = "client_ip"

[[rules]]
name = "everybody"
limit = "1000/s burst 2000"
by = "constant"
"#;

/// A service on a port, in a runtime of its own.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Service {
    pub(crate) async fn start(app: Router) -> Self {
        Self::start_on(0, app).await
    }

    pub(crate) async fn start_on(port: u16, app: Router) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let served = runtime.spawn(async move {
            let listener = TcpListener::bind(("127.0.0.1", port))
                .await
                .expect("a free port");
            let address = listener.local_addr().expect("a bound socket");
            let service = app.into_make_service_with_connect_info::<SocketAddr>();
            tokio::spawn(async move { axum::serve(listener, service).await });
            address
        });
        let address = served.await.expect("it listens");
        Self {
            address,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Service {
    /// At once, with all of its connections.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) struct App {
    pub(crate) rules: LiveRules,
    pub(crate) limits: RateLimitLayer,
}

impl App {
    pub(crate) fn new(limits: &str) -> Self {
        let bindings = Bindings::new().plan("plan", |_| None::<&str>);
        let rules = LiveRules::from_text(limits, Format::Toml, bindings).expect("valid rules");
        let limits = rules.layer(MemoryStore::new()).expect("valid rules");
        Self { rules, limits }
    }

    pub(crate) fn console(&self, access: Access) -> Console {
        Console::new(access)
            .layer("api", &self.limits)
            .rules(&self.rules)
    }

    /// The service, with its console at `/tollgate`.
    pub(crate) fn router(&self, console: Console) -> Router {
        let items = get(|| async { "one, two" }).post(|| async { "made" });
        let app: Router = Router::new()
            .route("/items", items)
            .layer(self.limits.clone());
        app.nest("/tollgate", console.router())
    }
}
