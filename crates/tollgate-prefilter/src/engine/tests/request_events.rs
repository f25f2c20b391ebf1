//! The events of requests.

use std::sync::{Arc, Mutex};

use tollgate_core::{
    Check, Consistency, Decision, MINUTE, Outcome, Quota, Rule, Source, Tick,
    store::{Fingerprint, Receipt, Settlement},
};

use crate::{
    Next, NoReply, RequestEvents, StoreRules,
    engine::tests::subject::{
        EVENTUAL, KEY, LEASED, Subject, denied, done, fits, key, one, receipt, tracked,
    },
};

/// The events, in order.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Event>>);

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Decided(Vec<Check>, Vec<(Outcome, Source)>, Tick),
    Settled(Vec<Check>, Settlement),
    Reset(Check),
}

impl Recorder {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }

    fn add(&self, event: Event) {
        self.0.lock().expect("no panic").push(event);
    }
}

impl RequestEvents for Recorder {
    fn decided(&self, checks: &[Check], decision: &Decision, now: Tick) {
        let verdicts = decision.verdicts().iter();
        let verdicts = verdicts.map(|verdict| (verdict.outcome(), verdict.source()));
        self.add(Event::Decided(checks.to_vec(), verdicts.collect(), now));
    }

    fn settled(&self, receipts: &[Receipt], how: Settlement, _: Tick) {
        let checks = receipts.iter().map(|receipt| receipt.check);
        self.add(Event::Settled(checks.collect(), how));
    }

    fn reset(&self, check: &Check, _: Tick) {
        self.add(Event::Reset(*check));
    }
}

/// Each state lies in a place of its own, and the requests are followed.
#[derive(Debug)]
struct Followed(Arc<Recorder>);

impl StoreRules for Followed {
    fn exact(&self, _: &Rule) -> Option<&'static str> {
        None
    }

    fn place(&self, _: &[Check], check: &Check) -> Option<Fingerprint> {
        Some(check.key())
    }

    fn request_events(&self) -> Option<Arc<dyn RequestEvents>> {
        Some(Arc::clone(&self.0) as _)
    }
}

fn followed(rules: impl IntoIterator<Item = Rule>) -> (Subject, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let store = Followed(Arc::clone(&recorder));
    let subject = Subject::on(Box::new(store), rules);
    (subject, recorder)
}

#[test]
fn each_decision_is_one_event_whether_the_process_or_the_store_makes_it() {
    let bucket = Quota::gcra(6_000, MINUTE);
    for (consistency, source) in [(LEASED, Source::Lease), (EVENTUAL, Source::Local)] {
        let (subject, recorder) = followed([Rule::new("rule", bucket).consistency(consistency)]);
        let grant = tracked(10, 7).filter(|_| source == Source::Lease);
        subject.known(fits(5_000, 500_000), grant);
        let by_store = recorder.take();
        assert!(!by_store.is_empty());
        for event in by_store {
            let Event::Decided(checks, verdicts, _) = event else {
                panic!("nothing else has happened: {event:?}");
            };
            let allowed = [(Outcome::Allow, Source::Store)];
            assert_eq!((&checks[..], &verdicts[..]), (&[one()][..], &allowed[..]));
        }
        let _ = subject.decide(&[one()]);
        let local = Event::Decided(vec![one()], vec![(Outcome::Allow, source)], subject.now());
        assert_eq!(recorder.take(), [local]);
    }
    let (subject, recorder) = followed([Rule::new("rule", bucket)]);
    let _ = subject.decided(&[one()], denied(60_000_000, 10_000));
    recorder.take();
    let _ = subject.decide(&[one()]);
    let denied = vec![(Outcome::Deny, Source::DenyCache)];
    let cached = Event::Decided(vec![one()], denied, subject.now());
    assert_eq!(recorder.take(), [cached]);
}

#[test]
fn a_request_of_several_steps_is_one_event_when_all_of_it_is_decided() {
    let rule = |name| Rule::new(name, Quota::gcra(10, MINUTE));
    let (subject, recorder) = followed([rule("first"), rule("second")]);
    let checks = [one(), Check::new(1, key(8), 1)];
    let query = subject.query(&checks);
    let reply = subject.reply(&query, fits(9, 6_000_000), None);
    let Next::Query(mut query) = query.finish(Ok(reply), subject.now()) else {
        panic!("a place is left");
    };
    assert_eq!(recorder.take(), []);
    query.send(subject.now(), |_| ());
    drop(subject.finish(query, denied(60_000_000, 6_000_000), None));
    let verdicts = [Outcome::Allow, Outcome::Deny].map(|outcome| (outcome, Source::Store));
    let decided = Event::Decided(checks.to_vec(), verdicts.to_vec(), subject.now());
    assert_eq!(recorder.take(), [decided]);
    // All of it is decided by the deny cache now.
    let _ = subject.decide(&checks);
    assert_eq!(recorder.take().len(), 1);
}

#[test]
fn abandoned_requests_and_peeks_are_no_events() {
    let quota = Quota::fixed_window(1_000, MINUTE);
    let (subject, recorder) = followed([Rule::new("rule", quota).consistency(LEASED)]);
    let (query, follow_up) = subject.query(&[one()]).abandon(subject.now());
    assert!(follow_up.is_empty());
    let query = query.expect("it takes units of a window");
    drop(subject.finish(query, fits(999, 500_000), None));
    let crate::Begin::Query(mut peek) = subject.rules.peek(&[one()], subject.now()) else {
        panic!("the store decides it");
    };
    peek.send(subject.now(), |_| ());
    drop(subject.finish(peek, fits(999, 500_000), None));
    drop(subject.query(&[one()]));
    assert_eq!(recorder.take(), []);
    // One that the store did not reply to is: its rules may have a fallback.
    let query = subject.query(&[one()]);
    drop(done(query.finish(Err(NoReply::Unknown), subject.now())));
    assert_eq!(recorder.take().len(), 1);
}

#[test]
fn settlements_and_resets_are_events() {
    let bucket = Quota::gcra(6_000, MINUTE);
    let (subject, recorder) = followed([Rule::new("rule", bucket).consistency(Consistency::Exact)]);
    let decision = subject.decided(&[one()], fits(5_999, 10_000));
    recorder.take();
    let taken = receipt(one(), &decision);
    assert_eq!(subject.settle(taken, Settlement::Cancel).len(), 1);
    let others = [one(), Check::new(0, key(8), 0)];
    subject
        .rules
        .begin_reset(&others, subject.now())
        .finish(Err(NoReply::NotRun));
    let settled = Event::Settled(vec![one()], Settlement::Cancel);
    // A check with a cost of 0 keeps its state.
    let reset = Event::Reset(Check::new(0, KEY, 0));
    assert_eq!(recorder.take(), [settled, reset]);
}
