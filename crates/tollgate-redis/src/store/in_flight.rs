//! A query in flight.

use std::{
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    Check, Clock, Decision, Outcome, Retry, Source, Tick, Verdict,
    algorithm::Assessment,
    store::{Hold, Settlement},
};
use tollgate_prefilter::{
    FollowUp, GrantReply, IndexSet, LeaseReply, Next, NoReply, Query, Reply, ReportReply,
};

use crate::{
    connection::{call::Call as Answer, error::CallError, value::Value},
    observe::{CallFor, Stopwatch},
    script::{
        call::{Call, RequestLayout},
        reply::{self, BlockReply, NewKey},
    },
    store::{
        inner::{Inner, report_block},
        shared::{InFlightCall, did_not_run},
        slots::{Acquired, RequestSlots},
    },
};

/// A query of the engine in flight.
pub(super) struct InFlight {
    inner: Arc<Inner>,
    query: Query,
    answer: Answer,
    layout: ReplyLayout,
    what_for: CallFor,
    /// The deadline of a request that takes several calls.
    by: Option<Instant>,
    stopwatch: Stopwatch,
    size: usize,
    /// The slots that are acquired, and those that earlier steps were given.
    slots: Option<RequestSlots>,
    /// What Redis has replied to all but the checks, which were sent again; and how often they were.
    earlier: Option<(Reply, u32)>,
    /// While units are lost if the reply is not processed.
    _guard: Option<InFlightCall>,
}

/// Where in a reply the answers to the parts of a query are. `None`: the part was not sent, because the call had no room left.
#[derive(Default)]
struct ReplyLayout {
    checks: RequestLayout,
    reports: SmallVec<[Option<u16>; 1]>,
    returned: SmallVec<[Option<u16>; 1]>,
    grants: SmallVec<[Option<u16>; 1]>,
}

impl InFlight {
    /// Sends a query. The decision, if nothing had to be sent or nothing could be.
    pub(super) fn start(
        inner: &Arc<Inner>,
        query: Query,
        what_for: CallFor,
    ) -> ControlFlow<Decision, Self> {
        let has_slots = inner.rules.has_slots() && query.takes();
        let steps = query.has_more_steps() || has_slots || inner.encoder.has_calendars();
        let by = steps.then(|| Instant::now() + inner.shared.deadline);
        let slots = has_slots.then(|| RequestSlots::new(&inner.shared));
        let mut in_flight = Self::send(inner, query, what_for, None, slots)?;
        in_flight.by = by;
        ControlFlow::Continue(in_flight)
    }

    /// `by`: the deadline of a request that has asked before.
    fn send(
        inner: &Arc<Inner>,
        mut query: Query,
        what_for: CallFor,
        by: Option<Instant>,
        mut slots: Option<RequestSlots>,
    ) -> ControlFlow<Decision, Self> {
        loop {
            let mut call = inner.shared.new_call();
            let sending = inner.shared.engine.fill(&mut query, inner.now());
            match ReplyLayout::new(inner, &mut call, &query, slots.as_mut()) {
                Ok(layout) => {
                    let stopwatch = Stopwatch::start();
                    let answer = inner.shared.send_again(&call, what_for, by);
                    drop(sending);
                    let guard = query.is_about_leases_or_reports();
                    return ControlFlow::Continue(Self {
                        inner: Arc::clone(inner),
                        answer,
                        layout,
                        what_for,
                        by,
                        stopwatch,
                        size: call.checks(),
                        slots,
                        earlier: None,
                        _guard: guard.then(|| inner.shared.in_flight_calls.begin()),
                        query,
                    });
                }
                Err(why) => {
                    drop(sending);
                    if let Some(slots) = &mut slots {
                        // Those before the check that had no room. The reply to a further step says nothing of them.
                        slots.not_sent();
                    }
                    match query.finish(Err(why), inner.now()) {
                        Next::Query(next) => query = next,
                        Next::Done(done) => {
                            hand_over(slots);
                            send_follow_up(inner, done.follow_up);
                            return ControlFlow::Break(done.decision);
                        }
                    }
                }
            }
        }
    }

    /// Processes the answer. The decision, unless there is more to ask.
    fn on_answer(mut self, answer: Result<Value, CallError>) -> ControlFlow<Decision, Self> {
        let inner = Arc::clone(&self.inner);
        let takes = self.query.takes();
        let mut acquired = Acquired::AsReplied;
        let reply = match inner.shared.reply(self.stopwatch, answer, self.size) {
            Ok(reply) => {
                if let Some(slots) = &mut self.slots {
                    acquired = slots.on_reply(&reply);
                }
                if inner.encoder.has_calendars() && self.layout.is_outside(&inner, &reply) {
                    acquired = Acquired::Again;
                }
                self.layout.note_new_keys(&inner, &reply, &self.query);
                Ok(self.layout.decode(&inner, &reply, &self.query))
            }
            Err(error) => {
                let is_lost = !did_not_run(&error);
                if !is_lost {
                    inner.give_back_permits(&self.layout.checks);
                }
                match &mut self.slots {
                    Some(slots) if is_lost => slots.lose(),
                    Some(slots) => slots.not_sent(),
                    None => {}
                }
                Err(if is_lost {
                    NoReply::Unknown
                } else {
                    NoReply::NotRun
                })
            }
        };
        let times = self.earlier.as_ref().map_or(0, |(_, times)| *times);
        let reply = match self.earlier.take() {
            Some((earlier, _)) => Ok(self.with_decision(earlier, reply)),
            None => reply,
        };
        let reply = match (reply, acquired) {
            // Of a server whose clock jumps, or of a request that another rule denies.
            (Ok(reply), Acquired::Again)
                if self.slots.is_none()
                    && (times > 0 || takes && reply.decision.outcome() == Outcome::Deny) =>
            {
                Ok(reply)
            }
            (Ok(reply), Acquired::Again) => match self.ask_again(reply, times) {
                ControlFlow::Continue(in_flight) => return ControlFlow::Continue(in_flight),
                ControlFlow::Break((back, reply)) => {
                    self = back;
                    Ok(reply)
                }
            },
            (reply, _) => reply,
        };
        match self.query.finish(reply, inner.now()) {
            Next::Query(query) => Self::send(&inner, query, self.what_for, self.by, self.slots),
            Next::Done(done) => {
                hand_over(self.slots);
                if takes {
                    inner.count_decided(done.decision.verdicts());
                }
                send_follow_up(&inner, done.follow_up);
                ControlFlow::Break(done.decision)
            }
        }
    }

    /// Slots were granted that cannot be used, or their message came too late; or the server's clock is in none of the windows that were
    /// sent. What the request has taken goes back, and all of it is decided anew.
    fn ask_again(mut self, mut reply: Reply, times: u32) -> ControlFlow<(Self, Reply), Self> {
        let inner = Arc::clone(&self.inner);
        if let Some(slots) = &mut self.slots {
            slots.give_back();
        }
        let checks = self.query.checks();
        let verdicts = checks.iter().zip(reply.decision.verdicts());
        if self.query.takes() && reply.decision.outcome() != Outcome::Deny {
            let enforced = |rule: usize| inner.rules.enforces(rule);
            let at = reply.decision.at();
            let taken = verdicts.clone().filter(|(check, verdict)| {
                check.cost() > 0
                    && verdict.outcome() == Outcome::Allow
                    && !verdict.is_of_slots()
                    && enforced(verdict.rule())
            });
            let taken = taken.map(|(check, verdict)| verdict.hold(*check, at));
            // Of a request that waits, only its places are taken.
            let taken: SmallVec<[Hold; 4]> = match reply.decision.queue_places() {
                [] => taken.collect(),
                places => {
                    let places = places.iter().copied();
                    places
                        .filter(|it| enforced(usize::from(it.check.rule())))
                        .collect()
                }
            };
            if !taken.is_empty() {
                inner.settle(&taken, Settlement::Cancel);
            }
        }
        let mut call = inner.shared.new_call();
        let again = match self.query.takes() {
            _ if times >= MOST_TIMES => None,
            true => {
                if inner.encoder.has_durable() {
                    call.set_bases(inner.bases_of(checks));
                }
                let checks = (checks, self.query.patience());
                acquire(&inner, &mut call, checks, self.slots.as_mut())
            }
            false => call.peek(&inner.encoder, checks),
        };
        let again = again.map(|layout| (call, layout));
        let Some((call, checks)) = again else {
            if let Some(slots) = &mut self.slots {
                slots.not_sent();
            }
            // Others were faster again and again: it is denied.
            let verdicts = verdicts.map(|(check, verdict)| match verdict.is_of_slots() {
                true => {
                    let answer = Assessment::new(false, verdict.remaining(), 0, Retry::Unknown);
                    Verdict::new(check.rule(), check.plan(), answer, Source::Store).of_slots()
                }
                false => *verdict,
            });
            let verdicts: SmallVec<[Verdict; 4]> = verdicts.collect();
            let enforces = |verdict: &Verdict| inner.rules.enforces(verdict.rule());
            reply.decision = Decision::new(reply.decision.at(), verdicts, enforces);
            return ControlFlow::Break((self, reply));
        };
        self.stopwatch = Stopwatch::start();
        self.answer = inner.shared.send_again(&call, self.what_for, self.by);
        self.size = call.checks();
        self.layout = ReplyLayout {
            checks,
            ..ReplyLayout::default()
        };
        self.earlier = Some((reply, times + 1));
        ControlFlow::Continue(self)
    }

    /// An earlier reply with the decision that was made anew, or without one.
    fn with_decision(&self, mut earlier: Reply, reply: Result<Reply, NoReply>) -> Reply {
        match reply {
            Ok(reply) => (earlier.decision, earlier.shared) = (reply.decision, reply.shared),
            Err(_) => {
                let checks = self.query.checks().iter().zip(self.layout.checks.places());
                let verdicts = checks.map(|(check, place)| {
                    let outcome = place.map_or(Outcome::NotDecided, |_| Outcome::Failed);
                    Verdict::unanswered(check.rule(), check.plan(), outcome)
                });
                let verdicts: SmallVec<[Verdict; 4]> = verdicts.collect();
                let enforces = |verdict: &Verdict| self.inner.rules.enforces(verdict.rule());
                earlier.decision = Decision::new(earlier.decision.at(), verdicts, enforces);
            }
        }
        earlier
    }

    /// Waits for all replies, for what no request waits for.
    pub(super) async fn run(self) {
        let mut next = ControlFlow::Continue(self);
        while let ControlFlow::Continue(mut in_flight) = next {
            let answer = (&mut in_flight.answer).await;
            next = in_flight.on_answer(answer);
        }
    }
}

impl ReplyLayout {
    /// Puts a query into a call.
    fn new(
        inner: &Inner,
        call: &mut Call,
        query: &Query,
        slots: Option<&mut RequestSlots>,
    ) -> Result<Self, NoReply> {
        let encoder = &inner.encoder;
        let returned = query.leases().iter().map(|item| {
            let returned = item.query.returned?;
            call.close(encoder, &item.check, returned)
        });
        let returned = returned.collect();
        let reports = query.reports().iter();
        let reports = reports.map(|check| call.debit(encoder, check)).collect();
        let checks = match query.checks() {
            [] => Some(RequestLayout::default()),
            checks if !query.takes() => call.peek(encoder, checks),
            checks => {
                call.set_counted(query.counted().iter().copied());
                if inner.encoder.has_durable() {
                    call.set_bases(inner.bases_of(checks));
                }
                acquire(inner, call, (checks, query.patience()), slots)
            }
        };
        // More checks than a call carries.
        let checks = checks.ok_or(NoReply::NotRun)?;
        if checks.is_nothing() && !query.checks().is_empty() || call.is_empty() {
            return Err(NoReply::NothingToSend);
        }
        let grants = query.leases().iter().map(|item| {
            let terms = query.lease_terms(item)?;
            let is_wanted = item.query.requests_grant();
            is_wanted.then(|| call.grant(encoder, &item.check, &item.query, terms))?
        });
        Ok(Self {
            grants: grants.collect(),
            checks,
            reports,
            returned,
        })
    }

    /// Whether the server's clock is in none of the windows that the checks have brought. The next call brings those of its time.
    fn is_outside(&self, inner: &Inner, reply: &reply::Reply) -> bool {
        let mut checks = self.checks.places().flatten();
        let is_outside = checks.any(|place| reply.is_outside(place as u16));
        let mut reports = self.reports.iter().flatten();
        if is_outside || reports.any(|place| reply.is_outside(*place)) {
            let ahead = i128::from(reply.at()) - i128::from(Clock::system().now());
            let ahead = i64::try_from(ahead).unwrap_or(0);
            inner.shared.ahead.store(ahead, Ordering::Relaxed);
        }
        is_outside
    }

    fn note_new_keys(&self, inner: &Inner, reply: &reply::Reply, query: &Query) {
        if query.takes() {
            inner.note_new_keys(reply, &self.checks, query.checks());
        }
        for (report, place) in query.reports().iter().zip(&self.reports) {
            if let Some((left, _)) = place.and_then(|place| reply.reported(place)) {
                inner.note_reported(report, left);
            }
        }
    }

    fn decode(&self, inner: &Inner, reply: &reply::Reply, query: &Query) -> Reply {
        let was_refused = |place: Option<u16>| {
            // It was not sent, or the server has refused it.
            place.is_none_or(|place| reply.refusal(place).is_some() || reply.is_outside(place))
        };
        let report = |place: &Option<u16>| match *place {
            place if was_refused(place) => ReportReply::Refused,
            // Of a value that is not ours as little is known as of a call without an answer.
            place => match place.and_then(|place| reply.reported(place)) {
                Some((left, reset_after)) => ReportReply::Counted { left, reset_after },
                None => ReportReply::Unknown,
            },
        };
        let lease = |(returned, grant): (&Option<u16>, &Option<u16>)| {
            let grant = match grant.map(|place| reply.grant(place)) {
                None | Some(Some(None)) => GrantReply::None,
                Some(Some(Some(grant))) => GrantReply::Granted(grant),
                Some(None) => GrantReply::Lost,
            };
            LeaseReply {
                is_refused: was_refused(*returned),
                grant,
            }
        };
        let mut shared = IndexSet::default();
        for (index, check) in query.checks().iter().enumerate() {
            let mut new_keys = reply.new_keys(&self.checks);
            let is_refused =
                |it: reply::NewKeyReply| it.rule == check.rule() && it.new_key == NewKey::Refused;
            // The same client has a state with each client of the rule that decides about the slot.
            if !inner.encoder.is_found_alone(check.rule())
                || new_keys.any(is_refused)
                || reply.is_of_another_quota(&self.checks, index)
            {
                shared.insert(index);
            }
        }
        let decision = reply.decision(&self.checks, query.checks(), &inner.rules);
        let mut decoded = Reply::new(reply.at(), decision);
        decoded.shared = shared;
        if inner.rules.has_blocks() {
            let blocks = query.checks().iter().enumerate().map(|(index, check)| {
                let block = reply.block_of(&self.checks, index);
                let place = self.checks.place(index);
                // Checks on one state are one check.
                if (0..index).all(|other| self.checks.place(other) != place) {
                    report_block(&inner.rules, check, block);
                }
                match block {
                    Some(BlockReply::Counted(counted)) => counted,
                    _ => 0,
                }
            });
            decoded.counted = blocks.collect();
        }
        decoded.reports = self.reports.iter().map(report).collect();
        let leases = self.returned.iter().zip(&self.grants);
        decoded.leases = leases.map(lease).collect();
        decoded
    }
}

/// The decision of a request that waits for Redis; nothing once it was given.
pub(super) struct Deciding(Option<InFlight>);

impl Deciding {
    pub(super) fn new(in_flight: InFlight) -> Self {
        Self(Some(in_flight))
    }
}

impl Future for Deciding {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        loop {
            let Some(in_flight) = &mut self.0 else {
                // It was polled after its end.
                return Poll::Pending;
            };
            let answer = ready!(Pin::new(&mut in_flight.answer).poll(cx));
            match self.0.take().map(|it| it.on_answer(answer)) {
                Some(ControlFlow::Continue(next)) => self.0 = Some(next),
                Some(ControlFlow::Break(decision)) => return Poll::Ready(decision),
                None => return Poll::Pending,
            }
        }
    }
}

impl Drop for Deciding {
    /// The reply is processed where units would be lost otherwise, also when no request waits for it any more.
    fn drop(&mut self) {
        if let Some(mut in_flight) = self.0.take() {
            let inner = Arc::clone(&in_flight.inner);
            // They are given up, and the reply no longer counts for them.
            in_flight.slots = None;
            let (query, follow_up) = in_flight.query.abandon(inner.now());
            send_follow_up(&inner, follow_up);
            if let Some(query) = query {
                in_flight.query = query;
                let guard = &mut in_flight._guard;
                guard.get_or_insert_with(|| inner.shared.in_flight_calls.begin());
                inner.shared.spawn(in_flight.run());
            }
        }
    }
}

/// How often a request is decided anew whose slots could not be used. Renewals that come in between are rare.
const MOST_TIMES: u32 = 3;

/// Adds the checks of a request that takes its units. `None`: they do not fit, or slots of too many keys are in use.
fn acquire(
    inner: &Inner,
    call: &mut Call,
    (checks, patience): (&[Check], Tick),
    slots: Option<&mut RequestSlots>,
) -> Option<RequestLayout> {
    let encoder = &inner.encoder;
    let may_make = |rule| {
        let cap = inner.cap(rule);
        cap.is_none_or(|cap| cap.take(Clock::system().now()))
    };
    let (mut slots, mut has_room) = (slots, true);
    let message = |check: &Check, with, place| {
        let message = slots.as_mut()?.acquire(encoder, check, with, place);
        has_room &= message.is_some();
        message
    };
    let layout = call.acquire_slots(encoder, checks, patience, may_make, message)?;
    if !has_room {
        inner.give_back_permits(&layout);
    }
    has_room.then_some(layout)
}

/// What was granted is in the decision now.
fn hand_over(slots: Option<RequestSlots>) {
    if let Some(mut slots) = slots {
        slots.hand_over();
    }
}

/// Sends what no request waits for.
pub(super) fn send_follow_up(inner: &Arc<Inner>, follow_up: FollowUp) {
    let same = |(_, one): &(_, Settlement), (_, other): &(_, Settlement)| one == other;
    for settled in follow_up.settle.chunk_by(same) {
        let receipts: Vec<Hold> = settled.iter().map(|(receipt, _)| *receipt).collect();
        inner.settle(&receipts, settled[0].1);
    }
    send_alone(inner, follow_up.queries);
}

/// Sends queries that no request waits for.
pub(super) fn send_alone(inner: &Arc<Inner>, queries: Vec<Query>) {
    for query in queries {
        let what_for = match query.leases().is_empty() {
            true => CallFor::Reports,
            false => CallFor::Leases,
        };
        if let ControlFlow::Continue(in_flight) = InFlight::start(inner, query, what_for) {
            inner.shared.spawn(in_flight.run());
        }
    }
}

/// The last limiter and layer are gone, or others have taken their place: leases go back and local usage is reported, but for
/// what another rule set that is in use has as well.
pub(super) fn retire(inner: &Arc<Inner>) {
    send_alone(inner, inner.local.retire(inner.now()));
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, copy, duplex, split},
        time::sleep,
    };
    use tollgate_core::{Key, Limiter, Quota, Rule, calendar::CalendarUnit};

    use super::*;
    use crate::{connection::stream::memory, keys::keys::Keys, store::redis_store::RedisStore};

    /// A server whose answers take a while.
    fn play_far(
        path: &str,
        delay: Duration,
        say: impl Fn(&[&str]) -> String + Send + Sync + 'static,
    ) {
        let say = Arc::new(say);
        memory::listen(path, move |client| {
            let (near, far) = duplex(1 << 20);
            let say = Arc::clone(&say);
            tokio::spawn(memory::serve(far, say));
            let ((mut from_client, mut to_client), (mut answers, mut questions)) =
                (split(client), split(near));
            tokio::spawn(async move { copy(&mut from_client, &mut questions).await });
            tokio::spawn(async move {
                let mut buffer = Vec::new();
                while let Ok(1..) = answers.read_buf(&mut buffer).await {
                    sleep(delay).await;
                    if to_client
                        .write_all(&std::mem::take(&mut buffer))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            });
            Ok(())
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_slots_are_asked_for_again_waits_for_one_deadline_in_all() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        play_far("/stale", Duration::from_millis(40), move |words| {
            count.fetch_add(usize::from(words[0].starts_with("EVAL")), Ordering::Relaxed);
            // The message is older than one that was read before, each time.
            "*4\r\n:1700000000000000\r\n:1\r\n:5\r\n:15000000\r\n".to_owned()
        });
        let store = RedisStore::builder("unix:///stale", "jobs", Keys::plain())
            .deadline(Duration::from_millis(100))
            .without_heartbeats()
            .connect()
            .expect("a valid address and a runtime");
        store.connected().await;
        let limiter = Limiter::new(store, [Rule::new("jobs", Quota::concurrent(5))]);
        let limiter = limiter.expect("a valid rule");
        let check = limiter.check("jobs", &Key::shared()).expect("the rule");
        asked.store(0, Ordering::Relaxed);
        let from = Instant::now();
        let decision = limiter.acquire(&[check]).await;
        let verdict = decision.verdicts()[0];
        assert_ne!(verdict.source(), Source::Store, "{decision:?}");
        assert_eq!(from.elapsed().as_millis(), 100);
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_clock_jumps_is_asked_for_a_calendar_once_more_within_the_deadline() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        play_far("/jumps", Duration::from_millis(40), move |words| {
            count.fetch_add(usize::from(words[0].starts_with("EVAL")), Ordering::Relaxed);
            "*4\r\n:1700000000000000\r\n:-3\r\n:7\r\n:0\r\n".to_owned()
        });
        let store = RedisStore::builder("unix:///jumps", "budget", Keys::plain())
            .deadline(Duration::from_millis(70))
            .without_heartbeats()
            .connect()
            .expect("a valid address and a runtime");
        store.connected().await;
        let quota = Quota::calendar(5, CalendarUnit::Month);
        let limiter = Limiter::new(store, [Rule::new("budget", quota)]).expect("a valid rule");
        let check = [limiter.check("budget", &Key::shared()).expect("the rule")];
        asked.store(0, Ordering::Relaxed);
        let from = Instant::now();
        assert_ne!(
            limiter.acquire(&check).await.verdicts()[0].source(),
            Source::Store
        );
        assert_eq!(
            (from.elapsed().as_millis(), asked.load(Ordering::Relaxed)),
            (70, 2)
        );
    }
}
