//! The example `overload`: a table and a picture. That less important classes are shed more is shown in simulated time, in `lab`.

use std::{fs, process::Command};

#[test]
fn each_load_has_a_row_and_only_what_sheds_sheds() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(crate::process::program("overload"));
    let output = program
        .current_dir(&folder)
        .env("SECONDS", "0.2")
        .output()
        .expect("it runs");
    let table = String::from_utf8(output.stdout).expect("text");
    let mut rows = 0;
    for line in table.lines().filter(|line| line.contains(" × |")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [_, stack, .., p1, _, p3] = cells[..] else {
            panic!("{line}")
        };
        rows += 1;
        assert!(stack != "nothing" || (p1, p3) == ("0 %", "0 %"), "{table}");
    }
    assert_eq!(rows, 12, "{table}");
    let picture = fs::read_to_string(folder.path().join("target/overload.svg")).expect("a picture");
    assert_eq!(picture.matches("class=\"line\"").count(), 2);
}
