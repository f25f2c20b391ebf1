//! The picture: useful work by load.

use crate::svg::{Svg, WIDTH};

const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const HIGH: f64 = 220.0;

/// A line for each stack, of loads and the part of what could be served.
pub(crate) fn useful_work(lines: &[(&str, Vec<(f64, f64)>)]) -> String {
    let described: Vec<String> = lines
        .iter()
        .map(|(name, line)| {
            let points = line
                .iter()
                .map(|(load, part)| format!("{:.0} % at {load} ×", part * 100.0));
            format!("{name}: {}", points.collect::<Vec<_>>().join(", "))
        })
        .collect();
    let title = "Useful work by load";
    let mut svg = Svg::new(TOP + HIGH + 40.0, title, described.join("; "));
    svg.text((0.0, 18.0), "head", title);
    let wide = WIDTH - LEFT - 120.0;
    // Loads double from one step to the next.
    let at = |load: f64, part: f64| {
        (
            LEFT + load.log2() / 10_f64.log2() * wide,
            TOP + HIGH * (1.0 - part.min(1.0)),
        )
    };
    for part in [0.0, 0.5, 1.0] {
        svg.lines("grid", [at(1.0, part), at(10.0, part)]);
        svg.text(
            (LEFT - 10.0, at(1.0, part).1 + 4.0),
            "small soft end",
            format!("{:.0} %", part * 100.0),
        );
    }
    for load in [1.0, 2.0, 4.0, 10.0] {
        svg.text(
            (at(load, 0.0).0, TOP + HIGH + 20.0),
            "small soft mid",
            format!("{load} ×"),
        );
    }
    for (place, (name, line)) in lines.iter().enumerate() {
        let class = ["mark", "line", "line"][place.min(2)];
        svg.lines(class, line.iter().map(|(load, part)| at(*load, *part)));
        if let Some((load, part)) = line.last() {
            let (x, y) = at(*load, *part);
            svg.text(
                (x + 8.0, y + 4.0 + 16.0 * place.saturating_sub(1) as f64),
                "small",
                name,
            );
        }
    }
    svg.finish()
}
