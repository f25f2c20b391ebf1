//! From which rate on a process in front of Redis decides as one process alone does: without a call.

use tollgate_core::Tick;

use crate::{
    consistency::Consistency,
    pictures::{
        exchange::{LEASED, Traffic, What, run},
        svg::Svg,
    },
};

const TITLE: &str = "From one process to Redis: calls by how busy a key is";

/// Requests of the key in a minute, in both processes together.
const RATES: [Tick; 8] = [60, 120, 180, 240, 300, 600, 3_000, 12_000];

/// How long each rate lasts.
const MINUTES: Tick = 1;
const MINUTE: Tick = 60_000_000;

const LEFT: f64 = 150.0;
const STEP: f64 = 76.0;
const FOOT: f64 = 250.0;
/// How high a hundredth is.
const HIGH: f64 = 1.55;
/// How wide a bar is, and how far its middle is from that of its column.
const WIDE: f64 = 28.0;
const ASIDE: f64 = 17.0;

/// What both processes did at one rate.
struct Column {
    rate: Tick,
    exact: Calls,
    leased: Calls,
}

/// The calls under one consistency.
struct Calls {
    requests: u64,
    calls: u64,
}

pub(super) fn draw() -> Svg {
    let columns = RATES.map(|rate| Column {
        rate,
        // The default of a rule. It repeats denials without a call, but at these rates a unit is back before the next request.
        exact: measure(Consistency::DenyCache, rate),
        leased: measure(LEASED, rate),
    });
    let mut svg = Svg::new(364.0, TITLE, description(&columns));
    svg.text((0.0, 18.0), "head", TITLE);
    let what = "Two processes share a limit of 100 a second with a burst of 1 000. Calls to Redis for 100 requests, of all kinds.";
    svg.text((0.0, 38.0), "small soft", what);
    for percent in [50.0, 100.0] {
        let y = FOOT - percent * HIGH;
        svg.lines("grid", [(LEFT, y), (758.0, y)]);
        svg.text((LEFT - 8.0, y + 4.0), "small soft end", percent);
    }
    svg.text((0.0, FOOT - 100.0 * HIGH + 4.0), "small", "a call for each");
    svg.lines("line", [(LEFT, FOOT), (758.0, FOOT)]);
    svg.text((0.0, FOOT + 4.0), "small", "one process alone");
    svg.text((LEFT - 8.0, FOOT + 4.0), "small soft end", 0);
    for (place, column) in columns.iter().enumerate() {
        let middle = LEFT + STEP * (place as f64 + 0.5);
        svg.text((middle, FOOT + 28.0), "mid", per_second(column.rate));
        let bars = [
            (&column.exact, "bar", middle - ASIDE),
            (&column.leased, "yes", middle + ASIDE),
        ];
        for (line, (calls, class, at)) in bars.into_iter().enumerate() {
            let high = calls.for_100() * HIGH;
            svg.bars(class, FOOT, (WIDE, high), [at]);
            svg.text((at, FOOT - high - 6.0), "small mid", calls.shown());
            let below = FOOT + 50.0 + 18.0 * line as f64;
            let each_second = format_args!("{:.1}", calls.each_second());
            svg.text((middle, below), "small soft mid", each_second);
        }
    }
    svg.text((0.0, FOOT + 28.0), "", "requests a second");
    svg.text((0.0, FOOT + 50.0), "small soft", "calls a second, exact");
    svg.text((0.0, FOOT + 68.0), "small soft", "calls a second, leased");
    let exact = "exact: Redis decides each request, in a call of its own.";
    let leased = "leased: up to 10 % of the burst on lease. One process with the store in memory makes no call.";
    for (line, (class, text)) in [("bar", exact), ("yes", leased)].into_iter().enumerate() {
        let y = FOOT + 82.0 + 18.0 * line as f64;
        svg.rect((0.0, y), (12.0, 10.0), class);
        svg.text((18.0, y + 10.0), "small", text);
    }
    svg
}

/// Both processes receive every other request.
fn measure(consistency: Consistency, rate: Tick) -> Calls {
    let until = MINUTES * MINUTE;
    let every = 2 * MINUTE / rate;
    let traffic = [0, 1].map(|process| Traffic {
        process,
        from: process as Tick * every / 2,
        to: until,
        every,
    });
    let happened = run(consistency, &traffic, until);
    let is_request = |what: &What| match what {
        What::Here { .. } => true,
        What::Call(call) => call.has_request,
    };
    let count = |counted: &dyn Fn(&What) -> bool| {
        let happened = happened.iter().filter(|one| counted(&one.what));
        happened.count() as u64
    };
    Calls {
        requests: count(&is_request),
        calls: count(&|what| matches!(what, What::Call(_))),
    }
}

impl Calls {
    fn for_100(&self) -> f64 {
        self.calls as f64 * 100.0 / self.requests as f64
    }

    /// A whole number where all requests are calls: two of them stand next to each other.
    fn shown(&self) -> String {
        match self.calls == self.requests {
            true => "100".to_owned(),
            false => format!("{:.1}", self.for_100()),
        }
    }

    fn each_second(&self) -> f64 {
        self.calls as f64 / (MINUTES * 60) as f64
    }
}

fn per_second(rate: Tick) -> String {
    match rate % 60 {
        0 => (rate / 60).to_string(),
        _ => format!("{:.1}", rate as f64 / 60.0),
    }
}

fn description(columns: &[Column]) -> String {
    let columns: Vec<_> = columns
        .iter()
        .map(|column| {
            let rate = per_second(column.rate);
            let (exact, leased) = (column.exact.shown(), column.leased.shown());
            format!("{rate} a second: exact {exact}, leased {leased}")
        })
        .collect();
    format!(
        "Calls to Redis of two processes for 100 requests, by the requests that one key gets. {}. One process \
         alone makes no call.",
        columns.join("; ")
    )
}
