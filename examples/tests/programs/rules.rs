//! The service whose limits are in a file, over sockets: what the page on examples shows of it.

use std::{fs, process::Command};

use tollgate_redis::Secret;
use tollgate_rules::{Author, Bindings, OperatorEntry, redis::RedisRules};

use crate::process::{Process, redis};

const LIMITS: &str = include_str!("../../limits.toml");

/// The limits of the file, with days in the place of minutes and seconds: no window ends while a test runs.
fn limits() -> String {
    LIMITS
        .replace("fixed_window 5/min", "fixed_window 5/d")
        .replace("gcra 30/min burst 3", "gcra 30/d burst 3")
        .replace("gcra 1/2s burst 5", "gcra 1/d burst 5")
        .replace("limit = \"20/min\"", "limit = \"20/d\"")
}

/// The service on a file of its own.
struct Service {
    process: Process,
    _folder: tempfile::TempDir,
}

impl Service {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("limits.toml");
        fs::write(&path, limits()).expect("written");
        let settings = [("LIMITS", path.to_str().expect("a path"))];
        let process = Process::start("rules", folder.path(), &settings);
        Self {
            process,
            _folder: folder,
        }
    }
}

/// The status of a request for items by this key.
fn items(process: &Process) -> u16 {
    process
        .request("GET", "/items", "x-api-key: acme\r\n")
        .status
}

#[test]
fn a_service_with_a_broken_file_does_not_start_and_ends_with_the_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    let broken = LIMITS.replace("fixed_window 5/min", "fixed_window 5/mni");
    fs::write(&path, broken).expect("written");
    let output = Command::new(crate::process::program("rules"))
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

#[test]
fn the_file_limits_rest_and_grpc() {
    let service = Service::start();
    let process = &service.process;
    for status in [200, 200, 200, 200, 200, 429] {
        assert_eq!(process.send("GET", "/weather/Oslo"), status);
    }
    // The same budget over gRPC, denied in its words.
    let call = "content-type: application/grpc\r\nte: trailers\r\n";
    let denied = process.request("POST", "/weather.v1.Weather/Current", call);
    assert_eq!(denied.header("grpc-status"), Some("8"), "{denied:?}");
    // Writes and reads are counted apart.
    for status in [200, 200, 200, 429] {
        let written = process.request("POST", "/items/7", "x-api-key: acme\r\n");
        assert_eq!(written.status, status);
    }
    assert_eq!(items(process), 200);
}

#[test]
fn a_proxy_that_is_not_trusted_is_told_of_once() {
    let service = Service::start();
    for field in [
        "",
        "x-forwarded-for: 192.0.2.7\r\n",
        "forwarded: for=192.0.2.7\r\n",
    ] {
        service.process.request("GET", "/weather/Oslo", field);
    }
    let errors = service.process.errors();
    let warning = "127.0.0.1 sends x-forwarded-for and is not trusted";
    assert_eq!(errors.matches("is not trusted").count(), 1, "{errors}");
    assert!(errors.contains(warning), "{errors}");
}

#[test]
fn what_is_counted_is_there_for_prometheus() {
    let service = Service::start();
    assert_eq!(items(&service.process), 200);
    let metrics = service.process.request("GET", "/metrics", "").body;
    let counted = |line: &str| {
        line.starts_with("tollgate_requests_total{")
            && line.contains("rule=\"items-per-key\"")
            && line.ends_with(" 1")
    };
    assert!(metrics.lines().any(counted), "{metrics}");
    // Histograms have buckets, and are no summaries.
    assert!(metrics.contains("_bucket{"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_rules_and_limits_through_redis() {
    let (_redis, address) = redis();
    let secret = "07".repeat(32);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    let limits = limits();
    fs::write(&path, &limits).expect("written");
    let settings = [
        ("REDIS_URL", &*address),
        ("TOLLGATE_SECRET", &secret),
        ("LIMITS", path.to_str().expect("a path")),
    ];
    let [one, other] = [(); 2].map(|()| Process::start("rules", folder.path(), &settings));
    for process in [&one, &other, &one, &other, &one] {
        assert_eq!(items(process), 200);
    }
    assert_eq!((items(&one), items(&other)), (429, 429));

    // The file is edited once.
    let raised = limits.replace("fixed_window 5/d", "fixed_window 7/d");
    fs::write(&path, &raised).expect("written");
    for process in [&one, &other] {
        process.until("/rules", |status| status.contains("revision 2"));
    }
    assert_eq!((items(&one), items(&other)), (200, 200));
    assert_eq!((items(&one), items(&other)), (429, 429));

    // A mistake is not pushed, and an operator's switch reaches both.
    fs::write(&path, raised.replace("7/d", "7/dd")).expect("written");
    let secret = Secret::from_bytes([7; 32]).expect("32 bytes");
    let operator = RedisRules::new(&address, "shop", &secret).expect("an address");
    let alice = Author::new("alice");
    let off = OperatorEntry::switch("items-per-key", "off");
    operator
        .set(&[off], &Bindings::new(), &alice)
        .await
        .expect("pushed");
    for process in [&one, &other] {
        process.until("/rules", |status| status.contains("revision 3"));
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
    let section = include_str!("../../README.md").split_once("\n## rules\n");
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
            process.until("/rules", |status| match edits {
                1 => status.contains("revision 2,"),
                2 => status.contains("the latest one is rejected"),
                3 => !status.contains("the latest one is rejected"),
                4 => status.contains("revision 3,"),
                _ => status.contains("revision 4,"),
            });
        }
    }
    assert_eq!(edits, 5);
    // A mistake is told on standard error too: the example has no subscriber.
    let errors = process.errors();
    for words in [
        "tollgate: the rules are rejected",
        "limits.toml:7:25",
        "did you mean",
    ] {
        assert!(errors.contains(words), "{errors}");
    }
}
