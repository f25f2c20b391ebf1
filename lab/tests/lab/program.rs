//! The program as it is called.

use std::process::Command;

#[test]
fn the_same_seed_prints_the_same_table() {
    let table_of = |seed| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate-lab"));
        let briefly = ["simulate", "--seconds", "4", "--only", "zipf", "--seed"];
        let output = program.args(briefly).arg(seed).output();
        output.expect("the program runs").stdout
    };
    assert_eq!(table_of("7"), table_of("7"));
    assert_ne!(table_of("7"), table_of("8"));
}
