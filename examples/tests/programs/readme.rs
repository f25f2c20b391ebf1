//! What the README and the page on examples show is what the programs answer.

/// The program, with another `tokio` in scope: it listens on a free port in the place of 3000.
mod hello {
    mod tokio {
        pub(super) use ::tokio::{main, runtime};

        pub(super) mod net {
            pub(in super::super) struct TcpListener;

            impl TcpListener {
                pub(in super::super) async fn bind(
                    _: &str,
                ) -> std::io::Result<::tokio::net::TcpListener> {
                    let listener = ::tokio::net::TcpListener::bind("127.0.0.1:0").await?;
                    super::super::BOUND.send_replace(Some(listener.local_addr()?));
                    Ok(listener)
                }
            }
        }
    }

    include!(concat!(env!("OUT_DIR"), "/hello.rs"));

    use std::sync::LazyLock;

    use ::tokio::sync::watch;

    static BOUND: LazyLock<watch::Sender<Option<SocketAddr>>> =
        LazyLock::new(|| watch::Sender::new(None));

    /// Runs the program until the test ends, and says where it listens.
    pub(super) async fn run() -> SocketAddr {
        std::thread::spawn(|| main().expect("it serves"));
        let mut bound = BOUND.subscribe();
        let address = bound.wait_for(Option::is_some).await;
        address.expect("it is never dropped").expect("it is there")
    }
}

use std::{path::Path, process::Command};

use crate::process::Process;

/// The text of the first block of code in this language.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, block) = page
        .split_once(&format!("\n```{language}\n"))
        .expect("a block");
    block.split_once("\n```").expect("its end").0
}

const README: &str = include_str!("../../../README.md");
const README_OF_THE_CRATE: &str = include_str!("../../../crates/tollgate/README.md");

#[test]
fn the_program_in_the_readme_is_an_example() {
    let file = include_str!("../../start/hello.rs");
    // The file begins with what it is.
    let (_, program) = file.split_once("\n\n").expect("a first line");
    for page in [README, README_OF_THE_CRATE] {
        assert_eq!(block(page, "rust,no_run").trim(), program.trim());
    }
}

/// An answer without what differs from one time to another: the date, waits, what is left of an hour, and the order of header
/// fields.
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
    for before in [
        ";t=",
        "retry-after: ",
        "\"retry_after_ms\":",
        "\"hourly\";r=",
    ] {
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

/// Runs the commands with a server at this address and compares what they print; returns how many there are.
fn answers(address: &str, console: &str) -> usize {
    let mut commands = 0;
    for command in console.split("$ ").skip(1) {
        let (command, answer) = command.split_once('\n').expect("an answer");
        let (command, is_repeated) = match command.split_once("# for the sixth time") {
            Some((command, _)) => (command, true),
            None => (command, false),
        };
        let command = command
            .replace("127.0.0.1:3000", address)
            .replace("curl -i", "curl --silent --show-error -i");
        // More than six on one connection, and the first denial counts: on a slow machine a unit may be back before.
        let again = if is_repeated { "'?n=[1-20]'" } else { "" };
        let output = Command::new("sh")
            .args(["-c", &format!("{}{again}", command.trim())])
            .output()
            .expect("a shell");
        assert!(output.status.success(), "{command}: {output:?}");
        let printed = String::from_utf8(output.stdout).expect("text");
        let mut printed = printed.split("HTTP/1.1 ").skip(1);
        let one = printed.find(|one| !is_repeated || one.starts_with("429 "));
        let one = format!("HTTP/1.1 {}", one.expect("an answer"));
        assert_eq!(shape(&one), shape(answer), "{command}");
        commands += 1;
    }
    commands
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_in_the_readme_is_that_of_its_program() {
    let address = hello::run().await.to_string();
    for page in [README, README_OF_THE_CRATE] {
        let console = block(page, "console").to_owned();
        let address = address.clone();
        let answered = tokio::task::spawn_blocking(move || answers(&address, &console));
        assert_eq!(answered.await.expect("it answers"), 1);
    }
}

#[test]
fn the_answers_of_the_quickstart_are_those_that_are_shown() {
    let process = Process::start("quickstart", Path::new("."), &[]);
    let page = include_str!("../../README.md");
    assert_eq!(answers(&process.address, block(page, "console")), 2);
}
