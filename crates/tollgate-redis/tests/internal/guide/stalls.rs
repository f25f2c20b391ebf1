//! The table of stalls and short outages.

use std::time::Duration;

use crate::internal_tests::connection::stalls::{Failing, Schedule};

/// The cells of the rows of the table.
fn rows() -> Vec<[&'static str; 5]> {
    let page = include_str!("../../../guide/failures.md");
    let starts = [
        "stands still for ",
        "is gone for ",
        "answers `LOADING` for ",
    ];
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.filter(|row| starts.iter().any(|start| row.starts_with(start)));
    rows.filter_map(|row| {
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        cells.try_into().ok()
    })
    .collect()
}

fn schedule(row: &[&str; 5], rate: u64) -> Schedule {
    let failing = match row[0].split(' ').next() {
        Some("stands") => Failing::Stalls,
        Some("is") => Failing::IsGone,
        _ => Failing::Loads,
    };
    let numbers = row[0].split(' ').filter_map(|word| word.parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    let [lasts_ms, every_s] = numbers[..] else {
        panic!("{row:?} has no two numbers");
    };
    Schedule {
        failing,
        lasts_ms,
        every_ms: every_s * 1_000,
        deadline_ms: row[1].trim_end_matches(" ms").parse().expect("a number"),
        rate,
    }
}

const NOTHING: Vec<String> = Vec::new();

/// Simulates the rows from `first`, each with this traffic for so many seconds, and says where the cell is wrong.
async fn hold(first: usize, rate: u64, seconds: u64, cell: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let rows = rows();
    assert_eq!(rows.len(), 11);
    for row in &rows[first..(first + 4).min(11)] {
        let schedule = schedule(row, rate);
        let (share, longest) = schedule.cost(seconds).await;
        let failing = schedule.share();
        assert!(
            longest <= Duration::from_millis(schedule.deadline_ms),
            "{row:?}: {longest:?}"
        );
        // What it adds to each, in milliseconds.
        let added = (share - failing) * schedule.every_ms as f64 / 100.0;
        let most = match schedule.lasts_ms {
            // With little traffic chance says whether one request more or less comes during a stall.
            ..500 => 15.0,
            _ => 500.0,
        };
        assert!(share <= 2.0 * failing, "{row:?}: {share:.1} %");
        assert!(added <= most, "{row:?}: {added:.0} ms are added");
        if format!("{failing:.1} %") != row[2] || !is_near(row[cell], share) {
            let (what, deadline) = (row[0], row[1]);
            wrong.push(format!(
                "{what} | {deadline} | {failing:.1} % | at {rate} a second {share:.1} %"
            ));
        }
    }
    wrong
}

/// Chance may differ with another version of the runtime, and so may the last digit.
fn is_near(cell: &str, share: f64) -> bool {
    let reported: f64 = cell.trim_end_matches(" %").parse().expect("a number");
    (reported - share).abs() <= 0.5
}

#[tokio::test(start_paused = true)]
async fn what_stalls_cost_a_busy_service_is_as_the_page_says() {
    assert_eq!(hold(0, 200, 60, 3).await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn what_longer_stalls_cost_a_busy_service_is_as_the_page_says() {
    assert_eq!(hold(4, 200, 90, 3).await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn what_outages_cost_a_busy_service_is_as_the_page_says() {
    assert_eq!(hold(8, 200, 90, 3).await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn what_stalls_cost_a_quiet_service_is_as_the_page_says() {
    let mut wrong = Vec::new();
    for first in [0, 4, 8] {
        wrong.extend(hold(first, 5, 600, 4).await);
    }
    assert_eq!(wrong, NOTHING);
}
