//! The example `gateway` over sockets: a process for itself, and two on one Redis and one ledger with clients that hang up.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    ops::ControlFlow,
    process::Command,
    thread::{self, park_timeout},
    time::{Duration, Instant},
};

use crate::process::{Answer, Process, redis};
use tempfile::{NamedTempFile, TempDir};
use tollgate_ledger::{Ledger, Period};
use tollgate_test_servers::postgres_server::PostgresServer;

const PAGE: &str = include_str!("../../README.md");

/// One with its ledger in this folder.
fn gateway(folder: &TempDir, settings: &[(&str, &str)]) -> Process {
    Process::start("gateway", folder.path(), settings)
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Asks the model to repeat the prompt; returns the connection.
fn asked(process: &Process, key: &str, prompt: &str, reasoning: bool) -> BufReader<TcpStream> {
    let words = prompt.split_whitespace().count();
    let body = format!(r#"{{"prompt":"{prompt}","max_tokens":{words},"reasoning":{reasoning}}}"#);
    posted(process, "/v1/completions", key, &body)
}

/// Sends this body; returns the connection.
fn posted(process: &Process, path: &str, key: &str, body: &str) -> BufReader<TcpStream> {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(&process.address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    BufReader::new(stream)
}

/// The answer to the end of its stream.
fn completion(process: &Process, key: &str, prompt: &str, reasoning: bool) -> Answer {
    read(asked(process, key, prompt, reasoning))
}

fn read(mut stream: BufReader<TcpStream>) -> Answer {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    Answer {
        status: head[9..12].parse().expect("a status"),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// What is left of the tokens, as the header fields of an answer say.
fn tokens_left(answer: &Answer) -> u64 {
    let fields = answer.header("ratelimit").expect("it says what is left");
    let (_, left) = fields.split_once(r#""tokens";r="#).expect("the tokens");
    let digits = left.split(|c: char| !c.is_ascii_digit()).next();
    digits.expect("a number").parse().expect("a number")
}

#[test]
fn the_gateway_answers_as_it_is_shown() {
    let folder = folder();
    let process = gateway(&folder, &[("OPERATOR_KEY", "sesame")]);
    let (_, section) = PAGE.split_once("\n## gateway\n").expect("a section");
    let (_, console) = section.split_once("\n```console\n").expect("commands");
    let (console, _) = console.split_once("\n```").expect("their end");
    // The first one starts it.
    let commands: Vec<_> = console.split("$ ").skip(2).collect();
    assert_eq!(commands.len(), 5);
    for command in commands {
        let (command, expected) = command.split_once('\n').expect("an answer");
        let here = command.replace("127.0.0.1:3000", &process.address);
        let output = Command::new("sh").args(["-c", &here]).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{command}: {output:?}");
        let printed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(
            printed.replace('\r', "").trim(),
            expected.trim(),
            "{command}"
        );
    }
}

#[test]
fn a_tenant_is_limited_by_key_and_by_route_in_memory_and_on_redis_and_backends_see_no_secret() {
    let (_redis, address) = redis();
    // On Redis, two share what a tenant may do.
    for settings in [&[][..], &[("REDIS_URL", &*address)]] {
        let folder = folder();
        let start = |_| gateway(&folder, settings);
        let gateways: Vec<_> = (0..=settings.len()).map(start).collect();
        let items = |gateway: &Process, key: &str| {
            gateway.request("GET", "/items", &format!("x-api-key: {key}\r\n"))
        };
        assert_eq!(gateways[0].send("GET", "/items"), 401);
        for n in (0..30_u64).rev() {
            let index = n as usize;
            let gateway = &gateways[index % gateways.len()];
            let answer = items(gateway, ["acme-1", "acme-2"][index % 3 % 2]);
            assert_eq!((answer.status, &*answer.body), (200, r#"["anvil","rope"]"#));
            let left = answer.header("x-ratelimit-remaining");
            let left: u64 = left.expect("GitHub's").parse().expect("a number");
            // A minute may end meanwhile, and what it had weighs less.
            assert!((n..30).contains(&left), "{n}: {answer:?}");
            let fields = answer.header("ratelimit").expect("the draft's");
            assert!(fields.contains(&format!(r#""items";r={left}"#)), "{fields}");
            assert!(fields.contains(r#""key";r="#), "{fields}");
        }
        for gateway in &gateways {
            let denied = until(|| Some(items(gateway, "acme-1")).filter(|it| it.status == 429));
            assert!(denied.body.contains("#quota-exceeded"), "{denied:?}");
            let fields = denied.header("ratelimit").expect("the draft's");
            assert!(fields.contains(r#""items";r=0"#), "{fields}");
            assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
            let retry_after = denied.header("retry-after").map(str::parse::<u32>);
            assert!(matches!(retry_after, Some(Ok(1..))), "{denied:?}");
            // Other routes and tenants go on.
            let statement = gateway.request("GET", "/statement", "x-api-key: acme-1\r\n");
            assert_eq!(statement.status, 200);
            assert_eq!(items(gateway, "globex-1").status, 200);
        }
    }
}

#[test]
fn an_answer_costs_what_its_last_event_says_and_the_next_one_waits_for_what_it_owes() {
    let folder = folder();
    let gateway = gateway(&folder, &[("TOKENS_A_MONTH", "100"), ("TOKEN_MS", "1")]);
    let ask = |prompt, reasoning| completion(&gateway, "acme-1", prompt, reasoning);
    let first = ask("one two three four", false);
    assert!(first.body.contains("three "), "{first:?}");
    assert!(first.body.contains(r#""total_tokens":8"#), "{first:?}");
    assert_eq!(tokens_left(&first), 92);
    // 4 + 4 + 12 of thoughts, which the estimate of 8 did not have.
    assert_eq!(tokens_left(&ask("one two three four", true)), 92 - 8);
    assert_eq!(tokens_left(&ask("one", false)), 80 - 8 - 2);
    // 70 are left, and 100 are charged: 30 are owed.
    let dear = vec!["word"; 20].join(" ");
    assert_eq!(ask(&dear, true).status, 200);
    let denied = ask("one", false);
    assert_eq!(denied.status, 429);
    assert!(denied.header("retry-after").is_some(), "{denied:?}");
    assert_eq!(completion(&gateway, "globex-1", "one", false).status, 200);
}

#[test]
fn a_fourth_stream_is_denied() {
    let folder = folder();
    let gateway = gateway(&folder, &[("TOKEN_MS", "60000")]);
    let _streams = [(); 3].map(|()| {
        let mut stream = asked(&gateway, "acme-1", "one two", false);
        stream.read_line(&mut String::new()).expect("text");
        stream
    });
    assert_eq!(completion(&gateway, "acme-2", "one", false).status, 429);
}

#[test]
fn the_model_is_read_on_when_a_client_hangs_up() {
    let (folder, log) = (folder(), NamedTempFile::new().expect("a file"));
    let path = log.path().to_str().expect("text");
    let gateway = gateway(&folder, &[("MODEL_LOG", path), ("TOKEN_MS", "100")]);
    for _ in 0..3 {
        let mut stream = asked(&gateway, "acme-1", "one two three four five", false);
        let mut line = String::new();
        while !line.contains("one") {
            line.clear();
            assert!(stream.read_line(&mut line).expect("text") > 0, "it ended");
        }
        // It has ended already where the machine is slow.
        let _ = stream.get_ref().shutdown(Shutdown::Both);
    }
    let logged = until(|| Some(fs::read_to_string(path).expect("text")).filter(|it| it.len() > 20));
    assert_eq!(logged, "acme 10\n".repeat(3));
    // The slots are free again, and each of them has cost its ten.
    let after =
        until(|| Some(completion(&gateway, "acme-2", "one", false)).filter(|it| it.status == 200));
    assert_eq!(tokens_left(&after), 1_000 - 30 - 2);
}

#[test]
fn an_answer_that_is_cut_off_costs_its_estimate() {
    let (folder, log) = (folder(), NamedTempFile::new().expect("a file"));
    let path = log.path().to_str().expect("text");
    let settings = [
        ("MODEL_LOG", path),
        ("TOKEN_MS", "60000"),
        ("READ_ON_MS", "1"),
    ];
    let gateway = gateway(&folder, &settings);
    let mut stream = asked(&gateway, "acme-1", "one two", false);
    stream.read_line(&mut String::new()).expect("text");
    drop(stream);
    let last = gateway.end();
    assert!(last.contains(",4,4,,,"), "{last}");
    assert_eq!(fs::read_to_string(path).expect("text"), "");
}

/// What is answered to an operator who adds tokens.
fn top_up(gateway: &Process, key: &str, tenant: &str) -> (u16, String) {
    let body = format!(r#"{{"tenant":"{tenant}","tokens":100000,"id":"invoice-1"}}"#);
    let answer = read(posted(gateway, "/top-ups", key, &body));
    (answer.status, answer.body)
}

#[test]
fn what_a_tenant_has_used_and_bought_outlives_the_process() {
    let folder = folder();
    let settings = [("OPERATOR_KEY", "sesame"), ("TOKENS_A_MONTH", "100")];
    let first = gateway(&folder, &settings);
    let ask = |gateway: &Process, prompt: &str| completion(gateway, "acme-1", prompt, false).status;
    assert_eq!(ask(&first, &["word"; 49].join(" ")), 200);
    assert_eq!(ask(&first, "one two"), 429);
    assert_eq!(top_up(&first, "acme-1", "acme").0, 401);
    assert_eq!(top_up(&first, "sesame", "nobody").0, 404);
    for _ in 0..2 {
        let bought = (200, "acme has 100000 tokens more\n".to_owned());
        assert_eq!(top_up(&first, "sesame", "acme"), bought);
    }
    assert_eq!(ask(&first, "one two"), 200);
    first.end();
    let second = gateway(&folder, &settings);
    assert_eq!(ask(&second, "one"), 200);
    assert_eq!(ask(&second, "one"), 200);
    let statement = second.request("GET", "/statement", "x-api-key: acme-2\r\n");
    let sum = |kind: &str| {
        let line = statement.body.lines().rfind(|line| line.contains(kind));
        line.and_then(|line| line.split(',').nth(6))
            .map(str::to_owned)
    };
    assert_eq!(sum("\"usage\"").as_deref(), Some("100"), "{statement:?}");
    assert_eq!(
        sum("\"credits\"").as_deref(),
        Some("99994"),
        "{statement:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_of_two_gateways_has_what_their_models_have_streamed() {
    let (folder, server) = (folder(), PostgresServer::start().await);
    let file = format!("sqlite:{}/ledger.db", folder.path().display());
    for database in [file, server.url()] {
        let (_redis, address) = redis();
        let log = NamedTempFile::new().expect("a file");
        let path = log.path().to_str().expect("text");
        let settings = [
            ("REDIS_URL", &*address),
            ("DATABASE_URL", &database),
            ("MODEL_LOG", path),
            ("OPERATOR_KEY", "sesame"),
            ("TOKENS_A_MONTH", "500"),
            ("TOKEN_MS", "2"),
        ];
        let gateways = [(); 2].map(|()| gateway(&folder, &settings));
        // Then the budget pays some of it, and what they have bought the rest.
        for tenant in ["acme", "globex"] {
            assert_eq!(top_up(&gateways[0], "sesame", tenant).0, 200);
        }
        thread::scope(|scope| {
            for client in 0..24 {
                let gateway = &gateways[client % 2];
                scope.spawn(move || (0..3).for_each(|_| be_client(gateway, client)));
            }
        });
        // Each reads on and is paid, and writes, before it ends.
        gateways.into_iter().for_each(|it| drop(it.end()));
        let mut streamed = BTreeMap::new();
        for line in fs::read_to_string(path).expect("text").lines() {
            let (tenant, tokens) = line.split_once(' ').expect("a tenant");
            *streamed.entry(tenant.to_owned()).or_default() +=
                tokens.parse::<i64>().expect("a number");
        }
        let mut written = BTreeMap::new();
        let ledger = Ledger::open(&database).await.expect("it is there");
        let usage = ledger.usage(None, Period::ALL, |usage| {
            assert!(usage.credits > 0, "{usage:?}");
            let sum = usage.units + usage.corrections + usage.credits;
            written.insert(usage.account.clone(), sum);
            ControlFlow::Continue(())
        });
        usage.await.expect("it answers");
        assert_eq!(written, streamed, "{database}");
        assert_eq!(written.len(), 2);
    }
}

/// Asks until there is a slot. Of four clients one hangs up before it is answered, one at the head, one at the first word.
fn be_client(gateway: &Process, client: usize) {
    let key = ["acme-1", "globex-1", "acme-2"][client % 3];
    let prompt = vec!["word"; 1 + client].join(" ");
    let (patience, reasoning) = (client % 4, client.is_multiple_of(5));
    until(|| {
        let mut stream = asked(gateway, key, &prompt, reasoning);
        let mut text = String::new();
        if patience > 0 {
            stream.read_line(&mut text).expect("text");
        }
        while patience > 1
            && !text.contains("word")
            && stream.read_line(&mut text).expect("text") > 0
        {}
        if patience > 2 {
            stream.read_to_string(&mut text).expect("text");
        }
        (patience == 0 || text.contains(" 200 ")).then_some(())
    });
}

/// What this finds, asked every few milliseconds.
fn until<T>(mut find: impl FnMut() -> Option<T>) -> T {
    #[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
    let begin = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it never holds");
        park_timeout(Duration::from_millis(20));
    }
}
