//! From which rate on a process in front of Redis decides as one process alone does: without a call.

use tollgate_core::Tick;

use crate::pictures::{
    exchange::{Traffic, What, run},
    svg::Svg,
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

/// What both processes did at one rate.
struct Column {
    rate: Tick,
    requests: u64,
    calls: u64,
}

pub(super) fn draw() -> Svg {
    let columns = RATES.map(measure);
    let mut svg = Svg::new(330.0, TITLE, description(&columns));
    svg.text((0.0, 18.0), "head", TITLE);
    let what = "Two processes share a limit of 100 a second with a burst of 1 000. Calls to Redis for 100 requests, of all kinds.";
    svg.text((0.0, 38.0), "small soft", what);
    for percent in [50.0, 100.0] {
        let y = FOOT - percent * HIGH;
        svg.lines("grid", [(LEFT, y), (758.0, y)]);
        svg.text((LEFT - 8.0, y + 4.0), "small soft end", percent);
    }
    svg.text((0.0, FOOT - 100.0 * HIGH + 4.0), "small", "exact");
    svg.lines("line", [(LEFT, FOOT), (758.0, FOOT)]);
    svg.text((0.0, FOOT + 4.0), "small", "one process alone");
    svg.text((LEFT - 8.0, FOOT + 4.0), "small soft end", 0);
    for (place, column) in columns.iter().enumerate() {
        let middle = LEFT + STEP * (place as f64 + 0.5);
        let share = column.calls_for_100();
        svg.bars("yes", FOOT, (34.0, share * HIGH), [middle]);
        let above = FOOT - share * HIGH - 6.0;
        svg.text((middle, above), "small mid", format_args!("{share:.1}"));
        svg.text((middle, FOOT + 28.0), "mid", per_second(column.rate));
        let calls = column.calls as f64 / (MINUTES * 60) as f64;
        let calls = format_args!("{calls:.1}");
        svg.text((middle, FOOT + 50.0), "small soft mid", calls);
    }
    svg.text((0.0, FOOT + 28.0), "", "requests a second");
    svg.text((0.0, FOOT + 50.0), "small soft", "calls a second");
    svg.rect((0.0, FOOT + 66.0), (12.0, 10.0), "yes");
    let leased = "on lease: up to 10 % of the burst. An exact limit takes a call for each request, the store in memory none.";
    svg.text((18.0, FOOT + 76.0), "small", leased);
    svg
}

/// Both processes receive every other request.
fn measure(rate: Tick) -> Column {
    let until = MINUTES * MINUTE;
    let every = 2 * MINUTE / rate;
    let traffic = [0, 1].map(|process| Traffic {
        process,
        from: process as Tick * every / 2,
        to: until,
        every,
    });
    let happened = run(&traffic, until);
    let is_request = |what: &What| match what {
        What::Here { .. } => true,
        What::Call(call) => call.has_request,
    };
    let count = |counted: &dyn Fn(&What) -> bool| {
        let happened = happened.iter().filter(|one| counted(&one.what));
        happened.count() as u64
    };
    Column {
        rate,
        requests: count(&is_request),
        calls: count(&|what| matches!(what, What::Call(_))),
    }
}

impl Column {
    fn calls_for_100(&self) -> f64 {
        self.calls as f64 * 100.0 / self.requests as f64
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
            let (rate, calls) = (per_second(column.rate), column.calls_for_100());
            format!("{rate} a second: {calls:.1} calls for 100 requests")
        })
        .collect();
    format!(
        "Calls to Redis of two processes with leases, by the requests that one key gets. {}. An exact limit takes 100, \
         one process alone none.",
        columns.join("; ")
    )
}
