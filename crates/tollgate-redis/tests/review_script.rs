//! The script with lots behind a state, where it is asked for more than the state machines are.

mod support;

#[allow(dead_code, reason = "of the calls to a server some are needed")]
#[path = "keys/server.rs"]
mod server;

use std::time::Duration;

use tollgate_core::{Check, Fingerprint, Quota, Rule, RuleSet, SECOND};
use tollgate_prefilter::{Ask, LeaseTerms, Lot};
use tollgate_redis::{
    call::Call,
    encode::Encoder,
    keyspace::{Keyspace, Partition},
};

use crate::server::Server;

/// A rule on a server, by a clock of the test.
struct Subject {
    server: Server,
    rules: RuleSet,
    encoder: Encoder,
    terms: LeaseTerms,
    now: u64,
}

fn check() -> Check {
    Check::new(0, Fingerprint::from_bits(7), 1)
}

impl Subject {
    fn new(quota: Quota, reserve_permille: u16) -> Self {
        let rules = RuleSet::new([Rule::new("rule", quota)]).expect("a valid rule");
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        Self {
            server: Server::start(),
            encoder: Encoder::new(&rules, keyspace).expect("no plans"),
            rules,
            terms: LeaseTerms::new(&quota, reserve_permille).expect("it is lent"),
            // The start of a generation.
            now: 1_700_000_000_000_000,
        }
    }

    fn call(&self) -> Call {
        Call::at(self.now, Duration::from_secs(10_000_000_000))
    }

    fn left(&mut self) -> u64 {
        let (mut call, checks) = (self.call(), [check().with_cost(0)]);
        let asked = call.peek(&self.encoder, &checks).expect("there is room");
        let reply = self.server.send(&call);
        let decision = reply.decision(&asked, &checks, &self.rules);
        decision.verdicts()[0].remaining()
    }

    fn lend(&mut self, parking: u64) -> Option<Lot> {
        let (mut call, checks) = (self.call(), [check()]);
        let _asked = call.acquire(&self.encoder, &checks).expect("there is room");
        let ask = Ask {
            parking,
            ..Ask::default()
        };
        let place = call.lend(&self.encoder, &check(), &ask, &self.terms);
        self.server.send(&call).lot(place.expect("there is room"))?
    }
}

#[test]
fn more_units_than_a_number_of_32_bits_holds_are_not_parked() {
    // A hundred gigabytes at once, one a second.
    let quota = Quota::token_bucket(100_000_000_000).refill(1_000_000_000, SECOND);
    let mut subject = Subject::new(quota, 500);
    let mut parked = 0;
    for _ in 0..40 {
        parked += subject.lend(u64::MAX >> 14).map_or(0, |lot| lot.units());
    }
    // All that was taken is back, but for what is parked.
    subject.now += 9_900_000;
    let left = subject.left();
    assert!(left + parked <= 100_000_000_000, "{left} {parked}");
}
