//! What comes back of a quota that another one has taken the place of.

use std::time::Duration;

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder, reply::Reply},
};
use tollgate_core::{Check, DAY, Quota, Rule, RuleSet, store::Fingerprint};
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
        let query = LeaseQuery::default().with_tracked(20);
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

    fn report(&self, server: &mut Server, now: u64, units: u64) -> Reply {
        let mut call = call(now);
        let check = Self::check().with_cost(units);
        assert!(call.debit(&self.encoder, &check).is_some());
        server.send(&call)
    }
}

fn call(now: u64) -> Call {
    Call::at(now, Duration::from_secs(10_000_000_000))
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
fn a_bucket_that_has_forgotten_what_was_used_gives_nothing_back_for_it() {
    let mut server = Server::start();
    let (before, after) = (
        Process::new(Quota::gcra(1_000, HOUR)),
        Process::new(Quota::gcra(30, HOUR)),
    );
    before.take(&mut server, NOW, 100);
    let grant = before.grant(&mut server, NOW);
    assert_eq!(after.left(&mut server, NOW), 0);
    // A denial leaves it as it is, and a unit that comes back makes it the small one's.
    after.report(&mut server, NOW, 1);
    before.close(&mut server, NOW, grant, 20);
    assert_eq!(after.left(&mut server, NOW), 0);
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

#[test]
fn a_denial_by_the_quota_that_wrote_the_state_grants_nothing_ahead() {
    let mut server = Server::start();
    // The old quota has twice the limit, and both count the same state.
    let old = Process::new(Quota::gcra(2_000, MINUTE));
    let new = Process::new(Quota::gcra(1_000, MINUTE));
    old.take(&mut server, NOW, 2_000);
    let mut granted = |process: &Process| {
        let (mut call, checks) = (call(NOW), [Process::check().with_cost(1)]);
        let layout = call.acquire(&process.encoder, &checks);
        let query = LeaseQuery::default().with_scheduled(20);
        let place = call.grant(&process.encoder, &checks[0], &query, &process.terms);
        let reply = server.send(&call);
        let layout = layout.expect("there is room");
        let decision = reply.decision(&layout, &checks, &process.rules);
        assert!(!decision.is_allowed());
        let grant = reply.grant(place.expect("there is room")).flatten();
        grant.map(|grant| grant.units())
    };
    assert_eq!(granted(&new), None);
    assert!(granted(&old).is_some_and(|units| units > 0));
}

#[test]
fn a_count_that_a_report_left_to_a_much_smaller_quota_is_weighed_to_the_unit() {
    let day = DAY.as_micros() as u64;
    let large = Process::new(Quota::sliding_window(1_000_000, DAY));
    let small = Process::new(Quota::sliding_window(60, DAY));
    let other = Process::new(Quota::sliding_window(4_000_000, 2 * DAY));
    let mut server = Server::start();
    // A prime, and overlaps whose products with it lie by a few units above a multiple of the window: a double would
    // round them down to it.
    let (prime, inverse) = (999_983, 79_485_117_647);
    for above in 1..8 {
        let start = (20_000 + above * 100) * day;
        large.take(&mut server, start, prime);
        small.report(&mut server, start + day, 1);
        let overlap = inverse * above % day;
        assert!(overlap * prime % day == above && overlap > day / 9);
        let weighs = (overlap * prime).div_ceil(day);
        let left = other.left(&mut server, start + 2 * day - overlap);
        assert_eq!(left, 4_000_000 - 1 - weighs, "{above}");
    }
}
