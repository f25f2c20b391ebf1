//! Processes that count alone exceed the limit by what they have not reported.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use proptest::prelude::*;
use tollgate_core::{
    Quota, Tick,
    algorithm::{Algorithm, Gcra, GcraState},
};
use tollgate_prefilter::{LocalUsage, ReportTerms, Spend};

use crate::oracle::ExactBucket;

struct Reporters {
    quota: Gcra,
    state: GcraState,
    exact: ExactBucket,
    terms: ReportTerms,
    tallies: Vec<LocalUsage>,
    /// Per process, until when its connection is busy in either direction: what is sent first is carried out first.
    busy: Vec<(Tick, Tick)>,
    events: BTreeMap<(Tick, u64), Event>,
    sequence: u64,
    lost: u64,
    rng: Rng,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Carried out at the store: units, sent at, whether it is a report, and whether the answer comes.
    Execute(usize, u64, Tick, bool, bool),
    /// The units of the report, if it was one, sent at, and what is left.
    Answer(usize, Option<u64>, Tick, u64),
    /// No answer came to a report of so many units.
    Lost(usize, u64),
}

impl Reporters {
    fn after(&mut self, at: Tick, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    fn send(&mut self, now: Tick, of: usize, units: u64, is_report: bool) {
        let (out, _) = &mut self.busy[of];
        *out = now.max(*out) + self.rng.u64(0..50_000);
        let at = *out;
        match self.rng.u8(0..100) {
            0 if is_report => self.tallies[of].kept(units, now),
            0 => {}
            1 if is_report => self.after(now + 200_000, Event::Lost(of, units)),
            1 => {}
            chance => self.after(at, Event::Execute(of, units, now, is_report, chance > 2)),
        }
    }

    fn request(&mut self, now: Tick, of: usize, cost: u64) {
        if self.tallies[of].spend(now, cost, &self.terms) == Spend::Here {
            self.exact.admit(now, cost);
        } else {
            self.report(now, of);
            self.send(now, of, cost, false);
        }
        if self.tallies[of].is_due(now, &self.terms) {
            self.report(now, of);
        }
    }

    fn report(&mut self, now: Tick, of: usize) {
        let units = self.tallies[of].report();
        if units > 0 {
            self.send(now, of, units, true);
        }
    }

    fn happens(&mut self, now: Tick, event: Event) {
        match event {
            Event::Execute(of, units, sent, is_report, is_answered) => {
                if is_report {
                    // What is admitted already is debited, whatever is left.
                    self.quota.take(&mut self.state, now, units);
                } else if self.quota.acquire(&mut self.state, now, units).fits {
                    self.exact.admit(now, units);
                }
                let left = self.quota.assess(&self.state, now, 0).remaining;
                if is_answered {
                    let (_, back) = &mut self.busy[of];
                    *back = now.max(*back) + self.rng.u64(0..50_000);
                    let at = *back;
                    self.after(
                        at,
                        Event::Answer(of, is_report.then_some(units), sent, left),
                    );
                } else if is_report {
                    self.after(now + 200_000, Event::Lost(of, units));
                }
            }
            Event::Answer(of, Some(units), sent, left) => {
                self.tallies[of].reported(units, (sent, now), left);
            }
            Event::Answer(of, None, sent, left) => self.tallies[of].on_remaining(sent, left),
            Event::Lost(of, units) => self.lost += self.tallies[of].lost(units),
        }
    }
}

proptest! {
    #[test]
    fn all_together_exceed_the_limit_by_what_is_unreported_at_most(
        rate in prop::sample::select(vec![23_u64, 97, 997]),
        max_unreported in 1..=20_u64,
        processes in 1..=8_usize,
        load in 1..=4_u64,
        seed in any::<u64>(),
    ) {
        let quota = Quota::gcra(rate, Duration::from_secs(1));
        let terms = ReportTerms::new(&quota, Duration::from_millis(100), max_unreported);
        let mut all = Reporters {
            quota: Gcra::new(&quota).expect("a bucket"),
            state: GcraState::default(),
            exact: ExactBucket::new(&quota),
            terms: terms.expect("it can report"),
            tallies: vec![LocalUsage::default(); processes],
            busy: vec![(0, 0); processes],
            events: BTreeMap::new(),
            sequence: 0,
            lost: 0,
            rng: Rng::with_seed(seed),
        };
        let mut now = 1_700_000_000_000_000;
        for _ in 0..4_000 {
            now += all.rng.u64(0..=2_000_000 * 2 / rate / load);
            if all.rng.u16(..) < 60 {
                now += all.rng.u64(0..10_000_000);
            }
            while let Some(entry) = all.events.first_entry() && entry.key().0 <= now {
                let ((at, _), event) = entry.remove_entry();
                all.happens(at, event);
            }
            let of = all.rng.usize(0..processes);
            let cost = all.rng.u64(1..=3);
            all.request(now, of, cost);
            prop_assert!(all.tallies.iter().all(|usage| usage.unreported() <= max_unreported));
            let above = processes as u64 * max_unreported + all.lost;
            prop_assert!(all.exact.is_within(above), "{:?}", all.exact);
        }
    }
}
