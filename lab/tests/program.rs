//! The program as it is called.

use std::process::{Command, Output};

use tollgate_lab::table::COLUMNS;

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate-lab"))
        .arg("simulate")
        .args(["--seconds", "4"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn table(arguments: &[&str]) -> String {
    let output = simulate(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_same_seed_prints_the_same_table() {
    let table_of = |seed| table(&["--seed", seed, "--only", "zipf", "--only", "dying"]);
    assert_eq!(table_of("7"), table_of("7"));
    assert_ne!(table_of("7"), table_of("8"));
}

#[test]
fn each_row_has_all_columns() {
    let table = table(&["--only", "bursts"]);
    let mut lines = table.lines();
    let head = lines.next().expect("a head");
    let names: Vec<_> = head.trim_matches('|').split('|').map(str::trim).collect();
    assert_eq!(names, COLUMNS);
    assert_eq!(lines.clone().count(), 1 + 8);
    for line in lines {
        assert_eq!(line.split('|').count(), COLUMNS.len() + 2, "{line}");
        assert_eq!(line.len(), head.len(), "{line}");
    }
}

#[test]
fn one_workload_one_consistency_and_another_round_trip_can_be_chosen() {
    let arguments = [
        "--only",
        "cold",
        "--consistency",
        "exact",
        "--round-trip",
        "2ms",
    ];
    let table = table(&arguments);
    let row = table.lines().nth(2).expect("a row");
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    assert_eq!((cells[1], cells[2], cells[4]), ("cold", "exact", "1.000"));
    let median: f64 = cells[6].parse().expect("milliseconds");
    assert!((1.5..3.0).contains(&median), "{median}");
    assert_eq!(table.lines().count(), 3);
}

#[test]
fn a_name_that_is_none_is_repeated_with_those_there_are() {
    for (option, name, known) in [
        ("--only", "warm", "hoarding"),
        ("--consistency", "loose", "leased-<percent>"),
        ("--round-trip", "5 minutes", "500us"),
    ] {
        let output = simulate(&[option, name]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        assert!(said.contains(name) && said.contains(known), "{said}");
    }
}
