//! Requests that wait, out of a reply: the script says what the states were before, and the core what follows from that.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    Check, Retry, RuleSet, Tick,
    algorithm::{Algorithm as _, Assessment, Gcra, GcraState, Instant, Taken},
    store::Hold,
};

use crate::script::call::{RequestLayout, SentCheck};

/// What the script says to a check.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyLine {
    Answer(Assessment),
    /// It has taken its units for later.
    Queued {
        before: GcraState,
    },
    /// It fits after a wait, for a request that only looks.
    WouldWait {
        answer: Assessment,
    },
}

/// What a request waits for.
#[derive(Debug)]
pub(crate) struct Queued {
    at: Tick,
    start: Instant,
    lines: SmallVec<[Line; 2]>,
}

/// A rule that has taken its units for later.
#[derive(Debug)]
struct Line {
    /// The first of the checks on this state, with the units of all.
    check: Check,
    /// Where its answer is in the reply.
    place: u16,
    quota: Gcra,
    before: GcraState,
    is_enforced: bool,
}

impl Queued {
    /// What a request with these checks waits for, by what the script says to each of them; `None`: it does not wait.
    pub(crate) fn new(
        at: Tick,
        lines: &[Option<ReplyLine>],
        layout: &RequestLayout,
        checks: &[Check],
        rules: &RuleSet,
    ) -> Option<Self> {
        let line = |(index, sent): (usize, &SentCheck)| {
            let Some(ReplyLine::Queued { before }) = *lines.get(index)? else {
                return None;
            };
            let check = &checks[index];
            let rule = rules.rules().get(usize::from(check.rule()))?;
            let quota = Gcra::new(&rule.quota_under(usize::from(check.plan())))?;
            Some(Line {
                check: check.with_cost(sent.units),
                place: sent.place,
                quota: quota.waiting(rule.at_most_wait()?),
                before,
                is_enforced: rules.enforces(usize::from(check.rule())),
            })
        };
        let lines: SmallVec<[Line; 2]> = layout.sent().filter_map(line).collect();
        let enforced = lines.iter().filter(|line| line.is_enforced);
        let instants =
            enforced.filter_map(|line| line.quota.instant(&line.before, at, line.check.cost()));
        let start = instants.reduce(Instant::or_later)?;
        (start.start > at).then_some(Self { at, start, lines })
    }

    /// How long it waits.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_micros(self.start.start - self.at)
    }

    /// The answer at this place of the reply, as of the start.
    pub(crate) fn answer(&self, place: u16) -> Option<Assessment> {
        let line = self.lines.iter().find(|line| line.place == place)?;
        Some(self.taken(line))
    }

    /// The places that it has taken.
    pub(crate) fn places(&self) -> impl Iterator<Item = Hold> + '_ {
        let enforced = self.lines.iter().filter(|line| line.is_enforced);
        enforced.map(|line| {
            let reset_after = self.taken(line).reset_after;
            let taken = Taken::new(self.at, self.start.start.saturating_add(reset_after));
            Hold::in_queue(line.check, taken, line.before)
        })
    }

    fn taken(&self, line: &Line) -> Assessment {
        let mut state = line.before;
        let _ = line
            .quota
            .take_from(&mut state, self.at, self.start, line.check.cost());
        line.quota.assess(&state, self.start.start, 0)
    }
}

/// How long a request waits that only looks, by the answers to its checks.
pub(crate) fn would_wait(lines: &[Option<ReplyLine>]) -> Option<Duration> {
    let waits = lines.iter().flatten().filter_map(|line| match line {
        ReplyLine::WouldWait { answer } => match answer.retry {
            Retry::After(wait) => Some(wait),
            _ => None,
        },
        _ => None,
    });
    waits.max()
}
