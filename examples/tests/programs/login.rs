//! What the page on examples shows of the log-in is what it answers.

use std::{
    path::Path,
    process::Command,
    thread::park_timeout,
    time::{Duration, Instant},
};

use crate::process::Process;

const PAGE: &str = include_str!("../../README.md");

#[test]
fn the_log_in_answers_as_it_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start("login", folder.path(), &[]);
    let (_, section) = PAGE.split_once("\n## login\n").expect("a section");
    let (_, console) = section.split_once("\n```console\n").expect("commands");
    let (console, _) = console.split_once("\n```").expect("their end");
    let commands: Vec<_> = console.split("$ ").skip(1).collect();
    assert_eq!(commands.len(), 6);
    for command in commands {
        let (command, expected) = command.split_once('\n').unwrap_or((command, ""));
        let (command, waits) = match command.split_once("# within a second") {
            Some((command, _)) => (command, true),
            None => (command.split(" # ").next().expect("a command"), false),
        };
        #[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
        let begin = Instant::now();
        loop {
            let printed = run(command, &process.address, folder.path());
            if printed.trim() == expected.trim() {
                break;
            }
            let is_late = begin.elapsed() > Duration::from_secs(60);
            assert!(
                waits && !is_late,
                "{command}: {printed:?} is not {expected:?}"
            );
            park_timeout(Duration::from_millis(50));
        }
    }
    // An account of one's own is no way to try those of others, with however many devices.
    let sprayed = "for n in 1 2 3 4 5 6; do try='curl -so /dev/null --interface 127.0.0.4 http://127.0.0.1:3000/login'; \
                   $try -c new.txt -d account=mallory -d 'password=open sesame'; \
                   $try -w '%{http_code} ' -b new.txt -d account=a$n -d password=guess; done";
    let answers = run(sprayed, &process.address, folder.path());
    assert_eq!(answers.trim(), "401 401 401 401 401 429");
}

fn run(command: &str, address: &str, folder: &Path) -> String {
    let command = command.replace("127.0.0.1:3000", address);
    let output = Command::new("sh")
        .args(["-c", &command])
        .current_dir(folder)
        .output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}
