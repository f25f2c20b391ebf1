//! Tests of what stands between what a process may spend and what the store knows.

use std::{cell::Cell, sync::Arc, time::Duration};

use smallvec::{SmallVec, smallvec};
use tollgate_core::{
    Check, Consistency, Decision, Fingerprint, LeaseShare, MINUTE, Outcome, Quota, Retry, Rule,
    RuleSet, SECOND, Source, Tick, Verdict,
    algorithm::Assessment,
    store::{Receipt, Settlement},
};

use crate::{
    Begin, BoundRules, Done, Engine, EngineEvents, EngineOptions, FollowUp, Grant, GrantReply,
    IndexSet, LeaseEvent, LeaseReply, Next, NoReply, Query, Reply, ReportEvent, ReportReply,
    StoreRules,
};

const KEY: Fingerprint = key(7);

/// Fingerprints are evenly spread.
const fn key(number: u128) -> Fingerprint {
    Fingerprint::from_bits(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// The store's clock is this far ahead of the process's.
const AHEAD: Tick = 12_345_678;

/// The half of a round trip.
const WAY: Tick = 150;

const LEASED: Consistency = Consistency::Leased {
    share: LeaseShare::percent(10),
};

const EVENTUAL: Consistency = Consistency::Eventual {
    interval: Duration::from_millis(100),
    max_unreported: 10,
};

#[derive(Debug)]
struct Anywhere;

impl StoreRules for Anywhere {
    fn exact(&self, _: &Rule) -> Option<&'static str> {
        None
    }

    fn place(&self, _: &[Check], _: &Check) -> Option<Fingerprint> {
        None
    }
}

/// The states of each key lie in a place of their own.
#[derive(Debug)]
struct ByKey;

impl StoreRules for ByKey {
    fn exact(&self, _: &Rule) -> Option<&'static str> {
        None
    }

    fn place(&self, _: &[Check], check: &Check) -> Option<Fingerprint> {
        Some(check.key())
    }
}

#[derive(Debug)]
struct Uncounted;

impl EngineEvents for Uncounted {
    fn lease(&self, _: LeaseEvent) {}
    fn reports(&self, _: ReportEvent, _: usize) {}
    fn units_lost(&self, _: u64) {}
}

fn rule_set(rules: impl IntoIterator<Item = Rule>) -> Arc<RuleSet> {
    Arc::new(RuleSet::new(rules).expect("valid rules"))
}

struct Subject {
    engine: Engine,
    rules: BoundRules,
    now: Cell<Tick>,
}

impl Subject {
    fn new(quota: Quota, consistency: Consistency) -> Self {
        Self::of([Rule::new("rule", quota).consistency(consistency)])
    }

    fn of(rules: impl IntoIterator<Item = Rule>) -> Self {
        let engine = Engine::new(EngineOptions::default(), Box::new(Uncounted));
        Self {
            rules: engine.bind(rule_set(rules), Box::new(Anywhere)),
            engine,
            now: Cell::new(1_700_000_000_000_000),
        }
    }

    fn now(&self) -> Tick {
        self.now.get()
    }

    fn advance(&self, micros: Tick) {
        self.now.set(self.now() + micros);
    }

    fn store_now(&self) -> Tick {
        self.engine.store_now(self.now())
    }

    fn begin(&self, checks: &[Check]) -> Begin {
        self.rules.begin(checks, self.now())
    }

    /// The decision of a request that the process decides locally.
    fn decide(&self, checks: &[Check]) -> Decision {
        match self.begin(checks) {
            Begin::Decided(decision) => decision,
            Begin::Query(query) => panic!("it is decided locally: {query:?}"),
        }
    }

    /// The query of a request that the store decides, sent.
    fn query(&self, checks: &[Check]) -> Query {
        match self.begin(checks) {
            Begin::Query(mut query) => {
                query.send(self.now(), |_| ());
                query
            }
            Begin::Decided(decision) => panic!("the store decides it: {decision:?}"),
        }
    }

    fn is_local(&self, checks: &[Check]) -> bool {
        matches!(self.begin(checks), Begin::Decided(_))
    }

    /// The store's reply to a query, which takes a round trip; the same answer to each check.
    fn reply(&self, query: &Query, answer: Assessment, grant: Option<Grant>) -> Reply {
        let at = self.now() + AHEAD + WAY;
        self.advance(2 * WAY);
        let verdict = |check: &Check| Verdict::new(check.rule(), 0, answer, Source::Store);
        let verdicts = query.checks().iter().map(verdict);
        let counted = ReportReply::Counted {
            left: answer.remaining,
            reset_after: answer.reset_after,
        };
        let lease = LeaseReply {
            is_refused: false,
            grant: grant.map_or(GrantReply::None, GrantReply::Granted),
        };
        Reply {
            at,
            decision: Decision::new(at, verdicts, |_| true),
            shared: IndexSet::default(),
            reports: smallvec![counted; query.reports().len()],
            leases: smallvec![lease; query.leases().len()],
        }
    }

    fn finish(&self, query: Query, answer: Assessment, grant: Option<Grant>) -> Done {
        let reply = self.reply(&query, answer, grant);
        done(query.finish(Ok(reply), self.now()))
    }

    /// The store decides a request.
    fn decided(&self, checks: &[Check], answer: Assessment) -> Decision {
        self.finish(self.query(checks), answer, None).decision
    }

    /// The store decides requests until something is kept of their key, and grants this once a lease is wanted.
    fn known(&self, answer: Assessment, grant: Option<Grant>) {
        let check = [one()];
        let _ = self.decided(&check, answer);
        let Some(grant) = grant else {
            let _ = self.decided(&check, answer);
            return;
        };
        for _ in 0..100 {
            let query = self.query(&check);
            let is_wanted = !query.leases().is_empty();
            let grant = is_wanted.then_some(grant);
            drop(self.finish(query, answer, grant));
            if is_wanted {
                return;
            }
        }
        panic!("no lease is wanted");
    }

    fn settle(&self, receipt: Receipt, how: Settlement) -> Vec<(Receipt, Settlement)> {
        let FollowUp { settle, queries } = self.rules.settle(&[receipt], how, self.now());
        assert_eq!(queries.len(), 0);
        settle.to_vec()
    }

    /// Sends what is unreported and returns leases. How many of both were sent.
    fn flush(&self) -> (usize, usize) {
        let mut sent = (0, 0);
        for mut query in self.rules.flush(self.now()) {
            query.send(self.now(), |_| ());
            sent = (
                sent.0 + query.reports().len(),
                sent.1 + query.leases().len(),
            );
            drop(self.finish(query, fits(500, 500_000), None));
        }
        sent
    }
}

fn done(next: Next) -> Done {
    match next {
        Next::Done(done) => done,
        Next::Ask(query) => panic!("all states are in one place: {query:?}"),
    }
}

fn one() -> Check {
    Check::new(0, KEY, 1)
}

fn fits(remaining: u64, reset_after: Tick) -> Assessment {
    Assessment {
        fits: true,
        remaining,
        reset_after,
        retry: Retry::Now,
    }
}

fn denied(reset_after: Tick, retry: Tick) -> Assessment {
    Assessment {
        fits: false,
        remaining: 0,
        reset_after,
        retry: Retry::after_micros(retry),
    }
}

fn tracked(units: u64, generation: u64) -> Option<Grant> {
    Some(Grant::Tracked { units, generation })
}

/// A bucket with a lease of one key.
fn leased_bucket(grant: Option<Grant>) -> Subject {
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), LEASED);
    subject.known(fits(5_000, 500_000), grant);
    subject
}

fn receipt(check: Check, decision: &Decision) -> Receipt {
    Receipt::new(check, &decision.verdicts()[0], decision.at())
}

#[test]
fn a_denial_is_cached_from_when_its_query_was_sent_and_not_after_the_clock_went_back() {
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), Consistency::Exact);
    let sent = subject.now();
    let _ = subject.decided(&[one()], denied(60_000_000, 10_000));
    for (at, is_denied) in [(9_999, true), (10_000, false), (299, true)] {
        subject.now.set(sent + at);
        assert_eq!(subject.is_local(&[one()]), is_denied, "{at}");
    }
    subject.now.set(sent - 1_000);
    assert!(!subject.is_local(&[one()]));
}

#[test]
fn a_cached_denial_is_forgotten_when_a_lease_has_gone_back() {
    let subject = leased_bucket(tracked(10, 7));
    let large = [one().with_cost(20)];
    // The lease is in the way of it, and goes back with the query. It is granted again.
    let query = subject.query(&large);
    drop(subject.finish(query, denied(60_000_000, 10_000), tracked(10, 8)));
    assert!(subject.is_local(&large));
    assert_eq!(subject.flush(), (0, 1));
    assert!(!subject.is_local(&large));
}

#[test]
fn the_last_local_unit_says_when_there_is_another() {
    let bucket = Subject::new(Quota::gcra(60, MINUTE), EVENTUAL);
    bucket.known(fits(2, 58_000_000), None);
    let retry = |subject: &Subject| {
        let decision = subject.decide(&[one()]);
        assert!(decision.is_allowed());
        decision.verdicts()[0].retry()
    };
    assert_eq!(retry(&bucket), Retry::Now);
    assert_eq!(retry(&bucket), Retry::After(SECOND));
    // The end of the window by the store's clock, which is known to a tenth of a second.
    let window = Subject::new(Quota::fixed_window(60, MINUTE), EVENTUAL);
    window.known(fits(2, 58_000_000), None);
    assert_eq!(retry(&window), Retry::Now);
    let at = window.store_now();
    let ends = (at / 60_000_000 + 1) * 60_000_000;
    assert_eq!(retry(&window), Retry::after_micros(ends - at + 100_000));
    let leased = Subject::new(Quota::gcra(60, MINUTE), LEASED);
    leased.known(fits(0, 60_000_000), tracked(2, 7));
    assert_eq!(retry(&leased), Retry::Now);
    assert_eq!(retry(&leased), Retry::After(SECOND));
}

#[test]
fn a_lease_is_not_spent_after_it_has_run_out() {
    let subject = leased_bucket(tracked(10, 7));
    assert!(subject.is_local(&[one()]));
    subject.advance(20_000_000);
    assert!(!subject.is_local(&[one()]));
}

#[test]
fn local_usage_begins_with_the_second_request_of_a_key_wherever_it_is_in_a_request() {
    let rule = |name, quota| Rule::new(name, quota).consistency(EVENTUAL);
    let subject = Subject::of([
        rule("rule", Quota::fixed_window(1_000, SECOND)),
        rule("other", Quota::fixed_window(2_000, SECOND)),
    ]);
    let answer = fits(900, 1_000_000);
    subject.known(answer, None);
    let other = |number| Check::new(1, key(number), 1);
    let sent = |checks: &[Check]| {
        let query = subject.query(checks);
        let sent: Vec<_> = query.checks().to_vec();
        drop(subject.finish(query, answer, None));
        sent
    };
    // The key of the first rule is decided locally.
    assert_eq!(sent(&[one(), other(8)]), [other(8)]);
    assert_eq!(sent(&[other(9), one(), other(8)]), [other(9), other(8)]);
    assert_eq!(sent(&[one(), other(8), other(9)]), [other(9)]);
    // Two of one state go to the store, and do not count as a first request.
    let twins = [other(10), other(10)];
    assert_eq!(sent(&twins), twins);
    assert_eq!(sent(&twins), twins);
    assert_eq!(sent(&[other(10)]), [other(10)]);
    assert_eq!(sent(&[other(10)]), [other(10)]);
    assert!(subject.is_local(&[other(10)]));
}

#[test]
fn reported_units_of_a_window_are_refunded_to_it() {
    let subject = Subject::new(Quota::fixed_window(1_000, SECOND), EVENTUAL);
    let ends = |at: Tick| (at / 1_000_000 + 1) * 1_000_000;
    let at = subject.store_now() + AHEAD + WAY;
    subject.known(fits(999, ends(at) - at), None);
    // Another window has begun since.
    subject.advance(1_000_000);
    let decision = subject.decide(&[one()]);
    let spent = receipt(one(), &decision);
    assert_eq!(subject.flush(), (1, 0));
    let settled = subject.settle(spent, Settlement::Cancel);
    let [(receipt, Settlement::Refund(1))] = settled[..] else {
        panic!("it was reported: {settled:?}");
    };
    assert_eq!(receipt.taken.fresh_at, ends(decision.at()));
}

#[test]
fn units_that_were_reported_before_another_rule_denied_are_refunded_by_the_store() {
    let quota = Quota::fixed_window(1_000, SECOND);
    let subject = Subject::of([
        Rule::new("rule", quota).consistency(EVENTUAL),
        Rule::new("other", Quota::gcra(1, MINUTE)),
    ]);
    subject.known(fits(999, 1_000_000), None);
    let checks = [one(), Check::new(1, KEY, 1)];
    let query = subject.query(&checks);
    assert_eq!(query.checks(), [checks[1]]);
    assert_eq!(subject.flush(), (1, 0));
    let done = subject.finish(query, denied(60_000_000, 60_000_000), None);
    assert_eq!(done.decision.outcome(), Outcome::Deny);
    let back = done.follow_up.settle.iter();
    let back: Vec<_> = back.map(|(receipt, how)| (receipt.check, *how)).collect();
    assert_eq!(back, [(checks[0], Settlement::Refund(1))]);
    // What is not reported yet comes back here.
    let query = subject.query(&[one(), Check::new(1, key(8), 1)]);
    let before = subject.engine.units_unreported();
    let done = subject.finish(query, denied(60_000_000, 60_000_000), None);
    assert!(done.follow_up.is_empty());
    assert_eq!(subject.engine.units_unreported(), before - 1);
}

#[test]
fn local_usage_postpones_when_a_bucket_is_full_and_not_when_a_window_ends() {
    // A unit of the bucket takes 3 ⅓ ms.
    for (quota, unit) in [
        (Quota::gcra(300, SECOND), 3_334),
        (Quota::fixed_window(300, SECOND), 0),
    ] {
        let subject = Subject::new(quota, EVENTUAL);
        subject.known(fits(200, 500_000), None);
        let reset_after = || subject.decide(&[one()]).verdicts()[0].reset_after_ticks();
        // The reply came a round trip after the query was sent.
        let expected = 500_000 - 2 * WAY;
        let after = [reset_after(), reset_after(), reset_after()];
        assert_eq!(after, [1, 2, 3].map(|units| expected + units * unit));
        // It was full meanwhile.
        subject.advance(700_000);
        assert_eq!(reset_after(), unit);
    }
}

#[test]
fn a_process_with_a_scheduled_lease_does_not_ask_and_says_when_its_units_are_due() {
    let scheduled = Grant::Scheduled {
        units: 8,
        after: 500_000,
    };
    let subject = leased_bucket(Some(scheduled));
    let decision = subject.decide(&[one()]);
    // A thousandth later than by the store's clock.
    assert_eq!(decision.retry(), Retry::after_micros(500_500 + 10_010));
    subject.advance(510_510);
    for outcome in [Outcome::Allow, Outcome::Deny] {
        assert_eq!(subject.decide(&[one()]).outcome(), outcome);
    }
    // All of the scheduled lease is there, and as much again has been refilled.
    subject.advance(200_000);
    for _ in 0..7 {
        assert!(subject.is_local(&[one()]));
    }
    assert!(!subject.is_local(&[one()]));
}

#[test]
fn units_that_were_reported_long_ago_are_not_taken_off_later_local_usage() {
    let subject = Subject::new(Quota::fixed_window(1_000, SECOND), EVENTUAL);
    subject.known(fits(999, 500_000), None);
    let spent = receipt(one(), &subject.decide(&[one()]));
    subject.advance(100_000);
    assert_eq!(subject.flush(), (1, 0));
    subject.advance(100_000);
    assert!(subject.is_local(&[one()]));
    assert_eq!(subject.engine.units_unreported(), 1);
    let settled = subject.settle(spent, Settlement::Cancel);
    assert!(matches!(settled[..], [(_, Settlement::Refund(1))]));
    assert_eq!(subject.engine.units_unreported(), 1);
}

#[test]
fn a_lease_that_comes_to_a_retired_rule_set_goes_back() {
    let subject = leased_bucket(tracked(10, 7));
    let large = [one().with_cost(20)];
    let late = subject.query(&large);
    assert_eq!(subject.rules.retire(subject.now()).len(), 0);
    let done = subject.finish(late, fits(5_000, 500_000), tracked(10, 8));
    let [query] = &done.follow_up.queries[..] else {
        panic!("one lease: {done:?}");
    };
    let returned = query.leases()[0].query.returned;
    assert_eq!(returned.map(|it| (it.left, it.generation)), Some((10, 8)));
    // It certainly did not reach the store, and is here again.
    drop(done);
    assert_eq!(subject.engine.units_on_lease(subject.now()), 10);
}

#[test]
fn a_rule_set_that_replaces_another_keeps_leases_and_denials_of_rules_that_have_not_changed() {
    let rules = |limit| {
        [
            Rule::new("rule", Quota::gcra(6_000, MINUTE)).consistency(LEASED),
            Rule::new("other", Quota::gcra(limit, MINUTE)).consistency(LEASED),
            Rule::new("exact", Quota::gcra(9, MINUTE)),
        ]
    };
    let mut subject = Subject::of(rules(6_000));
    subject.known(fits(5_000, 500_000), tracked(10, 7));
    let other = Check::new(1, KEY, 1);
    let mut is_leased = false;
    while !is_leased {
        let query = subject.query(&[other]);
        is_leased = query.leases().iter().any(|it| it.query.tracked > 0);
        let grant = tracked(20, 7).filter(|_| is_leased);
        drop(subject.finish(query, fits(5_000, 500_000), grant));
    }
    let exact = Check::new(2, KEY, 1);
    let _ = subject.decided(&[exact], denied(60_000_000, 10_000_000));
    // In another order, and one of them changed.
    let [first, second, third] = rules(5_000);
    let new = subject
        .engine
        .bind(rule_set([third, second, first]), Box::new(Anywhere));
    let old = std::mem::replace(&mut subject.rules, new);
    let returned: Vec<_> = old.retire(subject.now());
    let [query] = &returned[..] else {
        panic!("the lease of the changed rule goes back: {returned:?}");
    };
    assert_eq!(query.leases()[0].check.rule(), 1);
    let same = Check::new(2, KEY, 1);
    assert_eq!(
        subject.decide(&[same]).verdicts()[0].source(),
        Source::Lease
    );
    let exact = Check::new(0, KEY, 1);
    let denied = subject.decide(&[exact]);
    assert_eq!(denied.verdicts()[0].source(), Source::DenyCache);
    assert!(!subject.is_local(&[other]));
    // Requests of the old rules are still served, and so is what they give back.
    let decision = match old.begin(&[one()], subject.now()) {
        Begin::Decided(decision) => decision,
        Begin::Query(query) => panic!("the lease is there: {query:?}"),
    };
    let held = || subject.engine.units_on_lease(subject.now());
    let before = held();
    subject.advance(1);
    let spent = receipt(one(), &decision);
    assert!(
        old.settle(&[spent], Settlement::Cancel, subject.now())
            .is_empty()
    );
    assert_eq!(held(), before + 1);
    drop(old);
    assert_eq!(held(), before + 1);
    assert!(subject.is_local(&[same]));
}

#[test]
fn units_that_no_rule_set_can_report_any_more_are_lost_once() {
    #[derive(Debug, Default)]
    struct Lost(Arc<std::sync::atomic::AtomicU64>);
    impl EngineEvents for Lost {
        fn lease(&self, _: LeaseEvent) {}
        fn reports(&self, _: ReportEvent, _: usize) {}
        fn units_lost(&self, units: u64) {
            self.0
                .fetch_add(units, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let lost = Lost::default();
    let count = Arc::clone(&lost.0);
    let count = || count.load(std::sync::atomic::Ordering::Relaxed);
    let mut subject = Subject::new(Quota::fixed_window(1_000, SECOND), EVENTUAL);
    let rules =
        || rule_set([Rule::new("rule", Quota::fixed_window(1_000, SECOND)).consistency(EVENTUAL)]);
    subject.engine = Engine::new(EngineOptions::default(), Box::new(lost));
    subject.rules = subject.engine.bind(rules(), Box::new(Anywhere));
    subject.known(fits(900, 500_000), None);
    for _ in 0..3 {
        assert!(subject.is_local(&[one()]));
    }
    // A report of one unit less is in flight, and its reply never comes.
    let report = subject.rules.flush(subject.now()).pop();
    let mut report = report.expect("units are unreported");
    report.send(subject.now(), |query| {
        assert_eq!(query.reports()[0].cost(), 3)
    });
    drop(report);
    assert_eq!(count(), 3);
    let _ = subject.decided(&[one()], fits(900, 500_000));
    assert!(subject.is_local(&[one()]));
    let again = subject.engine.bind(rules(), Box::new(Anywhere));
    drop(std::mem::replace(&mut subject.rules, again));
    assert_eq!((count(), subject.engine.units_unreported()), (3, 1));
    let other = rule_set([Rule::new("other", Quota::gcra(1, SECOND))]);
    subject.rules = subject.engine.bind(other, Box::new(Anywhere));
    assert_eq!((count(), subject.engine.units_unreported()), (4, 0));
}

/// Windows of 50 ms, and in how many of them their units weigh.
fn of_50_ms() -> [(Quota, u64); 2] {
    let window = Duration::from_millis(50);
    [
        (Quota::fixed_window(1_000, window), 1),
        (Quota::sliding_window(1_000, window), 2),
    ]
}

/// Rules of which the first is leased, in windows of 50 ms, and a lease of it that was granted just now.
fn leased_in_short_windows(quota: Quota) -> (Subject, u64) {
    let leased = Consistency::Leased {
        share: LeaseShare::percent(50),
    };
    let subject = Subject::of([
        Rule::new("rule", quota).consistency(leased),
        Rule::new("other", Quota::gcra(1, MINUTE)),
    ]);
    let check = [one()];
    // A key that is asked for often enough to be leased.
    for _ in 0..40 {
        let _ = subject.decided(&check, fits(999, 40_000));
    }
    // So that the reply comes at the start of a window.
    let at = subject.now() + AHEAD + WAY;
    subject.advance(50_000 - at % 50_000);
    let window = (subject.now() + AHEAD + WAY) / 50_000;
    let query = subject.query(&check);
    assert!(query.leases()[0].query.wants_grant());
    drop(subject.finish(query, fits(999, 40_000), tracked(10, window)));
    (subject, window)
}

#[test]
fn units_of_a_short_window_are_known_by_it_however_long_the_other_rules_take() {
    for (quota, weighs) in of_50_ms() {
        // Also where the store does not reply at all.
        for (passed, is_answered) in [(1_000, true), (45_000, true), (45_000, false)] {
            let (subject, window) = leased_in_short_windows(quota);
            let checks = [one(), Check::new(1, KEY, 1)];
            let query = subject.query(&checks);
            assert_eq!(query.checks(), [checks[1]]);
            subject.advance(passed);
            let done = match is_answered {
                true => {
                    let reply = subject.reply(&query, fits(0, 60_000_000), None);
                    done(query.finish(Ok(reply), subject.now()))
                }
                false => done(query.finish(Err(NoReply::Unknown), subject.now())),
            };
            assert!(done.follow_up.is_empty());
            let spent = receipt(one(), &done.decision);
            let until = (window + weighs) * 50_000;
            assert!(spent.taken.fresh_at.abs_diff(until) <= 2 * WAY, "{quota:?}");
            // Into the lease, which has not run out.
            assert_eq!(subject.engine.units_on_lease(subject.now()), 9);
            assert_eq!(subject.settle(spent, Settlement::Cancel), []);
            assert_eq!(subject.engine.units_on_lease(subject.now()), 10);
        }
    }
}

#[test]
fn units_of_a_window_without_a_lease_are_refunded_as_the_store_has_counted_them() {
    for (quota, weighs) in of_50_ms() {
        let (subject, window) = leased_in_short_windows(quota);
        let check = one().with_cost(3);
        let spent = receipt(check, &subject.decide(&[check]));
        // The lease has run out, or nothing is kept of the key.
        let mut of_another = spent;
        of_another.check = Check::new(0, key(8), 3);
        for (passed, spent) in [(0, of_another), (49_999, spent), (60_000_000, spent)] {
            subject.advance(passed);
            let settled = subject.settle(spent, Settlement::Refund(2));
            let [(receipt, Settlement::Refund(2))] = settled[..] else {
                panic!("there is no lease: {settled:?}");
            };
            assert_eq!(receipt.taken.fresh_at, (window + weighs) * 50_000);
        }
    }
}

#[test]
fn a_lease_whose_query_certainly_did_not_run_is_here_again() {
    for quota in [
        Quota::fixed_window(1_000, MINUTE),
        Quota::gcra(1_000, MINUTE),
    ] {
        let leased = Consistency::Leased {
            share: LeaseShare::percent(50),
        };
        let subject = Subject::new(quota, leased);
        let generation = (subject.now() + AHEAD) / 60_000_000;
        subject.known(fits(900, 500_000), tracked(10, generation));
        let held = || subject.engine.units_on_lease(subject.now());
        for why in [NoReply::NotRun, NoReply::NothingToAsk] {
            let query = subject.query(&[one().with_cost(20)]);
            assert_eq!(held(), 0);
            drop(done(query.finish(Err(why), subject.now())));
            assert_eq!(held(), 10);
        }
        // A query without a known outcome is another matter.
        drop(subject.query(&[one().with_cost(20)]));
        assert_eq!(held(), 0);
    }
}

#[test]
fn a_denial_in_one_place_cancels_what_earlier_places_took_and_the_rest_is_not_asked() {
    let mut subject = Subject::of([
        Rule::new("rule", Quota::gcra(6_000, MINUTE)).consistency(LEASED),
        Rule::new("first", Quota::gcra(10, MINUTE)),
        Rule::new("second", Quota::gcra(10, MINUTE)),
        Rule::new("third", Quota::gcra(10, MINUTE)),
    ]);
    let rules = Arc::clone(subject.rules.rules());
    subject.rules = subject.engine.bind(rules, Box::new(ByKey));
    subject.known(fits(5_000, 500_000), tracked(10, 7));
    // After the grant, so that it comes back to it.
    subject.advance(1);
    let check = |rule: u16| Check::new(rule, key(rule.into()), 1);
    let checks = [check(1), one(), check(2), check(3)];
    let query = subject.query(&checks);
    assert_eq!(
        (query.checks(), query.has_more_steps()),
        (&[check(1)][..], true)
    );
    let reply = subject.reply(&query, fits(9, 6_000_000), None);
    let Next::Ask(mut query) = query.finish(Ok(reply), subject.now()) else {
        panic!("two places are left");
    };
    query.send(subject.now(), |_| ());
    assert_eq!(query.checks(), [check(2)]);
    let done = subject.finish(query, denied(60_000_000, 6_000_000), None);
    let outcomes: SmallVec<[_; 4]> = done
        .decision
        .verdicts()
        .iter()
        .map(Verdict::outcome)
        .collect();
    let (allow, deny) = (Outcome::Allow, Outcome::Deny);
    assert_eq!(outcomes[..], [allow, allow, deny, Outcome::NotAsked]);
    let settled = done.follow_up.settle.iter();
    let settled: Vec<_> = settled
        .map(|(receipt, how)| (receipt.check, *how))
        .collect();
    assert_eq!(settled, [(check(1), Settlement::Cancel)]);
    // The unit of the lease is here again.
    assert_eq!(subject.engine.units_on_lease(subject.now()), 10);
}

#[test]
fn the_reply_to_an_abandoned_request_is_processed_if_units_depend_on_it() {
    let subject = leased_bucket(tracked(10, 7));
    // Of a key without a lease, of a rule with buckets, nothing does.
    let exact = Subject::new(Quota::gcra(10, MINUTE), Consistency::Exact);
    let (query, follow_up) = exact.query(&[one()]).abandon(exact.now());
    assert!(query.is_none() && follow_up.is_empty());
    // A lease is on its way.
    let (query, _) = subject.query(&[one().with_cost(20)]).abandon(subject.now());
    let query = query.expect("it may bring a lease");
    drop(subject.finish(query, fits(5_000, 500_000), tracked(12, 8)));
    assert_eq!(subject.engine.units_on_lease(subject.now()), 12);
    // Units of a window stay in the process.
    let (quota, _) = of_50_ms()[0];
    let (subject, _) = leased_in_short_windows(quota);
    let large = [one().with_cost(20)];
    let before = subject.engine.units_on_lease(subject.now());
    let (query, _) = subject.query(&large).abandon(subject.now());
    let query = query.expect("it takes units of a window");
    let window = subject.store_now() / 50_000;
    let ends = (window + 1) * 50_000 - subject.store_now();
    drop(subject.finish(query, fits(900, ends), tracked(5, window)));
    assert_eq!(
        (before, subject.engine.units_on_lease(subject.now())),
        (10, 25)
    );
}
