//! What comes back of a quota that another one has taken the place of.

use std::time::Duration;

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{call::ScriptCall, encoder::Encoder, reply::ScriptReply},
};
use tollgate_core::{Check, Quota, Rule, RuleSet, store::Fingerprint};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};

use crate::internal_tests::keys::server::Server;

/// The start of an hour.
const NOW: u64 = 1_699_999_200_000_000;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A process with one rule.
struct Process {
    rules: RuleSet,
    encoder: Encoder,
    terms: LeaseTerms,
}

impl Process {
    fn new(quota: Quota) -> Self {
        let rules = RuleSet::new([Rule::new("rule", quota)]).expect("a valid rule");
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        Self {
            encoder: Encoder::new(&rules, keyspace).expect("no plans"),
            terms: LeaseTerms::new(&quota, 500).expect("it is granted"),
            rules,
        }
    }

    fn check() -> Check {
        Check::new(0, Fingerprint::from_bits(7), 0)
    }

    fn take(&self, server: &mut Server, now: u64, cost: u64) -> u64 {
        let (mut call, checks) = (call(now), [Self::check().with_cost(cost)]);
        let layout = call.acquire(&self.encoder, &checks).expect("there is room");
        let decision = server.send(&call).decision(&layout, &checks, &self.rules);
        assert!(decision.is_allowed());
        decision.verdicts()[0].remaining()
    }

    fn left(&self, server: &mut Server, now: u64) -> u64 {
        self.take(server, now, 0)
    }

    /// Takes a unit, and a lease.
    fn grant(&self, server: &mut Server, now: u64) -> (u64, u64) {
        let (mut call, checks) = (call(now), [Self::check().with_cost(1)]);
        let layout = call.acquire(&self.encoder, &checks);
        let query = LeaseQuery {
            tracked: 20,
            ..LeaseQuery::default()
        };
        let place = call.grant(&self.encoder, &checks[0], &query, &self.terms);
        assert!(layout.is_some());
        let grant = server.send(&call).grant(place.expect("there is room"));
        match grant.flatten() {
            Some(Grant::Tracked {
                units, generation, ..
            }) => (units, generation),
            other => panic!("{other:?} is not on lease"),
        }
    }

    fn close(&self, server: &mut Server, now: u64, (size, generation): (u64, u64), left: u64) {
        let mut call = call(now);
        let returned = ReturnedLease {
            size,
            left,
            generation,
        };
        assert!(
            call.close(&self.encoder, &Self::check(), returned)
                .is_some()
        );
        server.send(&call);
    }

    fn report(&self, server: &mut Server, now: u64, units: u64) -> ScriptReply {
        let mut call = call(now);
        let check = Self::check().with_cost(units);
        assert!(call.debit(&self.encoder, &check).is_some());
        server.send(&call)
    }
}

fn call(now: u64) -> ScriptCall {
    ScriptCall::at(now, Duration::from_secs(10_000_000_000))
}

/// Each kind that is granted, with another limit, and windows with another length.
fn replaced() -> Vec<(Quota, Quota)> {
    vec![
        (Quota::gcra(100, HOUR), Quota::gcra(1_000, HOUR)),
        (Quota::gcra(1_000, HOUR), Quota::gcra(100, HOUR)),
        (
            Quota::fixed_window(100, HOUR),
            Quota::fixed_window(1_000, HOUR),
        ),
        (
            Quota::fixed_window(1_000, HOUR),
            Quota::fixed_window(100, HOUR),
        ),
        (
            Quota::sliding_window(100, HOUR),
            Quota::sliding_window(1_000, HOUR),
        ),
        (
            Quota::fixed_window(100, MINUTE),
            Quota::fixed_window(1_000, HOUR),
        ),
        (
            Quota::fixed_window(1_000, HOUR),
            Quota::fixed_window(100, MINUTE),
        ),
        (
            Quota::sliding_window(100, MINUTE),
            Quota::sliding_window(1_000, HOUR),
        ),
    ]
}

#[test]
fn a_lease_that_the_quota_before_has_granted_comes_back_to_the_one_in_force() {
    for (old, new) in replaced() {
        let mut server = Server::start();
        let (before, after) = (Process::new(old), Process::new(new));
        let grant = before.grant(&mut server, NOW);
        // The state is the new quota's from now on; it counts the lease as used.
        assert_eq!(
            after.take(&mut server, NOW, 2),
            new.limit() - 1 - grant.0 - 2
        );
        before.close(&mut server, NOW, grant, grant.0 - 5);
        let text = format!("{old:?} to {new:?}");
        assert_eq!(
            after.left(&mut server, NOW),
            new.limit() - 1 - 5 - 2,
            "{text}"
        );
        // Once.
        before.close(&mut server, NOW, grant, grant.0 - 5);
        assert_eq!(
            after.left(&mut server, NOW),
            new.limit() - 1 - 5 - 2,
            "{text}"
        );
    }
}

#[test]
fn local_usage_under_the_old_quota_is_reported_to_the_one_in_force() {
    for (old, new) in replaced() {
        let mut server = Server::start();
        let (before, after) = (Process::new(old), Process::new(new));
        before.take(&mut server, NOW, 1);
        after.take(&mut server, NOW, 2);
        before.report(&mut server, NOW, 30);
        let text = format!("{old:?} to {new:?}");
        assert_eq!(after.left(&mut server, NOW), new.limit() - 33, "{text}");
    }
}
