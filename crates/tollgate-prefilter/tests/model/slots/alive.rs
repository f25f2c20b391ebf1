//! What distinguishes states: without it no exploration would end, for time and numbers go on.

use std::hash::{DefaultHasher, Hash, Hasher};

use tollgate_core::Tick;
use tollgate_prefilter::{SlotHolder, SlotMessage, SlotOutcome, SlotOwner, SlotReply, SlotTerms};

use crate::slots::{
    fault::Fault,
    system::{InFlight, MOST, Process, System},
    world::{SlotWorld, TERM},
};

impl SlotWorld {
    /// A hash of all that matters from here on, with times relative to now, and numbers by their order.
    pub(super) fn alive(&self, system: &System) -> u64 {
        let mut processes: Vec<_> = system
            .processes
            .iter()
            .map(|process| self.process(system, process))
            .collect();
        let mut gone: Vec<_> = system
            .gone
            .iter()
            .map(|gone| {
                let numbers = gone.strays.iter().map(|it| it.0.seq);
                let ranks = Ranks::new(self.record(system, gone.owner).map(|it| it.1), numbers);
                let mut bytes = self.record_bytes(system, gone.owner, &ranks);
                bytes.extend(self.ages(system.now, &gone.lost));
                let strays = gone.strays.iter().map(|(message, sent)| {
                    let [a, b, c, d, e] = sent_bytes(message, &ranks);
                    [a, b, c, d, e, (system.now - sent) as u8]
                });
                let mut strays: Vec<_> = strays.collect();
                strays.sort_unstable();
                bytes.extend(strays.as_flattened());
                bytes
            })
            .collect();
        // Which process is which does not matter.
        if self.fault != Some(Fault::LocalClock) {
            processes.sort_unstable();
        }
        gone.sort_unstable();
        let mut hasher = DefaultHasher::new();
        (processes, gone, system.left, system.is_disturbed).hash(&mut hasher);
        system.wrong.hash(&mut hasher);
        hasher.finish()
    }

    fn process(&self, system: &System, process: &Process) -> Vec<u8> {
        let now = system.now;
        let waits = process.in_flight.iter().filter(|it| it.reply.is_none());
        let restarts = self.fault == Some(Fault::OwnerOverRestarts);
        let numbers = waits.map(|it| it.message.seq);
        let numbers = numbers.chain(restarts.then_some(process.seq));
        let ranks = Ranks::new(self.record(system, process.owner).map(|it| it.1), numbers);
        let mut bytes = self.record_bytes(system, process.owner, &ranks);
        let mut holder = process.holder;
        let message = holder.acquire(u64::MAX, 0, now, &self.terms());
        let pending = message.hi - message.lo;
        bytes.extend([
            process.valid as u8,
            process.outlived as u8,
            u8::from(process.holder.is_listed())
                + 2 * u8::from(process.is_reported && !self.unsent),
            process.holder.running() as u8,
            pending as u8,
            process.composed.map_or(0, |it| 1 + it as u8),
            if restarts { ranks.of(process.seq) } else { 0 },
        ]);
        bytes.extend(self.ages(now, &process.lost));
        let undoing = self.unsent.then(|| self.undoing(now, process));
        bytes.extend(undoing.as_ref().map_or([0; 4], |it| it.bytes));
        let in_flight = process.in_flight.iter().map(|it| {
            let undone = undoing.as_ref().map_or([0; 2], |undoing| undoing.of(it));
            let is_newest = it.message.seq == process.seq;
            let is_void = process.holder.is_void(&it.message);
            let flags = [it.is_waited, it.is_void, is_void, is_newest];
            let flags = flags.iter().fold(0, |flags, it| 2 * flags + u8::from(*it));
            let Some(reply) = it.reply else {
                let [a, b, c, d, e] = sent_bytes(&it.message, &ranks);
                let sent = [1, a, b, c, d, e, (now - it.sent) as u8, flags];
                return (sent, undone);
            };
            let outcome = match reply.outcome {
                SlotOutcome::Granted { .. } => 1,
                SlotOutcome::Denied => 2,
                SlotOutcome::Stale => 3,
            };
            // Until when it is good, which may have passed.
            let until = (it.sent + reply.left).saturating_sub(now);
            let until = match self.fault {
                Some(Fault::DeadlineFromReply) => reply.left,
                _ => until,
            };
            let (until, valid) = (until as u8, u8::from(it.is_valid));
            let exact = u8::from(it.message.is_exact);
            let settles = u8::from(is_newest && exact == 1 && outcome != 3);
            // A reply that changes nothing is like any other.
            let replied = match () {
                () if self.fault != Some(Fault::VoidStarts) && is_void => {
                    [3, u8::from(it.message.want > 0), outcome, exact, 0, 0, 0, 0]
                }
                () if it.message.want == 0 => [4, settles, outcome, exact, 0, 0, 0, 0],
                () if outcome != 1 => [5, settles, outcome, exact, 0, 0, 0, flags],
                () => [6, until, valid, exact, 0, 0, 0, flags],
            };
            (replied, undone)
        });
        let mut in_flight: Vec<_> = in_flight.collect();
        in_flight.sort_unstable();
        for (message, undone) in in_flight {
            bytes.extend(message);
            bytes.extend(undone);
        }
        bytes
    }

    /// What a holder keeps in case that a message was not sent is private: a copy of it shows it.
    fn undoing(&self, now: Tick, process: &Process) -> Undoing {
        let holder = process.holder;
        let terms = self.terms();
        let mut undone = holder;
        let mut renew_at = holder.renew_at();
        let in_flight = process.in_flight.iter().rev();
        let acquires = in_flight.map(|it| (it.message, it.is_waited));
        let acquires = acquires.filter(|(message, is_waited)| {
            *is_waited && message.want > 0 && !holder.is_void(message)
        });
        for (message, _) in acquires {
            if message.is_exact {
                // While another is in flight, the key is listed.
                let mut in_use = undone;
                in_use.acquire(u64::MAX, 1, now, &terms);
                in_use.not_sent(&message, now);
                renew_at = in_use.renew_at();
            }
            undone.not_sent(&message, now);
        }
        let [sent, undone] = [holder, undone].map(|it| answered(it, now, &terms));
        let times = process.in_flight.iter().map(|it| it.sent);
        let mut known = vec![process.reported_at];
        known.extend(holder.renew_at());
        known.extend(renew_at);
        let times = Ranks::new(None, times.chain(known));
        let rank = |at: Option<Tick>| at.map_or(0, |at| 1 + times.of(at));
        Undoing {
            bytes: [
                u8::from(sent.is_listed()) + 2 * u8::from(undone.is_listed()),
                rank(holder.renew_at()),
                rank(renew_at),
                rank(Some(process.reported_at)),
            ],
            views: [sent, undone],
            times,
            now,
            terms,
        }
    }

    /// Its count, its number, and for how long it is known.
    fn record(&self, system: &System, owner: SlotOwner) -> Option<(u32, u64, Tick)> {
        let owner = Fault::owner(self.fault, owner);
        let mut owners = system.store.owners.iter();
        let record = owners.find(|it| it.owner == owner)?;
        Some((record.count, record.seq, record.expires_at))
    }

    fn record_bytes(&self, system: &System, owner: SlotOwner, ranks: &Ranks) -> Vec<u8> {
        let skew = match self.fault {
            Some(Fault::LocalClock) => TERM,
            _ => 0,
        };
        match self.record(system, owner) {
            // One that has expired is dropped before anything looks at it, but where one is dropped at a time.
            Some((_, _, at)) if at <= system.clock && self.fault != Some(Fault::OneExpires) => {
                vec![0; 3]
            }
            Some((count, seq, at)) => {
                let left = (at + skew).saturating_sub(system.clock);
                vec![1 + left as u8, count as u8, ranks.of(seq)]
            }
            None => vec![0; 3],
        }
    }

    /// How long ago slots were lost; long ago is long ago.
    fn ages(&self, now: Tick, lost: &[Tick; MOST]) -> [u8; MOST] {
        if !self.follows {
            return [0; MOST];
        }
        lost.map(|at| (now - at).min(TERM + self.delay + 1) as u8)
    }
}

/// What follows if messages of a process were not sent.
struct Undoing {
    bytes: [u8; 4],
    /// The holder as it is, and without what is in flight.
    views: [SlotHolder; 2],
    times: Ranks,
    now: Tick,
    terms: SlotTerms,
}

impl Undoing {
    /// When a message was sent, and whether an answer to it settles either.
    fn of(&self, it: &InFlight) -> [u8; 2] {
        let settles = self.views.map(|mut view| {
            let reply = reply(SlotOutcome::Granted { fence: 0 });
            view.on_renewed(&it.message, &reply, self.now, &self.terms);
            u8::from(!view.is_listed())
        });
        let exact = it.message.is_exact.then(|| 1 + self.times.of(it.sent));
        [exact.unwrap_or(0), settles[0] + 2 * settles[1]]
    }
}

/// A holder whose acquires in flight are denied.
fn answered(mut holder: SlotHolder, now: Tick, terms: &SlotTerms) -> SlotHolder {
    let mut probe = holder;
    let mut message = probe.acquire(u64::MAX, 0, now, terms);
    message.want = message.hi - message.lo;
    if message.want > 0 {
        let denied = reply(SlotOutcome::Denied);
        let _ = holder.on_acquired(&message, &denied, now, now, terms);
    }
    holder
}

fn reply(outcome: SlotOutcome) -> SlotReply {
    SlotReply {
        outcome,
        left: TERM,
        is_new: false,
    }
}

/// Numbers by their order.
struct Ranks(Vec<u64>);

impl Ranks {
    fn new(record: Option<u64>, numbers: impl Iterator<Item = u64>) -> Self {
        let mut numbers: Vec<_> = numbers.chain(record).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers)
    }

    fn of(&self, seq: u64) -> u8 {
        self.0.partition_point(|it| *it < seq) as u8
    }
}

fn sent_bytes(message: &SlotMessage, ranks: &Ranks) -> [u8; 5] {
    [
        ranks.of(message.seq),
        message.lo as u8,
        message.hi as u8,
        message.want as u8,
        u8::from(message.is_exact),
    ]
}
