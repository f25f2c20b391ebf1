//! What each step does.

use smallvec::SmallVec;
use tollgate_core::Tick;
use tollgate_prefilter::{SlotHolder, SlotMessage, SlotOutcome, SlotOwner, SlotReply};
use tollgate_test_reference::SlotState;

use crate::slots::{
    fault::Fault,
    system::{Action, Gone, InFlight, MOST, Process, System},
    world::{ABOVE, ALONE, DENIED, LATE, LEAKED, MISSING, SlotWorld, TERM, UNKNOWN},
};

/// What a message of a faulty process says that subtracts a slot.
const SUBTRACTS: u32 = u32::MAX;

impl SlotWorld {
    /// Takes a step; false if it changes nothing.
    pub(super) fn step(&self, system: &mut System, action: Action) -> bool {
        let now = system.now;
        let terms = self.terms();
        let held: SmallVec<[u32; 3]> = system.processes.iter().map(Process::held).collect();
        match action {
            Action::Tick => {
                if !self.may_tick(system) {
                    return false;
                }
                system.now += 1;
                system.clock += 1;
            }
            Action::Drift => {
                system.clock += 1;
                system.left.drift -= 1;
            }
            Action::Reset => {
                system.store = SlotState::default();
                system.left.resets -= 1;
                system.is_disturbed = true;
            }
            Action::Forward => {
                system.clock += TERM;
                system.left.forward -= 1;
                system.is_disturbed = true;
            }
            Action::Back => {
                system.clock -= TERM;
                system.left.back -= 1;
            }
            Action::Acquire(of) => {
                let process = &mut system.processes[of];
                process.seq += 1;
                let message = process.holder.acquire(process.seq, 1, now, &terms);
                self.send(process, message, now);
            }
            Action::End(of, is_valid) => {
                let process = &mut system.processes[of];
                match is_valid {
                    true => process.valid -= 1,
                    false => process.outlived -= 1,
                }
                let slots = match self.fault {
                    Some(Fault::DoubleRelease) => 2,
                    _ => 1,
                };
                process.holder.end(slots, now, &terms);
                process.is_reported = false;
                // It is up to a renewal to say so, which may come at once.
                if self.fault == Some(Fault::RelativeCounts) {
                    process.seq += 1;
                    let mut message = process.holder.renew(process.seq, now, &terms);
                    message.lo = SUBTRACTS;
                    self.send(process, message, now);
                }
            }
            Action::Renew(of) => {
                let process = &mut system.processes[of];
                process.seq += 1;
                let mut message = process.holder.renew(process.seq, now, &terms);
                if let Some(running) = process.composed.take() {
                    (message.lo, message.hi) = (running, running);
                }
                self.send(process, message, now);
            }
            Action::Compose(of) => {
                let process = &mut system.processes[of];
                process.composed = Some(process.running());
            }
            Action::Execute(of, index) => {
                let process = &system.processes[of];
                let mut it = process.in_flight[index];
                let skew = match self.fault {
                    // The clock of one process is ahead.
                    Some(Fault::LocalClock) if of == 1 => TERM,
                    _ => 0,
                };
                let reply = self.execute(system, system.clock + skew, &it.message);
                let process = &mut system.processes[of];
                if it.is_void || !it.is_waited {
                    lose(&mut process.lost, granted(&it.message, &reply), now);
                }
                let in_flight = &mut process.in_flight;
                if !it.is_waited {
                    in_flight.remove(index);
                    process.note_said(&it);
                    return true;
                }
                (it.reply, it.is_valid) = (Some(reply), true);
                in_flight[index] = it;
            }
            Action::Deliver(of, index) => {
                let process = &mut system.processes[of];
                let it = process.in_flight.remove(index);
                let Some(reply) = it.reply else {
                    return false;
                };
                process.note_said(&it);
                let (sent, reply) = Fault::received(self.fault, (it.sent, now), reply, &terms);
                let is_unread = reply.outcome == SlotOutcome::Stale && it.message.is_exact;
                process.is_reported &= !is_unread;
                let holder = &mut process.holder;
                if it.message.want == 0 {
                    holder.on_renewed(&it.message, &reply, now, &terms);
                } else {
                    let mut message = it.message;
                    if self.fault == Some(Fault::VoidStarts) && holder.is_void(&message) {
                        message.seq = u64::MAX;
                    }
                    let start = holder.on_acquired(&message, &reply, sent, now, &terms);
                    if matches!(start, SlotOutcome::Granted { .. }) {
                        self.start(system, of, it.is_valid);
                    }
                }
            }
            Action::GiveUp(of, index, is_on_its_way) => {
                let process = &mut system.processes[of];
                let it = &mut process.in_flight[index];
                let message = it.message;
                if it.is_waited && message.want > 0 {
                    process.holder.give_up(&message, now, &terms);
                    process.is_reported = false;
                }
                match is_on_its_way {
                    true => it.is_waited = false,
                    false => {
                        let it = process.in_flight.remove(index);
                        process.note_said(&it);
                    }
                }
            }
            Action::NotSent(of, index) => {
                let process = &mut system.processes[of];
                let it = process.in_flight.remove(index);
                process.holder.not_sent(&it.message, now);
            }
            Action::Crash(of) => {
                let fresh = match self.fault {
                    Some(Fault::OwnerOverRestarts) => system.processes[of].owner,
                    _ => SlotOwner(system.next_owner),
                };
                system.next_owner += 1;
                system.left.crashes -= 1;
                let fresh = Process::new(fresh);
                let dead = std::mem::replace(&mut system.processes[of], fresh);
                let strays = dead.in_flight.iter().filter(|it| it.reply.is_none());
                let mut lost = dead.lost;
                lose(&mut lost, held[of], now);
                system.gone.push(Gone {
                    owner: dead.owner,
                    strays: strays.map(|it| (it.message, it.sent)).collect(),
                    lost,
                });
            }
            Action::ExecuteGone(of, stray) => {
                let (message, _) = system.gone[of].strays.remove(stray);
                let reply = self.execute(system, system.clock, &message);
                let slots = granted(&message, &reply);
                lose(&mut system.gone[of].lost, slots, now);
            }
            Action::LoseGone(of, stray) => {
                system.gone[of].strays.remove(stray);
            }
        }
        let is_dead = |index| matches!(action, Action::Crash(of) if of == index);
        for (index, process) in system.processes.iter_mut().enumerate() {
            let slots = held[index].saturating_sub(process.held());
            if !is_dead(index) {
                lose(&mut process.lost, slots, now);
            }
        }
        true
    }

    /// What follows from each step: which slots the store still knows, and what is wrong.
    pub(super) fn follow(&self, system: &mut System) {
        let now = system.now;
        for process in &mut system.processes {
            if !self.is_known(&system.store, system.clock, process.owner) {
                process.outlived += process.valid;
                process.valid = 0;
                for it in &mut process.in_flight {
                    it.is_valid = false;
                }
            }
            if !self.is_listed(process) && process.in_flight.iter().all(|it| !it.is_waited) {
                // Nothing is kept of a key that is not in use.
                process.holder = SlotHolder::new(process.owner);
                process.composed = None;
                process.is_reported = true;
                process.reported_at = 0;
            }
        }
        let known = |owner| self.count(&system.store, system.clock, owner);
        system
            .gone
            .retain(|it| !it.strays.is_empty() || known(it.owner).is_some());
        if system.wrong.is_some() {
            return;
        }
        let lives = |owner| system.processes.iter().any(|it| it.owner == owner);
        let gone = system.gone.iter().filter(|it| !lives(it.owner));
        let gone = gone.map(|it| (it.owner, 0, it.lost));
        let owners = system.processes.iter();
        let owners = owners.map(|it| (it.owner, it.held(), it.lost));
        for (owner, held, lost) in owners.chain(gone).filter(|_| self.follows) {
            let count = known(owner).unwrap_or(0);
            let lost = lost.iter().filter(|at| now <= **at + TERM + self.delay);
            if count > held + lost.count() as u32 {
                system.wrong = Some(MISSING);
            }
        }
        let mut idle = system.processes.iter().filter(|it| !self.is_listed(it));
        // A record without slots keeps late messages out for as long as it is known.
        let fences = self.delay + Tick::from(self.budget.drift) < TERM;
        if fences && !system.is_disturbed && idle.any(|it| known(it.owner).unwrap_or(0) > 0) {
            system.wrong = Some(LEAKED);
        }
        let mut processes = system.processes.iter();
        if self.unsent && processes.any(|it| self.is_late(it)) {
            system.wrong = Some(LATE);
        }
    }

    /// Whether a renewal is due later than the last exact message asks for.
    fn is_late(&self, process: &Process) -> bool {
        let due_by = process.exact_at() + self.terms().renew_after();
        process.holder.renew_at().is_some_and(|at| at > due_by)
    }

    /// No message is on its way to the store for longer than the delay.
    fn may_tick(&self, system: &System) -> bool {
        let is_late = |sent: Tick| system.now >= sent + self.delay;
        let mut gone = system.gone.iter().flat_map(|it| &it.strays);
        let mut in_flight = system.processes.iter().flat_map(|it| &it.in_flight);
        !gone.any(|it| is_late(it.1)) && !in_flight.any(|it| it.reply.is_none() && is_late(it.sent))
    }

    fn send(&self, process: &mut Process, mut message: SlotMessage, now: Tick) {
        if self.fault == Some(Fault::NeverRevived) {
            message.lo = message.lo.saturating_sub(process.outlived);
            message.hi = message.hi.saturating_sub(process.outlived);
        }
        if message.is_exact {
            for it in &mut process.in_flight {
                it.is_void = true;
            }
        }
        process.is_reported |= message.is_exact;
        process.in_flight.push(InFlight {
            message,
            sent: now,
            is_waited: true,
            is_void: false,
            reply: None,
            is_valid: false,
        });
    }

    fn execute(&self, system: &mut System, clock: Tick, message: &SlotMessage) -> SlotReply {
        let owner = Fault::owner(self.fault, message.owner);
        let mut message = *message;
        if message.lo == SUBTRACTS {
            message.lo = 0;
            let mut owners = system.store.owners.iter_mut();
            if let Some(record) = owners.find(|it| it.owner == owner) {
                record.count = record.count.saturating_sub(1);
            }
        }
        // What is in use, as the message says it.
        let own = self.count(&system.store, clock, message.owner).unwrap_or(0);
        let owners = system.store.owners.iter();
        let others = owners.filter(|it| it.owner != owner && it.expires_at > clock);
        let used: u32 = others.map(|it| it.count).sum();
        let used = used + message.lo.max(own.min(message.hi));
        let grantor = self.grantor();
        let reply = Fault::execute(self.fault, &grantor, &mut system.store, clock, &message);
        if reply.outcome == SlotOutcome::Denied && used + message.want <= self.limit {
            system.wrong = Some(DENIED);
        }
        reply
    }

    /// A request starts.
    fn start(&self, system: &mut System, of: usize, is_valid: bool) {
        let process = &mut system.processes[of];
        match is_valid {
            true => process.valid += 1,
            false => process.outlived += 1,
        }
        let is_above = process.running() > self.limit;
        let valid: u32 = system.processes.iter().map(|it| it.valid).sum();
        system.wrong = match () {
            () if is_valid && valid > self.limit => Some(ABOVE),
            () if !is_valid && !system.is_disturbed => Some(UNKNOWN),
            () if is_above && !system.is_disturbed => Some(ALONE),
            () => None,
        };
    }

    /// The slots that the store counts for an owner, if it knows it.
    fn count(&self, store: &SlotState, clock: Tick, owner: SlotOwner) -> Option<u32> {
        let owner = Fault::owner(self.fault, owner);
        let mut owners = store.owners.iter();
        let record = owners.find(|it| it.owner == owner && it.expires_at > clock)?;
        Some(record.count)
    }

    fn is_known(&self, store: &SlotState, clock: Tick, owner: SlotOwner) -> bool {
        self.count(store, clock, owner).is_some()
    }
}

/// The slots that a message was granted.
fn granted(message: &SlotMessage, reply: &SlotReply) -> u32 {
    match reply.outcome {
        SlotOutcome::Granted { .. } => message.want,
        _ => 0,
    }
}

/// Slots are lost, or on their way back, from now on.
fn lose(lost: &mut [Tick; MOST], slots: u32, now: Tick) {
    for _ in 0..slots {
        lost.rotate_right(1);
        lost[0] = now;
    }
}
