//! What each algorithm admits of the same arrivals.

use tollgate_core::{Quota, Tick};

use crate::pictures::{
    client::{Client, most_within},
    svg::Svg,
};

const WINDOW: std::time::Duration = std::time::Duration::from_secs(10);
const LIMIT: u64 = 10;

/// How long the picture is, in ms.
const LENGTH: Tick = 25_000;

const LEFT: f64 = 190.0;
const RIGHT: f64 = 590.0;
const ROW: f64 = 44.0;
const TOP: f64 = 72.0;

pub(super) fn draw() -> Svg {
    let arrivals = arrivals();
    let micros: Vec<Tick> = arrivals.iter().map(|at| at * 1_000).collect();
    let rows: Vec<Row> = quotas()
        .into_iter()
        .map(|(name, note, quota)| {
            let client = Client::new(quota);
            let admitted = micros.iter().map(|at| client.is_admitted(*at)).collect();
            Row::new(name, note, &micros, admitted)
        })
        .collect();

    let height = TOP + ROW * (rows.len() + 1) as f64 + 60.0;
    let mut svg = Svg::new(height, TITLE, description(arrivals.len(), &rows));
    let foot = TOP + ROW * (rows.len() + 1) as f64;
    svg.text((0.0, 18.0), "head", TITLE);
    let what = "One client, limited to 10 units in 10 seconds. Each bar is a request of one unit.";
    svg.text((0.0, 38.0), "small soft", what);
    svg.text((665.0, 62.0), "small soft end", "admitted");
    svg.text((758.0, 62.0), "small soft end", "most in 10 s");
    for second in (0..=LENGTH / 1_000).step_by(5) {
        let x = x(second * 1_000);
        let is_turn = second % 10 == 0;
        let class = if is_turn { "mark" } else { "grid" };
        svg.lines(class, [(x, TOP - 4.0), (x, foot + 4.0)]);
        svg.text(
            (x, foot + 18.0),
            "small soft mid",
            format_args!("{second} s"),
        );
    }
    let all = Row::new("requests", "", &micros, vec![true; micros.len()]);
    all.draw(&mut svg, TOP, &arrivals, "soft");
    svg.text((665.0, TOP + 28.0), "end", arrivals.len());
    svg.text((758.0, TOP + 28.0), "end", all.most);
    for (place, row) in rows.iter().enumerate() {
        let top = TOP + ROW * (place + 1) as f64;
        svg.lines("grid", [(0.0, top), (758.0, top)]);
        row.draw(&mut svg, top, &arrivals, "yes");
        svg.text((665.0, top + 28.0), "end", row.count());
        let class = if row.most > LIMIT as usize {
            "no head end"
        } else {
            "end"
        };
        svg.text((758.0, top + 28.0), class, row.most);
    }
    let legend = foot + 46.0;
    svg.bars("yes", legend, (4.0, 20.0), [LEFT]);
    svg.text((LEFT + 10.0, legend - 4.0), "small", "admitted");
    svg.bars("no", legend, (4.0, 7.0), [LEFT + 90.0]);
    svg.text((LEFT + 100.0, legend - 4.0), "small", "denied");
    svg.lines(
        "mark",
        [(LEFT + 160.0, legend - 8.0), (LEFT + 184.0, legend - 8.0)],
    );
    svg.text(
        (LEFT + 190.0, legend - 4.0),
        "small",
        "a window of the clock begins",
    );
    svg
}

const TITLE: &str = "What each algorithm admits of the same requests";

fn quotas() -> [(&'static str, &'static str, Quota); 6] {
    let gcra = Quota::gcra(LIMIT, WINDOW);
    [
        ("GCRA", "also token and leaky bucket", gcra),
        ("GCRA, burst 3", "the same rate", gcra.burst(3)),
        ("fixed window", "", Quota::fixed_window(LIMIT, WINDOW)),
        (
            "sliding window",
            "two counters",
            Quota::sliding_window(LIMIT, WINDOW),
        ),
        (
            "sliding buckets",
            "60 sub-buckets",
            Quota::sliding_buckets(LIMIT, WINDOW),
        ),
        ("sliding log", "", Quota::sliding_log(LIMIT, WINDOW)),
    ]
}

/// When requests come, in ms: now and then, all at once across the turn of a window, and steadily above the limit.
fn arrivals() -> Vec<Tick> {
    let mut arrivals = vec![1_000, 2_500, 4_000];
    arrivals.extend((0..25).map(|n| 6_400 + 300 * n));
    arrivals.extend((0..12).map(|n| 15_500 + 750 * n));
    arrivals
}

struct Row {
    name: &'static str,
    note: &'static str,
    is_admitted: Vec<bool>,
    /// The most that was admitted in any window.
    most: usize,
}

impl Row {
    fn new(name: &'static str, note: &'static str, at: &[Tick], is_admitted: Vec<bool>) -> Self {
        let admitted = at.iter().zip(&is_admitted);
        let admitted: Vec<Tick> = admitted.filter(|(_, is)| **is).map(|(at, _)| *at).collect();
        Self {
            name,
            note,
            most: most_within(&admitted, WINDOW.as_micros() as Tick),
            is_admitted,
        }
    }

    fn count(&self) -> usize {
        self.is_admitted.iter().filter(|is| **is).count()
    }

    fn draw(&self, svg: &mut Svg, top: f64, arrivals: &[Tick], class: &str) {
        let name = if self.note.is_empty() { 28.0 } else { 20.0 };
        svg.text((0.0, top + name), "", self.name);
        if !self.note.is_empty() {
            svg.text((0.0, top + 36.0), "small soft", self.note);
        }
        let of = |wanted: bool| {
            let all = arrivals.iter().zip(&self.is_admitted);
            all.filter(move |(_, is)| **is == wanted)
                .map(|(at, _)| x(*at))
        };
        svg.bars(class, top + 36.0, (3.4, 26.0), of(true));
        svg.bars("no", top + 36.0, (3.4, 7.0), of(false));
    }
}

/// Where a time in ms is.
fn x(at: Tick) -> f64 {
    LEFT + at as f64 / LENGTH as f64 * (RIGHT - LEFT)
}

fn description(requests: usize, rows: &[Row]) -> String {
    let rows = rows.iter().map(|row| {
        let (name, count, most) = (row.name, row.count(), row.most);
        format!("{name} admits {count}, at most {most} in any 10 seconds")
    });
    let rows: Vec<_> = rows.collect();
    let rows = rows.join("; ");
    format!(
        "A client that is limited to 10 units in 10 seconds sends {requests} requests in 25 seconds, most of them across the turn \
         of a window. {rows}."
    )
}
