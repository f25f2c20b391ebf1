//! What happens.

use tollgate_core::Tick;
use tollgate_prefilter::{Ask, Closed, Holder, Lot};

use crate::{
    fault::Fault,
    ledger::Ledger,
    system::{Action, Answer, Pending, Process, Question, System},
    world::World,
};

impl<L: Ledger> World<L> {
    fn execute(&self, system: &mut System<L>, question: &Question) -> (bool, Option<Lot>) {
        let Question { cost, ask, .. } = question;
        system.ledger.execute(self.fault, system.clock, *cost, ask)
    }

    fn send(&self, process: &mut Process, now: Tick, cost: u64, wants: (u64, u64)) {
        let mut closed = self.hand_back(process, now);
        if self.fault == Some(Fault::BeforeStays)
            && let Some(window) = self.terms.window()
        {
            closed = closed.filter(|lot| lot.generation == now / window);
        }
        process.question = Some(Question {
            sent: now,
            cost,
            ask: Ask {
                closed: closed.or(process.again.take()),
                parking: wants.0,
                segment: wants.1,
            },
            is_dropped: false,
            is_forgotten: false,
            answer: None,
        });
    }

    /// What weighs nowhere any more is not spoken of.
    fn hand_back(&self, process: &mut Process, now: Tick) -> Option<Closed> {
        let closed = process.holder.hand_back(now)?;
        let weighs = |window: Tick| closed.generation + 2 > now / window;
        self.terms.window().is_none_or(weighs).then_some(closed)
    }

    /// Units of a window are lost in a way that is allowed to cost.
    fn lose(&self, system: &mut System<L>, lot: Option<Closed>) {
        let now = system.ledger.generation(system.clock);
        if let Some(lot) = lot.filter(|_| self.follows_units())
            && let Some(ago) = now.checked_sub(lot.generation)
            && let Some(lost) = system.lost.get_mut(ago as usize)
        {
            *lost += lot.left;
        }
    }

    /// A unit that was spent on a request, or that the store has taken for one, which is not let through.
    fn give_back(&self, system: &mut System<L>, of: usize, pending: Pending) {
        if !pending.is_forgotten {
            system.ledger.take_back(pending.window, 1);
        }
        let (now, clock) = (system.now, system.clock);
        let holder = &mut system.processes[of].holder;
        if let Some(mut window) = Fault::give_back(self.fault, holder, pending, now) {
            if self.fault == Some(Fault::RefundedNow) {
                window = system.ledger.generation(clock);
            }
            system.ledger.refund(clock, window, 1);
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
            let mut held: Vec<_> = Vec::from_iter(process.holder.clone().hand_back(system.now));
            if let Some(question) = &mut process.question {
                held.extend(question.on_its_way());
                if question.answer.is_some_and(|answer| answer.fits) && !question.is_forgotten {
                    unknown += question.cost;
                    question.is_forgotten = true;
                }
            }
            let beyond = held.iter().map(|lot| lot.left.saturating_sub(lot.size));
            unknown += beyond.sum::<u64>();
        }
        let strays = system.strays.iter().filter_map(Question::on_its_way);
        let beyond = strays.map(|lot| lot.left.saturating_sub(lot.size));
        unknown += beyond.sum::<u64>();
        system.ledger.excuse(unknown);
    }

    fn forsake(&self, system: &mut System<L>, of: usize, on_its_way: bool) -> bool {
        let Some(question) = system.processes[of].question.take() else {
            return !on_its_way;
        };
        if on_its_way {
            if question.answer.is_some() || system.strays.len() >= self.strays {
                return false;
            }
            system.strays.push(question);
        } else {
            self.lose(system, question.on_its_way());
        }
        true
    }

    /// Takes a step; false if it changes nothing.
    pub(crate) fn step(&self, system: &mut System<L>, action: Action) -> bool {
        let now = system.now;
        match action {
            Action::Tick => {
                let asked = |process: &Process| process.question.as_ref().map(|asked| asked.sent);
                let oldest = system.processes.iter().filter_map(asked).min();
                if let (Some(sent), Some(patience)) = (oldest, self.patience)
                    && now >= sent + patience
                {
                    return false;
                }
                system.now += 1;
                system.clock += 1;
                let before = system.ledger.generation(system.clock - 1);
                if system.ledger.generation(system.clock) != before {
                    system.lost = [0, system.lost[0]];
                }
                system.ledger.tick(system.now);
            }
            Action::StepBack(by) => {
                system.clock -= by;
                system.steps_back -= 1;
            }
            Action::Reset => {
                system.ledger.reset(self.fault, system.clock);
                Self::forget(system);
            }
            Action::Change => system.ledger.change(),
            Action::Plain(cost) => {
                let question = Question {
                    sent: now,
                    cost,
                    ask: Ask::default(),
                    is_dropped: false,
                    is_forgotten: false,
                    answer: None,
                };
                self.execute(system, &question);
            }
            Action::Spend(of, cost) => {
                let holder = &mut system.processes[of].holder;
                if !Fault::spend(self.fault, holder, now, cost) {
                    return false;
                }
                system.ledger.admit(cost);
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
                system.ledger.begin();
            }
            Action::GiveBack(of) => {
                let Some(pending) = system.processes[of].pending.take() else {
                    return false;
                };
                self.give_back(system, of, pending);
            }
            Action::Drop(of) => {
                let Some(question) = &mut system.processes[of].question else {
                    return false;
                };
                if question.is_dropped || question.cost == 0 {
                    return false;
                }
                question.is_dropped = true;
            }
            Action::Refuse(of) => {
                let process = &mut system.processes[of];
                let Some(question) = process.question.take_if(|one| one.answer.is_none()) else {
                    return false;
                };
                // What an earlier binding holds nobody will hand back again: it has ended.
                if process.holder == Holder::default() {
                    self.lose(system, question.ask.closed);
                    return true;
                }
                match self.fault {
                    Some(Fault::RefusedIsLost) => process.holder.lost(),
                    _ => process.holder.unasked(question.ask.closed),
                }
            }
            Action::Rebind(of) => {
                let process = &mut system.processes[of];
                let closed = self.hand_back(process, now);
                if closed.is_none() || process.pending.is_some_and(|one| one.window.is_none()) {
                    return false;
                }
                process.holder = Holder::default();
                if let Some(pending) = &mut process.pending {
                    pending.is_of_another = true;
                }
                process.question = Some(Question {
                    sent: now,
                    cost: 0,
                    ask: Ask {
                        closed,
                        ..Ask::default()
                    },
                    is_dropped: false,
                    is_forgotten: false,
                    answer: None,
                });
            }
            Action::Send(of, cost, wants) => {
                let process = &mut system.processes[of];
                if wants == (0, 0) && self.hand_back(&mut process.clone(), now).is_none() {
                    // It says nothing: a plain request.
                    return false;
                }
                self.send(process, now, cost, wants);
            }
            Action::Execute(of) => {
                let Some(mut question) = system.processes[of].question.take() else {
                    return false;
                };
                if question.answer.is_some() {
                    return false;
                }
                let (fits, lot) = self.execute(system, &question);
                let at = system.clock;
                question.answer = Some(Answer { at, fits, lot });
                system.processes[of].question = Some(question);
            }
            Action::Deliver(of) => {
                let process = &mut system.processes[of];
                let Some(question) = process.question.take() else {
                    return false;
                };
                let (sent, Some(answer)) = (question.sent, question.answer) else {
                    return false;
                };
                if question.is_dropped && self.fault == Some(Fault::DroppedUnheard) {
                    process.holder.lost();
                    return true;
                }
                let (sent, at) = match self.fault {
                    Some(Fault::DeadlineFromAnswer) => (now, answer.at),
                    Some(Fault::WindowOutlived) => (sent, 0),
                    _ => (sent, answer.at),
                };
                let (heard, lot) = Fault::heard(self.fault, (sent, now), answer.lot);
                let holder = &mut process.holder;
                if self.fault == Some(Fault::LotReplacesUnits) && lot.is_some() {
                    holder.hand_back(now);
                }
                let left = holder.answered((sent, heard), at, lot, &self.terms);
                if let Some(left) = left.filter(|_| self.fault != Some(Fault::BeforeIsReplaced)) {
                    let clock = system.clock;
                    system.ledger.refund(clock, left.generation, left.left);
                }
                if question.is_dropped && answer.fits {
                    for _ in 0..question.cost {
                        let pending = Pending {
                            spent: answer.at,
                            window: self.terms.window().map(|window| answer.at / window),
                            until: None,
                            is_forgotten: question.is_forgotten,
                            is_of_another: false,
                        };
                        self.give_back(system, of, pending);
                    }
                }
            }
            Action::GiveUp(of, on_its_way) => {
                let process = &mut system.processes[of];
                let Some(question) = &process.question else {
                    return false;
                };
                if self.fault == Some(Fault::HandedBackAgain) {
                    process.again = question.ask.closed;
                }
                process.holder.lost();
                return self.forsake(system, of, on_its_way);
            }
            Action::Crash(of, on_its_way) => {
                if !self.forsake(system, of, on_its_way) {
                    return false;
                }
                let held = system.processes[of].holder.hand_back(now);
                self.lose(system, held);
                system.processes[of] = Process::default();
            }
            Action::ExecuteStray(stray) => {
                let mut question = system.strays.remove(stray);
                let (fits, lot) = self.execute(system, &question);
                let at = system.clock;
                question.answer = Some(Answer { at, fits, lot });
                self.lose(system, question.on_its_way());
            }
            Action::LoseStray(stray) => {
                let question = system.strays.remove(stray);
                self.lose(system, question.on_its_way());
            }
        }
        true
    }
}
