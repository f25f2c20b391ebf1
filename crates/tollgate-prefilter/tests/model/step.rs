//! What happens.

use tollgate_core::Tick;
use tollgate_prefilter::{Ask, Lot};

use crate::{
    fault::Fault,
    ledger::Ledger,
    system::{Action, Answer, Process, Question, System},
    world::World,
};

impl<L: Ledger> World<L> {
    fn execute(&self, system: &mut System<L>, question: &Question) -> Option<Lot> {
        let Question { cost, ask, .. } = question;
        system
            .ledger
            .execute(self.fault, system.clock, *cost, ask, question.untracked)
    }

    fn send(&self, process: &mut Process, now: Tick, cost: u64, wants: (u64, u64, u64)) {
        let mut untracked = 0;
        if self.fault == Some(Fault::TransitHandedBack) {
            let tracked = process.holder.clone().hand_back(now).is_some();
            untracked = if tracked { 0 } else { process.holder.left(now) };
        }
        let closed = process.holder.hand_back(now);
        process.question = Some(Question {
            sent: now,
            cost,
            ask: Ask {
                closed: closed.or(process.again.take()),
                parking: wants.0,
                transit: wants.1,
                segment: wants.2,
            },
            untracked,
            answer: None,
        });
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
                system.ledger.tick(system.now);
            }
            Action::StepBack(by) => {
                system.clock -= by;
                system.steps_back -= 1;
            }
            Action::Reset => system.ledger.reset(self.fault, system.clock),
            Action::Plain(cost) => {
                let question = Question {
                    sent: now,
                    cost,
                    ask: Ask::default(),
                    untracked: 0,
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
                if process.pending.is_some() || !process.holder.spend(now, 1) {
                    return false;
                }
                process.pending = Some(now);
            }
            Action::GiveBack(of) => {
                let process = &mut system.processes[of];
                let Some(spent) = process.pending.take() else {
                    return false;
                };
                Fault::give_back(self.fault, &mut process.holder, spent, now);
            }
            Action::Send(of, cost, wants) => {
                let process = &mut system.processes[of];
                if wants == (0, 0, 0) && process.holder.clone().hand_back(now).is_none() {
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
                let lot = self.execute(system, &question);
                let at = system.clock;
                question.answer = Some(Answer { at, lot });
                system.processes[of].question = Some(question);
            }
            Action::Deliver(of) => {
                let process = &mut system.processes[of];
                let Some((sent, answer)) = process
                    .question
                    .take()
                    .and_then(|question| Some((question.sent, question.answer?)))
                else {
                    return false;
                };
                let (sent, at) = match self.fault {
                    Some(Fault::DeadlineFromAnswer) => (now, answer.at),
                    Some(Fault::WindowOutlived) => (sent, 0),
                    _ => (sent, answer.at),
                };
                let (heard, lot) = Fault::heard(self.fault, (sent, now), answer.lot);
                let holder = &mut process.holder;
                holder.answered((sent, heard), at, lot, &self.terms);
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
                system.processes[of] = Process::default();
            }
            Action::ExecuteStray(stray) => {
                let question = system.strays.remove(stray);
                self.execute(system, &question);
            }
            Action::LoseStray(stray) => {
                system.strays.remove(stray);
            }
        }
        true
    }
}
