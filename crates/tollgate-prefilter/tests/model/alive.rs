//! What states are told apart by: without it no exploration would end, for time goes on.

use tollgate_core::Tick;
use tollgate_prefilter::{Ask, Closed, Lot};

use crate::{
    fault::Fault,
    ledger::Ledger,
    system::{Answer, Question, System},
    world::World,
};

impl<L: Ledger> World<L> {
    /// All that matters from here on.
    pub(crate) fn alive(&self, system: &System<L>) -> Vec<u8> {
        let generation = system.ledger.generation(system.clock);
        // Longer ago than any lot lives is long ago.
        let life = self.terms.parking_life();
        let life = life.max(self.terms.segments().map_or(0, |segments| segments.life()));
        let life = self.terms.window().unwrap_or(life);
        let since = |tick: Tick| system.now.saturating_sub(tick).min(life) as u8;
        // Two generations behind is not tracked any more, unless time goes back.
        let old = if self.steps_back.0 > 0 { 9 } else { 2 };
        let age = |of: u64| (generation as i64 - of as i64).clamp(-9, old) as u8;
        let closed = |closed: Option<Closed>| {
            closed.map_or([0; 3], |lot| {
                [lot.size as u8, lot.left as u8 + 1, age(lot.generation)]
            })
        };
        let question = |question: &Question| {
            let Ask {
                parking, segment, ..
            } = question.ask;
            let [size, left, gone] = closed(question.ask.closed);
            let dropped = u8::from(question.is_dropped) + 2 * u8::from(question.is_forgotten);
            let before = [
                1 + question.cost as u8 + 10 * dropped,
                size,
                left,
                gone,
                parking as u8,
                segment as u8,
                0,
                0,
                0,
            ];
            let Some(Answer { at, fits, lot }) = question.answer else {
                return before;
            };
            // All that was asked is done with.
            let mut after = [100, 0, 0, 0, 0, 0, 0, system.ledger.phase(at), 0];
            match lot {
                Some(Lot::Parking { units, generation }) => {
                    (after[1], after[2]) = (units as u8, age(generation));
                }
                Some(Lot::Segment {
                    units,
                    after: waits,
                }) => {
                    (after[3], after[8]) = (units as u8, 1 + waits as u8);
                }
                None => {}
            }
            if self.leaving {
                // What was taken may come back, if its caller goes.
                let taken = u8::from(fits) * question.cost as u8;
                after[0] += 1 + taken + 10 * dropped;
                after[8] = age(system.ledger.generation(at));
            }
            if self.resets && self.giving_back {
                after[0] += 60 * u8::from(question.is_forgotten);
            }
            if self.fault == Some(Fault::HandedBackAgain) {
                (after[4], after[5], after[6]) = (size, left, gone);
            }
            after
        };
        let mut processes: Vec<[u8; 28]> = Vec::with_capacity(system.processes.len());
        for process in &system.processes {
            let mut bytes = [0; 28];
            let until = process.holder.until().unwrap_or(0);
            if system.now < until || self.fault == Some(Fault::SpentTooLate) {
                let tracked = closed(process.holder.clone().hand_back(until.saturating_sub(1)));
                bytes[..3].copy_from_slice(&tracked);
                bytes[3] = until.saturating_sub(system.now) as u8;
                bytes[4] = process.holder.held(until.saturating_sub(1)) as u8;
                // Of a segment also when each unit is due; the models lend up to four.
                for (units, byte) in (1..=4).zip(&mut bytes[19..23]) {
                    let due = process.holder.due_after(system.now, units);
                    *byte = due.map_or(u8::MAX, |due| due as u8);
                }
            }
            if let Some(asked) = &process.question {
                bytes[5] = 1 + since(asked.sent);
                bytes[6..15].copy_from_slice(&question(asked));
            }
            if let Some(window) = process.holder.window()
                && age(window) < 2
            {
                let mut holder = process.holder;
                bytes[..3].copy_from_slice(&closed(holder.hand_back(system.now)));
                // Until when a unit may come back, though nothing is held.
                let later = (system.now, Tick::MAX);
                if self.giving_back && holder.give_back_to(window, later, 1) == 0 {
                    bytes[23] = holder.until().map_or(0, |it| (it - system.now) as u8);
                    bytes[24] = 1 + age(window);
                }
            }
            if let Some(pending) = process.pending {
                bytes[15] = match pending.window {
                    Some(window) => 1 + age(window),
                    None => 1 + since(pending.spent),
                };
                let told = [pending.is_forgotten, pending.is_of_another];
                [bytes[25], bytes[26]] = told.map(u8::from);
                if self.fault == Some(Fault::LostWithLot) {
                    bytes[27] = 1 + u8::from(process.holder.until() == pending.until);
                }
            }
            bytes[16..19].copy_from_slice(&closed(process.again));
            processes.push(bytes);
        }
        // Which process is which does not matter.
        processes.sort_unstable();
        let mut strays: Vec<_> = system.strays.iter().map(question).collect();
        strays.sort_unstable();
        let mut alive = processes.concat();
        alive.extend(strays.concat());
        alive.push(system.steps_back);
        if self.follows_units() {
            alive.extend(system.lost.map(|units| units as u8));
        }
        system
            .ledger
            .alive(system.clock, system.steps_back > 0, &mut alive);
        alive
    }
}
