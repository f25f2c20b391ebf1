//! What distinguishes states: without it no exploration would end, for time goes on.

use std::hash::{DefaultHasher, Hasher};

use smallvec::SmallVec;
use tollgate_core::Tick;
use tollgate_prefilter::{Grant, LeaseQuery, ReturnedLease};

use crate::{
    fault::Fault,
    system::{Answer, Query, System},
    world::{ModelStore, World},
};

/// What distinguishes states, before it is hashed.
pub(crate) type Bytes = SmallVec<[u8; 128]>;

impl<L: ModelStore> World<L> {
    /// A hash of all that matters from here on.
    pub(crate) fn alive(&self, system: &System<L>) -> u64 {
        let generation = system.store.generation(system.clock);
        // Longer ago than any lease lives is long ago.
        let life = self.terms.tracked_life;
        let life = life.max(self.terms.schedule.map_or(0, |schedule| schedule.life));
        let life = self.terms.window.unwrap_or(life);
        let since = |tick: Tick| system.now.saturating_sub(tick).min(life) as u8;
        // Two generations behind is not tracked any more, unless time goes back.
        let old = if self.steps_back.0 > 0 { 9 } else { 2 };
        let age = |of: u64| (generation as i64 - of as i64).clamp(-9, old) as u8;
        let returned = |returned: Option<ReturnedLease>| {
            returned.map_or([0; 3], |grant| {
                [
                    grant.size as u8,
                    grant.left as u8 + 1,
                    age(grant.generation),
                ]
            })
        };
        let query = |query: &Query| {
            let LeaseQuery {
                tracked, scheduled, ..
            } = query.query;
            let [size, left, gone] = returned(query.query.returned);
            let dropped = u8::from(query.is_dropped) + 2 * u8::from(query.is_forgotten);
            let before = [
                1 + query.cost as u8 + 10 * dropped,
                size,
                left,
                gone,
                tracked as u8,
                scheduled as u8,
                0,
                0,
                0,
            ];
            let Some(Answer { at, fits, grant }) = query.answer else {
                return before;
            };
            // What was requested no longer matters.
            let mut after = [100, 0, 0, 0, 0, 0, 0, system.store.phase(at), 0];
            match grant {
                Some(Grant::Tracked {
                    units, generation, ..
                }) => {
                    (after[1], after[2]) = (units as u8, age(generation));
                }
                Some(Grant::Scheduled {
                    units,
                    after: waits,
                    ..
                }) => {
                    (after[3], after[8]) = (units as u8, 1 + waits as u8);
                }
                None => {}
            }
            if self.leaving {
                // What was taken may come back, if its caller goes.
                let taken = u8::from(fits) * query.cost as u8;
                after[0] += 1 + taken + 10 * dropped;
                after[8] = age(system.store.generation(at));
            }
            if self.resets && self.giving_back {
                after[0] += 60 * u8::from(query.is_forgotten);
            }
            if self.fault == Some(Fault::HandedBackAgain) {
                (after[4], after[5], after[6]) = (size, left, gone);
            }
            after
        };
        let mut processes: SmallVec<[[u8; 28]; 3]> = SmallVec::new();
        for process in &system.processes {
            let mut bytes = [0; 28];
            let until = process.holder.until().unwrap_or(0);
            if system.now < until || self.fault == Some(Fault::SpentTooLate) {
                let tracked = returned({ process.holder }.take_out(until.saturating_sub(1)));
                bytes[..3].copy_from_slice(&tracked);
                bytes[3] = until.saturating_sub(system.now) as u8;
                bytes[4] = process.holder.held(until.saturating_sub(1)) as u8;
                // Of a scheduled lease also when each unit is due; the models grant up to four.
                for (units, byte) in (1..=4).zip(&mut bytes[19..23]) {
                    let due = process.holder.due_after(system.now, units);
                    *byte = due.map_or(u8::MAX, |due| due as u8);
                }
            }
            if let Some(sent) = &process.query {
                bytes[5] = 1 + since(sent.sent);
                bytes[6..15].copy_from_slice(&query(sent));
            }
            if let Some(window) = process.holder.window()
                && age(window) < 2
            {
                let mut holder = process.holder;
                bytes[..3].copy_from_slice(&returned(holder.take_out(system.now)));
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
                let reported = [pending.is_forgotten, pending.is_of_another];
                [bytes[25], bytes[26]] = reported.map(u8::from);
                if self.fault == Some(Fault::LostWithLease) {
                    bytes[27] = 1 + u8::from(process.holder.until() == pending.until);
                }
            }
            bytes[16..19].copy_from_slice(&returned(process.again));
            processes.push(bytes);
        }
        // Which process is which does not matter.
        processes.sort_unstable();
        let mut strays: SmallVec<[_; 1]> = system.strays.iter().map(query).collect();
        strays.sort_unstable();
        let mut alive = Bytes::new();
        alive.extend_from_slice(processes.as_flattened());
        alive.extend_from_slice(strays.as_flattened());
        alive.push(system.steps_back);
        if self.follows_units() {
            alive.extend(system.lost.map(|units| units as u8));
        }
        system
            .store
            .alive(system.clock, system.steps_back > 0, &mut alive);
        let mut hasher = DefaultHasher::new();
        hasher.write(&alive);
        hasher.finish()
    }
}
