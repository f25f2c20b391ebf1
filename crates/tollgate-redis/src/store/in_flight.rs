//! A query of the engine in flight: it is sent as a call of the script, and what Redis answers goes back to the engine, until there is a
//! decision.

use std::{
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    Check, Decision, Outcome, Retry, Source, Tick, Verdict,
    algorithm::Assessment,
    store::{Checks, Hold, Settlement},
    wall_clock,
};
use tollgate_prefilter::{Begin, Counted, FollowUp, LeaseReply, Next, NoReply, Query, Reply};

use crate::{
    observe::CallFor,
    script::{
        args::{Operation, ScriptCall},
        call::RequestLayout,
        reply::{NewKey, ScriptReply},
    },
    store::{
        context::SentCall,
        rule_set_context::{RuleSetContext, report_block},
        slots::RequestSlots,
    },
};

/// How often a request is decided anew whose slots could not be used. Renewals that come in between are rare.
const MOST_TIMES: u32 = 3;

/// A query of the engine in flight.
pub(super) struct QueryInFlight {
    context: Arc<RuleSetContext>,
    query: Query,
    sent: SentCall,
    layout: QueryLayout,
    request: WaitingRequest,
    /// While units are lost if the reply is not processed.
    _in_flight: Option<Arc<()>>,
}

/// What stays of a request from one query to the next.
struct WaitingRequest {
    /// Whether somebody waits for its decision.
    is_waited_for: bool,
    /// All of its checks, where it may become void.
    checks: Checks,
    /// Whether it takes what they cost.
    takes: bool,
    /// For how long it waits for units at most.
    patience: Tick,
    /// What a ledger knows of the keys of its durable rules.
    bases: Vec<(Check, u64)>,
    /// The deadline, with all calls that it takes.
    by: Instant,
    /// The slots that are acquired, and those that earlier steps were given.
    slots: Option<RequestSlots>,
    /// How often it was decided anew.
    times: u32,
    /// Slots were granted that cannot be used, or their message came too late; or the server's clock is in none of the windows that were
    /// sent.
    is_void: bool,
}

impl QueryInFlight {
    /// Sends the first query of a request with these checks; none: no request waits for it. The decision, if nothing had to be sent or
    /// nothing could be.
    pub(super) fn start(
        context: &Arc<RuleSetContext>,
        query: Query,
        checks: &[Check],
        bases: &[(Check, u64)],
    ) -> ControlFlow<Decision, Self> {
        let has_slots = context.rules.has_slots() && query.takes();
        let may_become_void = has_slots || context.encoder.has_calendars;
        let request = WaitingRequest {
            is_waited_for: !checks.is_empty(),
            checks: Checks::from_slice(if may_become_void { checks } else { &[] }),
            takes: query.takes(),
            patience: query.patience,
            bases: bases.to_vec(),
            by: Instant::now() + context.store.deadline,
            slots: has_slots.then(|| RequestSlots::new(&context.store)),
            times: 0,
            is_void: false,
        };
        Self::go_on(context, Next::Query(query), request)
    }

    /// Sends what is to be asked next.
    fn go_on(
        context: &Arc<RuleSetContext>,
        mut next: Next,
        mut request: WaitingRequest,
    ) -> ControlFlow<Decision, Self> {
        let shared = &context.store;
        loop {
            let mut query = match next {
                Next::Query(query) => query,
                Next::Done(decision, follow_up) => {
                    send_follow_up(context, follow_up);
                    request.conclude(context, decision)?
                }
            };
            let now = context.now();
            let mut call = shared.new_call(now);
            let sending = shared.engine.fill(&mut query, now);
            call.bases.clone_from(&request.bases);
            match QueryLayout::new(context, &mut call, &query, request.slots.as_mut()) {
                Ok(layout) => {
                    let sent = shared.send(call, what_for(&query), request.by);
                    drop(sending);
                    let is_kept = query.is_about_leases_or_reports();
                    return ControlFlow::Continue(Self {
                        context: Arc::clone(context),
                        sent,
                        layout,
                        request,
                        _in_flight: is_kept.then(|| Arc::clone(&shared.in_flight)),
                        query,
                    });
                }
                Err(why) => {
                    drop(sending);
                    if let Some(slots) = &mut request.slots {
                        // Those before the check that had no room. The reply to a further step says nothing of them.
                        slots.finish(Err(NoReply::NotSent));
                    }
                    next = query.finish(Err(why), context.now());
                }
            }
        }
    }

    /// Processes what Redis has answered. The decision, unless there is more to ask.
    fn advance(mut self, reply: Result<ScriptReply, NoReply>) -> ControlFlow<Decision, Self> {
        let context = &self.context;
        if let Some(slots) = &mut self.request.slots {
            self.request.is_void |= slots.finish(reply.as_ref().map_err(|why| *why));
        }
        if let Err(NoReply::NoAnswer) = reply {
            context.note_unseen_keys(&self.layout.checks, false);
        }
        let reply = reply.map(|reply| {
            self.request.is_void |= context.encoder.has_calendars && self.layout.is_outside(&reply);
            self.layout.decode(context, &reply, &self.query)
        });
        let next = self.query.finish(reply, context.now());
        Self::go_on(context, next, self.request)
    }

    /// Waits for all replies in a task.
    fn spawn(self) {
        let context = Arc::clone(&self.context);
        let decided = Deciding(Some(self));
        context.store.spawn(async move { _ = decided.await });
    }
}

impl WaitingRequest {
    /// The decision; or the query that decides the request anew, where it is void. What it has taken goes back then.
    fn conclude(
        &mut self,
        context: &Arc<RuleSetContext>,
        decision: Decision,
    ) -> ControlFlow<Decision, Query> {
        let is_denied = decision.outcome() == Outcome::Deny;
        let may_repeat = match &self.slots {
            Some(_) => true,
            // Not of a server whose clock jumps, nor of a request that another rule denies.
            None => self.times == 0 && !(self.takes && is_denied),
        };
        if !std::mem::take(&mut self.is_void) || !may_repeat || !self.is_waited_for {
            if let Some(slots) = &mut self.slots {
                slots.hand_over();
            }
            return ControlFlow::Break(decision);
        }
        if let Some(slots) = &mut self.slots {
            slots.give_back();
        }
        if self.takes && !is_denied {
            let taken = context.local.taken(&self.checks, &decision);
            let follow_up = (context.local).settle(&taken, Settlement::Cancel, context.now());
            send_follow_up(context, follow_up);
        }
        if self.times >= MOST_TIMES {
            return ControlFlow::Break(self.deny_slots(context, &decision));
        }
        self.times += 1;
        let begin = match self.takes {
            true => (context.local).begin(&self.checks, self.patience, context.now()),
            false => context.local.peek(&self.checks, context.now()),
        };
        match begin {
            Begin::Decided(decision) => ControlFlow::Break(decision),
            Begin::Query(query) => ControlFlow::Continue(query),
        }
    }

    /// Others were faster again and again: it is denied.
    fn deny_slots(&self, context: &RuleSetContext, decision: &Decision) -> Decision {
        let answers = decision.verdicts().iter().zip(&self.checks);
        let verdicts = answers.map(|(verdict, check)| match verdict.is_of_slots() {
            true => {
                let answer = Assessment::new(false, verdict.remaining(), 0, Retry::Unknown);
                Verdict::new(check.rule(), check.plan(), answer, Source::Store).of_slots(None)
            }
            false => *verdict,
        });
        context.local.decision(decision.at(), verdicts)
    }
}

/// The decision of a request that waits for Redis; nothing once it was given.
pub(super) struct Deciding(pub(super) Option<QueryInFlight>);

impl Future for Deciding {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        loop {
            let Some(in_flight) = &mut self.0 else {
                // It was polled after its end.
                return Poll::Pending;
            };
            let reply =
                ready!(Pin::new(&mut in_flight.sent).poll(cx)).map_err(|error| error.no_reply());
            match self.0.take().map(|it| it.advance(reply)) {
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
        let Some(mut in_flight) = self.0.take().filter(|it| it.request.is_waited_for) else {
            return;
        };
        let context = Arc::clone(&in_flight.context);
        in_flight.request.is_waited_for = false;
        // They are given up, and the reply no longer counts for them.
        in_flight.request.slots = None;
        let (query, follow_up) = in_flight.query.abandon(context.now());
        send_follow_up(&context, follow_up);
        if let Some(query) = query {
            in_flight.query = query;
            in_flight.spawn();
        } else {
            context.note_unseen_keys(&in_flight.layout.checks, true);
        }
    }
}

/// Sends what no request waits for.
pub(super) fn send_follow_up(context: &Arc<RuleSetContext>, follow_up: FollowUp) {
    let same = |(_, one): &(_, Settlement), (_, other): &(_, Settlement)| one == other;
    for settled in follow_up.settle.chunk_by(same) {
        let holds: Vec<Hold> = settled.iter().map(|(hold, _)| *hold).collect();
        context.settle(&holds, settled[0].1);
    }
    send_alone(context, follow_up.queries);
}

/// Sends queries that no request waits for.
pub(super) fn send_alone(context: &Arc<RuleSetContext>, queries: Vec<Query>) {
    for query in queries {
        if let ControlFlow::Continue(in_flight) = QueryInFlight::start(context, query, &[], &[]) {
            in_flight.spawn();
        }
    }
}

fn what_for(query: &Query) -> CallFor {
    match (query.checks.is_empty(), query.leases.is_empty()) {
        (false, _) => CallFor::Requests,
        (true, true) => CallFor::Reports,
        (true, false) => CallFor::Leases,
    }
}

// A query of the engine as a call of the script, and the reply of the script as one to the query.

/// Where in a reply the answers to the parts of a query are. `None`: the part was not sent, because the call had no room left.
struct QueryLayout {
    checks: RequestLayout,
    reports: SmallVec<[Option<u16>; 1]>,
    returned: SmallVec<[Option<u16>; 1]>,
    grants: SmallVec<[Option<u16>; 1]>,
}

impl QueryLayout {
    /// Puts a query into a call.
    pub(super) fn new(
        context: &RuleSetContext,
        call: &mut ScriptCall,
        query: &Query,
        slots: Option<&mut RequestSlots>,
    ) -> Result<Self, NoReply> {
        let encoder = &context.encoder;
        let returned = query.leases.iter().map(|item| {
            let returned = item.query.returned?;
            call.close(encoder, &item.check, returned)
        });
        let returned = returned.collect();
        let debit = |check| call.debit(encoder, check);
        let reports = query.reports.iter().map(debit).collect();
        let checks = add_checks(context, call, query, slots);
        // More checks than a call carries.
        let checks = checks.ok_or(NoReply::NotSent)?;
        // No rule of the request has a limit.
        let is_nothing = !query.checks.is_empty() && checks.sent().next().is_none();
        if is_nothing || call.is_empty() {
            return Err(NoReply::NothingToSend);
        }
        let grants = query.leases.iter().map(|item| {
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
    fn is_outside(&self, reply: &ScriptReply) -> bool {
        let mut checks = self.checks.sent();
        checks.any(|(_, sent)| reply.is_outside(sent.place))
    }

    /// What the engine is answered. Counts what was created and what was blocked.
    fn decode(&self, context: &RuleSetContext, reply: &ScriptReply, query: &Query) -> Reply {
        let decision = reply.decision(&self.checks, &query.checks, &context.rules);
        let is_denied = decision.outcome() == Outcome::Deny;
        let mut decoded = Reply::new(decision);
        for (index, (check, sent)) in query.checks.iter().zip(self.checks.iter()).enumerate() {
            let new_key =
                sent.and_then(|sent| reply.new_key(sent, check, &context.rules, is_denied));
            // The same client has a state with each client of the rule that decides about the hash slot.
            if !context.encoder.is_found_alone(check.rule())
                || new_key == Some(NewKey::Refused)
                || sent.is_some_and(|sent| reply.is_of_another_quota(sent))
            {
                decoded.shared.push(index);
            }
            if let Some(sent) = sent.filter(|sent| sent.is_first) {
                if let Some(new_key) = new_key.filter(|_| query.takes()) {
                    context.note_new_key(sent, new_key);
                }
                report_block(&context.rules, check, reply.block_of(sent));
            }
        }
        let reports = self.reports.iter().map(|place| reply.report(*place));
        decoded.reports = reports.collect();
        for (report, reply) in query.reports.iter().zip(&decoded.reports) {
            if let Ok(Counted { left, .. }) = reply {
                context.note_reported(report, *left);
            }
        }
        let places = self.returned.iter().zip(&self.grants);
        let leases = places.map(|(returned, grant)| LeaseReply {
            is_refused: reply.was_refused(*returned),
            grant: grant.map_or(Ok(None), |place| reply.grant(place)),
        });
        decoded.leases = leases.collect();
        decoded
    }
}

/// Adds the checks of a query. `None`: they do not fit, or slots of too many keys are in use.
fn add_checks(
    context: &RuleSetContext,
    call: &mut ScriptCall,
    query: &Query,
    mut slots: Option<&mut RequestSlots>,
) -> Option<RequestLayout> {
    let (encoder, checks) = (&context.encoder, &query.checks);
    if checks.is_empty() {
        return Some(RequestLayout::default());
    }
    let may_make = |rule| {
        let cap = context.cap(rule);
        cap.is_none_or(|cap| cap.has_room(wall_clock()))
    };
    let mut has_room = true;
    let message = |check: &Check, with, place| {
        let message = slots.as_mut()?.acquire(encoder, check, with, place);
        has_room &= message.is_some();
        message
    };
    let what = match query.takes() {
        true => Operation::Take,
        false => Operation::Query,
    };
    let layout = call.request(encoder, checks, what, query.patience, may_make, message)?;
    has_room.then_some(layout)
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
        let limiter =
            Limiter::new(store, [Rule::new("jobs", Quota::concurrent(5))]).expect("a valid rule");
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
