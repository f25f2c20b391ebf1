//! For how long states live on the server, beside when they are fresh in memory.
//!
//! A state is to live until it equals a fresh one. By a caller's clock, that is known when it is written: its time to live is
//! then what is left until it is fresh, in whole ms and rounded up, and the margin for clocks that differ. By the server's
//! clock it is known whenever somebody looks: a server keeps a key for the whole of the ms that it ends in, so that it may end
//! in the one in which the state is fresh, or in the next.

use std::{collections::HashMap, ops::RangeInclusive, sync::Arc, time::Duration};

use crate::script::{args::ScriptCall, encoder::Encoder};
use tollgate_core::{
    Check,
    store::{Fingerprint, RuleStore},
};

use crate::internal_tests::parity::server::CarriedOut;

/// The bytes of the quota that wrote a state, in it and in a check.
const IN_STATE: RangeInclusive<usize> = 0..=20;
const IN_CHECK: RangeInclusive<usize> = 13..=33;

/// The algorithm of a bucket in a check of a rule whose requests wait and in a state, and for how long they wait.
const QUEUE: u8 = 16;
const BUCKET: u8 = 17;
const FIXED: u8 = 18;
const WAIT_IN_CHECK: RangeInclusive<usize> = 50..=57;
const WAIT_IN_STATE: RangeInclusive<usize> = 33..=40;
const QUEUE_BYTES: usize = 45;

/// Of a key that was counted towards a block, what there is to know of it stands before the rest of a state.
const BLOCKED: u8 = 23;
/// Before that, the ids of its requests.
const IDS: u8 = 31;

/// From here up the first number of a quota is a window of a calendar.
const CALENDAR: f64 = (1_u64 << 52) as f64;

#[derive(Debug)]
pub(crate) struct Lives {
    /// By which a caller's clock and the server's may differ; `None`: the time is the server's.
    margin: Option<Duration>,
    /// By a rule's name and the bytes of a quota: who has it in memory.
    writers: HashMap<(Vec<u8>, Vec<u8>), Writer>,
    seen: HashMap<Vec<u8>, Seen>,
    /// The latest time that there was.
    latest: u64,
}

#[derive(Clone, Debug)]
struct Writer {
    bound: Arc<dyn RuleStore>,
    rule: u16,
    plan: u16,
}

/// A state as it was last seen.
#[derive(Debug)]
struct Seen {
    state: Vec<u8>,
    /// The ms, by the server's clock, in which it ends: between the two.
    ends: (i64, i64),
    /// By so many ms the server may have been later when it wrote it than it was when it told the time.
    late: i64,
}

impl Lives {
    pub(crate) fn new(margin: Option<Duration>) -> Self {
        Self {
            margin,
            writers: HashMap::new(),
            seen: HashMap::new(),
            latest: 0,
        }
    }

    /// These rules may write states from now on.
    pub(crate) fn writes(&mut self, bound: &Arc<dyn RuleStore>, encoder: &Encoder) {
        for (rule, given) in (0..).zip(bound.rules().rules()) {
            let brought = if given.has_variable_quota() { 4 } else { 0 };
            for plan in 0..given.quotas() as u16 + brought {
                let check = Check::new(rule, Fingerprint::from_bits(7), 1).with_plan(plan);
                let mut call = ScriptCall::new();
                assert!(call.peek(encoder, &[check]).is_some());
                let Some(packed) = call.args().nth(1) else {
                    continue;
                };
                // A threshold reads states and writes none.
                let name = call.keys().next().map(rule_of).unwrap_or_default();
                if name == given.name().as_bytes() {
                    let bound = Arc::clone(bound);
                    let mut quota = without_window(&packed[IN_CHECK]);
                    if quota[0] == QUEUE {
                        quota[0] = BUCKET;
                        quota.extend_from_slice(&packed[WAIT_IN_CHECK]);
                    }
                    let writer = Writer { bound, rule, plan };
                    self.writers.insert((name, quota), writer);
                }
            }
        }
    }

    /// Compares the state of a check, under whichever of its names, with that in memory.
    pub(crate) fn compare(
        &mut self,
        names: &[Vec<u8>],
        (bound, check): (&Arc<dyn RuleStore>, &Check),
        carried_out: &CarriedOut,
        at: u64,
        seed: u64,
    ) {
        self.latest = self.latest.max(at);
        // A key may be there several times, once for each request of the call.
        let last = |name: &&Vec<u8>| {
            let states = carried_out.states.iter();
            let (name, state) = states.rev().find(|(other, _)| other == *name)?;
            Some((name, state.as_ref()?))
        };
        let found: Vec<_> = names.iter().filter_map(|name| last(&name)).collect();
        assert!(found.len() < 2, "two names of one state, seed {seed}");
        let states = &carried_out.states;
        if !states.iter().any(|(name, _)| names.contains(name)) {
            // There was nothing to ask, or to give back.
            return;
        }
        let (begun, ended) = carried_out.between;
        let Some(&(name, (state, lives))) = found.first() else {
            for name in names {
                self.seen.remove(name);
            }
            let fresh = self.fresh_after(names, bound, check);
            assert!(
                self.margin.is_some() && fresh == 0 || at + fresh <= ended,
                "there is no state, and it counts for {fresh} µs more, seed {seed}"
            );
            return;
        };
        if [BLOCKED, IDS].contains(&state[0]) {
            // It lives until the block is forgotten too, or the last id, as of when it was written.
            let forgotten_at = f64::from_le_bytes(state[1..9].try_into().expect("8 bytes")) as u64;
            let margin = self.margin.unwrap_or_default().as_millis() as i64;
            let least = ms(forgotten_at.saturating_sub(at)) - (ms(ended) - ms(begun)) + margin;
            let is_written = self.seen.get(name).is_none_or(|seen| seen.state != *state);
            let is_kept = forgotten_at <= at || *lives + 1 >= least;
            assert!(is_kept || !is_written, "{lives} ms of {least}, seed {seed}");
            let seen = Seen {
                state: state.clone(),
                ends: (0, 0),
                late: 0,
            };
            self.seen.insert(name.clone(), seen);
            return;
        }
        let mut quota = without_window(&state[IN_STATE]);
        if state.len() == QUEUE_BYTES && state[WAIT_IN_STATE] != [0; 8] {
            quota.extend_from_slice(&state[WAIT_IN_STATE]);
        }
        let writer = (rule_of(name), quota);
        let writer = self.writers.get(&writer).expect("a quota of the history");
        let fresh = fresh_after(writer, check.key());
        let (begun, ended) = (ms(begun), ms(ended));
        let ends = (begun + lives, ended + lives);
        let seen = self.seen.get(name);
        let is_written = seen.is_none_or(|seen| {
            seen.state != *state || seen.ends.1 < ends.0 || ends.1 < seen.ends.0
        });
        let text = || {
            format!(
                "lives for {lives} ms and is fresh in {fresh} µs, {:?}, seed {seed}, {check:?} of {:?}",
                carried_out.between,
                writer.bound.rules().rules(),
            )
        };
        assert!(*lives >= 0, "{}", text());
        // Windows of a calendar in which units are owed may be longer than the script knows.
        let first = state[1..]
            .first_chunk()
            .map_or(0.0, |it| f64::from_le_bytes(*it));
        let is_longer = state[0] == FIXED + 8 && first >= CALENDAR;
        let longer = if is_longer { i64::MAX / 4 } else { 0 };
        let late = ended - ms(at);
        let late = seen.map_or(0, |seen| seen.late).max(late);
        match self.margin {
            Some(margin) if is_written => {
                let right = fresh.div_ceil(1_000) as i64 + margin.as_millis() as i64;
                // What is over stays for what is left of the margin.
                let least = if fresh > 0 {
                    right - (ended - begun)
                } else {
                    0
                };
                // Memory tells of a state that lies in the future as a denial would repair it, and a refund does not.
                let ahead = (fresh + self.latest - at).div_ceil(1_000) as i64;
                let most = ahead + longer + margin.as_millis() as i64;
                assert!((least..=most).contains(lives), "{}", text());
            }
            Some(_) => {}
            None => {
                let until = ms(at + fresh);
                assert!(
                    until <= ends.1 && ends.0 <= until + 1 + late + longer,
                    "{}",
                    text()
                );
            }
        }
        let seen = Seen {
            state: state.clone(),
            ends,
            late,
        };
        self.seen.insert(name.clone(), seen);
    }

    /// In how many µs what is used of a check's rule is fresh in memory: by a quota that has written it, the soonest.
    fn fresh_after(&self, names: &[Vec<u8>], bound: &Arc<dyn RuleStore>, check: &Check) -> u64 {
        let layout = Writer {
            bound: Arc::clone(bound),
            rule: check.rule(),
            plan: check.plan(),
        };
        let rule = names.first().map(|name| rule_of(name));
        let writers = self.writers.iter();
        let writers = writers.filter(|((name, _), _)| Some(name) == rule.as_ref());
        let all = writers.map(|(_, writer)| writer).chain([&layout]);
        all.map(|writer| fresh_after(writer, check.key()))
            .min()
            .unwrap_or(0)
    }
}

fn fresh_after(writer: &Writer, key: Fingerprint) -> u64 {
    let check = Check::new(writer.rule, key, 0).with_plan(writer.plan);
    let decision = writer.bound.peek(&[check]).ready();
    let decision = decision.expect("memory answers at once");
    decision.verdicts()[0].reset_after().as_micros() as u64
}

/// The name of the rule in that of a state.
fn rule_of(name: &[u8]) -> Vec<u8> {
    let mut parts = name.rsplit(|byte| *byte == b':');
    parts.nth(1).unwrap_or_default().to_vec()
}

fn ms(micros: u64) -> i64 {
    (micros / 1_000) as i64
}

/// The quota in a check or a state; of a calendar without the window that the caller has brought.
fn without_window(quota: &[u8]) -> Vec<u8> {
    let mut quota = quota.to_vec();
    if quota[0] > BLOCKED {
        // It owes units.
        quota[0] -= 8;
    }
    let first = quota[1..]
        .first_chunk()
        .map_or(0.0, |it| f64::from_le_bytes(*it));
    if quota[0] == FIXED && first >= CALENDAR {
        quota[1..9].copy_from_slice(&(CALENDAR + first % f64::from(1 << 18)).to_le_bytes());
        quota[17..].fill(0);
    }
    quota
}
