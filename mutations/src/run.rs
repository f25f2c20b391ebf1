//! Runs a test.

use std::{
    error::Error,
    io::Read,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{list::Mutation, outcome::Outcome, tree::Tree};

/// Runs the test of a mutation on the tree as it is. How it ended, and after how many seconds.
pub(crate) fn run(tree: &Tree, mutation: &Mutation) -> Result<(Outcome, u64), Box<dyn Error>> {
    let start = now();
    let limit = Duration::from_secs(mutation.limit_s);
    let (build, name) = mutation
        .test
        .split_once(" -- ")
        .unwrap_or((&mutation.test, ""));
    // Built before the clock starts. What a doctest is made of is only built when it runs.
    if !build.contains("--doc") {
        let built = cargo(tree, build, &["--no-run"]).output()?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr);
            for line in said.lines().filter(|line| line.starts_with("error")) {
                println!("    {line}");
            }
            return Ok((Outcome::DoesNotCompile, start.elapsed().as_secs()));
        }
    }
    let mut arguments = vec!["--"];
    arguments.extend(name.split_whitespace());
    let outcome = match within(limit, cargo(tree, build, &arguments).spawn()?)? {
        Some((success, printed)) => Outcome::of(success, &printed),
        None => Outcome::Hung,
    };
    Ok((outcome, start.elapsed().as_secs()))
}

fn cargo(tree: &Tree, arguments: &str, more: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .arg("test")
        .args(arguments.split_whitespace())
        .args(more)
        .current_dir(tree.root())
        .env("CARGO_TARGET_DIR", tree.builds())
        // A failing test is all that is wanted, not where.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_TERM_COLOR", "never")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A group of its own, so that what the test has started ends with it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

/// Whether it succeeded and what it printed; `None` if it had to be killed.
fn within(limit: Duration, mut child: Child) -> Result<Option<(bool, String)>, Box<dyn Error>> {
    let (ended, end) = mpsc::channel();
    let group = child.id();
    let outputs = [
        child
            .stdout
            .take()
            .map(|out| Box::new(out) as Box<dyn Read + Send>),
        child
            .stderr
            .take()
            .map(|err| Box::new(err) as Box<dyn Read + Send>),
    ];
    let readers = outputs.map(|output| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = output.map(|mut output| output.read_to_end(&mut bytes));
            read.transpose().map(|_| bytes)
        })
    });
    let waiting = thread::spawn(move || {
        let status = child.wait();
        // The receiver is gone if it was killed.
        let _ = ended.send(());
        status
    });
    let in_time = end.recv_timeout(limit).is_ok();
    if !in_time {
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{group}")])
            .status()?;
    }
    let status = waiting.join().map_err(|_| "waiting for cargo failed")??;
    if !in_time {
        return Ok(None);
    }
    let mut printed = String::new();
    for reader in readers {
        let bytes = reader
            .join()
            .map_err(|_| "reading what cargo prints failed")??;
        printed.push_str(&String::from_utf8_lossy(&bytes));
    }
    Ok(Some((status.success(), printed)))
}

fn now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a test took decides nothing"
    )]
    Instant::now()
}
