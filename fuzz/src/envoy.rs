//! What `tollgate-server` answers Envoy.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};
use tollgate::{MemoryStore, RateLimitLayer};
use tollgate_rules::{Bindings, Format, RuleDocument};
use tollgate_server::answer_to;

/// By all that a message says of a request.
const RULES: &str = r#"
    version = 1
    rules = [
        { name = "ip", limit = "9/s", by = "client_ip", when = { path = "/a/{b}/{*c}", methods = ["GET"] } },
        { name = "header", limit = "9/s", by = ["header:x-api-key", "path"], missing = 401 },
        { name = "none", limit = "none", by = "header:x-blocked", missing = "skip" },
        { name = "user", limit = "fixed_window 9/s", by = "descriptor:user", when = { domain = "edge" } },
        { name = "two", limit = "sliding_window 9/s", by = "descriptor:to", when = { descriptor = [{ kind = "a*b" }, "to"] } },
    ]
"#;

static LAYER: LazyLock<RateLimitLayer> = LazyLock::new(|| {
    let document = RuleDocument::parse(RULES, Format::Toml, &Bindings::new().at_edge());
    RateLimitLayer::new(MemoryStore::new(), document.expect("right").rules()).expect("right")
});
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime")
});

/// Answers a message of any bytes, which must not panic.
pub fn answer_envoy(bytes: &[u8]) {
    if let Ok(length) = RUNTIME.block_on(answer_to(&LAYER, bytes)) {
        // With each rule and its fields.
        assert!(length < 64 << 10, "{length}");
    }
}
