//! What happens.

use tollgate_core::Tick;
use tollgate_prefilter::{Grant, LeaseHolder, LeaseQuery, ReturnedLease};

use crate::{
    fault::Fault,
    system::{Action, Answer, Pending, Process, Query, System},
    world::{ModelStore, World},
};

impl<L: ModelStore> World<L> {
    fn execute(&self, system: &mut System<L>, query: &Query) -> (bool, Option<Grant>) {
        let Query { cost, query, .. } = query;
        system.store.execute(self.fault, system.clock, *cost, query)
    }

    fn send(&self, process: &mut Process, now: Tick, cost: u64, wants: (u64, u64)) {
        let mut returned = self.take_out(process, now);
        if self.fault == Some(Fault::BeforeStays)
            && let Some(window) = self.terms.window
        {
            returned = returned.filter(|grant| grant.generation == now / window);
        }
        process.query = Some(Query {
            sent: now,
            cost,
            query: LeaseQuery {
                returned: returned.or(process.again.take()),
                tracked: wants.0,
                scheduled: wants.1,
            },
            is_dropped: false,
            is_forgotten: false,
            answer: None,
        });
    }

    /// What weighs nowhere any more is not spoken of.
    fn take_out(&self, process: &mut Process, now: Tick) -> Option<ReturnedLease> {
        let returned = process.holder.take_out(now)?;
        let weighs = |window: Tick| returned.generation + 2 > now / window;
        self.terms.window.is_none_or(weighs).then_some(returned)
    }

    /// Units of a window are lost in a way that is allowed to cost.
    fn lose(&self, system: &mut System<L>, grant: Option<ReturnedLease>) {
        let now = system.store.generation(system.clock);
        if let Some(grant) = grant.filter(|_| self.follows_units())
            && let Some(ago) = now.checked_sub(grant.generation)
            && let Some(lost) = system.lost.get_mut(ago as usize)
        {
            *lost += grant.left;
        }
    }

    /// A unit that was spent on a request, or that the store has taken for one, which is not let through.
    fn give_back(&self, system: &mut System<L>, of: usize, pending: Pending) {
        if !pending.is_forgotten {
            system.store.take_back(pending.window, 1);
        }
        let (now, clock) = (system.now, system.clock);
        let holder = &mut system.processes[of].holder;
        if let Some(mut window) = Fault::give_back(self.fault, holder, pending, now) {
            if self.fault == Some(Fault::RefundedNow) {
                window = system.store.generation(clock);
            }
            system.store.refund(clock, window, 1);
        }
    }

    /// What was spent, or is held beyond what is tracked, is not known to the store when it forgets what was used.
    fn forget(system: &mut System<L>) {
        let mut unknown = 0;
        for process in &mut system.processes {
            if let Some(pending) = &mut process.pending {
                unknown += u64::from(!pending.is_forgotten);
                pending.is_forgotten = true;
            }
            let mut held: Vec<_> = Vec::from_iter({ process.holder }.take_out(system.now));
            if let Some(query) = &mut process.query {
                held.extend(query.on_its_way());
                if query.answer.is_some_and(|answer| answer.fits) && !query.is_forgotten {
                    unknown += query.cost;
                    query.is_forgotten = true;
                }
            }
            let beyond = held
                .iter()
                .map(|grant| grant.left.saturating_sub(grant.size));
            unknown += beyond.sum::<u64>();
        }
        let strays = system.strays.iter().filter_map(Query::on_its_way);
        let beyond = strays.map(|grant| grant.left.saturating_sub(grant.size));
        unknown += beyond.sum::<u64>();
        system.store.excuse(unknown);
    }

    fn give_up(&self, system: &mut System<L>, of: usize, on_its_way: bool) -> bool {
        let Some(query) = system.processes[of].query.take() else {
            return !on_its_way;
        };
        if on_its_way {
            if query.answer.is_some() || system.strays.len() >= self.strays {
                return false;
            }
            system.strays.push(query);
        } else {
            self.lose(system, query.on_its_way());
        }
        true
    }

    /// Takes a step; false if it changes nothing.
    pub(crate) fn step(&self, system: &mut System<L>, action: Action) -> bool {
        let now = system.now;
        match action {
            Action::Tick => {
                let sent = |process: &Process| process.query.as_ref().map(|query| query.sent);
                let oldest = system.processes.iter().filter_map(sent).min();
                if let (Some(sent), Some(patience)) = (oldest, self.patience)
                    && now >= sent + patience
                {
                    return false;
                }
                system.now += 1;
                system.clock += 1;
                let before = system.store.generation(system.clock - 1);
                if system.store.generation(system.clock) != before {
                    system.lost = [0, system.lost[0]];
                }
                system.store.tick(system.now);
            }
            Action::StepBack(by) => {
                system.clock -= by;
                system.steps_back -= 1;
            }
            Action::Reset => {
                system.store.reset(self.fault, system.clock);
                Self::forget(system);
            }
            Action::Change => system.store.change(),
            Action::Plain(cost) => {
                let query = Query {
                    sent: now,
                    cost,
                    query: LeaseQuery::default(),
                    is_dropped: false,
                    is_forgotten: false,
                    answer: None,
                };
                self.execute(system, &query);
            }
            Action::Spend(of, cost) => {
                let holder = &mut system.processes[of].holder;
                if !Fault::spend(self.fault, holder, now, cost) {
                    return false;
                }
                system.store.admit(cost);
            }
            Action::Begin(of) => {
                let process = &mut system.processes[of];
                let Some(until) = process.holder.until() else {
                    return false;
                };
                if process.pending.is_some() || !process.holder.spend(now, 1) {
                    return false;
                }
                process.pending = Some(Pending {
                    spent: now,
                    window: process.holder.window(),
                    until: Some(until),
                    is_forgotten: false,
                    is_of_another: false,
                });
                system.store.begin();
            }
            Action::GiveBack(of) => {
                let Some(pending) = system.processes[of].pending.take() else {
                    return false;
                };
                self.give_back(system, of, pending);
            }
            Action::Drop(of) => {
                let Some(query) = &mut system.processes[of].query else {
                    return false;
                };
                if query.is_dropped || query.cost == 0 {
                    return false;
                }
                query.is_dropped = true;
            }
            Action::Refuse(of) => {
                let process = &mut system.processes[of];
                let Some(query) = process.query.take_if(|one| one.answer.is_none()) else {
                    return false;
                };
                // What an earlier binding held is not returned again: it has ended.
                if process.holder == LeaseHolder::default() {
                    self.lose(system, query.query.returned);
                    return true;
                }
                match self.fault {
                    Some(Fault::RefusedIsLost) => process.holder.lost(),
                    _ => process.holder.on_not_sent(query.query.returned),
                }
            }
            Action::Rebind(of) => {
                let process = &mut system.processes[of];
                let returned = self.take_out(process, now);
                if returned.is_none() || process.pending.is_some_and(|one| one.window.is_none()) {
                    return false;
                }
                process.holder = LeaseHolder::default();
                if let Some(pending) = &mut process.pending {
                    pending.is_of_another = true;
                }
                process.query = Some(Query {
                    sent: now,
                    cost: 0,
                    query: LeaseQuery::default().with_returned(returned),
                    is_dropped: false,
                    is_forgotten: false,
                    answer: None,
                });
            }
            Action::Send(of, cost, wants) => {
                let process = &mut system.processes[of];
                if wants == (0, 0) && self.take_out(&mut process.clone(), now).is_none() {
                    // It says nothing: a plain request.
                    return false;
                }
                self.send(process, now, cost, wants);
            }
            Action::Execute(of) => {
                let Some(mut query) = system.processes[of].query.take() else {
                    return false;
                };
                if query.answer.is_some() {
                    return false;
                }
                let (fits, grant) = self.execute(system, &query);
                let at = system.clock;
                query.answer = Some(Answer { at, fits, grant });
                system.processes[of].query = Some(query);
            }
            Action::Deliver(of) => {
                let process = &mut system.processes[of];
                let Some(query) = process.query.take() else {
                    return false;
                };
                let (sent, Some(answer)) = (query.sent, query.answer) else {
                    return false;
                };
                if query.is_dropped && self.fault == Some(Fault::DroppedUnheard) {
                    process.holder.lost();
                    return true;
                }
                let (sent, at) = match self.fault {
                    Some(Fault::DeadlineFromAnswer) => (now, answer.at),
                    Some(Fault::WindowOutlived) => (sent, 0),
                    _ => (sent, answer.at),
                };
                let (received, grant) = Fault::received(self.fault, (sent, now), answer.grant);
                let holder = &mut process.holder;
                if self.fault == Some(Fault::LeaseReplacesUnits) && grant.is_some() {
                    holder.take_out(now);
                }
                let left = holder.on_granted((sent, received), at, grant, &self.terms);
                if let Some(left) = left.filter(|_| self.fault != Some(Fault::BeforeIsReplaced)) {
                    let clock = system.clock;
                    system.store.refund(clock, left.generation, left.left);
                }
                if query.is_dropped && answer.fits {
                    for _ in 0..query.cost {
                        let pending = Pending {
                            spent: answer.at,
                            window: self.terms.window.map(|window| answer.at / window),
                            until: None,
                            is_forgotten: query.is_forgotten,
                            is_of_another: false,
                        };
                        self.give_back(system, of, pending);
                    }
                }
            }
            Action::GiveUp(of, on_its_way) => {
                let process = &mut system.processes[of];
                let Some(query) = &process.query else {
                    return false;
                };
                if self.fault == Some(Fault::HandedBackAgain) {
                    process.again = query.query.returned;
                }
                process.holder.lost();
                return self.give_up(system, of, on_its_way);
            }
            Action::Crash(of, on_its_way) => {
                if !self.give_up(system, of, on_its_way) {
                    return false;
                }
                let held = system.processes[of].holder.take_out(now);
                self.lose(system, held);
                system.processes[of] = Process::default();
            }
            Action::ExecuteStray(stray) => {
                let mut query = system.strays.remove(stray);
                let (fits, grant) = self.execute(system, &query);
                let at = system.clock;
                query.answer = Some(Answer { at, fits, grant });
                self.lose(system, query.on_its_way());
            }
            Action::LoseStray(stray) => {
                let query = system.strays.remove(stray);
                self.lose(system, query.on_its_way());
            }
        }
        true
    }
}
