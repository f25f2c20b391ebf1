//! What thousands of rules cost: binding them, reading them from a document with a hundred thousand overrides, changing one of
//! them, and finding those of a request.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin rules
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench reads the time and prints its figures"
)]

use std::{
    error::Error,
    fs,
    hint::black_box,
    time::{Duration, Instant},
};

use tollgate::{HOUR, MemoryStore, Quota, RateLimitLayer, RequestRule, Rule, key::header};
use tollgate_benches::{
    check::LASTING,
    layer::{Bare, layer_of_routes, request_on_route, send},
};
use tollgate_core::{Limiter, RuleSet, Store};
use tollgate_rules::{Bindings, Format, LiveRules};
use tower_layer::Layer;

const RULES: u64 = 10_000;
const SWAPS: u64 = 101;
const REQUESTS: u32 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    store()?;
    layer()?;
    document()?;
    routes()
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
        // What a source keeps of unchanged rules, and one that has changed.
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

/// A document with 10 000 rules and ten overrides of each, and the change of one of its rules.
fn document() -> Result<(), Box<dyn Error>> {
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
    let bound = processor_time() - start;
    println!(
        "document: {RULES} rules with {} overrides, {} bytes, read in {read:?}, in a layer in {bound:?} of processor time, {} bytes a rule",
        10 * RULES,
        first.len(),
        grown(before)
    );
    let mut took = Vec::new();
    for n in 0..21 {
        rules.set_text(&text(n * 97), Format::Toml)?;
        took.push(rules.status().took());
    }
    took.sort_unstable();
    println!(
        "document: one rule replaced in {:?} after the document was read (median of {}, {:?} at best)",
        took[took.len() / 2],
        took.len(),
        took[0]
    );
    drop(layer);
    Ok(())
}

/// What a request costs on one of 1 000 routes with a rule each, above what it costs with one rule.
fn routes() -> Result<(), Box<dyn Error>> {
    let mut one = layer_of_routes(LASTING, 1)?.layer(Bare::<()>::new());
    let mut many = layer_of_routes(LASTING, 1_000)?.layer(Bare::<()>::new());
    let mut took = [Duration::ZERO; 2];
    // In turns, so that both meet what else the machine does.
    for _ in 0..100 {
        for (service, took) in [&mut one, &mut many].into_iter().zip(&mut took) {
            let start = processor_time();
            for _ in 0..REQUESTS {
                let Ok(answer) = send(service, request_on_route::<String>());
                black_box(answer);
            }
            *took += processor_time() - start;
        }
    }
    let [one, many] = took.map(|took| took / (100 * REQUESTS));
    println!(
        "routes: a request costs {one:?} with one rule and {many:?} with 1 000 on as many routes"
    );
    Ok(())
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
