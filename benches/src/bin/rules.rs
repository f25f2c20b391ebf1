//! What thousands of rules cost: binding them, reading them from a document with a hundred thousand overrides, changing one of
//! them, and finding those of a request; and what a document's rules cost a request, compared with rules in code.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin rules
//! ```
//!
//! It fails if loading takes more than a second, a swap more than 150 ms, or a request on one of 1 000 routes a
//! microsecond more than with one rule, or if live rules cost a request more than 1.05 times what rules in code do.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench reads the time and prints its figures"
)]

use std::{
    error::Error,
    fs,
    hint::black_box,
    process::ExitCode,
    time::{Duration, Instant},
};

use http::Request;
use tollgate::{
    HOUR, MemoryStore, Quota, RateLimitLayer, RequestRule, Rule, header::HeaderStyle, key::header,
    service::RateLimit,
};
use tollgate_benches::{
    check::LASTING,
    layer::{API_KEY, Bare, layer as layer_of, layer_of_routes, request, request_on_route, send},
};
use tollgate_core::{Limiter, RuleSet, Store};
use tollgate_rules::{Author, Bindings, Format, LiveRules, OperatorEntry};
use tower_layer::Layer;

const RULES: u64 = 10_000;
const SWAPS: u64 = 101;
/// The requests of a turn.
const REQUESTS: u32 = 10_000;
const TURNS: usize = 101;

/// The goals.
const LOAD: Duration = Duration::from_secs(1);
const SWAP: Duration = Duration::from_millis(150);
const ROUTES_ADD: Duration = Duration::from_micros(1);
const LIVE: f64 = 1.05;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    store()?;
    layer()?;
    let goals = [document()?, routes()?, live()?];
    Ok(match goals.iter().all(|holds| *holds) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Prints whether a goal holds.
fn goal(what: &str, holds: bool) -> bool {
    println!("  goal: {what}: {}", if holds { "yes" } else { "NO" });
    holds
}

/// The bytes that a rule takes in the memory store before its first key.
fn store() -> Result<(), Box<dyn Error>> {
    let core: Vec<tollgate_core::Rule> = rules(0).iter().map(|rule| rule.clone().into()).collect();
    let set = std::sync::Arc::new(RuleSet::new(core.clone())?);
    let store = MemoryStore::new();
    let before = resident();
    let start = Instant::now();
    let bound = store.bind(set)?;
    let took = start.elapsed();
    println!(
        "store: {RULES} rules bound in {took:?}, {} bytes a rule",
        grown(before)
    );
    drop(bound);
    let before = resident();
    let start = Instant::now();
    let limiter = Limiter::new(MemoryStore::new(), core)?;
    let took = start.elapsed();
    println!(
        "limiter: {RULES} rules in {took:?}, {} bytes a rule",
        grown(before)
    );
    drop(limiter);
    Ok(())
}

/// A layer, and the change of one of its rules.
fn layer() -> Result<(), Box<dyn Error>> {
    let by_key = |rule: Rule| rule.by(header("x-api-key"));
    let of =
        |changed: u64| -> Vec<RequestRule> { rules(changed).into_iter().map(by_key).collect() };
    let before = resident();
    let start = Instant::now();
    let layer = RateLimitLayer::new(MemoryStore::new(), of(0))?;
    println!(
        "layer: {RULES} rules in {:?}, {} bytes a rule",
        start.elapsed(),
        grown(before)
    );
    let handle = layer.handle();
    let kept = of(0);
    let mut took: Vec<Duration> = Vec::new();
    for n in 1..=SWAPS {
        let mut list = kept.clone();
        let place = n * 97 % RULES;
        let changed = Rule::new(format!("rule-{place}"), Quota::gcra(100 + n, HOUR));
        list[place as usize] = by_key(changed);
        let start = processor_time();
        let changes = handle.replace(list)?;
        took.push(processor_time() - start);
        black_box(changes);
    }
    let sum: Duration = took.iter().sum();
    println!(
        "layer: one rule of {RULES} replaced in {:?} of processor time (mean of {SWAPS})",
        sum / SWAPS as u32
    );
    Ok(())
}

/// A document with 10 000 rules and ten overrides of each, and the change of one of its rules. Whether the goals hold.
fn document() -> Result<bool, Box<dyn Error>> {
    let text = |changed: u64| -> String {
        let rule = |n: u64| {
            let limit = 100 + u64::from(n == changed);
            format!(
                "[[rules]]\nname = \"rule-{n}\"\nlimit = \"{limit}/h\"\nby = \"header:x-api-key\"\nwhen = {{ path = \"/{n}\" }}\n"
            )
        };
        let entry = |n: u64| {
            let of = n % RULES;
            format!(
                "[[overrides]]\nrule = \"rule-{of}\"\nkey = \"client-{n}\"\nlimit = \"500/h\"\n"
            )
        };
        let rules: String = (0..RULES).map(rule).collect();
        let overrides: String = (0..10 * RULES).map(entry).collect();
        format!("version = 1\n{rules}{overrides}")
    };
    let first = text(RULES);
    let (before, start) = (resident(), processor_time());
    let rules = LiveRules::from_text(&first, Format::Toml, Bindings::new())?;
    let read = processor_time() - start;
    let layer = rules.layer(MemoryStore::new())?;
    let loaded = processor_time() - start;
    println!(
        "document: {RULES} rules with {} overrides, {} bytes, {} bytes of memory a rule",
        10 * RULES,
        first.len(),
        grown(before)
    );
    println!("  read in {read:?}, in a layer in {loaded:?}, of processor time");
    let (mut swaps, mut changes) = (Vec::new(), Vec::new());
    for n in 0..21 {
        let text = text(n * 97);
        let start = processor_time();
        rules.set_text(&text, Format::Toml)?;
        changes.push(processor_time() - start);
        swaps.push(rules.status().took);
    }
    let (swap, least) = (median(&mut swaps), swaps[0]);
    println!(
        "  one rule changed in its text: {:?} of processor time; of that the swap, from the document to the rules in force, {swap:?} \
         by the clock ({least:?} at least, of {})",
        median(&mut changes),
        swaps.len(),
    );
    let alice = rules.handle(Author::new("alice"));
    let (mut overrides, mut switches) = (Vec::new(), Vec::new());
    for n in 0..5 {
        let start = processor_time();
        let entry = OperatorEntry::limit("rule-7", "acme", format!("{}/h", 600 + n));
        alice.set(entry)?;
        overrides.push(processor_time() - start);
        let start = processor_time();
        alice.set(OperatorEntry::switch("rule-8", format!("{}%", 50 + n)))?;
        switches.push(processor_time() - start);
    }
    println!(
        "  an override set in {:?}, a switch in {:?} of processor time",
        median(&mut overrides),
        median(&mut switches)
    );
    drop(layer);
    let load = goal(&format!("loaded in <= {LOAD:?}"), loaded <= LOAD);
    let swap = goal(&format!("swapped in <= {SWAP:?}"), swap <= SWAP);
    Ok(load && swap)
}

/// What a request costs on one of 1 000 routes with a rule each, above what it costs with one rule. Whether the goal holds.
fn routes() -> Result<bool, Box<dyn Error>> {
    let one = layer_of_routes(LASTING, 1)?.layer(Bare::<String>::new());
    let many = layer_of_routes(LASTING, 1_000)?.layer(Bare::<String>::new());
    let [one, many] = by_turns([one, many], request_on_route);
    println!(
        "routes: a request costs {one:.0} ns with one rule and {many:.0} ns with 1 000 on as many routes"
    );
    let most = ROUTES_ADD.as_nanos() as f64;
    Ok(goal(
        &format!("{ROUTES_ADD:?} more at most"),
        many - one <= most,
    ))
}

/// What a request costs with a rule of a document, compared with the same rule in code. Whether the goal holds.
fn live() -> Result<bool, Box<dyn Error>> {
    let document = |setting: &str| {
        let rule =
            format!("name = 'rule-0'\nlimit = '{LASTING}'\nby = 'header:{API_KEY}'\n{setting}\n");
        let text = format!("version = 1\n[[rules]]\n{rule}");
        LiveRules::from_text(&text, Format::Toml, Bindings::new())
    };
    let mut all_hold = true;
    for (what, setting, code, request) in [
        (
            "one rule",
            "",
            layer_of(LASTING, 1, HeaderStyle::NONE)?,
            request as fn() -> Request<String>,
        ),
        (
            "one rule on a route",
            "when = { path = '/route-0/{id}' }",
            layer_of_routes(LASTING, 1)?,
            request_on_route,
        ),
    ] {
        let rules = document(setting)?;
        let live = rules
            .layer(MemoryStore::new())?
            .headers(HeaderStyle::NONE)?;
        let services = [code, live].map(|layer| layer.layer(Bare::<String>::new()));
        let [in_code, live] = by_turns(services, request);
        let ratio = live / in_code;
        println!(
            "live: {what}: a request costs {in_code:.0} ns in code and {live:.0} ns in a document, {ratio:.3} times"
        );
        all_hold &= goal(&format!("{LIVE} times at most"), ratio <= LIVE);
    }
    Ok(all_hold)
}

/// Nanoseconds of processor time for a request to each of two services. In turns, so that both meet what else the machine does.
fn by_turns(
    mut services: [RateLimit<Bare<String>>; 2],
    request: fn() -> Request<String>,
) -> [f64; 2] {
    let mut took = [(); 2].map(|()| Vec::new());
    // The first turn warms up.
    for turn in 0..=TURNS {
        for (service, took) in services.iter_mut().zip(&mut took) {
            let start = processor_time();
            for _ in 0..REQUESTS {
                let Ok(answer) = send(service, request());
                black_box(answer);
            }
            let spent = processor_time() - start;
            if turn > 0 {
                took.push(spent);
            }
        }
    }
    took.map(|mut took| median(&mut took).as_nanos() as f64 / f64::from(REQUESTS))
}

fn median(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

fn rules(changed: u64) -> Vec<Rule> {
    let quota = |n| Quota::gcra(100 + u64::from(n < changed), HOUR);
    (0..RULES)
        .map(|n| Rule::new(format!("rule-{n}"), quota(n)))
        .collect()
}

/// What this thread has run, whatever else the machine does (Linux only; 0 elsewhere).
fn processor_time() -> Duration {
    let read = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = read.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Bytes of memory that the process holds (Linux only; 0 elsewhere).
fn resident() -> u64 {
    let read = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = read.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * 4_096
}

/// Bytes for each rule since.
fn grown(before: u64) -> u64 {
    resident().saturating_sub(before) / RULES
}
