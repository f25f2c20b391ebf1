//! Many processes: real ones, which the test binary plays.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_rules::{Bindings, Format, LiveRules, OperatorEntry, RuleText, redis::RedisRules};
use tollgate_test_servers::redis_server::RedisServer;

use crate::{alice, limits, push, says, secret, started, until};

/// The environment variable with the address that a process follows.
const FOLLOWED: &str = "TOLLGATE_TEST_FOLLOWED";
/// Marks what a process says among the lines of the test harness.
const SAYS: &str = "tollgate: ";
/// How long a change may take until the test gives up. It says nothing about how long it does take.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is promised: a push reaches half of the processes within this time. Who only looks takes seconds.
const PUSHED: Duration = Duration::from_secs(1);

/// A process that says each revision that it has in force.
struct Process {
    child: Child,
}

impl Process {
    fn start(
        number: usize,
        server: &RedisServer,
        says: &std::sync::mpsc::Sender<(usize, u64)>,
    ) -> Self {
        let program = env::current_exe().expect("the program of this test");
        let mut child = Command::new(program)
            .args(["a_process_plays_its_role", "--exact", "--nocapture"])
            .env(FOLLOWED, server.url())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program of this test runs again");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let says = says.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, revision)) = line.split_once(SAYS) {
                    let revision = revision.parse().expect("a revision");
                    // The test may be over.
                    let _ = says.send((number, revision));
                }
            }
        });
        Self { child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Follows the rules and says their revisions, if this process was started for that.
pub(crate) fn play() {
    let Ok(address) = env::var(FOLLOWED) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let redis = RedisRules::new(&address, "shop", &secret(7)).expect("an address");
        let rules = LiveRules::follow(redis.source().named("web"), Bindings::new()).await;
        let rules = rules.expect("there are rules");
        let mut updates = rules.subscribe();
        let mut said = 0;
        loop {
            let revision = rules.status().revision;
            if revision != said {
                writeln!(std::io::stdout(), "{SAYS}{revision}").expect("somebody reads");
                said = revision;
            }
            updates.next().await;
        }
    });
}

/// Waits until all processes have said this revision. Returns how long each took.
fn arrivals(says: &Receiver<(usize, u64)>, processes: usize, revision: u64) -> Vec<Duration> {
    let begin = Instant::now();
    let mut took: Vec<Option<Duration>> = vec![None; processes];
    while took.iter().any(Option::is_none) {
        let left = PATIENCE.checked_sub(begin.elapsed());
        let left = left.unwrap_or_else(|| panic!("revision {revision} has arrived at {took:?}"));
        match says.recv_timeout(left) {
            Ok((number, said)) => {
                assert!(said <= revision, "nobody has pushed {said}");
                if said == revision {
                    took[number] = Some(begin.elapsed());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the processes have ended"),
        }
    }
    let mut took: Vec<Duration> = took.into_iter().flatten().collect();
    took.sort();
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_reaches_eight_processes_and_a_lost_publication_is_found_by_looking() {
    const PROCESSES: usize = 8;
    let (server, redis) = started("3/h").await;
    let (says, said) = channel();
    let processes: Vec<Process> = (0..PROCESSES)
        .map(|number| Process::start(number, &server, &says))
        .collect();
    arrivals(&said, PROCESSES, 1);

    let mut medians = Vec::new();
    for revision in 2..=6 {
        push(&redis, limits(&format!("{revision}/h"))).await;
        let took = arrivals(&said, PROCESSES, revision);
        medians.push(took[PROCESSES / 2]);
    }
    println!("a push reached {PROCESSES} processes: medians {medians:?}");
    // A busy machine has a calm moment in five.
    assert!(medians.iter().any(|it| *it < PUSHED), "{medians:?}");

    // It is not published: the document comes from another server, by hand.
    let elsewhere = RedisServer::start(&[]).await;
    let other = crate::redis(&elsewhere);
    for revision in 1..=7 {
        push(&other, limits(&format!("{}/min", revision + 1))).await;
    }
    let fields: Vec<String> = elsewhere.ask(&["HGETALL", "{shop}:rules"]);
    let mut copy = vec!["HSET", "{shop}:rules"];
    copy.extend(fields.iter().map(String::as_str));
    let _: i64 = server.ask(&copy);
    let took = arrivals(&said, PROCESSES, 7);
    println!("a lost publication was found by looking: {took:?}");

    // All of them have said so, and none lags.
    let begin = Instant::now();
    loop {
        let fleet = redis.fleet().await.expect("Redis is there");
        if (fleet.processes, fleet.lagging) == (PROCESSES as u64, 0) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{fleet}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(processes);
}

#[tokio::test]
async fn the_status_says_which_process_lags_since_when_and_why() {
    let (_server, redis) = started("3/h").await;
    let follow = async |name: &str, bindings: Bindings| {
        let source = redis.source().named(name);
        let rules = LiveRules::follow(source, bindings).await;
        rules.expect("there are rules")
    };
    let conditions = || Bindings::new().condition("beta", |_| true);
    let newer = follow("newer", conditions()).await;
    // A release that does not know the condition yet.
    let older = follow("older", Bindings::new()).await;
    let text =
        "version = 1\n[[rules]]\nname = 'api'\nlimit = '4/h'\nby = 'client_ip'\nwhen = 'beta'\n";
    let text = RuleText::named("limits.toml", text, Format::Toml);
    let pushed = redis.push(text, &conditions(), &alice()).await;
    pushed.expect("pushed");
    until("one has it", || newer.status().revision == 2).await;
    until("the other rejects it", || older.status().rejected == 1).await;
    assert_eq!(older.status().revision, 1);
    // Each of them knows.
    let known = || newer.status().fleet.expect("Redis knows of all");
    until("it is known", || {
        let fleet = known();
        fleet.lagging == 1 && fleet.lagging_processes[0].rejection.is_some()
    })
    .await;
    let fleet = known();
    assert_eq!((fleet.revision, fleet.processes), (2, 2));
    let lagging = &fleet.lagging_processes[0];
    assert!(lagging.name.starts_with("older-"), "{}", lagging.name);
    assert_eq!(lagging.revision, 1);
    assert!(lagging.lagging_for < PATIENCE);
    let words = fleet.to_string();
    says(&words, "1 of 2 processes lag; older-");
    says(&words, "has revision 1, behind for");
    let why = "unknown bound condition \"beta\"";
    says(&words, why);

    // A process that has ended is forgotten.
    drop(older);
    until("it is gone", || {
        (known().processes, known().lagging) == (1, 0)
    })
    .await;
}

#[tokio::test]
async fn processes_that_are_ahead_of_a_server_that_was_restored_are_counted_until_the_next_push() {
    let (server, redis) = started("3/h").await;
    let backup: Vec<String> = server.ask(&["HGETALL", "{shop}:rules"]);
    push(&redis, limits("4/h")).await;
    let rules = crate::follow(&redis).await;
    assert_eq!(rules.status().revision, 2);
    let fleet = async || redis.fleet().await.expect("Redis is there");
    let known = || rules.status().fleet.expect("Redis knows of all");
    until("it is heard", || known().processes == 1).await;
    assert_eq!((fleet().await.processes, fleet().await.ahead), (1, 0));

    let _: i64 = server.ask(&["DEL", "{shop}:rules"]);
    assert_eq!(fleet().await.ahead, 1, "of no rules at all");
    let mut restored = vec!["HSET", "{shop}:rules"];
    restored.extend(backup.iter().map(String::as_str));
    let _: i64 = server.ask(&restored);
    let found = fleet().await;
    assert_eq!((found.lagging, found.ahead), (0, 1));
    let words = "0 of 1 processes lag; 1 of 1 have a newer revision: push again";
    assert_eq!(found.to_string(), words);

    push(&redis, limits("5/h")).await;
    until("the push is in force", || rules.status().revision == 3).await;
    until("none is ahead", || {
        (known().revision, known().ahead) == (3, 0)
    })
    .await;
}

#[tokio::test]
async fn a_text_that_a_process_puts_in_force_itself_is_no_revision_that_redis_has_lost() {
    let (_server, redis) = started("3/h").await;
    let rules = crate::follow(&redis).await;
    let text = "version = 1\n[[rules]]\nname = 'api'\nlimit = '4/h'\nby = 'header:x-api-key'\n";
    for limit in ["5/h", "6/h", "7/h"] {
        let replaced = rules.handle(alice());
        replaced
            .replace(text.replace("4/h", limit), Format::Toml)
            .expect("valid");
    }
    assert_eq!(rules.status().revision, 4);
    // It tells what it has in force with a document that it rejects.
    let conditions = Bindings::new().condition("beta", |_| true);
    let text = RuleText::new(format!("{text}when = 'beta'\n"), Format::Toml);
    let pushed = redis.push(text, &conditions, &alice()).await;
    assert_eq!(pushed.expect("pushed"), 2);
    until("it lags", || {
        let fleet = rules.status().fleet.expect("Redis knows of all");
        let lagging = fleet.lagging_processes.first();
        (fleet.ahead, lagging.map(|it| it.revision)) == (0, Some(1))
    })
    .await;
    let halved = OperatorEntry::switch("*", "50%");
    let set = redis.set(&[halved], &conditions, &alice()).await;
    assert_eq!(set.expect("set"), 3);
}
