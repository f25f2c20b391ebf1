//! The program as it is called.

use std::process::{Command, Output};

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
