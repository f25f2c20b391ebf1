//! The README's program is the quickstart, and what it shows is what that answers.

#[path = "../quickstart.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "it is a program, and a test serves what that serves"
)]
mod quickstart;

use tokio::process::Command;
use tollgate_tests::server::Server;

const README: &str = include_str!("../../README.md");

/// The blocks of code in this language of the section on using it.
fn blocks(language: &str) -> impl Iterator<Item = &'static str> {
    let (_, section) = README.split_once("\n## Using it\n").expect("a section");
    let (section, _) = section.split_once("\n## ").expect("a section behind it");
    section.split("\n```").filter_map(move |block| {
        let (language_of_block, block) = block.split_once('\n')?;
        (language_of_block == language).then_some(block)
    })
}

#[test]
fn the_program_is_the_quickstart() {
    let shown = blocks("rust,no_run").next().expect("a program");
    let file = include_str!("../quickstart.rs");
    // The file begins with what it is and what the lints make of it.
    let (_, program) = file.split_once("\n\nuse ").expect("imports");
    assert_eq!(shown.trim(), format!("use {program}").trim());
}

/// An answer without what differs from one time to another: the date, waits, and the order of header fields.
fn shape(answer: &str) -> Vec<String> {
    let answer = answer.replace('\r', "");
    let (head, body) = answer.trim().split_once("\n\n").expect("a head and a body");
    let mut lines: Vec<_> = head.lines().chain([body]).map(without_times).collect();
    lines[1..].sort();
    lines
}

fn without_times(line: &str) -> String {
    if line.starts_with("date: ") {
        return "date: ..".to_owned();
    }
    let mut line = line.to_owned();
    for before in [";t=", "retry-after: ", "\"retry_after_ms\":"] {
        let parts: Vec<_> = line.split(before).map(str::to_owned).collect();
        let (first, waits) = parts.split_first().expect("at least one");
        let waits = waits.iter().map(|rest| {
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}..{rest}")
        });
        line = std::iter::once(first.clone()).chain(waits).collect();
    }
    line
}

#[tokio::test]
async fn the_answers_are_those_of_the_program() {
    let server = Server::start(quickstart::app().expect("valid rules")).await;
    let shown = blocks("console").next().expect("commands");
    let mut commands = 0;
    for command in shown.split("$ ").skip(1) {
        let (command, answer) = command.split_once('\n').expect("an answer");
        let (command, times) = match command.split_once("# for the sixth time") {
            Some((command, _)) => (command, 6),
            None => (command, 1),
        };
        let command = command
            .replace("127.0.0.1:3000", &server.address().to_string())
            .replace("curl -i", "curl --silent --show-error -i");
        let mut last = String::new();
        for _ in 0..times {
            let output = Command::new("sh").arg("-c").arg(&command).output().await;
            let output = output.expect("a shell");
            assert!(output.status.success(), "{command}: {output:?}");
            last = String::from_utf8(output.stdout).expect("text");
        }
        assert_eq!(shape(&last), shape(answer), "{command}");
        commands += 1;
    }
    assert_eq!(commands, 2);
}
