//! What a million keys take in memory, by algorithm.

use tollgate_core::{
    Check, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Rule,
    algorithm::{Algorithm, SlidingLog},
    store::Fingerprint,
};

use crate::pictures::{client::START, svg::Svg};

const TITLE: &str = "Memory for a million keys";
const KEYS: u64 = 1_000_000;

/// The bound of a rule: more than any of them takes.
const BOUND: usize = 1 << 30;

const LEFT: f64 = 190.0;
const TOP: f64 = 58.0;
const ROW: f64 = 40.0;
/// How wide a million bytes is.
const WIDE: f64 = 1.65;

pub(super) fn draw() -> Svg {
    let rows: Vec<_> = quotas()
        .into_iter()
        .map(|(name, note, quota)| (name, note, bytes_of(quota)))
        .collect();
    let foot = TOP + ROW * rows.len() as f64;
    let mut svg = Svg::new(foot + 50.0, TITLE, description(&rows));
    svg.text((0.0, 18.0), "head", TITLE);
    let what = "What the store in memory allocates, in millions of bytes. That is also the bytes for each key.";
    svg.text((0.0, 38.0), "small soft", what);
    for megabytes in [0, 100, 200, 300] {
        let x = LEFT + f64::from(megabytes) * WIDE;
        svg.lines("grid", [(x, TOP), (x, foot)]);
        svg.text(
            (x, foot + 18.0),
            "small soft mid",
            format_args!("{megabytes} MB"),
        );
    }
    for (place, (name, note, bytes)) in rows.iter().enumerate() {
        let top = TOP + ROW * place as f64;
        let line = if note.is_empty() { 25.0 } else { 18.0 };
        svg.text((0.0, top + line), "", name);
        if !note.is_empty() {
            svg.text((0.0, top + 34.0), "small soft", note);
        }
        let width = *bytes as f64 / 1e6 * WIDE;
        svg.rect((LEFT, top + 8.0), (width, 24.0), "yes");
        svg.text((LEFT + width + 8.0, top + 25.0), "", megabytes(*bytes));
    }
    let log = format!(
        "A key of a sliding log takes {} bytes more with 5 units used, and {} more with 20.",
        more_of_log(5),
        more_of_log(20)
    );
    svg.text((0.0, foot + 42.0), "small soft", log);
    svg
}

fn quotas() -> [(&'static str, &'static str, Quota); 5] {
    [
        (
            "GCRA",
            "also token and leaky bucket",
            Quota::gcra(100, MINUTE),
        ),
        ("fixed window", "", Quota::fixed_window(100, MINUTE)),
        (
            "sliding window",
            "two counters",
            Quota::sliding_window(100, MINUTE),
        ),
        (
            "sliding log",
            "one unit used",
            Quota::sliding_log(100, MINUTE),
        ),
        (
            "sliding buckets",
            "60 sub-buckets",
            Quota::sliding_buckets(100, MINUTE),
        ),
    ]
}

/// What a log of this many units takes on the heap more than one of a single unit.
fn more_of_log(units: u64) -> usize {
    let log =
        SlidingLog::new(&Quota::sliding_log(100, MINUTE)).expect("a picture's quota is valid");
    let bytes = |units: u64| {
        let mut state = Default::default();
        (0..units).for_each(|unit| log.take(&mut state, START + unit, 1));
        SlidingLog::heap_bytes(&state)
    };
    bytes(units) - bytes(1)
}

/// The bytes that the store in memory says it has allocated when each key has used one unit.
fn bytes_of(quota: Quota) -> u64 {
    let store = MemoryStore::builder().clock(ManualClock::new(START));
    let store = store.bytes_per_rule(BOUND).build();
    let limiter = Limiter::new(store, [Rule::new("picture", quota)]);
    let limiter = limiter.expect("a picture's quota is valid");
    let store = limiter.rule_store();
    for key in 1..=KEYS {
        let check = Check::new(0, fingerprint(key), 1);
        let decision = store.acquire(&[check]).ready();
        let is_allowed = decision.is_some_and(|decision| decision.is_allowed());
        assert!(is_allowed, "each key has room");
    }
    let usage = store.usage(0).expect("the rule is there");
    assert_eq!((usage.keys, usage.evicted_live), (KEYS, 0), "all are kept");
    usage.bytes
}

/// Evenly spread, as fingerprints are.
fn fingerprint(key: u64) -> Fingerprint {
    let odd = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    Fingerprint::from_bits(u128::from(key).wrapping_mul(odd))
}

fn megabytes(bytes: u64) -> u64 {
    (bytes + 500_000) / 1_000_000
}

fn description(rows: &[(&str, &str, u64)]) -> String {
    let rows = rows.iter().map(|(name, note, bytes)| match *note {
        "" => format!("{name}: {} MB", megabytes(*bytes)),
        note => format!("{name} ({note}): {} MB", megabytes(*bytes)),
    });
    let rows: Vec<_> = rows.collect();
    format!(
        "What the store in memory allocates for a million keys. {}.",
        rows.join("; ")
    )
}
