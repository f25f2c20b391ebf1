//! Processes of two formats on one server.

use std::time::Duration;

use redis::Value;
use tollgate_core::{
    Check, Decision, HOUR, Quota, Rule, RuleSet,
    algorithm::Taken,
    store::{Fingerprint, Receipt, Settlement},
};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    numbers::Numbers,
    redis_client::{Integers as _, RedisClient},
};

use crate::{
    Keys, Secret,
    keys::{
        format::Formats,
        keyspace::{Keyspace, Partition},
    },
    script::{call::Call, encoder::Encoder, reply::Reply, text},
};

/// In the middle of an hour, and of a minute.
const NOW: u64 = 1_700_000_123_456_789;
const MARGIN: Duration = Duration::from_secs(1_000_000_000);

/// Ten units an hour under every algorithm.
const QUOTAS: [Quota; 5] = [
    Quota::gcra(10, HOUR),
    Quota::fixed_window(10, HOUR),
    Quota::sliding_window(10, HOUR),
    Quota::sliding_log(10, HOUR),
    Quota::sliding_buckets(10, HOUR),
];

/// A process of one of two releases. The older one begins each state with a letter that the newer one has no use for.
struct Process {
    script: String,
    rules: RuleSet,
    encoder: Encoder,
}

impl Process {
    fn older(keys: Keys) -> Self {
        let access = "local call, try = redis.call, redis.pcall\n";
        assert!(text::TEXT.contains(access));
        let script = text::TEXT.replace(
            access,
            "local with = function(run)\n\
               return function(name, key, state, ...)\n\
                 if name == 'SET' then return run(name, key, 'x' .. state, ...) end\n\
                 if not key then return run(name) end\n\
                 local found = run(name, key)\n\
                 return type(found) == 'string' and string.sub(found, 2) or found\n\
               end\n\
             end\n\
             local call, try = with(redis.call), with(redis.pcall)\n",
        );
        let formats = Formats {
            written: 1,
            older: None,
        };
        Self::new(script, formats, keys)
    }

    fn newer(keys: Keys) -> Self {
        let converts = "local function converted(raw) return raw end\n";
        assert!(text::TEXT.contains(converts));
        let script = text::TEXT.replace(
            converts,
            "local function converted(raw) return sub(raw, 2) end\n",
        );
        let formats = Formats {
            written: 2,
            older: Some(1),
        };
        Self::new(script, formats, keys)
    }

    fn new(script: String, formats: Formats, keys: Keys) -> Self {
        let rules = (0..).zip(QUOTAS);
        let rules = rules.map(|(place, quota)| Rule::new(format!("rule-{place}"), quota));
        let rules = RuleSet::new(rules).expect("valid rules");
        let keyspace = Keyspace::new("tg", Partition::One).expect("letters");
        let keyspace = keyspace.with_keys(keys).with_formats(formats);
        Self {
            encoder: Encoder::new(&rules, keyspace).expect("few plans"),
            rules,
            script,
        }
    }

    fn check(&self, rule: u16, cost: u64) -> Check {
        let key = tollgate_core::Key::of(["client"]);
        Check::new(rule, self.encoder.fingerprint(rule, key.as_ref()), cost)
    }
}

struct Server {
    connection: RedisClient,
    _server: RedisServer,
}

impl Server {
    fn start() -> Self {
        let server = RedisServer::start(&[]);
        Self {
            connection: RedisClient::connect(server.address()),
            _server: server,
        }
    }

    fn send(&mut self, process: &Process, call: &Call) -> Vec<i64> {
        let count = call.keys().len().to_string();
        let head = [b"EVAL", process.script.as_bytes(), count.as_bytes()];
        let command = head.into_iter().chain(call.keys()).chain(call.args());
        self.connection.command(command).integers()
    }

    fn decide(&mut self, process: &Process, mut call: Call, checks: &[Check]) -> Decision {
        let layout = call.acquire(&process.encoder, checks);
        let layout = layout.expect("there is room");
        let reply = self.send(process, &call);
        let reply = Reply::new(call.checks(), reply).expect("a whole reply");
        reply.decision(&layout, checks, &process.rules)
    }

    /// Whether the units were there, and what is left.
    fn take(&mut self, process: &Process, rule: u16, cost: u64) -> (bool, u64) {
        let checks = [process.check(rule, cost)];
        let decision = self.decide(process, Call::at(NOW, MARGIN), &checks);
        let verdict = decision.verdicts()[0];
        (decision.is_allowed(), verdict.remaining())
    }

    fn left(&mut self, process: &Process, rule: u16) -> u64 {
        self.take(process, rule, 0).1
    }

    fn names(&mut self) -> Vec<String> {
        let Value::Array(names) = self.connection.say("KEYS *") else {
            panic!("KEYS answers a list");
        };
        let mut names: Vec<_> = names
            .into_iter()
            .map(|name| match name {
                Value::BulkString(name) => String::from_utf8_lossy(&name).into_owned(),
                other => panic!("{other:?} is no name"),
            })
            .collect();
        names.sort();
        names
    }
}

fn rules() -> impl Iterator<Item = u16> {
    0..QUOTAS.len() as u16
}

fn pair() -> (Server, Process, Process) {
    let older = Process::older(Keys::given());
    let newer = Process::newer(Keys::given());
    (Server::start(), older, newer)
}

#[test]
fn a_newer_process_counts_what_an_older_one_has_and_leaves_it_its_state() {
    let (mut server, older, newer) = pair();
    for rule in rules() {
        assert_eq!(server.take(&older, rule, 6), (true, 4));
        // A look, and a denial, leave it where it is.
        assert_eq!(server.left(&newer, rule), 4);
        assert_eq!(server.take(&newer, rule, 5), (false, 4));
        let before = server.names();
        assert!(before.iter().all(|name| name.ends_with('1')), "{before:?}");
        assert_eq!(server.take(&newer, rule, 1), (true, 3));
        let both = server.names();
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both[0].ends_with('1') && both[1].ends_with('2'));
        // From now on each counts alone.
        assert_eq!(server.take(&older, rule, 4), (true, 0));
        assert_eq!(server.left(&newer, rule), 3);
        assert_eq!(server.take(&older, rule, 1), (false, 0));
        assert_eq!(server.take(&newer, rule, 3), (true, 0));
        server.connection.say("FLUSHALL");
    }
}

#[test]
fn both_together_admit_no_more_than_the_limit_and_what_older_ones_admit_after_the_first_newer_one()
{
    let (mut server, older, newer) = pair();
    let mut numbers = Numbers(7);
    for rule in rules() {
        for _ in 0..40 {
            let (mut admitted, mut by_older_since) = (0, None);
            for _ in 0..30 {
                let is_newer = numbers.one_in(3);
                let process = if is_newer { &newer } else { &older };
                let cost = 1 + numbers.below(3);
                let (allowed, _) = server.take(process, rule, cost);
                if !allowed {
                    continue;
                }
                admitted += cost;
                match &mut by_older_since {
                    None if is_newer => by_older_since = Some(0),
                    Some(units) if !is_newer => *units += cost,
                    _ => {}
                }
            }
            let most = 10 + by_older_since.unwrap_or(0);
            assert!(admitted <= most, "{admitted} of {most}, rule {rule}");
            server.connection.say("FLUSHALL");
        }
    }
}

#[test]
fn a_state_that_is_converted_lives_until_it_is_fresh_by_the_servers_clock() {
    let (mut server, older, newer) = pair();
    for rule in rules() {
        let check = [older.check(rule, 6)];
        assert!(server.decide(&older, Call::new(), &check).is_allowed());
        let decision = server.decide(&newer, Call::new(), &[newer.check(rule, 1)]);
        // This test may run at the turn of an hour.
        assert!(decision.is_allowed() && decision.verdicts()[0].remaining() >= 3);
        let name = server.names().pop().expect("it was written");
        assert!(name.ends_with('2'), "{name}");
        let Value::Int(lives) = server.connection.say(&format!("PTTL {name}")) else {
            panic!("PTTL answers a number");
        };
        assert!(lives > 0, "{lives}");
        server.connection.say("FLUSHALL");
    }
}

#[test]
fn a_newer_process_gives_back_what_an_older_one_has_taken() {
    let (mut server, older, newer) = pair();
    for rule in rules() {
        let check = older.check(rule, 6);
        let decision = server.decide(&older, Call::at(NOW, Duration::ZERO), &[check]);
        let lasts = decision.verdicts()[0].reset_after().as_micros() as u64;
        let holding = Receipt::of_store(check, Taken::new(NOW, NOW + lasts));
        for (units, left) in [(2, 6), (4, 10)] {
            // Without a margin, so that nothing is kept that is fresh.
            let mut call = Call::at(NOW, Duration::ZERO);
            let how = Settlement::Refund(units);
            assert!(call.settle(&newer.encoder, &holding, how));
            assert_eq!(server.send(&newer, &call)[1], -1, "{rule}");
            assert_eq!(server.left(&newer, rule), left, "{rule}");
        }
        server.connection.say("FLUSHALL");
    }
}

#[test]
fn what_is_given_back_at_once_is_not_found_again_in_the_older_format() {
    let (mut server, older, newer) = pair();
    for rule in rules() {
        let check = older.check(rule, 6);
        let decision = server.decide(&older, Call::at(NOW, MARGIN), &[check]);
        let lasts = decision.verdicts()[0].reset_after().as_micros() as u64;
        let taken = Taken::new(NOW, NOW + lasts);
        let holding = Receipt::of_store(check, taken);
        let mut call = Call::at(NOW, Duration::ZERO);
        assert!(call.settle(&newer.encoder, &holding, Settlement::Cancel));
        server.send(&newer, &call);
        assert_eq!(server.left(&newer, rule), 10, "{rule}");
        assert_eq!(server.names(), [""; 0], "{rule}");
    }
}

#[test]
fn a_reset_by_a_newer_process_forgets_both_states() {
    let (mut server, older, newer) = pair();
    for rule in rules() {
        for by_newer in [0, 1] {
            assert_eq!(server.take(&older, rule, 6), (true, 4));
            server.take(&newer, rule, by_newer);
            let mut call = Call::at(NOW, MARGIN);
            assert!(call.reset(&newer.encoder, rule, newer.check(rule, 0).key()));
            server.send(&newer, &call);
            assert_eq!(server.names(), [""; 0], "{rule}");
            assert_eq!(server.left(&newer, rule), 10);
        }
    }
}

#[test]
fn formats_and_secrets_may_change_at_once() {
    let secret = |byte| Secret::from_bytes([byte; 32]).expect("32 bytes");
    let (old, new) = (secret(1), secret(2));
    let older = Process::older(Keys::hashed(old.clone()));
    let rotating = [
        Keys::hashed(old.clone()).next(new.clone()).expect("two"),
        Keys::hashed(new).previous(old).expect("two"),
    ];
    for keys in rotating {
        let mut server = Server::start();
        let newer = Process::newer(keys);
        for rule in rules() {
            assert_eq!(server.take(&older, rule, 6), (true, 4));
            assert_eq!(server.take(&newer, rule, 3), (true, 1));
            assert_eq!(server.take(&newer, rule, 1), (true, 0));
            assert_eq!(server.take(&newer, rule, 1), (false, 0));
        }
    }
}

#[test]
fn a_value_that_is_not_ours_in_the_older_format_fails_the_check_and_stays() {
    let (mut server, older, newer) = pair();
    for rule in rules() {
        server.take(&older, rule, 1);
        let name = server.names().remove(0);
        server.connection.say(&format!("DEL {name}"));
        for put in ["RPUSH", "SET"] {
            server.connection.say(&format!("{put} {name} theirs"));
            let check = [newer.check(rule, 1)];
            let decision = server.decide(&newer, Call::at(NOW, MARGIN), &check);
            assert_eq!(decision.outcome(), tollgate_core::Outcome::Failed);
            assert_eq!(server.names(), [name.as_str()]);
            server.connection.say(&format!("DEL {name}"));
        }
    }
}

#[test]
fn this_release_reads_no_older_format() {
    let rules = RuleSet::new([Rule::new("rule", QUOTAS[0])]).expect("a valid rule");
    let keyspace = Keyspace::new("tg", Partition::One).expect("letters");
    let encoder = Encoder::new(&rules, keyspace).expect("one rule");
    let mut call = Call::new();
    let check = Check::new(0, Fingerprint::from_bits(7), 1);
    assert!(call.acquire(&encoder, &[check]).is_some());
    // It would cost each new client a second read.
    assert_eq!(call.keys().len(), 1);
    assert_eq!(Formats::KNOWN.older, None);
}
