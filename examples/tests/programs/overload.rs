//! The example `overload`: a table, whose less important classes are shed more, and a picture.

use std::{collections::BTreeMap, fs, process::Command};

#[test]
fn less_important_requests_are_shed_more_over_http() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(crate::process::program("overload"));
    let output = program
        .current_dir(&folder)
        .env("SECONDS", "1")
        .output()
        .expect("it runs");
    let table = String::from_utf8(output.stdout).expect("text");
    let percent = |cell: &str| {
        cell.trim_end_matches(" %")
            .parse::<f64>()
            .expect("a number")
    };
    // By what stands in front: what is shed of P1 and P3 above the capacity. A busy machine may serve nobody for a second.
    let (mut rows, mut shed) = (0, BTreeMap::<&str, (f64, f64)>::new());
    for line in table.lines().filter(|line| line.contains(" × |")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [load, stack, .., p1, _, p3] = cells[..] else {
            panic!("{line}")
        };
        rows += 1;
        match stack {
            "nothing" => assert_eq!((p1, p3), ("0 %", "0 %"), "{table}"),
            _ if load == "1 ×" => {}
            _ => {
                let sums = shed.entry(stack).or_default();
                *sums = (sums.0 + percent(p1), sums.1 + percent(p3));
            }
        }
    }
    assert!(shed.values().all(|(p1, p3)| p1 < p3), "{table}");
    assert_eq!(rows, 12, "{table}");
    let picture = fs::read_to_string(folder.path().join("target/overload.svg")).expect("a picture");
    assert_eq!(picture.matches("class=\"line\"").count(), 2);
}
