//! The table that is printed.

use crate::{consistency::Consistency, figures::Figures};

/// The names of its columns.
pub const COLUMNS: [&str; 13] = [
    "workload",
    "consistency",
    "requests",
    "calls",
    "alone %",
    "p50 ms",
    "p99 ms",
    "over %",
    "false %",
    "room %",
    "on lease %",
    "used %",
    "even %",
];

/// The two lines above the rows.
#[must_use]
pub fn head() -> String {
    let names = COLUMNS.map(str::to_owned);
    let rule = std::array::from_fn(|column| match column {
        0 | 1 => "-".repeat(width(column)),
        _ => format!("{}:", "-".repeat(width(column) - 1)),
    });
    format!("{}\n{}", line(&names), line(&rule))
}

/// One row.
#[must_use]
pub fn row(workload: &str, consistency: Consistency, figures: &Figures) -> String {
    line(&[
        workload.to_owned(),
        consistency.to_string(),
        figures.requests.to_string(),
        format!("{:.3}", figures.calls_per_request()),
        percent(figures.alone_part(), 1),
        millis(figures.latency(500)),
        millis(figures.latency(990)),
        percent(figures.over, 1),
        percent(figures.false_part(), 2),
        percent(figures.room_then, 1),
        percent(figures.tracked_then, 1),
        percent(figures.utilisation(), 1),
        percent(figures.fairness(), 1),
    ])
}

fn width(column: usize) -> usize {
    COLUMNS[column].len().max(match column {
        0 => 10,
        1 => 11,
        _ => 6,
    })
}

fn line(cells: &[String; 13]) -> String {
    let cells: Vec<_> = cells
        .iter()
        .enumerate()
        .map(|(column, cell)| match column {
            0 | 1 => format!("{cell:<0$}", width(column)),
            _ => format!("{cell:>0$}", width(column)),
        })
        .collect();
    format!("| {} |", cells.join(" | "))
}

fn percent(part: f64, digits: usize) -> String {
    format!("{:.digits$}", part * 100.0)
}

fn millis(time: u64) -> String {
    format!("{:.2}", time as f64 / 1_000.0)
}
