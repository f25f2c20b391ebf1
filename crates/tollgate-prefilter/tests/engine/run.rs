//! One order of events, on fresh engines.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tollgate_core::{
    Check, Consistency, Decision, Outcome, Quota, Rule, RuleSet, Source, Tick, Verdict,
    store::{Receipt, Settlement},
};
use tollgate_prefilter::{
    Begin, BoundRules, Engine, EngineEvents, EngineOptions, FollowUp, GrantReply, IndexSet,
    LeaseEvent, LeaseItem, LeaseQuery, LeaseReply, LeaseTerms, Next, NoReply, Query, Reply,
    ReportEvent, ReportReply, Reset, ReturnedLease,
};

use crate::{
    ledger::Ledger,
    store::{State, by_decree, verdict},
    world::{Kind, LENGTH, World},
};

/// The store's clock is this far ahead of the processes'.
const AHEAD: Tick = 7_000_000;

/// How long the deny cache is believed, and a little more.
const TRUST: Tick = 1_100_000;

/// One order of events.
pub(crate) struct Run<'a> {
    world: &'a World,
    now: Tick,
    store: State,
    processes: Vec<Process>,
    messages: Vec<Message>,
    requests: Vec<Request>,
    ledger: Ledger,
    to_come: usize,
    extras: usize,
    was_reset: bool,
    trace: Vec<Event>,
}

struct Process {
    engine: Engine,
    /// The last is in use, the others are retired.
    bound: Vec<BoundRules>,
    is_removed: bool,
    /// The units that the engine says are lost, and those that are.
    lost: Arc<AtomicU64>,
    really_lost: u64,
}

/// A request, from when it begins.
struct Request {
    process: usize,
    bound: usize,
    checks: Vec<Check>,
    /// In the store's time: when it came, and when the store decided the first rule.
    began: Tick,
    decided: Tick,
    is_of_before: bool,
    /// What the store has taken for it in an earlier step.
    taken_before: u64,
    /// What a ticket would be for.
    taken: Vec<Receipt>,
    is_admitted: bool,
    is_settled: bool,
}

/// What is on its way to the store, or back.
struct Message {
    process: usize,
    bound: usize,
    content: Content,
    /// Who processes the reply.
    waits: Waits,
    request: Option<usize>,
    is_abandoned: bool,
    reply: Option<Reply>,
    is_executed: bool,
    /// What is lost if the reply is.
    taken: u64,
    granted: u64,
    executed: Tick,
}

enum Waits {
    Unowned,
    Query(Box<Query>),
    Reset(Reset),
}

enum Content {
    Query {
        checks: Vec<Check>,
        reports: Vec<Check>,
        leases: Vec<LeaseItem>,
    },
    Settle(Receipt, Settlement),
    /// Leases that go back, and how many unreported units the process forgets.
    Reset(Vec<ReturnedLease>, u64),
}

/// An event. Messages, processes and requests by their number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Begin(usize, u64),
    /// Whether the other rule denies.
    Execute(usize, bool),
    Deliver(usize),
    Vanish(usize),
    GiveUp(usize),
    Drop(usize),
    NotRun(usize),
    Abandon(usize),
    Cancel(usize),
    Charge(usize),
    Reset(usize),
    Maintain(usize),
    Replace(usize),
    Remove(usize),
    Pass(Tick),
}

#[derive(Debug)]
struct Lost(Arc<AtomicU64>);

impl EngineEvents for Lost {
    fn lease(&self, _: LeaseEvent) {}
    fn reports(&self, _: ReportEvent, _: usize) {}
    fn units_lost(&self, units: u64) {
        self.0.fetch_add(units, Ordering::Relaxed);
    }
}

impl<'a> Run<'a> {
    /// Engines that know the key, and hold a lease of it or count it locally.
    pub(crate) fn new(world: &'a World) -> Self {
        let rules = Arc::new(RuleSet::new(world.rules()).expect("valid rules"));
        let mut options = EngineOptions::default();
        options.keys = 1;
        let process = |_| {
            let lost = Arc::new(AtomicU64::new(0));
            let engine = Engine::new(options, Box::new(Lost(Arc::clone(&lost))));
            let bound = engine.bind(Arc::clone(&rules), world.places());
            Process {
                engine,
                bound: vec![bound],
                is_removed: false,
                lost,
                really_lost: 0,
            }
        };
        let terms = match world.consistency {
            Consistency::Leased { share } => LeaseTerms::new(&world.quota, share.as_permille()),
            _ => Err(tollgate_prefilter::NoLease::Small),
        };
        let mut run = Self {
            world,
            // In the store's time, five seconds after a window began.
            now: 1_700_000_040_000_000 + 5_000_000 - AHEAD,
            store: State::new(&world.quota, terms.ok()),
            processes: (0..world.processes).map(process).collect(),
            messages: Vec::new(),
            requests: Vec::new(),
            ledger: Ledger::default(),
            to_come: world.requests,
            extras: world.extras,
            was_reset: false,
            trace: Vec::new(),
        };
        for process in 0..world.processes {
            for cost in [1, 1, 2] {
                run.request_at_once(process, cost);
                run.now += 100_000;
            }
        }
        run
    }

    fn store_now(&self) -> Tick {
        self.now + AHEAD
    }

    /// What may happen next.
    pub(crate) fn events(&self, events: &mut Vec<Event>) {
        events.clear();
        let has = |kind| self.extras > 0 && self.world.has(kind);
        for (index, message) in self.messages.iter().enumerate() {
            let waits = !matches!(message.waits, Waits::Unowned);
            if !message.is_executed {
                events.push(Event::Execute(index, false));
                if message.includes(1) {
                    events.push(Event::Execute(index, true));
                }
            } else {
                events.push(Event::Deliver(index));
            }
            if !waits && !message.is_executed && !matches!(message.content, Content::Settle(..)) {
                events.push(Event::Vanish(index));
            }
            if waits && has(Kind::GiveUp) {
                events.push(Event::GiveUp(index));
            }
            if waits && has(Kind::Drop) && message.is_query() {
                events.push(Event::Drop(index));
            }
            if waits && has(Kind::NotRun) && !message.is_executed {
                events.push(Event::NotRun(index));
            }
            if waits && has(Kind::Abandon) && message.request.is_some() && !message.is_abandoned {
                events.push(Event::Abandon(index));
            }
        }
        for (process, it) in self.processes.iter().enumerate() {
            if !it.is_removed && self.to_come > 0 {
                let costs = self.world.costs.iter();
                events.extend(costs.map(|cost| Event::Begin(process, *cost)));
            }
            let mut add = |kind, event| {
                if has(kind) && !it.is_removed {
                    events.push(event);
                }
            };
            add(Kind::Reset, Event::Reset(process));
            add(Kind::Maintain, Event::Maintain(process));
            add(Kind::Replace, Event::Replace(process));
            add(Kind::Remove, Event::Remove(process));
        }
        for (index, request) in self.requests.iter().enumerate() {
            if request.is_admitted && !request.is_settled && !request.is_of_prelude(index, self) {
                if has(Kind::Cancel) {
                    events.push(Event::Cancel(index));
                }
                if has(Kind::Charge) {
                    events.push(Event::Charge(index));
                }
            }
        }
        if self.extras > 0 {
            // A query is not under way for longer.
            let is_turn = |event: &Event| matches!(event, Event::Pass(time) if *time >= LENGTH);
            let turns = self.trace.iter().filter(|event| is_turn(event)).count();
            let times = self.world.kinds.iter().filter_map(|kind| match kind {
                Kind::Pass(time) if *time < LENGTH || turns < 2 => Some(Event::Pass(*time)),
                _ => None,
            });
            events.extend(times);
        }
    }

    pub(crate) fn happen(&mut self, event: Event) {
        self.trace.push(event);
        match event {
            Event::Begin(process, cost) => {
                self.to_come -= 1;
                self.begin(process, cost);
            }
            Event::Execute(index, is_denied) => self.execute(index, is_denied),
            Event::Deliver(index) => self.deliver(index),
            Event::Vanish(index) => self.vanish(index),
            _ => {
                self.extras -= 1;
                self.happen_extra(event);
            }
        }
    }

    fn happen_extra(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::GiveUp(index) => self.no_reply(index, Some(NoReply::Unknown)),
            Event::Drop(index) => self.no_reply(index, None),
            Event::NotRun(index) => self.no_reply(index, Some(NoReply::NotRun)),
            Event::Abandon(index) => self.abandon(index),
            Event::Cancel(request) => self.settle(request, Settlement::Cancel),
            Event::Charge(request) => self.settle(request, Settlement::Charge(1)),
            Event::Reset(process) => {
                // Of a request that came before it nothing comes back to the process, whatever becomes of the reset.
                self.was_reset = true;
                let bound = self.processes[process].bound.len() - 1;
                let checks = self.world.checks(1);
                let first: Vec<_> = checks.into_iter().filter(|it| it.rule() == 0).collect();
                let it = &self.processes[process];
                let unreported = it.engine.units_unreported();
                let reset = it.bound[bound].begin_reset(&first, now);
                let returned = reset.returned().iter().map(|(_, it)| *it).collect();
                let content = Content::Reset(returned, unreported - it.engine.units_unreported());
                self.post(process, bound, content, Waits::Reset(reset), None);
            }
            Event::Maintain(process) => {
                let bound = self.processes[process].bound.len() - 1;
                let queries = self.processes[process].bound[bound].poll_maintenance(now);
                self.send_all(process, bound, queries);
            }
            Event::Replace(process) => self.replace(process, self.world.rules()),
            Event::Remove(process) => {
                let other = Quota::gcra(9, tollgate_core::MINUTE);
                self.replace(process, vec![Rule::new("another", other)]);
                self.processes[process].is_removed = true;
            }
            Event::Pass(time) => self.now += time,
            _ => unreachable!("{event:?} is no extra"),
        }
    }

    fn replace(&mut self, process: usize, rules: Vec<Rule>) {
        let rules = Arc::new(RuleSet::new(rules).expect("valid rules"));
        let it = &mut self.processes[process];
        let old = it.bound.len() - 1;
        it.bound.push(it.engine.bind(rules, self.world.places()));
        let queries = it.bound[old].retire(self.now);
        self.send_all(process, old, queries);
    }

    fn begin(&mut self, process: usize, cost: u64) {
        let checks = self.world.checks(cost);
        let bound = self.processes[process].bound.len() - 1;
        let began = self.store_now();
        let begin = self.processes[process].bound[bound].begin(&checks, self.now);
        let request = self.requests.len();
        self.requests.push(Request {
            process,
            bound,
            checks,
            began,
            decided: began,
            is_of_before: false,
            taken_before: 0,
            taken: Vec::new(),
            is_admitted: false,
            is_settled: false,
        });
        match begin {
            Begin::Decided(decision) => self.decided(request, &decision),
            Begin::Query(query) => self.send(process, bound, query, Some(request)),
        }
    }

    fn send_all(&mut self, process: usize, bound: usize, queries: Vec<Query>) {
        for query in queries {
            self.send(process, bound, query, None);
        }
    }

    fn send(&mut self, process: usize, bound: usize, mut query: Query, request: Option<usize>) {
        let content = query.send(self.now, |query| Content::Query {
            checks: query.checks().to_vec(),
            reports: query.reports().to_vec(),
            leases: query.leases().to_vec(),
        });
        self.post(
            process,
            bound,
            content,
            Waits::Query(Box::new(query)),
            request,
        );
    }

    fn post(
        &mut self,
        process: usize,
        bound: usize,
        content: Content,
        waits: Waits,
        request: Option<usize>,
    ) {
        self.messages.push(Message {
            process,
            bound,
            content,
            waits,
            request,
            is_abandoned: false,
            reply: None,
            is_executed: false,
            taken: 0,
            granted: 0,
            executed: 0,
        });
    }

    fn follow_up(&mut self, process: usize, bound: usize, follow_up: FollowUp) {
        for (receipt, how) in follow_up.settle {
            let content = Content::Settle(receipt, how);
            self.post(process, bound, content, Waits::Unowned, None);
        }
        self.send_all(process, bound, follow_up.queries);
    }

    /// A request is decided. If the store failed, it is not let through.
    fn decided(&mut self, request: usize, decision: &Decision) {
        let it = &mut self.requests[request];
        let verdicts = it.checks.iter().zip(decision.verdicts());
        let is_taken = |verdict: &Verdict| verdict.outcome() == Outcome::Allow;
        let taken = verdicts.clone().filter(|(_, verdict)| is_taken(verdict));
        let taken = taken.map(|(check, verdict)| Receipt::new(*check, verdict, decision.at()));
        it.taken = taken.collect();
        if decision.is_allowed() {
            it.is_admitted = true;
            for (check, verdict) in verdicts.filter(|(check, _)| check.rule() == 0) {
                let at = match verdict.source() {
                    Source::Store => it.decided,
                    _ => it.began,
                };
                if !it.is_of_before {
                    self.ledger.admit(request, at, check.cost());
                }
            }
        } else if decision.outcome() == Outcome::Failed {
            self.settle(request, Settlement::Cancel);
        }
    }

    fn settle(&mut self, request: usize, how: Settlement) {
        let it = &mut self.requests[request];
        it.is_settled = true;
        let (process, bound) = (it.process, it.bound);
        let receipts = it.taken.clone();
        if how == Settlement::Cancel {
            self.ledger.cancel(request);
        }
        let follow_up = self.processes[process].bound[bound].settle(&receipts, how, self.now);
        let is_first = |receipt: &Receipt| receipt.check.rule() == 0;
        let is_settled_here = |(receipt, _): &(Receipt, Settlement)| is_first(receipt);
        if let Settlement::Charge(units) = how
            && receipts.iter().any(is_first)
            && !follow_up.settle.iter().any(is_settled_here)
        {
            // It was spent here. Nobody cancels it.
            self.ledger.admit(usize::MAX, self.store_now(), units);
        }
        self.follow_up(process, bound, follow_up);
    }

    fn execute(&mut self, index: usize, is_denied: bool) {
        let now = self.store_now();
        let mut message = self.messages.remove(index);
        message.is_executed = true;
        message.executed = now;
        match &message.content {
            Content::Settle(receipt, how) => {
                if receipt.check.rule() == 0 {
                    self.settle_in_store(receipt, *how);
                }
                return;
            }
            Content::Reset(returned, _) => {
                for returned in returned {
                    self.store.take_back(now, *returned);
                }
                self.store.reset(now);
                let mut excused = 0;
                let prelude = 3 * self.world.processes;
                for (index, request) in self.requests.iter_mut().enumerate() {
                    let units = request.checks.iter().filter(|check| check.rule() == 0);
                    let units = units.map(Check::cost).sum::<u64>();
                    excused += if index < prelude { 0 } else { units };
                    request.is_of_before = true;
                }
                self.ledger.reset(excused);
            }
            Content::Query {
                checks,
                reports,
                leases,
            } => {
                let (reply, taken, granted) =
                    carry_out(&mut self.store, now, (checks, reports, leases), is_denied);
                (message.taken, message.granted) = (taken, granted);
                message.reply = Some(reply);
                if let Some(request) = message.request
                    && checks.iter().any(|check| check.rule() == 0)
                {
                    self.requests[request].decided = now;
                    self.requests[request].is_of_before = false;
                }
            }
        }
        // Of local usage nothing comes back to a process for a request that nobody waits for.
        if message.is_abandoned && !self.world.is_leased() {
            self.ledger.lose(now, std::mem::take(&mut message.taken));
        }
        match message.waits {
            Waits::Unowned => self.ledger.lose(now, message.taken + message.granted),
            _ => self.messages.insert(index, message),
        }
    }

    fn settle_in_store(&mut self, receipt: &Receipt, how: Settlement) {
        let now = self.store_now();
        match how {
            Settlement::Cancel => self.store.refund(now, receipt.taken, receipt.check.cost()),
            Settlement::Refund(units) => self.store.refund(now, receipt.taken, units),
            Settlement::Charge(units) => {
                let units = units.min(self.store.assess(now, 0).remaining);
                self.store.take(now, units);
                self.ledger.admit(usize::MAX, now, units);
            }
            _ => unreachable!("{how:?} is not sent"),
        }
    }

    fn deliver(&mut self, index: usize) {
        let message = self.messages.remove(index);
        match (message.waits, message.reply) {
            (Waits::Query(query), Some(reply)) => {
                let next = query.finish(Ok(reply), self.now);
                if let Some(request) = message.request {
                    self.requests[request].taken_before += message.taken;
                }
                self.next(message.process, message.bound, message.request, next);
            }
            (Waits::Reset(reset), _) => reset.finish(Ok(&|_| false)),
            _ => unreachable!("nobody waits for it"),
        }
    }

    fn next(&mut self, process: usize, bound: usize, request: Option<usize>, next: Next) {
        match next {
            Next::Ask(query) => self.send(process, bound, query, request),
            Next::Done(done) => {
                self.follow_up(process, bound, done.follow_up);
                if let Some(request) = request {
                    self.decided(request, &done.decision);
                }
            }
        }
    }

    /// No reply is waited for any more; `None`: the query is dropped.
    fn no_reply(&mut self, index: usize, why: Option<NoReply>) {
        let mut message = self.messages.remove(index);
        let request = message.request.take();
        let (process, bound) = (message.process, message.bound);
        let is_unknown = why != Some(NoReply::NotRun);
        if is_unknown && let Content::Query { reports, .. } = &message.content {
            let units: u64 = reports.iter().map(Check::cost).sum();
            self.processes[process].really_lost += units;
        }
        let waits = std::mem::replace(&mut message.waits, Waits::Unowned);
        if is_unknown && message.is_executed {
            let units = message.taken + message.granted;
            self.ledger.lose(message.executed, units);
        } else if is_unknown {
            // It may still be carried out.
            self.messages.insert(index, message);
        } else if let Content::Reset(_, unreported) = message.content {
            self.ledger.lose_report(unreported);
        }
        match (waits, why) {
            (Waits::Query(query), Some(why)) => {
                let next = query.finish(Err(why), self.now);
                self.next(process, bound, request, next);
            }
            (Waits::Reset(reset), Some(why)) => {
                reset.finish(Err(why));
            }
            _ => {}
        }
    }

    fn vanish(&mut self, index: usize) {
        let now = self.store_now();
        match self.messages.remove(index).content {
            Content::Query {
                reports, leases, ..
            } => {
                let returned = leases.iter().filter_map(|item| item.query.returned);
                self.lose_returned(returned);
                self.ledger
                    .lose_report(reports.iter().map(Check::cost).sum());
            }
            Content::Reset(returned, unreported) => {
                self.lose_returned(returned.into_iter());
                self.ledger.lose_report(unreported);
            }
            Content::Settle(receipt, ..) => self.ledger.lose(now, receipt.check.cost()),
        }
    }

    fn lose_returned(&mut self, returned: impl Iterator<Item = ReturnedLease>) {
        for returned in returned {
            // Of a bucket it is not looked at.
            let at = returned.generation.saturating_mul(LENGTH);
            self.ledger.lose(at, returned.left);
        }
    }

    fn abandon(&mut self, index: usize) {
        let message = &mut self.messages[index];
        let Waits::Query(query) = std::mem::replace(&mut message.waits, Waits::Unowned) else {
            unreachable!("a request waits");
        };
        message.is_abandoned = true;
        if let Some(request) = message.request.take()
            && !self.world.is_leased()
        {
            let request = &self.requests[request];
            self.ledger.lose(request.decided, request.taken_before);
        }
        let (process, bound) = (message.process, message.bound);
        let (query, follow_up) = query.abandon(self.now);
        if let Some(query) = query {
            message.waits = Waits::Query(Box::new(query));
        }
        let message = &self.messages[index];
        let takes_of_window =
            self.world.is_leased() && self.world.is_window() && message.includes(0);
        let is_heard = message.is_query() || !takes_of_window;
        self.must(is_heard, "what is taken for nobody stays in the process");
        let message = &mut self.messages[index];
        if message.is_executed {
            let is_lost = !self.world.is_leased() || matches!(message.waits, Waits::Unowned);
            if is_lost {
                let units = std::mem::take(&mut message.taken);
                self.ledger.lose(message.executed, units);
            }
            if matches!(message.waits, Waits::Unowned) {
                self.messages.remove(index);
            }
        }
        self.follow_up(process, bound, follow_up);
    }

    /// A request whose query is carried out and replied to at once.
    fn request_at_once(&mut self, process: usize, cost: u64) {
        let earlier = self.messages.len();
        self.begin(process, cost);
        self.bring_in(earlier);
    }

    /// All messages but the first few reach the store, and their replies come.
    fn bring_in(&mut self, but: usize) {
        while self.messages.len() > but {
            match self.messages[but].is_executed {
                true => self.deliver(but),
                false => self.execute(but, false),
            }
        }
    }

    /// Nothing is under way any more. All is flushed, as when the processes end, and all units have to be where they belong.
    pub(crate) fn end(mut self) {
        self.flush();
        self.check("at the end");
        if self.processes.iter().any(|it| it.is_removed) {
            return;
        }
        self.leases_are_wanted_again();
        // Whoever is asked for all there is.
        for _ in 0..2 {
            self.now += TRUST;
            while self.somebody_is_admitted() {}
            self.check_limit();
            self.flush();
            self.check("when all that there is was asked for");
        }
        self.check_used_up();
    }

    fn somebody_is_admitted(&mut self) -> bool {
        for process in 0..self.processes.len() {
            self.request_at_once(process, 1);
        }
        let last = self.requests.iter().rev().take(self.processes.len());
        last.filter(|request| request.is_admitted).count() > 0
    }

    fn flush(&mut self) {
        for process in 0..self.processes.len() {
            for bound in 0..self.processes[process].bound.len() {
                let is_retired = bound + 1 < self.processes[process].bound.len();
                // What a retired rule set holds has gone back by itself, unless that did not run.
                let is_back = is_retired && !self.did_not_run();
                for _ in 0..9 {
                    if is_back && self.processes[process].bound[bound].is_reported() {
                        break;
                    }
                    let queries = self.processes[process].bound[bound].flush(self.now);
                    if queries.is_empty() {
                        break;
                    }
                    self.send_all(process, bound, queries);
                    self.bring_in(0);
                }
                let is_reported = self.processes[process].bound[bound].is_reported();
                self.must(is_reported, "everything is reported");
            }
        }
    }

    fn did_not_run(&self) -> bool {
        let mut trace = self.trace.iter();
        trace.any(|event| matches!(event, Event::NotRun(_)))
    }

    /// No query is taken for one that is still under way.
    fn leases_are_wanted_again(&mut self) {
        if !self.world.is_leased() {
            return;
        }
        for process in 0..self.processes.len() {
            // So much is asked for that a lease would pay.
            self.now += TRUST;
            self.request_at_once(process, self.world.quota.limit() - 1);
            self.now += TRUST;
            self.begin(process, self.world.quota.limit() - 1);
            let Some(message) = self.messages.first() else {
                continue;
            };
            if let Content::Query { leases, checks, .. } = &message.content
                && checks.iter().any(|check| check.rule() == 0)
            {
                let is_wanted = leases.iter().any(|item| item.query.wants_grant());
                self.must(is_wanted, "a lease is wanted");
            }
            self.bring_in(0);
        }
        self.flush();
    }

    fn check(&self, when: &str) {
        let (world, now) = (self.world, self.store_now());
        for it in &self.processes {
            let on_lease = it.engine.units_on_lease(self.now);
            self.must(
                on_lease == 0,
                &format!("{on_lease} units are on lease {when}"),
            );
            let unreported = it.engine.units_unreported();
            let reported = format!("{unreported} units are unreported {when}");
            self.must(unreported == 0, &reported);
            let lost = it.lost.load(Ordering::Relaxed);
            let reported = format!("{lost} units are said to be lost, {} are", it.really_lost);
            self.must(lost == it.really_lost, &reported);
        }
        if !world.is_window() {
            if self.was_reset {
                return;
            }
            let left = self.ledger.left_in_bucket(&world.quota, now);
            let in_store = i128::from(self.store.assess(now, 0).remaining);
            let reported = format!("the exact bucket has {left}, the store {in_store} {when}");
            return self.must(left >= in_store, &reported);
        }
        let counted = self.store.counted(now);
        let (admitted, lost) = self.ledger.of_window(world, now);
        let reported = format!("{counted} are counted, {admitted} admitted, {lost} lost {when}");
        if self.was_reset {
            let never = self.ledger.never_reported();
            self.must(
                admitted <= counted + never + self.ledger.excused(),
                &reported,
            );
        } else if world.is_leased() {
            self.must(counted == admitted + lost, &reported);
        } else if !world.turns() {
            let never = self.ledger.never_reported();
            self.must(counted + never == admitted + lost, &reported);
        } else {
            self.must(counted <= self.ledger.total() + lost, &reported);
        }
    }

    fn check_limit(&self) {
        let (world, limit) = (self.world, self.world.quota.limit());
        let beyond = match world.consistency {
            Consistency::Eventual { max_unreported, .. } => {
                // What is lost with a report, or comes back after a reset, is let through once more.
                world.processes as u64 * max_unreported + self.ledger.never_reported()
            }
            _ => 0,
        };
        let most = self.ledger.most_in_a_window();
        let is_fixed = world.is_window()
            && world.quota.algorithm() == tollgate_core::AlgorithmKind::FixedWindow;
        if is_fixed {
            let reported = format!("{most} units were admitted in one window");
            self.must(most <= limit + beyond + self.ledger.excused(), &reported);
        }
    }

    /// All of a fixed window that was not lost could be used.
    fn check_used_up(&self) {
        let world = self.world;
        let is_fixed = world.quota.algorithm() == tollgate_core::AlgorithmKind::FixedWindow;
        if !is_fixed || !world.is_leased() || self.was_reset {
            return;
        }
        let (admitted, lost) = self.ledger.of_window(world, self.store_now());
        let reported = format!("{admitted} are admitted and {lost} lost of all");
        self.must(admitted + lost == world.quota.limit(), &reported);
    }

    fn must(&self, is_so: bool, reported: &str) {
        assert!(is_so, "{reported}: {:?} in {:?}", self.trace, self.world);
    }
}

impl Request {
    /// Whether it came before the events that are explored.
    fn is_of_prelude(&self, index: usize, run: &Run<'_>) -> bool {
        index < 3 * run.world.processes
    }
}

impl Message {
    fn is_query(&self) -> bool {
        matches!(self.waits, Waits::Query(_))
    }

    fn includes(&self, rule: u16) -> bool {
        match &self.content {
            Content::Query { checks, .. } => checks.iter().any(|check| check.rule() == rule),
            _ => false,
        }
    }
}

/// The store carries out a query, as one step. The reply, and the units of the first rule that were taken and granted.
fn carry_out(
    store: &mut State,
    now: Tick,
    (checks, reports, leases): (&[Check], &[Check], &[LeaseItem]),
    is_denied: bool,
) -> (Reply, u64, u64) {
    for item in leases {
        if let Some(returned) = item.query.returned {
            store.take_back(now, returned);
        }
    }
    let reports = reports.iter().map(|report| {
        store.take(now, report.cost());
        let answer = store.assess(now, 0);
        ReportReply::Counted {
            left: answer.remaining,
            reset_after: answer.reset_after,
        }
    });
    let reports = reports.collect();
    let answer = |check: &Check| match check.rule() {
        0 => store.assess(now, check.cost()),
        _ => by_decree(is_denied),
    };
    let mut answers: Vec<_> = checks.iter().map(answer).collect();
    let (mut taken, mut grant) = (0, None);
    let is_alone = checks.len() == 1;
    if is_alone || answers.iter().all(|answer| answer.fits) {
        for (check, answer) in checks.iter().zip(&mut answers) {
            if check.rule() != 0 {
                continue;
            }
            let wanted = leases
                .first()
                .map_or(LeaseQuery::default(), |item| LeaseQuery {
                    returned: None,
                    ..item.query
                });
            (*answer, grant) = store.acquire(now, check.cost(), &wanted);
            taken = u64::from(answer.fits) * check.cost();
        }
    }
    let verdicts = checks.iter().zip(answers);
    let verdicts = verdicts.map(|(check, answer)| verdict(check, answer));
    let lease = |_: &LeaseItem| LeaseReply {
        is_refused: false,
        grant: grant.map_or(GrantReply::None, GrantReply::Granted),
    };
    let granted = grant.map_or(0, |grant| grant.units());
    let reply = Reply {
        at: now,
        decision: Decision::new(now, verdicts, |_| true),
        shared: IndexSet::default(),
        reports,
        leases: leases.iter().map(lease).collect(),
    };
    (reply, taken, granted)
}
