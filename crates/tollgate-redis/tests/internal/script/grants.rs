//! The script with leases behind a state, where it is asked for more than the state machines are.

use std::time::Duration;

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{call::ScriptCall, encoder::Encoder, reply::ScriptReply},
};
use tollgate_core::{Check, Quota, Rule, RuleSet, SECOND, store::Fingerprint};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};

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
    fn new(quota: Quota, share_permille: u16) -> Self {
        let rules = RuleSet::new([Rule::new("rule", quota)]).expect("a valid rule");
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        Self {
            server: Server::start(),
            encoder: Encoder::new(&rules, keyspace).expect("no plans"),
            rules,
            terms: LeaseTerms::new(&quota, share_permille).expect("it is granted"),
            // The start of a generation.
            now: 1_700_000_000_000_000,
        }
    }

    fn call(&self) -> ScriptCall {
        ScriptCall::at(self.now, Duration::from_secs(10_000_000_000))
    }

    /// Units that are left, or `None` if so many do not fit.
    fn take(&mut self, units: u64) -> Option<u64> {
        let (mut call, checks) = (self.call(), [check().with_cost(units)]);
        let layout = call.acquire(&self.encoder, &checks).expect("there is room");
        let decision = self
            .server
            .send(&call)
            .decision(&layout, &checks, &self.rules);
        let left = decision.verdicts()[0].remaining();
        decision.is_allowed().then_some(left)
    }

    fn grant(&mut self, tracked: u64) -> Option<Grant> {
        let (mut call, checks) = (self.call(), [check()]);
        let _asked = call.acquire(&self.encoder, &checks).expect("there is room");
        let query = LeaseQuery {
            tracked,
            ..LeaseQuery::default()
        };
        let place = call.grant(&self.encoder, &check(), &query, &self.terms);
        self.send(&call).grant(place.expect("there is room"))?
    }

    fn close(&mut self, grant: Grant, left: u64) {
        let Grant::Tracked {
            units, generation, ..
        } = grant
        else {
            panic!("{grant:?} is not on lease");
        };
        let returned = ReturnedLease {
            size: units,
            left,
            generation,
        };
        let mut call = self.call();
        let place = call.close(&self.encoder, &check(), returned);
        assert!(place.is_some());
        self.send(&call);
    }

    fn send(&mut self, call: &ScriptCall) -> ScriptReply {
        self.server.send(call)
    }
}

#[test]
fn no_lease_is_granted_if_another_check_denies_the_request() {
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
        let query = LeaseQuery {
            tracked: 40,
            scheduled: 40,
            ..LeaseQuery::default()
        };
        let granted = |subject: &mut Subject, units| {
            let checks = [check().with_cost(units), Check::new(1, check().key(), 1)];
            let mut call = subject.call();
            let layout = call.acquire(&subject.encoder, &checks);
            let place = call.grant(&subject.encoder, &check(), &query, &subject.terms);
            let reply = subject.send(&call);
            let layout = layout.expect("there is room");
            let decision = reply.decision(&layout, &checks, &subject.rules);
            let grant = reply.grant(place.expect("there is room"));
            (decision.is_allowed(), grant.expect("it is ours"))
        };
        // The first uses up the strict rule; then it denies, or the first does, or both.
        let (is_allowed, grant) = granted(&mut subject, 1);
        assert!(is_allowed && grant.is_some(), "{quota:?}");
        let left = subject.take(0);
        for units in [1, 101, 1] {
            assert_eq!(granted(&mut subject, units), (false, None), "{quota:?}");
        }
        assert_eq!(subject.take(0), left, "{quota:?}");
    }
}

#[test]
fn leases_of_a_generation_far_ahead_are_known_for_two_lives_from_now_and_no_longer() {
    // Full in a tenth of a second, as far as nothing is out.
    for (generations_back, is_known, into) in [
        (3, true, 0),
        (4, false, 0),
        (1_000_000, false, 0),
        (3, true, 6_000_000),
        (4, false, 6_000_000),
    ] {
        let mut subject = Subject::new(Quota::token_bucket(100).refill(1_000, SECOND), 800);
        subject.now += into;
        let grant = subject.grant(20).expect("it is granted");
        assert_eq!(grant.units(), 20);
        subject.now -= generations_back * 10_000_000;
        // Denied, and the state is repaired.
        assert_eq!(subject.take(1), None);
        subject.now += 9_000_000;
        assert_eq!(subject.take(0), Some(80), "{generations_back}");
        subject.now += 12_000_000;
        let left = if is_known { 80 } else { 100 };
        assert_eq!(subject.take(0), Some(left), "{generations_back}");
    }
}

#[test]
fn a_lease_of_a_generation_to_come_gives_nothing_back() {
    for quota in [
        Quota::token_bucket(100).refill(1, SECOND),
        Quota::fixed_window(100, 60 * SECOND),
        Quota::sliding_window(100, 60 * SECOND),
    ] {
        let mut subject = Subject::new(quota, 800);
        let grant = subject.grant(20).expect("it is granted");
        let Grant::Tracked {
            units, generation, ..
        } = grant
        else {
            panic!("{grant:?} is not on lease");
        };
        let left = subject.take(0);
        for ahead in [1, 2, 1 << 40] {
            let generation = generation + ahead;
            subject.close(Grant::Tracked { units, generation }, units);
            assert_eq!(subject.take(0), left, "{quota:?}, {ahead}");
        }
        subject.close(grant, units);
        assert_eq!(subject.take(0), left.map(|left| left + units));
    }
}
