//! What is admitted in the two seconds around the turn of a window.

use tollgate_core::{Quota, SECOND, Tick};

use crate::pictures::{
    client::{Client, most_within},
    svg::Svg,
};

const TITLE: &str = "The two seconds around the turn of a window";
const LIMIT: u64 = 100;

/// All times are in ms. Windows turn at 1 000 and 2 000.
const TURN: Tick = 1_000;
const FROM: Tick = 500;
const LENGTH: Tick = 2_000;

/// When the client begins: it sends a request each ms.
const FLOOD: Tick = 750;

const LEFT: f64 = 190.0;
const RIGHT: f64 = 640.0;
const TOP: f64 = 66.0;
const ROW: f64 = 74.0;
/// How high 100 units are.
const HIGH: f64 = 28.0;

pub(super) fn draw() -> Svg {
    let flood: Vec<Tick> = (FLOOD..FROM + LENGTH).map(|at| at * 1_000).collect();
    let rows: Vec<Row> = quotas()
        .into_iter()
        .map(|(name, note, quota)| Row {
            name,
            note,
            admitted: Client::new(quota).admitted(&flood),
        })
        .collect();

    let foot = TOP + ROW * rows.len() as f64;
    let mut svg = Svg::new(foot + 50.0, TITLE, description(&rows));
    svg.text((0.0, 18.0), "head", TITLE);
    let what = "A client limited to 100 units a second sends 1 000 a second, from a quarter of a second before the turn.";
    svg.text((0.0, 38.0), "small soft", what);
    for at in (FROM..=FROM + LENGTH).step_by(500) {
        let time = match at.checked_sub(TURN) {
            None => format!("−0.{} s", (TURN - at) / 100),
            Some(0) => "0 s".to_owned(),
            Some(after) => format!("+{}.{} s", after / 1_000, after % 1_000 / 100),
        };
        svg.text((x(at), foot + 18.0), "small soft mid", time);
        if at % TURN != 0 {
            svg.lines("grid", [(x(at), TOP), (x(at), foot)]);
        }
    }
    for (place, row) in rows.iter().enumerate() {
        row.draw(&mut svg, TOP + ROW * place as f64);
    }
    for turn in [TURN, 2 * TURN] {
        svg.lines("mark", [(x(turn), TOP - 10.0), (x(turn), foot + 4.0)]);
    }
    let y = foot + 42.0;
    svg.rect((LEFT - 190.0, y - 10.0), (12.0, 10.0), "yes");
    svg.text(
        (LEFT - 172.0, y),
        "small",
        "units admitted in the second before",
    );
    svg.rect((LEFT + 65.0, y - 10.0), (12.0, 10.0), "over");
    svg.text((LEFT + 83.0, y), "small", "those above the limit");
    svg.lines("mark", [(LEFT + 245.0, y - 4.0), (LEFT + 269.0, y - 4.0)]);
    svg.text((LEFT + 275.0, y), "small", "a window of the clock begins");
    svg
}

fn quotas() -> [(&'static str, &'static str, Quota); 6] {
    let gcra = Quota::gcra(LIMIT, SECOND);
    [
        ("fixed window", "", Quota::fixed_window(LIMIT, SECOND)),
        (
            "sliding window",
            "two counters",
            Quota::sliding_window(LIMIT, SECOND),
        ),
        ("GCRA", "also token and leaky bucket", gcra),
        ("GCRA, burst 20", "the same rate", gcra.burst(20)),
        (
            "sliding buckets",
            "60 sub-buckets",
            Quota::sliding_buckets(LIMIT, SECOND),
        ),
        ("sliding log", "", Quota::sliding_log(LIMIT, SECOND)),
    ]
}

struct Row {
    name: &'static str,
    note: &'static str,
    /// In µs.
    admitted: Vec<Tick>,
}

impl Row {
    fn most(&self) -> usize {
        most_within(&self.admitted, 1_000_000)
    }

    /// How many were admitted in the second that ends at a time in ms.
    fn in_second_to(&self, at: Tick) -> u64 {
        let end = at * 1_000;
        let until = |time: Tick| self.admitted.partition_point(|admitted| *admitted <= time);
        (until(end) - until(end.saturating_sub(1_000_000))) as u64
    }

    fn draw(&self, svg: &mut Svg, top: f64) {
        let foot = top + ROW - 6.0;
        let name = if self.note.is_empty() { 46.0 } else { 38.0 };
        svg.text((0.0, top + name), "", self.name);
        if !self.note.is_empty() {
            svg.text((0.0, top + 54.0), "small soft", self.note);
        }
        let y = |units: u64| foot - units as f64 / LIMIT as f64 * HIGH;
        let times = || (FROM..=FROM + LENGTH).step_by(25);
        let area = |least: u64, most: u64| {
            let curve = times().map(move |at| (x(at), y(self.in_second_to(at).clamp(least, most))));
            let start = (x(FROM), y(least));
            let end = (x(FROM + LENGTH), y(least));
            [start].into_iter().chain(curve).chain([end])
        };
        svg.lines("yes", area(0, LIMIT));
        if self.most() as u64 > LIMIT {
            svg.lines("over", area(LIMIT, u64::MAX));
        }
        svg.lines("line", [(LEFT, y(LIMIT)), (RIGHT, y(LIMIT))]);
        svg.lines("grid", [(0.0, foot), (758.0, foot)]);
        if top == TOP {
            svg.text((LEFT, y(LIMIT) - 5.0), "small soft", "the limit");
        }
        let class = if self.most() as u64 > LIMIT {
            "over head"
        } else {
            "head"
        };
        svg.text((654.0, top + 38.0), class, self.most());
        svg.text((654.0, top + 54.0), "small soft", "most in a second");
    }
}

/// Where a time in ms is.
fn x(at: Tick) -> f64 {
    LEFT + (at - FROM) as f64 / LENGTH as f64 * (RIGHT - LEFT)
}

fn description(rows: &[Row]) -> String {
    let rows = rows
        .iter()
        .map(|row| format!("{} {}", row.name, row.most()));
    let rows: Vec<_> = rows.collect();
    format!(
        "A client that is limited to 100 units a second begins to send 1 000 a second, a quarter of a second before a window turns. \
         The most units admitted in any second: {}.",
        rows.join(", ")
    )
}
