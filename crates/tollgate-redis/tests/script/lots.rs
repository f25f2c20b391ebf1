//! The script with lots behind a state, where it is asked for more than the state machines are.

use std::time::Duration;

use tollgate_core::{
    Check, Fingerprint, Holding, Quota, Rule, RuleSet, SECOND, Settlement, Source, algorithm::Taken,
};
use tollgate_prefilter::{Ask, Closed, LeaseTerms, Lot};
use tollgate_redis::{
    call::Call,
    encode::Encoder,
    keyspace::{Keyspace, Partition},
    reply::Reply,
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

    /// Units that are left, or `None` if so many do not fit; and when they were taken.
    fn take(&mut self, units: u64) -> (Option<u64>, Taken) {
        let (mut call, checks) = (self.call(), [check().with_cost(units)]);
        let asked = call.acquire(&self.encoder, &checks).expect("there is room");
        let decision = self
            .server
            .send(&call)
            .decision(&asked, &checks, &self.rules);
        let verdict = decision.verdicts()[0];
        let lasts = verdict.reset_after().as_micros() as u64;
        let taken = Taken {
            at: self.now,
            fresh_at: self.now + lasts,
        };
        (decision.is_allowed().then(|| verdict.remaining()), taken)
    }

    fn lend(&mut self, parking: u64) -> Option<Lot> {
        let (mut call, checks) = (self.call(), [check()]);
        let _asked = call.acquire(&self.encoder, &checks).expect("there is room");
        let ask = Ask {
            parking,
            ..Ask::default()
        };
        let place = call.lend(&self.encoder, &check(), &ask, &self.terms);
        self.send(&call).lot(place.expect("there is room"))?
    }

    fn close(&mut self, lot: Lot, left: u64) {
        let Lot::Parking { units, generation } = lot else {
            panic!("{lot:?} is not parked");
        };
        let closed = Closed {
            size: units,
            left,
            generation,
        };
        let mut call = self.call();
        let place = call.close(&self.encoder, &check(), closed);
        assert!(place.is_some());
        self.send(&call);
    }

    fn refund(&mut self, units: u64, taken: Taken) {
        let holding = Holding {
            check: check().with_cost(units),
            taken,
            source: Source::Store,
        };
        let mut call = self.call();
        assert!(call.settle(&self.encoder, &holding, Settlement::Cancel));
        self.send(&call);
    }

    fn send(&mut self, call: &Call) -> Reply {
        self.server.send(call)
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
    let (left, _) = subject.take(0);
    assert!(
        left.is_some_and(|left| left + parked <= 100_000_000_000),
        "{left:?} {parked}"
    );
}

#[test]
fn a_refund_gives_back_what_time_has_not_given_back_though_a_lot_was_out() {
    // A hundred at once, one a millisecond.
    let mut subject = Subject::new(Quota::token_bucket(100).refill(1_000, SECOND), 800);
    let lot = subject.lend(20).expect("it is lent");
    assert_eq!(lot.units(), 20);
    subject.now += 100_000;
    let (_, taken) = subject.take(20);
    // Had it all been asked for, the bucket would be full again by now.
    subject.now += 20_000;
    subject.close(lot, 0);
    subject.refund(20, taken);
    let (left, _) = subject.take(0);
    assert_eq!(left, Some(80), "the lot was spent just now");
}
