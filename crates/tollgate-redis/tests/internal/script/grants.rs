//! The script with leases behind a state, where it is asked for more than the state machines are, and what comes back of a quota that
//! another one has taken the place of.

use std::time::Duration;

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{args::ScriptCall, encoder::Encoder},
};
use tollgate_core::{Check, MINUTE, Quota, Rule, RuleSet, SECOND, store::Fingerprint};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};

use crate::internal_tests::keys::server::Server;

/// The start of an hour, and of a generation.
const NOW: u64 = 1_699_999_200_000_000;

const HOUR: Duration = Duration::from_secs(3_600);

/// A process, whose first rule is leased.
struct Process {
    rules: RuleSet,
    encoder: Encoder,
    terms: LeaseTerms,
}

fn check() -> Check {
    Check::new(0, Fingerprint::from_bits(7), 1)
}

fn call(now: u64) -> ScriptCall {
    ScriptCall::at(now, Duration::from_secs(10_000_000_000))
}

impl Process {
    fn new(quota: Quota, share_permille: u16) -> Self {
        Self::next_to(quota, share_permille, None)
    }

    fn next_to(quota: Quota, share_permille: u16, other: Option<Rule>) -> Self {
        let rules = [Rule::new("rule", quota)].into_iter().chain(other);
        let rules = RuleSet::new(rules).expect("valid rules");
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        Self {
            encoder: Encoder::new(&rules, keyspace).expect("no plans"),
            terms: LeaseTerms::new(&quota, share_permille).expect("it is granted"),
            rules,
        }
    }

    /// Units that are left, or `None` if so many do not fit.
    fn take(&self, server: &mut Server, now: u64, units: u64) -> Option<u64> {
        let (mut call, checks) = (call(now), [check().with_cost(units)]);
        let layout = call.acquire(&self.encoder, &checks).expect("there is room");
        let decision = server.send(&call).decision(&layout, &checks, &self.rules);
        let left = decision.verdicts()[0].remaining();
        decision.is_allowed().then_some(left)
    }

    /// Takes a unit, and a lease of so many.
    fn grant(&self, server: &mut Server, now: u64, tracked: u64) -> Lease {
        let (mut call, checks) = (call(now), [check()]);
        let _asked = call.acquire(&self.encoder, &checks).expect("there is room");
        let query = LeaseQuery {
            tracked,
            ..LeaseQuery::default()
        };
        let place = call.grant(&self.encoder, &check(), &query, &self.terms);
        let grant = server.send(&call).grant(place.expect("there is room"));
        match grant {
            Ok(Some(Grant::Tracked {
                units, generation, ..
            })) => Lease { units, generation },
            other => panic!("{other:?} is not on lease"),
        }
    }

    fn close(&self, server: &mut Server, now: u64, lease: Lease, left: u64) {
        let returned = ReturnedLease {
            size: lease.units,
            left,
            generation: lease.generation,
        };
        let mut call = call(now);
        let place = call.close(&self.encoder, &check(), returned);
        assert!(place.is_some());
        server.send(&call);
    }

    fn report(&self, server: &mut Server, now: u64, units: u64) {
        let mut call = call(now);
        let place = call.debit(&self.encoder, &check().with_cost(units));
        assert!(place.is_some());
        server.send(&call);
    }
}

#[derive(Clone, Copy)]
struct Lease {
    units: u64,
    generation: u64,
}

#[test]
fn no_lease_is_granted_if_another_check_denies_the_request() {
    for quota in [
        Quota::gcra(100, SECOND),
        Quota::fixed_window(100, SECOND),
        Quota::sliding_window(100, SECOND),
    ] {
        let mut server = Server::start();
        let strict = Rule::new("strict", Quota::gcra(1, SECOND));
        let process = Process::next_to(quota, 500, Some(strict));
        let query = LeaseQuery {
            tracked: 40,
            scheduled: 40,
            ..LeaseQuery::default()
        };
        let granted = |server: &mut Server, units| {
            let checks = [check().with_cost(units), Check::new(1, check().key(), 1)];
            let mut call = call(NOW);
            let layout = call.acquire(&process.encoder, &checks);
            let place = call.grant(&process.encoder, &check(), &query, &process.terms);
            let reply = server.send(&call);
            let layout = layout.expect("there is room");
            let decision = reply.decision(&layout, &checks, &process.rules);
            let grant = reply.grant(place.expect("there is room"));
            (decision.is_allowed(), grant.expect("it is ours"))
        };
        // The first uses up the strict rule; then it denies, or the first does, or both.
        let (is_allowed, grant) = granted(&mut server, 1);
        assert!(is_allowed && grant.is_some(), "{quota:?}");
        let left = process.take(&mut server, NOW, 0);
        for units in [1, 101, 1] {
            assert_eq!(granted(&mut server, units), (false, None), "{quota:?}");
        }
        assert_eq!(process.take(&mut server, NOW, 0), left, "{quota:?}");
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
        let mut server = Server::start();
        let process = Process::new(Quota::token_bucket(100).refill(1_000, SECOND), 800);
        let mut now = NOW + into;
        assert_eq!(process.grant(&mut server, now, 20).units, 20);
        now -= generations_back * 10_000_000;
        // Denied, and the state is repaired.
        assert_eq!(process.take(&mut server, now, 1), None);
        now += 9_000_000;
        let left = process.take(&mut server, now, 0);
        assert_eq!(left, Some(80), "{generations_back}");
        now += 12_000_000;
        let left = if is_known { 80 } else { 100 };
        let found = process.take(&mut server, now, 0);
        assert_eq!(found, Some(left), "{generations_back}");
    }
}

#[test]
fn a_lease_of_a_generation_to_come_gives_nothing_back() {
    for quota in [
        Quota::token_bucket(100).refill(1, SECOND),
        Quota::fixed_window(100, 60 * SECOND),
        Quota::sliding_window(100, 60 * SECOND),
    ] {
        let (mut server, process) = (Server::start(), Process::new(quota, 800));
        let lease = process.grant(&mut server, NOW, 20);
        let left = process.take(&mut server, NOW, 0);
        for ahead in [1, 2, 1 << 40] {
            let to_come = Lease {
                generation: lease.generation + ahead,
                ..lease
            };
            process.close(&mut server, NOW, to_come, lease.units);
            let found = process.take(&mut server, NOW, 0);
            assert_eq!(found, left, "{quota:?}, {ahead}");
        }
        process.close(&mut server, NOW, lease, lease.units);
        let found = process.take(&mut server, NOW, 0);
        assert_eq!(found, left.map(|left| left + lease.units));
    }
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
fn what_an_old_quota_has_granted_and_counted_comes_back_to_the_one_in_force() {
    for (old, new) in replaced() {
        let mut server = Server::start();
        let (before, after) = (Process::new(old, 500), Process::new(new, 500));
        let lease = before.grant(&mut server, NOW, 20);
        // The state is the new quota's from now on; it counts the lease as used.
        let left = after.take(&mut server, NOW, 2);
        assert_eq!(left, Some(new.limit() - 1 - lease.units - 2));
        // Once.
        for _ in 0..2 {
            before.close(&mut server, NOW, lease, lease.units - 5);
            let left = after.take(&mut server, NOW, 0);
            assert_eq!(left, Some(new.limit() - 8), "{old:?} to {new:?}");
        }
        before.report(&mut server, NOW, 30);
        let left = after.take(&mut server, NOW, 0);
        assert_eq!(left, Some(new.limit() - 38), "{old:?} to {new:?}");
    }
}
