//! The script with lots behind a state, where it is asked for more than the state machines are.

use std::time::Duration;

use crate::{
    call::Call,
    encode::Encoder,
    keyspace::{Keyspace, Partition},
    reply::Reply,
};
use tollgate_core::{
    Check, Fingerprint, Holding, Quota, Rule, RuleSet, SECOND, Settlement, Source, algorithm::Taken,
};
use tollgate_prefilter::{Ask, Closed, LeaseTerms, Lot};

use crate::internal_tests::keys::server::Server;

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

#[test]
fn nothing_is_lent_beside_a_request_that_another_of_its_checks_denies() {
    for quota in [
        Quota::gcra(100, SECOND),
        Quota::fixed_window(100, SECOND),
        Quota::sliding_window(100, SECOND),
    ] {
        let mut subject = Subject::new(quota, 500);
        let strict = Rule::new("strict", Quota::gcra(1, SECOND));
        subject.rules = RuleSet::new([Rule::new("rule", quota), strict]).expect("valid rules");
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        subject.encoder = Encoder::new(&subject.rules, keyspace).expect("no plans");
        let ask = Ask {
            parking: 40,
            segment: 40,
            ..Ask::default()
        };
        let lent = |subject: &mut Subject, units| {
            let checks = [check().with_cost(units), Check::new(1, check().key(), 1)];
            let mut call = subject.call();
            let asked = call.acquire(&subject.encoder, &checks);
            let place = call.lend(&subject.encoder, &check(), &ask, &subject.terms);
            let reply = subject.send(&call);
            let asked = asked.expect("there is room");
            let decision = reply.decision(&asked, &checks, &subject.rules);
            let lot = reply.lot(place.expect("there is room"));
            (decision.is_allowed(), lot.expect("it is ours"))
        };
        // The first uses up the strict rule; then it denies, or the first does, or both.
        let (is_allowed, lot) = lent(&mut subject, 1);
        assert!(is_allowed && lot.is_some(), "{quota:?}");
        let (left, _) = subject.take(0);
        for units in [1, 101, 1] {
            assert_eq!(lent(&mut subject, units), (false, None), "{quota:?}");
        }
        assert_eq!(subject.take(0).0, left, "{quota:?}");
    }
}

#[test]
fn lots_of_a_generation_far_ahead_are_known_for_two_lives_from_now_and_no_longer() {
    // Full in a tenth of a second, as far as nothing is out.
    for (generations_back, is_known) in [(3, true), (4, false), (1_000_000, false)] {
        let mut subject = Subject::new(Quota::token_bucket(100).refill(1_000, SECOND), 800);
        let lot = subject.lend(20).expect("it is lent");
        assert_eq!(lot.units(), 20);
        subject.now -= generations_back * 10_000_000;
        // Denied, and the state is repaired.
        assert_eq!(subject.take(1).0, None);
        subject.now += 9_000_000;
        assert_eq!(subject.take(0).0, Some(80), "{generations_back}");
        subject.now += 12_000_000;
        let left = if is_known { 80 } else { 100 };
        assert_eq!(subject.take(0).0, Some(left), "{generations_back}");
    }
}

#[test]
fn a_lot_of_a_generation_to_come_gives_nothing_back() {
    for quota in [
        Quota::token_bucket(100).refill(1, SECOND),
        Quota::fixed_window(100, 60 * SECOND),
        Quota::sliding_window(100, 60 * SECOND),
    ] {
        let mut subject = Subject::new(quota, 800);
        let lot = subject.lend(20).expect("it is lent");
        let Lot::Parking { units, generation } = lot else {
            panic!("{lot:?} is not parked");
        };
        let (left, _) = subject.take(0);
        for ahead in [1, 2, 1 << 40] {
            let generation = generation + ahead;
            subject.close(Lot::Parking { units, generation }, units);
            assert_eq!(subject.take(0).0, left, "{quota:?}, {ahead}");
        }
        subject.close(lot, units);
        assert_eq!(subject.take(0).0, left.map(|left| left + units));
    }
}

#[test]
fn more_units_of_a_window_come_back_than_a_lot_had_and_those_of_the_one_before_where_they_weigh() {
    for (quota, before) in [
        (Quota::fixed_window(100, SECOND), 0),
        (Quota::sliding_window(100, SECOND), 4),
    ] {
        let mut subject = Subject::new(quota, 800);
        let lots = [20, 15].map(|units| subject.lend(units).expect("it is lent"));
        assert_eq!(subject.take(0).0, Some(100 - 2 - 20 - 15));
        subject.close(lots[0], 0);
        assert_eq!(subject.take(0).0, Some(63));
        // Eleven of the first come back with the other.
        subject.close(lots[1], 15 + 11);
        assert_eq!(subject.take(0).0, Some(89));
        // It is not known any more.
        subject.close(lots[1], 15);
        assert_eq!(subject.take(0).0, Some(89));
        let lot = subject.lend(5).expect("it is lent");
        subject.now += 1_000_000;
        let (left, _) = subject.take(0);
        assert!(matches!(lot, Lot::Parking { units: 5, .. }));
        subject.close(lot, 4);
        assert_eq!(subject.take(0).0, left.map(|left| left + before));
        // Nor is it after another window.
        subject.now += 1_000_000;
        subject.take(1);
        subject.close(lot, 1);
        assert_eq!(subject.take(0).0, Some(99));
    }
}
