//! The figures of the README next to those of the peers, from the tables of the page on benches.

use crate::pictures::svg::{Svg, WIDTH};

/// Where each figure is measured, and how.
const BENCHES: &str = include_str!("../../../benches/README.md");

const TITLE: &str = "tollgate and its peers: five figures";

/// The rows of the README by what the page on benches calls them.
const FIVE: [(&str, &str); 5] = [
    ("a denied request, whole", "a denied request, whole"),
    ("100 000 keys, evenly", "a check, 100 000 keys, evenly"),
    (
        "what the layer adds to a request",
        "what the layer adds to an allowed request",
    ),
    (
        "memory for a key, of a million",
        "memory for a key, of a million",
    ),
    (
        "GCRA, 512 callers, the time for an answer",
        "GCRA through one Redis, 512 callers, the time for an answer",
    ),
];

const TOP: f64 = 64.0;
const ROW: f64 = 74.0;
const LEFT: f64 = 170.0;
/// How wide the larger one of two figures is.
const WIDE: f64 = 500.0;

/// One row of a table: tollgate's figure, a peer, and its figure.
struct Row {
    what: &'static str,
    ours: &'static str,
    peer: &'static str,
    theirs: &'static str,
}

pub(super) fn draw() -> Svg {
    let rows = FIVE.map(|(name, what)| row(name, what));
    let height = TOP + ROW * rows.len() as f64;
    let mut svg = Svg::new(height, TITLE, description(&rows));
    svg.text((0.0, 18.0), "head", TITLE);
    let how = "Shorter is better. The bars of a pair are to scale; those of two pairs are not. How each is measured: benches/README.md.";
    svg.text((0.0, 38.0), "small soft", how);
    for (place, row) in rows.iter().enumerate() {
        let top = TOP + ROW * place as f64;
        svg.lines("grid", [(0.0, top), (WIDTH - 2.0, top)]);
        svg.text((0.0, top + 20.0), "", row.what);
        let larger = nanos(row.ours).max(nanos(row.theirs));
        let both = [("tollgate", row.ours, "yes"), (row.peer, row.theirs, "bar")];
        for (line, (name, figure, class)) in both.into_iter().enumerate() {
            let y = top + 28.0 + 20.0 * line as f64;
            let width = nanos(figure) / larger * WIDE;
            svg.text((LEFT - 10.0, y + 12.0), "small soft end", name);
            svg.rect((LEFT, y), (width, 15.0), class);
            svg.text((LEFT + width + 8.0, y + 12.0), "small", figure);
        }
    }
    svg
}

/// The row that the page on benches has under a name.
fn row(name: &str, what: &'static str) -> Row {
    let rows = BENCHES.lines().map(|line| {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        cells.collect::<Vec<_>>()
    });
    let mut rows = rows.filter(|cells| cells.first() == Some(&name));
    let cells = rows.next().unwrap_or_default();
    let [_, ours, peer, theirs, ..] = cells[..] else {
        panic!("benches/README.md has no row {name:?}");
    };
    Row {
        what,
        ours,
        peer,
        theirs,
    }
}

/// A time in ns, or a size in bytes: two figures of a row have the same unit of measure.
fn nanos(figure: &str) -> f64 {
    let (number, unit) = figure.split_once(' ').unwrap_or((figure, ""));
    let factor = match unit {
        "ns" | "B" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        _ => panic!("{figure:?} has no unit that is known"),
    };
    let number: f64 = number.parse().expect("a figure is a number with its unit");
    number * factor
}

fn description(rows: &[Row]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let Row {
                what,
                ours,
                peer,
                theirs,
            } = row;
            format!("{what}: tollgate {ours}, {peer} {theirs}")
        })
        .collect();
    format!("Five figures next to those of peers. {}.", rows.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = include_str!("../../../README.md");

    #[test]
    fn the_readme_has_the_figures_of_the_benches() {
        for (name, what) in FIVE {
            let Row {
                ours, peer, theirs, ..
            } = row(name, what);
            let shown = format!("\n| {what} | {ours} | {peer} | {theirs} | ");
            assert!(README.contains(&shown), "the README lacks{shown}");
        }
    }

    #[test]
    fn a_figure_has_a_unit() {
        assert_eq!(nanos("0.46 µs"), 460.0);
        assert_eq!(nanos("56 B"), 56.0);
    }
}
