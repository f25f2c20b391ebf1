//! The example `gateway` over sockets: a process for itself, and two on one Redis with clients that hang up.

mod process;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    path::Path,
    process::Command,
    thread::{self, park_timeout},
    time::{Duration, Instant},
};

use process::{Answer, Process, redis};

const PAGE: &str = include_str!("../README.md");

fn gateway(settings: &[(&str, &str)]) -> Process {
    Process::start("gateway", Path::new("."), settings)
}

/// Asks the model to repeat the prompt; returns the connection.
fn asked(process: &Process, key: &str, prompt: &str, reasoning: bool) -> BufReader<TcpStream> {
    let words = prompt.split_whitespace().count();
    let body = format!(r#"{{"prompt":"{prompt}","max_tokens":{words},"reasoning":{reasoning}}}"#);
    let length = body.len();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(&process.address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    BufReader::new(stream)
}

/// The answer to the end of its stream.
fn completion(process: &Process, key: &str, prompt: &str, reasoning: bool) -> Answer {
    let mut answer = String::new();
    let mut stream = asked(process, key, prompt, reasoning);
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
    let process = gateway(&[]);
    let (_, section) = PAGE.split_once("\n## gateway\n").expect("a section");
    let (_, console) = section.split_once("\n```console\n").expect("commands");
    let (console, _) = console.split_once("\n```").expect("their end");
    let commands: Vec<_> = console.split("$ ").skip(1).collect();
    assert_eq!(commands.len(), 3);
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
fn a_tenant_is_limited_by_key_and_by_route_and_backends_see_no_secret() {
    let gateway = gateway(&[]);
    assert_eq!(gateway.send("GET", "/items"), 401);
    let items = |key: &str| gateway.request("GET", "/items", &format!("x-api-key: {key}\r\n"));
    for n in (0..30).rev() {
        let answer = items(["acme-1", "acme-2"][n % 2]);
        assert_eq!((answer.status, &*answer.body), (200, r#"["anvil","rope"]"#));
        let fields = answer.header("ratelimit").expect("the draft's");
        assert!(fields.contains(&format!(r#""items";r={n}"#)), "{fields}");
        let left = answer.header("x-ratelimit-remaining").map(str::parse);
        assert_eq!(left, Some(Ok(n)));
    }
    assert_eq!(items("acme-1").status, 429);
    assert_eq!(items("globex-1").status, 200);
}

#[test]
fn an_answer_costs_what_its_last_event_says_and_the_next_one_waits_for_what_it_owes() {
    let gateway = gateway(&[("TOKENS_A_MONTH", "100"), ("TOKEN_MS", "1")]);
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
fn the_model_is_read_on_when_a_client_hangs_up_and_a_fourth_stream_is_denied() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let path = log.path().to_str().expect("text");
    let settings = [("MODEL_LOG", path), ("TOKEN_MS", "100")];
    let gateway = gateway(&settings);
    let begun = || {
        let mut stream = asked(&gateway, "acme-1", "one two three four five", false);
        let mut line = String::new();
        while !line.contains("one") {
            line.clear();
            assert!(stream.read_line(&mut line).expect("text") > 0, "it ended");
        }
        stream
    };
    let streams = [begun(), begun(), begun()];
    assert_eq!(completion(&gateway, "acme-2", "one", false).status, 429);
    for stream in streams {
        stream.get_ref().shutdown(Shutdown::Both).expect("open");
    }
    let logged = until(|| Some(fs::read_to_string(path).expect("text")).filter(|it| it.len() > 20));
    assert_eq!(logged, "acme 10\n".repeat(3));
    // The slots are free again, and each of them has cost its ten.
    let after =
        until(|| Some(completion(&gateway, "acme-2", "one", false)).filter(|it| it.status == 200));
    assert_eq!(tokens_left(&after), 1_000 - 30 - 2);
}

#[test]
fn two_gateways_charge_what_their_models_have_streamed() {
    const CLIENTS: usize = 24;
    let (_redis, address) = redis();
    let log = tempfile::NamedTempFile::new().expect("a file");
    let path = log.path().to_str().expect("text");
    let settings = [
        ("REDIS_URL", &*address),
        ("MODEL_LOG", path),
        ("TOKENS_A_MONTH", "100000"),
        ("TOKEN_MS", "2"),
    ];
    let gateways = [gateway(&settings), gateway(&settings)];
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let gateways = &gateways;
            scope.spawn(move || {
                let prompt = vec!["word"; 1 + client].join(" ");
                until(|| {
                    let reasoning = client % 2 == 0;
                    let mut stream = asked(&gateways[client % 2], "acme-1", &prompt, reasoning);
                    let mut line = String::new();
                    stream.read_line(&mut line).expect("text");
                    // A third of them hang up at the first line.
                    if client % 3 != 0 {
                        stream.read_to_string(&mut line).expect("text");
                    }
                    line.contains(" 200 ").then_some(())
                });
            });
        }
    });
    let logged = until(|| {
        let logged = fs::read_to_string(path).expect("text");
        (logged.lines().count() == CLIENTS).then_some(logged)
    });
    let streamed = logged.lines().map(|line| {
        let (tenant, tokens) = line.split_once(' ').expect("a tenant");
        assert_eq!(tenant, "acme");
        tokens.parse::<u64>().expect("a number")
    });
    let streamed: u64 = streamed.sum();
    let mut asked = 0;
    // What is read on is settled a moment later than it is logged.
    until(|| {
        asked += 2;
        let answer = completion(&gateways[0], "acme-2", "one", false);
        (answer.status == 200 && tokens_left(&answer) == 100_000 - streamed - asked).then_some(())
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
