//! Scenarios by name, each a closure that does one operation.

use std::{error::Error, fmt, hint::black_box};

use http::Request;
use tokio::runtime::Builder;
use tollgate::{MemoryStore, Quota, RuleError, header::HeaderStyle};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_rules::{Bindings, Format, LiveRules};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    check::{Checker, DAILY, LASTING, TIGHT, UNEVEN, WIDE},
    fallible::FallibleStore,
    layer::{
        API_KEY, Bare, grpc_call, layer, layer_by_address, layer_of_routes, layer_of_slots,
        layer_of_window, layer_that_waits, request, request_from, request_on_route, send,
    },
    redis::{
        local::{Knows, Local},
        server::Server,
        store::PATIENCE,
    },
    workload::{Namer, each, hot, uniform, zipf},
};

/// Something that can be done again and again.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    make: Make,
}

/// One operation.
pub type Step = Box<dyn FnMut()>;

type Made = Result<Step, Box<dyn Error>>;

type Make = fn() -> Made;

impl Scenario {
    /// Sets it up.
    ///
    /// # Errors
    ///
    /// A rule that cannot be used, or no Redis where it needs one.
    pub fn set_up(&self) -> Result<Step, Box<dyn Error>> {
        (self.make)()
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scenario({})", self.name)
    }
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    scenario("name", || Ok(by_name(hot(), |_| true))),
    scenario("hot-allowed", || checks(WIDE, hot(), 8)),
    scenario("hot-uneven", || checks(UNEVEN, hot(), 8)),
    scenario("hot-denied", || checks(TIGHT, hot(), 8)),
    scenario("hot-may-wait", || {
        Ok(asking(Checker::waiting(WIDE)?, hot(), 8))
    }),
    scenario("window", || checks(DAILY, hot(), 8)),
    scenario("durable", || Ok(asking(Checker::durable()?, hot(), 8))),
    scenario("window-uniform", || {
        checks(DAILY, uniform(100_000), 100_000)
    }),
    scenario("durable-uniform", || {
        let checker = Checker::durable()?;
        Ok(asking(checker, uniform(100_000), 100_000))
    }),
    scenario("fallible-allowed", || fallible(WIDE, hot(), 8)),
    scenario("fallible-denied", || fallible(TIGHT, hot(), 8)),
    scenario("fallible-uniform", || {
        fallible(LASTING, uniform(100_000), 100_000)
    }),
    scenario("lease-hot", || local(Knows::Lease)),
    scenario("eventual-hot", || local(Knows::Eventual)),
    scenario("learned-hot", || local(Knows::Bound)),
    scenario("lease-uniform", || local_of_many(Knows::Lease)),
    scenario("eventual-uniform", || local_of_many(Knows::Eventual)),
    scenario("exact-cold", || cold(Knows::Nothing)),
    scenario("lease-cold", || cold(Knows::Lease)),
    scenario("eventual-cold", || cold(Knows::Eventual)),
    scenario("shared-key", shared_key),
    scenario("two-rules", || two_rules(Checker::new(WIDE, 2))),
    scenario("rate-and-slot", || two_rules(Checker::with_slots(WIDE))),
    scenario("two-rules-uniform", || {
        two_rules_of_many(Checker::new(LASTING, 2))
    }),
    scenario("rate-and-slot-uniform", || {
        two_rules_of_many(Checker::with_slots(LASTING))
    }),
    scenario("uniform", || checks(LASTING, uniform(100_000), 100_000)),
    scenario("zipf", || checks(LASTING, zipf(1_000_000), 1_000_000)),
    scenario("new-keys", new_keys),
    scenario("bare", || Ok(through(Bare::<String>::new()))),
    scenario("layer", || layered(WIDE, 1, HeaderStyle::NONE)),
    scenario("layer-may-wait", || {
        Ok(through(
            layer_that_waits(WIDE)?.layer(Bare::<String>::new()),
        ))
    }),
    scenario("layer-slot", || {
        Ok(through(layer_of_slots(WIDE)?.layer(Bare::<String>::new())))
    }),
    scenario("layer-window", || windowed(false)),
    scenario("layer-durable", || windowed(true)),
    scenario("layer-redis-window", || on_redis(false)),
    scenario("layer-redis-durable", || on_redis(true)),
    scenario("layer-2-rules", || layered(WIDE, 2, HeaderStyle::NONE)),
    scenario("layer-live", || live("", request)),
    scenario("layer-4-rules", || layered(WIDE, 4, HeaderStyle::NONE)),
    scenario("layer-route", || on_route(1)),
    scenario("layer-live-route", || {
        live("when = { path = '/route-0/{id}' }", request_on_route)
    }),
    scenario("layer-1000-routes", || on_route(1_000)),
    scenario("layer-headers", || layered(WIDE, 1, HeaderStyle::DRAFT_11)),
    scenario("bare-address", || {
        Ok(through_with(Bare::<String>::new(), request_from))
    }),
    scenario("layer-address", || by_address(HeaderStyle::NONE)),
    scenario("layer-address-headers", || {
        by_address(HeaderStyle::DRAFT_11)
    }),
    scenario("layer-denied", || layered(TIGHT, 1, HeaderStyle::DRAFT_11)),
    scenario("grpc-denied", grpc_denied),
];

const fn scenario(name: &'static str, make: Make) -> Scenario {
    Scenario { name, make }
}

fn checks(quota: Quota, clients: Vec<u32>, count: u32) -> Made {
    Ok(asking(Checker::new(quota, 1)?, clients, count))
}

/// The same of a store that could fail.
fn fallible(quota: Quota, clients: Vec<u32>, count: u32) -> Made {
    let checker = Checker::on(FallibleStore::default(), quota, 1)?;
    Ok(asking(checker, clients, count))
}

fn asking(checker: Checker, clients: Vec<u32>, count: u32) -> Step {
    let mut namer = Namer::new();
    for client in each(count) {
        black_box(checker.one(namer.name(client)));
    }
    by_name(clients, move |name| checker.one(name))
}

/// Something with the name of one client after the other.
fn by_name(clients: Vec<u32>, then: impl Fn(&str) -> bool + 'static) -> Step {
    let (mut namer, mut clients) = (Namer::new(), clients.into_iter().cycle());
    Box::new(move || {
        if let Some(client) = clients.next() {
            black_box(then(black_box(namer.name(client))));
        }
    })
}

/// What a process answers alone in front of Redis. After some seconds it has to ask, and waits for the answer.
fn local(knows: Knows) -> Made {
    let server = Server::start()?;
    let local = Local::connect(&server, knows)?;
    local.learn(8);
    let check = local.check(Namer::new().name(7));
    Ok(Box::new(move || {
        let _alive = &server;
        black_box(local.acquire(black_box(check)));
    }))
}

/// The same of 100 000 clients, whose checks come one behind the other in memory: what is waited for is what is kept of them.
fn local_of_many(knows: Knows) -> Made {
    let server = Server::start()?;
    let local = Local::connect(&server, knows)?;
    let mut namer = Namer::new();
    let clients = uniform(100_000).into_iter().take(1 << 19);
    let checks: Vec<_> = clients
        .map(|client| local.check(namer.name(client)))
        .collect();
    local.learn(100_000);
    let mut next = 0;
    Ok(Box::new(move || {
        let _alive = &server;
        black_box(local.acquire(checks[next]));
        next = (next + 1) % checks.len();
    }))
}

/// A new client, which needs a call to Redis: all that this process does for it.
fn cold(knows: Knows) -> Made {
    let server = Server::start()?;
    let local = Local::connect(&server, knows)?;
    let mut namer = Namer::new();
    let mut next = 0;
    Ok(Box::new(move || {
        let _alive = &server;
        black_box(local.acquire(local.check(namer.name(next))));
        next = (next + 1) % 1_000_000;
    }))
}

/// What becomes of a client's name before it is looked for: its key, and what stands for it in Redis.
fn shared_key() -> Made {
    let server = Server::start()?;
    let local = Local::connect(&server, Knows::Nothing)?;
    let mut namer = Namer::new();
    Ok(Box::new(move || {
        let _alive = &server;
        black_box(local.check(black_box(namer.name(7))));
    }))
}

/// Both rules, decided together.
fn two_rules(checker: Result<Checker, RuleError>) -> Made {
    let checker = checker?;
    Ok(Box::new(move || {
        black_box(checker.two(black_box("customer-000000000000007")));
    }))
}

/// The same of 100 000 clients.
fn two_rules_of_many(checker: Result<Checker, RuleError>) -> Made {
    let (checker, mut namer) = (checker?, Namer::new());
    for client in each(100_000) {
        black_box(checker.two(namer.name(client)));
    }
    Ok(by_name(uniform(100_000), move |name| checker.two(name)))
}

/// A flood of clients that come once each; their states are fresh again after a while.
fn new_keys() -> Made {
    let checker = Checker::new(Quota::gcra(100, tollgate::SECOND), 1)?;
    let mut namer = Namer::new();
    let mut next = 0;
    Ok(Box::new(move || {
        black_box(checker.one(namer.name(next)));
        next = (next + 1) % 1_000_000;
    }))
}

fn layered(quota: Quota, rules: usize, headers: HeaderStyle) -> Made {
    Ok(through(
        layer(quota, rules, headers)?.layer(Bare::<String>::new()),
    ))
}

fn windowed(is_durable: bool) -> Made {
    let layer = layer_of_window(MemoryStore::new(), is_durable)?;
    Ok(through(layer.layer(Bare::<String>::new())))
}

/// The same through Redis: all that this process does for a request, its connection included.
fn on_redis(is_durable: bool) -> Made {
    let server = Server::start()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let keys = Keys::hashed(Secret::from_bytes([7; 32])?);
    let store = RedisStore::builder(server.address(), "layer", keys).deadline(PATIENCE);
    let store = store.connect()?;
    runtime.block_on(store.connected());
    let mut service = layer_of_window(store, is_durable)?.layer(Bare::<String>::new());
    drop(entered);
    Ok(Box::new(move || {
        let _alive = &server;
        let answer = service.call(request::<String>());
        let _ = black_box(runtime.block_on(answer).is_ok());
    }))
}

/// The same with a rule of a document, which has this setting as well.
fn live(setting: &str, request: fn() -> Request<String>) -> Made {
    let rule = format!("name = 'rule-0'\nlimit = '{WIDE}'\nby = 'header:{API_KEY}'\n{setting}\n");
    let text = format!("version = 1\n[[rules]]\n{rule}");
    let rules = LiveRules::from_text(&text, Format::Toml, Bindings::new())?;
    let layer = rules
        .layer(MemoryStore::new())?
        .headers(HeaderStyle::NONE)?;
    let mut step = through_with(layer.layer(Bare::<String>::new()), request);
    Ok(Box::new(move || {
        let _in_force = &rules;
        step();
    }))
}

/// A request on one of so many routes, each of which has a rule.
fn on_route(routes: usize) -> Made {
    let layer = layer_of_routes(WIDE, routes)?;
    Ok(through_with(
        layer.layer(Bare::<String>::new()),
        request_on_route,
    ))
}

fn by_address(headers: HeaderStyle) -> Made {
    let layer = layer_by_address(WIDE, headers)?;
    Ok(through_with(
        layer.layer(Bare::<String>::new()),
        request_from,
    ))
}

fn grpc_denied() -> Made {
    let layer = layer(TIGHT, 1, HeaderStyle::DRAFT_11)?;
    Ok(through_with(layer.layer(Bare::<String>::new()), grpc_call))
}

fn through<S>(service: S) -> Step
where
    S: tower_service::Service<Request<String>> + 'static,
{
    through_with(service, request)
}

fn through_with<S>(mut service: S, make: fn() -> Request<String>) -> Step
where
    S: tower_service::Service<Request<String>> + 'static,
{
    Box::new(move || {
        // A denial is an answer as well; the services here never fail.
        let _ = black_box(send(&mut service, make()).is_ok());
    })
}
