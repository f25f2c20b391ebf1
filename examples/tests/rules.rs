//! The service whose limits are in a file, over a socket: what the page on examples shows of it.

#[path = "rules/exposition.rs"]
mod exposition;
mod process;
#[path = "rules/prometheus.rs"]
mod prometheus;

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use tollgate::{ManualClock, MemoryStore};
use tollgate_examples::rules;
use tollgate_redis::Secret;
use tollgate_rules::{Author, Bindings, LiveRules, RuleSwitch, redis::RedisRules};
use tollgate_tests::server::Server;

use process::{Process, redis};

const LIMITS: &str = include_str!("../limits.toml");

struct Service {
    server: Server,
    path: PathBuf,
    rules: LiveRules,
    _folder: tempfile::TempDir,
}

impl Service {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("limits.toml");
        fs::write(&path, LIMITS).expect("written");
        let rules = LiveRules::watch(&path, Bindings::new()).expect("the file is valid");
        // Time stands still, so that no window ends in between.
        let clock = ManualClock::new(1_767_268_800_000_000);
        let store = MemoryStore::builder().clock(&clock).build();
        let app = rules::app(&rules, store).expect("valid rules");
        Self {
            server: Server::start(app).await,
            path,
            rules,
            _folder: folder,
        }
    }

    async fn edit(&self, text: &str, holds: impl Fn(&LiveRules) -> bool) {
        fs::write(&self.path, text).expect("written");
        #[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
        let begin = Instant::now();
        while !holds(&self.rules) {
            assert!(
                begin.elapsed() < Duration::from_secs(25),
                "{}",
                self.rules.status()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn items(&self, key: &str) -> (u16, String) {
        let answer = self
            .server
            .send("GET", "/items", &[("x-api-key", key)])
            .await;
        let limits = answer.header("ratelimit").unwrap_or_default().to_owned();
        (
            answer.status,
            limits.split(',').next().unwrap_or_default().to_owned(),
        )
    }
}

#[tokio::test]
async fn an_edited_file_is_in_force_and_keeps_what_was_used() {
    let service = Service::start().await;
    for left in (0..5).rev() {
        let limits = format!("\"items-per-key\";r={left};t=60");
        assert_eq!(service.items("acme").await, (200, limits));
    }
    assert_eq!(service.items("acme").await.0, 429);

    let raised = LIMITS.replace("fixed_window 5/min", "fixed_window 8/min");
    service
        .edit(&raised, |rules| rules.status().revision() == 2)
        .await;
    assert_eq!(
        service.items("acme").await,
        (200, "\"items-per-key\";r=2;t=60".to_owned())
    );

    // A mistake changes nothing, and is told.
    let broken = raised.replace("8/min", "8/mni");
    service
        .edit(&broken, |rules| rules.status().rejected() == 1)
        .await;
    assert_eq!(service.items("acme").await.0, 200);
    let status = service.server.get("/rules").await;
    for words in [
        "revision 2",
        "limits.toml:7:25",
        "8/mni",
        "did you mean \"min\"?",
    ] {
        assert!(status.body.contains(words), "{}", status.body);
    }

    // What the file's comments show: an override and a switch.
    let shown = |begin: &str| {
        let lines = raised.lines().skip_while(|line| *line != begin);
        let lines = lines.take_while(|line| line.starts_with("# "));
        lines
            .map(|line| format!("{}\n", &line[2..]))
            .collect::<String>()
    };
    let overridden = format!("{raised}\n{}", shown("# [[overrides]]"));
    service
        .edit(&overridden, |rules| rules.status().revision() == 3)
        .await;
    assert_eq!(
        service.items("acme").await,
        (200, "\"items-per-key\";r=12;t=60".to_owned())
    );
    assert_eq!(
        service.items("other").await,
        (200, "\"items-per-key\";r=7;t=60".to_owned())
    );
    let switched = format!("{overridden}\n{}", shown("# [[switches]]"));
    service
        .edit(&switched, |rules| rules.status().revision() == 4)
        .await;
    assert_eq!(
        service.items("acme").await,
        (200, "\"items-per-key\";r=1;t=60".to_owned())
    );
}

#[test]
fn a_service_with_a_broken_file_does_not_start_and_ends_with_the_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    let broken = LIMITS.replace("fixed_window 5/min", "fixed_window 5/mni");
    fs::write(&path, broken).expect("written");
    let output = Command::new(process::program("rules"))
        .current_dir(folder.path())
        .env("PORT", "0")
        .env("LIMITS", &path)
        .env_remove("REDIS_URL")
        .output()
        .expect("the program is there");
    assert_eq!(output.status.code(), Some(1), "{:?}", output.status);
    let error = String::from_utf8(output.stderr).expect("text");
    let marked = "limits.toml:7:25: \"mni\" is not a unit of time; write s, min, h, d, or several as 10s; did you mean \"min\"?\n  |\n\
                  7 | limit = \"fixed_window 5/mni\"\n  | \
                  \u{20}                       ^^^";
    assert!(error.contains(marked), "{error}\n{marked}");
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(!printed.contains("listening"), "{printed}");
}

#[tokio::test]
async fn a_caller_sees_what_it_has_left_and_an_operator_which_keys_come_most_often() {
    let service = Service::start().await;
    for _ in 0..2 {
        assert_eq!(service.items("acme-key-4711").await.0, 200);
    }
    let of_acme = [("x-api-key", "acme-key-4711")];
    let left = service.server.send("GET", "/limits", &of_acme).await;
    let left: serde_json::Value = serde_json::from_str(&left.body).expect("JSON");
    let left = &left["resources"];
    assert_eq!(left["items-per-key"]["remaining"], 3, "{left}");
    assert_eq!(left["weather-per-ip"]["remaining"], 5, "{left}");
    let top = service.server.get("/top-keys").await;
    assert!(!top.body.contains("acme"), "{}", top.body);
    let top: serde_json::Value = serde_json::from_str(&top.body).expect("JSON");
    assert_eq!(top["rules"].as_array().map(Vec::len), Some(1), "{top}");
    let rule = &top["rules"][0];
    assert_eq!(rule["rule"], "items-per-key");
    assert_eq!(rule["keys"][0]["at_least"], 2);
}

#[tokio::test]
async fn the_file_limits_rest_and_grpc() {
    let service = Service::start().await;
    for _ in 0..5 {
        assert_eq!(service.server.get("/weather/Oslo").await.status, 200);
    }
    assert_eq!(service.server.get("/weather/Oslo").await.status, 429);
    // The same budget over gRPC, denied in its words.
    let call = [("content-type", "application/grpc"), ("te", "trailers")];
    let denied = service
        .server
        .send("POST", "/weather.v1.Weather/Current", &call)
        .await;
    assert_eq!(denied.header("grpc-status"), Some("8"));
    // Writes and reads are counted apart.
    for _ in 0..3 {
        let written = service
            .server
            .send("POST", "/items/7", &[("x-api-key", "acme")])
            .await;
        assert_eq!(written.status, 200);
    }
    let denied = service
        .server
        .send("POST", "/items/7", &[("x-api-key", "acme")])
        .await;
    assert_eq!(denied.status, 429);
    assert_eq!(service.items("acme").await.0, 200);
}

/// Waits until the process says so about its rules.
fn until_rules_say(process: &Process, holds: impl Fn(&str) -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
    let begin = Instant::now();
    loop {
        let (_, status) = process.request("GET", "/rules", "");
        if holds(&status) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{status}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_rules_and_limits_through_redis() {
    let (_redis, address) = redis();
    let secret = "07".repeat(32);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    // A window that does not end in between.
    let limits = LIMITS.replace("fixed_window 5/min", "fixed_window 5/d");
    fs::write(&path, &limits).expect("written");
    let settings = [
        ("REDIS_URL", &*address),
        ("TOLLGATE_SECRET", &secret),
        ("LIMITS", path.to_str().expect("a path")),
    ];
    let [one, other] = [(); 2].map(|()| Process::start("rules", folder.path(), &settings));
    let items = |process: &Process| process.request("GET", "/items", "x-api-key: acme\r\n").0;
    for process in [&one, &other, &one, &other, &one] {
        assert_eq!(items(process), 200);
    }
    assert_eq!((items(&one), items(&other)), (429, 429));

    // The file is edited once.
    let raised = limits.replace("fixed_window 5/d", "fixed_window 7/d");
    fs::write(&path, &raised).expect("written");
    for process in [&one, &other] {
        until_rules_say(process, |status| status.contains("revision 2"));
    }
    assert_eq!((items(&one), items(&other)), (200, 200));
    assert_eq!((items(&one), items(&other)), (429, 429));

    // A mistake is not pushed, and an operator's switch reaches both.
    fs::write(&path, raised.replace("7/d", "7/dd")).expect("written");
    let secret = Secret::from_bytes([7; 32]).expect("32 bytes");
    let operator = RedisRules::new(&address, "shop", &secret).expect("an address");
    let alice = Author::new("alice");
    let off = RuleSwitch::rule("items-per-key", "off");
    operator
        .switch(off, &Bindings::new(), &alice)
        .await
        .expect("pushed");
    for process in [&one, &other] {
        until_rules_say(process, |status| status.contains("revision 3"));
    }
    assert_eq!((items(&one), items(&other)), (200, 200));
}

/// What commands of the page print, without what differs from one time to another.
fn shape(output: &str) -> String {
    let mut shape = output.trim().to_owned();
    for before in [";t=", "in force for "] {
        let parts: Vec<_> = shape.split(before).map(str::to_owned).collect();
        let (first, rest) = parts.split_first().expect("at least one");
        let rest = rest.iter().map(|rest| {
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}..{rest}")
        });
        shape = std::iter::once(first.clone()).chain(rest).collect();
    }
    shape
}

/// The commands of blocks of a console, each with what it prints.
fn commands(section: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for block in section.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").expect("its end");
        let mut is_document = false;
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                commands.push((format!("{command}\n"), String::new()));
                is_document = command.contains("<<'END'");
                continue;
            }
            let (command, output) = commands.last_mut().expect("a command comes first");
            let text = if is_document { command } else { output };
            text.push_str(&format!("{line}\n"));
            is_document &= line != "END";
        }
    }
    commands
}

/// The page's commands, one after the other, in a folder with its file.
#[test]
fn what_the_page_shows_of_a_file_is_what_happens() {
    let section = include_str!("../README.md").split_once("\n## rules\n");
    let (_, section) = section.expect("a section");
    let (section, _) = section.split_once("\nWith Redis,").expect("in memory");
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("examples")).expect("made");
    // A window that does not end in between.
    let a_day = |text: &str| text.replace("/min", "/d");
    let file = folder.path().join("examples/limits.toml");
    fs::write(file, a_day(LIMITS)).expect("written");
    let process = Process::start("rules", folder.path(), &[]);
    let mut edits = 0;
    for (command, shown) in commands(section) {
        let command = a_day(&command).replace("127.0.0.1:3000", &process.address);
        let output = Command::new("sh")
            .args(["-c", &command])
            .current_dir(folder.path())
            .output()
            .expect("a shell");
        let printed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(shape(&printed), shape(&a_day(&shown)), "{command}");
        if command.contains("limits.toml") {
            edits += 1;
            until_rules_say(&process, |status| match edits {
                1 => status.contains("revision 2,"),
                2 => status.contains("the latest one is rejected"),
                3 => !status.contains("the latest one is rejected"),
                4 => status.contains("revision 3,"),
                _ => status.contains("revision 4,"),
            });
        }
    }
    assert_eq!(edits, 5);
}
