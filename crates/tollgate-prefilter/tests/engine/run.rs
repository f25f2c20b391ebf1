//! One order of events, on fresh engines.

use std::sync::Arc;

use tollgate_core::{
    Check, Consistency, Decision, Outcome, Quota, Rule, RuleSet, Source, Tick, Verdict,
    store::{Hold, Settlement},
};
use tollgate_prefilter::{
    Begin, Engine, EngineEvent, FollowUp, LeaseTerms, LocalRules, Next, NoReply, Query, Reply,
    ReturnedLease, SlotTerms,
};
use tollgate_test_reference::LimitState;

use crate::{
    end::End,
    reference::Reference,
    store::{assess, carry_out, take_back},
    world::{Content, Event, Kind, LENGTH, Message, Request, Waits, World},
};

/// The store's clock is this far ahead of the processes'.
const AHEAD: Tick = 7_000_000;

/// How long the deny cache is believed, and a little more.
pub(crate) const TRUST: Tick = 1_100_000;

/// One order of events.
pub(crate) struct Run<'a> {
    pub(crate) world: &'a World,
    pub(crate) now: Tick,
    pub(crate) store: LimitState,
    pub(crate) processes: Vec<Process>,
    pub(crate) messages: Vec<Message>,
    pub(crate) requests: Vec<Request>,
    pub(crate) reference: Reference,
    pub(crate) to_come: usize,
    pub(crate) extras: usize,
    pub(crate) was_reset: bool,
    pub(crate) trace: Vec<Event>,
}

impl<'a> Run<'a> {
    /// Engines that know the key, and hold a lease of it or count it locally.
    pub(crate) fn new(world: &'a World) -> Self {
        let rules = Arc::new(RuleSet::new(world.rules()).expect("valid rules"));
        let terms = match world.consistency {
            Consistency::Leased { share } => LeaseTerms::new(&world.quota, share.as_permille()),
            _ => Err("it is not leased"),
        };
        let mut run = Self {
            world,
            // In the store's time, five seconds after a window began.
            now: 1_700_000_040_000_000 + 5_000_000 - AHEAD,
            store: LimitState::new(&world.quota, terms.ok()).expect("it is granted"),
            processes: (0..world.processes)
                .map(|_| Process::new(world, &rules))
                .collect(),
            messages: Vec::new(),
            requests: Vec::new(),
            reference: Reference::default(),
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

    /// How many requests came before the events that are explored.
    fn prelude(&self) -> usize {
        3 * self.world.processes
    }

    pub(crate) fn store_now(&self) -> Tick {
        self.now + AHEAD
    }

    /// What may happen next.
    pub(crate) fn events(&self, events: &mut Vec<Event>) {
        events.clear();
        let has = |kind| self.extras > 0 && self.world.has(kind);
        for (index, message) in self.messages.iter().enumerate() {
            let waits = !matches!(message.waits, Waits::NoProcess);
            if !message.is_executed {
                events.push(Event::Execute(index, false));
                if message.checks(1) {
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
            if request.is_admitted && !request.is_settled && index >= self.prelude() {
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
            Event::GiveUp(index) => self.no_reply(index, Some(NoReply::NoAnswer)),
            Event::Drop(index) => self.no_reply(index, None),
            Event::NotRun(index) => self.no_reply(index, Some(NoReply::NotSent)),
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
                let unreported = || it.engine.usage(now).units_unreported;
                let before = unreported();
                let (reset, _) = it.bound[bound].begin_reset(&first, now);
                let leases = reset.leases.iter();
                let returned = leases.filter_map(|it| it.query.returned).collect();
                let content = Content::Reset(returned, before - unreported());
                self.post(process, bound, content, Waits::Reset(Box::new(reset)), None);
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
        let bound = LocalRules::new(&it.engine, rules, self.world.places(), |_| None);
        it.bound.push(bound);
        let queries = it.bound[old].retire(self.now);
        self.send_all(process, old, queries);
    }

    pub(crate) fn begin(&mut self, process: usize, cost: u64) {
        let checks = self.world.checks(cost);
        let bound = self.processes[process].bound.len() - 1;
        let began = self.store_now();
        let begin = self.processes[process].bound[bound].begin(&checks, Tick::MAX, self.now);
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

    pub(crate) fn send_all(&mut self, process: usize, bound: usize, queries: Vec<Query>) {
        for query in queries {
            self.send(process, bound, query, None);
        }
    }

    fn send(&mut self, process: usize, bound: usize, mut query: Query, request: Option<usize>) {
        drop(self.processes[process].engine.fill(&mut query, self.now));
        let content = Content::Query {
            checks: query.checks.to_vec(),
            reports: query.reports.to_vec(),
            leases: query.leases.to_vec(),
        };
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
            self.post(process, bound, content, Waits::NoProcess, None);
        }
        self.send_all(process, bound, follow_up.queries);
    }

    /// A request is decided. If the store failed, it is not let through.
    fn decided(&mut self, request: usize, decision: &Decision) {
        let it = &mut self.requests[request];
        let verdicts = it.checks.iter().zip(decision.verdicts());
        let is_taken = |verdict: &Verdict| verdict.outcome() == Outcome::Allow;
        let taken = verdicts.clone().filter(|(_, verdict)| is_taken(verdict));
        let taken = taken.map(|(check, verdict)| verdict.hold(*check, decision.at()));
        it.taken = taken.collect();
        if decision.is_allowed() {
            it.is_admitted = true;
            for (check, verdict) in verdicts.filter(|(check, _)| check.rule() == 0) {
                let at = match verdict.source() {
                    Source::Store => it.decided,
                    _ => it.began,
                };
                if !it.is_of_before {
                    self.reference.admit(request, at, check.cost());
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
            self.reference.cancel(request);
        }
        let follow_up = self.processes[process].bound[bound].settle(&receipts, how, self.now);
        let is_first = |receipt: &Hold| receipt.check.rule() == 0;
        let settles_first = |(receipt, _): &(Hold, Settlement)| is_first(receipt);
        if let Settlement::Charge(units) = how
            && receipts.iter().any(is_first)
            && !follow_up.settle.iter().any(settles_first)
        {
            // It was spent here, and is not cancelled.
            self.reference.admit(usize::MAX, self.store_now(), units);
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
                    take_back(&mut self.store, now, *returned);
                }
                self.store.reset(now);
                let mut excused = 0;
                let prelude = self.prelude();
                for (index, request) in self.requests.iter_mut().enumerate() {
                    let units = request.checks.iter().filter(|check| check.rule() == 0);
                    let units = units.map(Check::cost).sum::<u64>();
                    excused += if index < prelude { 0 } else { units };
                    request.is_of_before = true;
                }
                self.reference.reset(excused);
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
        // Nothing comes back to a process for an abandoned request.
        if message.is_abandoned {
            self.reference.lose(now, std::mem::take(&mut message.taken));
        }
        match message.waits {
            Waits::NoProcess => self.reference.lose(now, message.taken + message.granted),
            _ => self.messages.insert(index, message),
        }
    }

    fn settle_in_store(&mut self, receipt: &Hold, how: Settlement) {
        let now = self.store_now();
        match how {
            Settlement::Cancel => self.store.refund(now, receipt.taken, receipt.check.cost()),
            Settlement::Refund(units) => self.store.refund(now, receipt.taken, units),
            Settlement::Charge(units) => {
                let units = units.min(assess(&self.store, now, 0).remaining);
                self.store.take(now, units);
                self.reference.admit(usize::MAX, now, units);
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
            (Waits::Reset(reset), _) => {
                let at = self.store_now();
                let reply = Reply::new(Decision::new(at, [], |_| true));
                let next = reset.finish(Ok(reply), self.now);
                self.next(message.process, message.bound, None, next);
            }
            _ => unreachable!("no process waits for it"),
        }
    }

    fn next(&mut self, process: usize, bound: usize, request: Option<usize>, next: Next) {
        match next {
            Next::Query(query) => self.send(process, bound, query, request),
            Next::Done(decision, follow_up) => {
                self.follow_up(process, bound, follow_up);
                if let Some(request) = request {
                    self.decided(request, &decision);
                }
            }
        }
    }

    /// No reply is waited for any more; `None`: the query is dropped.
    fn no_reply(&mut self, index: usize, why: Option<NoReply>) {
        let mut message = self.messages.remove(index);
        let request = message.request.take();
        let (process, bound) = (message.process, message.bound);
        let is_unknown = why != Some(NoReply::NotSent);
        if is_unknown && let Content::Query { reports, .. } = &message.content {
            let units: u64 = reports.iter().map(Check::cost).sum();
            self.processes[process].really_lost += units;
        }
        let waits = std::mem::replace(&mut message.waits, Waits::NoProcess);
        if is_unknown && message.is_executed {
            let units = message.taken + message.granted;
            self.reference.lose(message.executed, units);
        } else if is_unknown {
            // It may still be carried out.
            self.messages.insert(index, message);
        } else if let Content::Reset(_, unreported) = message.content {
            self.reference.lose_report(unreported);
        }
        if let (Waits::Query(query) | Waits::Reset(query), Some(why)) = (waits, why) {
            let next = query.finish(Err(why), self.now);
            self.next(process, bound, request, next);
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
                self.reference
                    .lose_report(reports.iter().map(Check::cost).sum());
            }
            Content::Reset(returned, unreported) => {
                self.lose_returned(returned.into_iter());
                self.reference.lose_report(unreported);
            }
            Content::Settle(receipt, ..) => self.reference.lose(now, receipt.check.cost()),
        }
    }

    fn lose_returned(&mut self, returned: impl Iterator<Item = ReturnedLease>) {
        for returned in returned {
            // Of a bucket it is not looked at.
            let at = returned.generation.saturating_mul(LENGTH);
            self.reference.lose(at, returned.left);
        }
    }

    fn abandon(&mut self, index: usize) {
        let message = &mut self.messages[index];
        let Waits::Query(query) = std::mem::replace(&mut message.waits, Waits::NoProcess) else {
            unreachable!("a request waits");
        };
        message.is_abandoned = true;
        if let Some(request) = message.request.take() {
            let request = &self.requests[request];
            self.reference.lose(request.decided, request.taken_before);
        }
        let (process, bound) = (message.process, message.bound);
        let (query, follow_up) = query.abandon(self.now);
        if let Some(query) = query {
            message.waits = Waits::Query(Box::new(query));
        }
        let message = &mut self.messages[index];
        if message.is_executed {
            let units = std::mem::take(&mut message.taken);
            self.reference.lose(message.executed, units);
            if matches!(message.waits, Waits::NoProcess) {
                self.messages.remove(index);
            }
        }
        self.follow_up(process, bound, follow_up);
    }

    /// A request whose query is carried out and replied to at once.
    pub(crate) fn request_at_once(&mut self, process: usize, cost: u64) {
        let earlier = self.messages.len();
        self.begin(process, cost);
        self.bring_in(earlier);
    }

    /// All messages but the first few reach the store, and their replies come.
    pub(crate) fn bring_in(&mut self, but: usize) {
        while self.messages.len() > but {
            match self.messages[but].is_executed {
                true => self.deliver(but),
                false => self.execute(but, false),
            }
        }
    }

    pub(crate) fn must(&self, is_so: bool, says: impl FnOnce() -> String) {
        assert!(is_so, "{}: {:?} in {:?}", says(), self.trace, self.world);
    }
}

// A process with its engine.

/// A process with its engine.
pub(crate) struct Process {
    pub(crate) engine: Arc<Engine>,
    /// The last is in use, the others are retired.
    pub(crate) bound: Vec<Arc<LocalRules>>,
    pub(crate) is_removed: bool,
    /// The units that are lost.
    pub(crate) really_lost: u64,
}

impl Process {
    pub(crate) fn new(world: &World, rules: &Arc<RuleSet>) -> Self {
        let engine = Engine::new(1, true, SlotTerms::new(15_000_000));
        let bound = LocalRules::new(&engine, Arc::clone(rules), world.places(), |_| None);
        Self {
            engine,
            bound: vec![bound],
            is_removed: false,
            really_lost: 0,
        }
    }

    /// The units that the engine says are lost.
    pub(crate) fn lost(&self) -> u64 {
        self.engine.counts()[EngineEvent::UnitLost as usize]
    }
}

// Every order of a world's events.

/// Carries out every order of the world's events, each on engines of its own.
pub(crate) fn explore(world: &World) {
    // By step: the event that is tried, and how many there are.
    let mut path: Vec<(usize, usize)> = Vec::new();
    let (mut paths, mut events) = (0, Vec::new());
    loop {
        let mut run = Run::new(world);
        let mut steps = 0;
        loop {
            run.events(&mut events);
            if events.is_empty() {
                break;
            }
            if steps == path.len() {
                path.push((0, events.len()));
            }
            let (tried, of) = path[steps];
            assert_eq!(of, events.len(), "the same events have the same end");
            run.happen(events[tried]);
            steps += 1;
        }
        End::check_all(run);
        paths += 1;
        while path.pop_if(|(tried, of)| *tried + 1 == *of).is_some() {}
        match path.last_mut() {
            Some((tried, _)) => *tried += 1,
            None => break,
        }
    }
    let thread = std::thread::current();
    eprintln!("{}: {paths} paths", thread.name().unwrap_or_default());
}
