//! What sub-buckets deny though there is room, by their number.

use std::collections::VecDeque;

use tollgate_core::{
    MINUTE, Quota, Tick,
    algorithm::{Algorithm, SlidingBuckets},
};

use crate::pictures::{
    client::{Client, START},
    svg::Svg,
};

const TITLE: &str = "False denials, by the number of sub-buckets";
const LIMIT: u64 = 100;
const WINDOW: Tick = 60_000_000;

/// Into how many the window is cut.
const NUMBERS: [u32; 8] = [2, 5, 10, 20, 60, 120, 300, 600];

/// For how many minutes a client sends.
const MINUTES: Tick = 100;

/// What the clients send on average, in hundredths of the limit.
const MODEST: u64 = 90;
const GREEDY: u64 = 150;

const LEFT: f64 = 196.0;
const STEP: f64 = 70.0;
const FOOT: f64 = 250.0;
/// How high a hundredth is.
const HIGH: f64 = 6.0;

pub(super) fn draw() -> Svg {
    let (modest, greedy) = (arrivals(MODEST), arrivals(GREEDY));
    let exact = Client::new(Quota::sliding_log(LIMIT, MINUTE))
        .admitted(&greedy)
        .len();
    let columns = NUMBERS.map(|number| Column {
        number,
        falsely: false_denials(number, &modest) as f64 * 100.0 / modest.len() as f64,
        gets: Client::new(quota(number)).admitted(&greedy).len() as f64 * 100.0 / exact as f64,
    });

    let mut svg = Svg::new(344.0, TITLE, description(&columns));
    svg.text((0.0, 18.0), "head", TITLE);
    let what = "Part of the requests of a client that are denied although it has used less than its limit in the minute before.";
    svg.text((0.0, 38.0), "small soft", what);
    let client = "It sends 90 a minute at random times, and its limit is 100 a minute.";
    svg.text((0.0, 55.0), "small soft", client);
    for percent in [10.0, 20.0, 30.0] {
        let y = FOOT - percent * HIGH;
        svg.lines("grid", [(LEFT, y), (758.0, y)]);
        svg.text(
            (LEFT - 8.0, y + 4.0),
            "small soft end",
            format_args!("{percent} %"),
        );
    }
    svg.lines("line", [(LEFT, FOOT), (758.0, FOOT)]);
    svg.text((0.0, FOOT + 24.0), "", "sub-buckets");
    svg.text((0.0, FOOT + 50.0), "small soft", "bytes for their counts");
    svg.text(
        (0.0, FOOT + 68.0),
        "small soft",
        "a client that sends 150 gets",
    );
    svg.text(
        (0.0, FOOT + 84.0),
        "small soft",
        "of what a sliding log admits",
    );
    for (place, column) in columns.iter().enumerate() {
        let middle = LEFT + STEP * (place as f64 + 0.5);
        svg.bars("no", FOOT, (34.0, column.falsely * HIGH), [middle]);
        let above = FOOT - column.falsely * HIGH - 6.0;
        svg.text(
            (middle, above),
            "small mid",
            format_args!("{:.1} %", column.falsely),
        );
        svg.text((middle, FOOT + 24.0), "mid", column.number);
        svg.text(
            (middle, FOOT + 50.0),
            "small soft mid",
            bytes(column.number),
        );
        let gets = format_args!("{:.1} %", column.gets);
        svg.text((middle, FOOT + 76.0), "small soft mid", gets);
    }
    svg
}

struct Column {
    number: u32,
    /// Denied though there was room, in hundredths of the requests.
    falsely: f64,
    /// What a client above its limit is admitted, in hundredths of what a log admits it.
    gets: f64,
}

fn quota(number: u32) -> Quota {
    Quota::sliding_buckets(LIMIT, MINUTE).buckets(number)
}

/// What the counts of a key take on the heap.
fn bytes(number: u32) -> usize {
    let buckets = SlidingBuckets::new(&quota(number)).expect("a picture's quota is valid");
    let mut state = Default::default();
    buckets.take(&mut state, START, 1);
    SlidingBuckets::heap_bytes(&state)
}

/// Requests at random times, in µs: a multiple of 10 ms each, so that nothing depends on how a machine rounds.
fn arrivals(hundredths: u64) -> Vec<Tick> {
    let mut rng = fastrand::Rng::with_seed(1);
    let a_minute = LIMIT * hundredths / 100;
    let times = (0..MINUTES * 6_000).filter(|_| rng.u64(0..6_000) < a_minute);
    times.map(|time| time * 10_000).collect()
}

/// The requests that are denied although fewer units than the limit were admitted in the minute before.
fn false_denials(number: u32, arrivals: &[Tick]) -> usize {
    let client = Client::new(quota(number));
    let mut recent = VecDeque::new();
    let mut falsely = 0;
    for at in arrivals.iter().copied() {
        while recent.front().is_some_and(|first| first + WINDOW <= at) {
            recent.pop_front();
        }
        if client.is_admitted(at) {
            recent.push_back(at);
        } else if recent.len() < LIMIT as usize {
            falsely += 1;
        }
    }
    falsely
}

fn description(columns: &[Column]) -> String {
    let columns = columns.iter().map(|column| {
        let Column {
            number,
            falsely,
            gets,
        } = column;
        format!("{number} sub-buckets: {falsely:.1} %, {gets:.1} %")
    });
    let columns: Vec<_> = columns.collect();
    format!(
        "For a client that sends {MODEST} requests a minute at random times under a limit of {LIMIT} a minute: the part of its requests \
         that is denied though there is room. For one that sends {GREEDY} a minute: what it gets of what a sliding log admits. {}.",
        columns.join("; ")
    )
}
