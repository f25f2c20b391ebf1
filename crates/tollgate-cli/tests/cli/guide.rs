//! The guide's transcripts are what the program prints. `TOLLGATE_BLESS=1` writes them anew.

use std::{env, fs, time::Duration};

use tollgate_redis::Secret;
use tollgate_rules::{Bindings, LiveRules, redis::RedisRules};

use crate::support::{Program, RedisServer, SECRET, server_program};

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/guide/command-line.md");
/// Here operators change rules that are in Redis, which a process of the service follows.
const OPERATORS: &str = "## Let a customer through";
/// From here on the page goes on with the server of its beginning.
const DEPLOYMENT: &str = "## Before a deployment";
/// From here on the page has rules and a log of its own.
const REPLAY: &str = "## Whom would these rules have denied?";

/// A block of commands of the page: where it is, and its commands with what they print.
struct Block {
    start: usize,
    end: usize,
    commands: Vec<(String, String)>,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transcript_is_what_the_program_prints() {
    let page = page(GUIDE);
    let (questions, rest) = page.split_once(OPERATORS).expect("a part on operators");
    let (operators, rest) = rest.split_once(DEPLOYMENT).expect("a part on deployments");
    let (deployment, replay) = rest.split_once(REPLAY).expect("a part on replays");
    let rules = block(&page, "```toml\n").expect("rules").to_owned();
    let server = server();
    let program = Program::on(&server, &rules);
    let [own_rules, log] =
        ["```toml\n", "```text\n"].map(|begin| block(replay, begin).expect("a block"));
    let replays = Program::new()
        .file("limits.toml", own_rules)
        .file("access.log", log);
    let printed = [
        transcript(questions, &program),
        OPERATORS.to_owned(),
        night_of_operators(operators.to_owned(), rules).await,
        DEPLOYMENT.to_owned(),
        transcript(deployment, &program),
        REPLAY.to_owned(),
        transcript(replay, &replays),
    ];
    if env::var_os("TOLLGATE_BLESS").is_some() {
        fs::write(GUIDE, printed.concat()).expect("the page is written");
    }
}

/// What the program prints while a process of the service follows the rules.
async fn night_of_operators(page: String, rules: String) -> String {
    let server = server();
    let push = [
        "rules",
        "push",
        "limits.toml",
        "--by",
        "deploy",
        "--because",
        "release 41",
    ];
    Program::on(&server, &rules)
        .run(&push)
        .assert(0, &["revision 1"]);
    let secret = Secret::from_text(SECRET).expect("a secret");
    let redis = RedisRules::new(server.url(), "shop", &secret).expect("an address");
    let service = LiveRules::follow(redis.source(), Bindings::new()).await;
    let service = service.expect("there are rules");
    let until = async |holds: &(dyn Fn() -> bool + Sync)| {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
        waited.expect("it comes to that");
    };
    until(&|| service.status().fleet.is_some_and(|it| it.processes == 1)).await;
    let night = tokio::task::spawn_blocking(move || {
        let program = Program::on_stored(&server).file("limits.toml", &rules);
        (transcript(&page, &program), server)
    });
    let (printed, _server) = night.await.expect("the page is right");
    until(&|| service.status().revision == 6).await;
    let document = service.document();
    for (rule, key, limit) in [
        ("search-per-key", "acme-key-1", "sliding_log 6/d"),
        ("per-address", "203.0.113.66", "none"),
        ("per-address", "203.0.113.7", "gcra 6000/d"),
    ] {
        let explained = document
            .explain_key(rule, &[key])
            .expect("a key of the rule");
        let quota = explained.quota.to_string();
        assert!(quota.starts_with(limit), "{rule}: {quota}");
    }
    printed
}

fn server() -> RedisServer {
    let settings = ["--maxmemory", "1gb", "--maxmemory-policy", "noeviction"];
    RedisServer::start_program(&server_program("valkey-9.1"), &settings)
}

fn page(path: &str) -> String {
    fs::read_to_string(path).expect("the page")
}

/// The page with what the program prints, which is what it shows.
fn transcript(page: &str, program: &Program) -> String {
    let mut printed_page = String::new();
    let mut rest = 0;
    for block in &blocks(page) {
        printed_page.push_str(&page[rest..block.start]);
        for (command, shown) in &block.commands {
            let ran = program.shell(command);
            let printed = format!("{}{}", ran.out, ran.err);
            printed_page.push_str(&format!("$ {command}\n{printed}"));
            if env::var_os("TOLLGATE_BLESS").is_none() {
                assert_eq!(timeless(shown), timeless(&printed), "$ {command}");
            }
        }
        rest = block.end;
    }
    printed_page + &page[rest..]
}

#[test]
fn completions_know_each_command() {
    let program = Program::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        program
            .run(&["completions", shell])
            .assert(0, &["doctor", "explain", "history"]);
    }
    // A shell reads what it is given.
    program
        .shell("tollgate completions bash | bash -n")
        .assert(0, &[]);
}

/// The text of the first block that begins so.
fn block<'a>(page: &'a str, begin: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(begin)?;
    rest.split_once("```").map(|(text, _)| text)
}

fn blocks(page: &str) -> Vec<Block> {
    const BEGIN: &str = "```console\n";
    let mut blocks = Vec::new();
    let mut from = 0;
    while let Some(at) = page[from..].find(BEGIN) {
        let start = from + at + BEGIN.len();
        let end = start + page[start..].find("```").expect("the end of a block");
        let mut commands: Vec<(String, String)> = Vec::new();
        for line in page[start..end].lines() {
            match line.strip_prefix("$ ") {
                Some(command) => commands.push((command.to_owned(), String::new())),
                None => {
                    let (_, shown) = commands.last_mut().expect("a block begins with a command");
                    shown.push_str(line);
                    shown.push('\n');
                }
            }
        }
        blocks.push(Block {
            start,
            end,
            commands,
        });
        from = end;
    }
    blocks
}

/// Without what differs from run to run: times, durations and how wide they are, memory, and the server's port.
fn timeless(text: &str) -> String {
    let words = |line: &str| {
        let mut out: Vec<String> = Vec::new();
        for word in line.split_whitespace() {
            let is_number = word.trim_end_matches([',', ':']).parse::<f64>().is_ok();
            let is_unit = ["µs", "ms", "s", "min", "h", "d", "B", "KiB", "MiB"]
                .contains(&word.trim_end_matches([',', ':', ';']));
            let is_time = word.contains(':') && word.trim_end_matches(',').ends_with('Z');
            match (is_number, is_unit, is_time) {
                (_, true, _) if out.last().is_some_and(|last| last == "#") => {}
                (true, ..) | (_, _, true) => out.push("#".to_owned()),
                _ => out.push(word.to_owned()),
            }
            out.dedup_by(|one, other| one == "#" && other == "#");
        }
        out.join(" ")
    };
    text.lines().map(|line| words(line) + "\n").collect()
}
