//! Replies of the script as decisions.

use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Mode, Outcome, Retry, RuleSet, Source, Tick, Verdict,
    algorithm::{Algorithm as _, Assessment, Concurrent, GcraState},
    types::ActiveBlock,
};
use tollgate_prefilter::{Counted, Grant, NoReply, SlotMessage, SlotOutcome, SlotReply};

use crate::{
    connection::error::NO_RIGHT,
    script::{
        call::{RequestLayout, SentCheck},
        queued::{Queued, ReplyLine, would_wait},
    },
};

const FITS: i64 = -1;
const NEVER: i64 = -2;
/// Nothing was done.
const FAILED: i64 = -3;
/// Its reason where the state of a durable rule is lost.
const FORGOTTEN: i64 = 6;
/// Its reason where the time of the reply lies outside of the windows of a calendar that were sent.
const OUTSIDE: i64 = 7;
/// From here down the check fits; the difference to this number is the µs after which it fits again.
const FITS_AGAIN: i64 = -4;
/// From here up the check does not fit, and the state is of another quota; the difference to this number is the µs after which
/// it fits.
const OF_ANOTHER_QUOTA: i64 = 1 << 52;
/// It never fits the quota, and the key has a balance that is too small for it.
const ABOVE_BALANCE: i64 = (1 << 53) - 1;
/// From here down a request that only looks fits after the µs that are the difference to this number.
const WOULD_WAIT: i64 = -(1 << 52);
/// Of units left, from here down: the difference to this number is owed.
const IN_DEBT: i64 = -(1 << 52);
/// From here up, by the remainder of an arrival time: the request waits, and this is the state before.
const QUEUED: i64 = -(1 << 53);

/// The check repeats a request with its id, at no cost.
const REPEAT: i64 = QUEUED + (1 << 33);

/// A message about slots is older than one that was read before; nothing was done.
const STALE: i64 = 1;

/// The numbers of an answer to a check.
const NUMBERS: usize = 3;

/// What the script answered to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptReply {
    /// The time of the decisions.
    pub(crate) at: Tick,
    /// The time, and then three for each check, or six where its rule blocks keys. Those of a usual request need no allocation.
    integers: SmallVec<[i64; 4]>,
}

/// The block of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockReply {
    pub(crate) block: ActiveBlock,
    /// Whether the block has begun with this check.
    pub(crate) began: bool,
}

/// Whether a check made a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewKey {
    /// It was created.
    Made,
    /// It did not exist, and the check was decided against the overflow bucket.
    Refused,
}

impl ScriptReply {
    /// The integers of a reply to a call of `checks` checks. `None` if they are not one: another script answered.
    pub(crate) fn new(checks: usize, integers: impl IntoIterator<Item = i64>) -> Option<Self> {
        let integers: SmallVec<[i64; 4]> = integers.into_iter().collect();
        let time = *integers.first()?;
        // Where nothing is asked but a record, the script says zeroes.
        let is_whole = time >= 0 && integers.len() == 1 + checks.max(1) * NUMBERS;
        let at = time.unsigned_abs();
        let reply = Self { at, integers };
        (is_whole || reply.is_without_record()).then_some(reply)
    }

    /// Whether there was no record of the reservation, so that nothing was done.
    pub(crate) fn is_without_record(&self) -> bool {
        self.integers[..] == [-1]
    }

    /// The block that denies the check at a place, if one does.
    pub(crate) fn block(&self, place: u16) -> Option<BlockReply> {
        let [micros, number, _] = self.of(place + 1)?;
        // Otherwise so many count towards the next one.
        (number < 0).then_some(BlockReply {
            block: ActiveBlock {
                micros: u64::try_from(micros).ok()?,
                level: u8::try_from(number.unsigned_abs() / 2).ok()?,
            },
            began: number % 2 != 0,
        })
    }

    /// The same of a check.
    pub(crate) fn block_of(&self, sent: &SentCheck) -> Option<BlockReply> {
        sent.has_block.then(|| self.block(sent.place))?
    }

    /// The decision about one of the requests of the call.
    pub(crate) fn decision(
        &self,
        layout: &RequestLayout,
        checks: &[Check],
        rules: &RuleSet,
    ) -> Decision {
        let rule_of = |check: &Check| &rules.rules()[usize::from(check.rule())];
        let lines = checks.iter().zip(layout.iter()).map(|(check, sent)| {
            let rule = rule_of(check);
            self.line(sent.filter(|_| !rule.has_slots())?, rule.has_credits())
        });
        let lines: SmallVec<[Option<ReplyLine>; 4]> = lines.collect();
        let (queued, would_wait) = match rules.has_waits() {
            true => (
                Queued::new(self.at, &lines, layout, checks, rules),
                would_wait(&lines),
            ),
            false => (None, None),
        };
        let answers = checks.iter().zip(layout.iter()).zip(lines);
        let verdicts = answers.map(|((check, sent), line)| {
            let unanswered = |outcome| Verdict::unanswered(check.rule(), check.plan(), outcome);
            let Some(sent) = sent else {
                return unanswered(Outcome::NotDecided);
            };
            let answer = match line {
                Some(ReplyLine::Answer(answer) | ReplyLine::WouldWait { answer }) => Some(answer),
                Some(ReplyLine::Queued { .. }) => {
                    queued.as_ref().and_then(|it| it.answer(sent.place))
                }
                None => None,
            };
            let verdict = match rule_of(check).has_slots() {
                true => self.slots_verdict(check, sent, queued.is_some(), layout, rules),
                false => answer.map(|answer| self.verdict(check, sent, answer, rules)),
            };
            verdict.unwrap_or_else(|| match self.of(sent.place) {
                Some([FAILED, FORGOTTEN, _]) => unanswered(Outcome::Failed).forgotten(),
                _ => unanswered(Outcome::Failed),
            })
        });
        let decision = Decision::new(self.at, verdicts, |verdict| rules.enforces(verdict.rule()));
        match (queued, would_wait) {
            (Some(queued), _) => decision.delayed(queued.delay(), queued.places()),
            (None, Some(wait)) => decision.delayed(wait, []),
            (None, None) => decision,
        }
    }

    /// What it says to a check of units.
    fn verdict(
        &self,
        check: &Check,
        sent: &SentCheck,
        mut answer: Assessment,
        rules: &RuleSet,
    ) -> Verdict {
        let block = self.block_of(sent).map(|reply| reply.block);
        let of = usize::from(check.rule());
        let rule = &rules.rules()[of];
        // A threshold reads the state of a rule that may owe.
        if rules.rules()[rules.refers_to(of).unwrap_or(of)].debt_of() > 0 {
            let blocked = block.map_or(0, |block| block.micros);
            self.correct_ends(&mut answer, blocked, check, rules);
        }
        let [retry, left, _] = self.of(sent.place).unwrap_or_default();
        let is_repeat = retry == REPEAT;
        let source = match rule.has_credits() && !is_repeat && retry <= WOULD_WAIT {
            true => Source::Credits,
            false => Source::Store,
        };
        let mut verdict = Verdict::new(check.rule(), check.plan(), answer, source);
        // What a key owes, of a check without units of a query.
        if left < IN_DEBT && rule.debt_of() > 0 {
            verdict = verdict.with_debt(IN_DEBT.abs_diff(left));
        }
        if is_repeat {
            verdict = verdict.as_repeat();
        }
        match block {
            Some(block) => verdict.with_block_level(block.level),
            None => verdict,
        }
    }

    /// Windows of a calendar differ in length, which the script knows of this and the next one: what is owed may take more. A block ends
    /// when it says.
    fn correct_ends(&self, answer: &mut Assessment, blocked: Tick, check: &Check, rules: &RuleSet) {
        let rule = &rules.rules()[usize::from(check.rule())];
        let quota = rule.quota_under(usize::from(check.plan()));
        if let Some(calendar) = quota.calendar_of() {
            let end = |after: Tick| match after > blocked {
                true => calendar.end_told(self.at, self.at + after) - self.at,
                false => after,
            };
            answer.reset_after = end(answer.reset_after);
            if let Retry::After(wait) = answer.retry {
                answer.retry = Retry::after_micros(end(wait.as_micros() as Tick));
            }
        }
    }

    /// What it says to a check of slots, with the number of those that it was given; `None`: it failed.
    fn slots_verdict(
        &self,
        check: &Check,
        sent: &SentCheck,
        is_delayed: bool,
        layout: &RequestLayout,
        rules: &RuleSet,
    ) -> Option<Verdict> {
        let [retry, free, _] = self.of(sent.place).filter(|it| it[0] != FAILED)?;
        let rule = usize::from(check.rule());
        let quota = rules.rules()[rule].quota_under(usize::from(check.plan()));
        let is_denied = || {
            layout.sent().any(|(_, other)| {
                let retry = self.of(other.place).map(|it| it[0]);
                rules.enforces(usize::from(other.rule))
                    && retry.is_some_and(|retry| retry >= 0 || retry == NEVER)
            })
        };
        let number = (retry <= FITS_AGAIN).then(|| FITS_AGAIN.abs_diff(retry));
        let free = i128::from(free) + number.map_or(0, |_| i128::from(sent.units));
        let in_use = u64::try_from(i128::from(quota.limit()) - free).unwrap_or(0);
        let cost = match retry {
            // One that fits in a request that is denied takes nothing.
            FITS if rules.enforces(rule) && (is_delayed || is_denied()) => 0,
            _ => sent.units,
        };
        let mut answer = Concurrent::new(&quota)?.assess_in_use(in_use, cost);
        if answer.fits && retry >= 0 {
            // It was too late, and may fit by now.
            answer = Assessment::new(false, answer.remaining, 0, Retry::Unknown);
        }
        let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
        Some(verdict.of_slots(number))
    }

    /// Whether a check was denied by a state that another quota has written.
    pub(crate) fn is_of_another_quota(&self, sent: &SentCheck) -> bool {
        let answer = self.of(sent.place);
        answer.is_some_and(|[retry, ..]| retry >= OF_ANOTHER_QUOTA)
    }

    /// What became of a check that might have made a key; `None`: it has failed, or made none. Whatever it had leave for may be used.
    ///
    /// For a rule with a cap, the script says so itself. Otherwise a key was made if units were taken and nothing else was in use: a state
    /// without usage expires, so there was no key but for the rest of a millisecond, for the margin of a caller's clock, or where a
    /// refund has emptied sub-buckets.
    pub(crate) fn new_key(
        &self,
        sent: &SentCheck,
        check: &Check,
        rules: &RuleSet,
        is_denied: bool,
    ) -> Option<NewKey> {
        let [retry, remaining, reset_after] = self.of(sent.place).filter(|it| it[0] != FAILED)?;
        if sent.may_make.is_some() {
            return match () {
                () if remaining < 0 && remaining > IN_DEBT => Some(NewKey::Refused),
                () if reset_after < 0 => Some(NewKey::Made),
                () => None,
            };
        }
        let rule = &rules.rules()[usize::from(check.rule())];
        let was_taken = match rule.mode() {
            Mode::Enforce => !is_denied,
            // It counts as if it were the only rule.
            Mode::Shadow => true,
            _ => false,
        };
        let level = u64::try_from(remaining).ok()?.checked_add(sent.units)?;
        let is_made = was_taken
            && sent.units > 0
            && !rule.has_slots()
            && (retry == FITS || retry <= FITS_AGAIN && retry != REPEAT)
            && level == rule.quota_of(usize::from(check.plan())).limit();
        is_made.then_some(NewKey::Made)
    }

    /// The lease that was granted in answer to the query at a place.
    pub(crate) fn grant(&self, place: u16) -> Result<Option<Grant>, NoReply> {
        let of_place = self.of(place).and_then(|[kind, units, more]| {
            let (units, more) = (u64::try_from(units).ok()?, u64::try_from(more).ok()?);
            let tracked = Grant::Tracked {
                units,
                generation: more,
            };
            match kind {
                0 => Some(None),
                1 => Some(Some(tracked)),
                2 => Some(Some(Grant::Scheduled { units, after: more })),
                _ => None,
            }
        });
        of_place.ok_or(NoReply::NoAnswer)
    }

    /// Whether one of the states at these places, which were to be forgotten, was there.
    pub(crate) fn was_kept(&self, mut places: std::ops::Range<u16>) -> bool {
        let was_there = |[done, kept, _]: [i64; 3]| done == FITS && kept > 0;
        places.any(|place| self.of(place).is_some_and(was_there))
    }

    /// The units that have lapsed, of the refund at a place under a rule whose requests wait, or of a charge under one with debt;
    /// `None`: nothing was done.
    pub(crate) fn lapsed_units(&self, place: u16) -> Option<u64> {
        let [done, units, _] = self.of(place)?;
        u64::try_from(units).ok().filter(|_| done == FITS)
    }

    /// The units that a balance has paid, of a charge at a place.
    pub(crate) fn paid_units(&self, place: u16) -> u64 {
        let paid = self.of(place).map_or(0, |[_, _, paid]| paid);
        u64::try_from(paid).unwrap_or(0)
    }

    /// What became of the report at a place; `None`: it was not sent.
    pub(crate) fn report(&self, place: Option<u16>) -> Result<Counted, NoReply> {
        let answer = place.and_then(|place| self.of(place));
        match answer {
            _ if self.was_refused(place) => Err(NoReply::NotSent),
            Some([fits, left, reset_after]) if fits >= FITS && left >= 0 => Ok(Counted {
                left: left.unsigned_abs(),
                reset_after: u64::try_from(reset_after).unwrap_or(0),
            }),
            // Of a value that is not ours as little is known as of a call without an answer.
            _ => Err(NoReply::NoAnswer),
        }
    }

    /// Whether what has this place certainly did nothing: it was not sent, or the server has refused it.
    pub(crate) fn was_refused(&self, place: Option<u16>) -> bool {
        place.is_none_or(|place| match self.of(place) {
            Some([FAILED, number, _]) => number == OUTSIDE || refusal_line(number).is_some(),
            _ => false,
        })
    }

    /// Whether nothing was done for the check at a place because the [time](Self::at) lies outside of the windows that it has brought.
    pub(crate) fn is_outside(&self, place: u16) -> bool {
        matches!(self.of(place), Some([FAILED, OUTSIDE, _]))
    }

    /// Why the server refused the first check of the call that it refused, if it did: the line of an error. Nothing was done for that one,
    /// and the others were decided.
    pub(crate) fn first_refusal(&self) -> Option<&'static str> {
        let answers = self.integers.get(1..)?.chunks_exact(NUMBERS);
        let mut failed = answers.filter(|answer| answer[0] == FAILED);
        failed.find_map(|answer| refusal_line(answer[1]))
    }

    /// The answer to a message about slots; `None`: it failed.
    pub(crate) fn slots(&self, place: u16, message: &SlotMessage) -> Option<SlotReply> {
        let [retry, _, left] = self.of(place)?;
        let outcome = match retry {
            FAILED => return None,
            STALE => SlotOutcome::Stale,
            number if number <= FITS_AGAIN => SlotOutcome::Granted {
                fence: FITS_AGAIN.abs_diff(number),
            },
            FITS if message.want == 0 => SlotOutcome::Granted { fence: 0 },
            // Or another rule denies the request.
            _ => SlotOutcome::Denied,
        };
        Some(SlotReply {
            outcome,
            left: u64::try_from(without_mark(left)).ok()?,
            is_new: left < 0,
        })
    }

    /// The script's answer at a place.
    fn of(&self, place: u16) -> Option<[i64; 3]> {
        let start = 1 + usize::from(place) * NUMBERS;
        self.integers.get(start..start + NUMBERS)?.try_into().ok()
    }

    /// What it says to a check of units; `None` where it failed.
    fn line(&self, sent: &SentCheck, has_credits: bool) -> Option<ReplyLine> {
        let [retry, mut remaining, mut reset_after] = self.of(sent.place)?;
        if remaining <= IN_DEBT {
            remaining = 0;
        }
        if sent.may_make.is_some() {
            (remaining, reset_after) = (without_mark(remaining), without_mark(reset_after));
        }
        let remaining = u64::try_from(remaining).ok()?;
        let reset_after = u64::try_from(reset_after).ok()?;
        if let Ok(rest) = u32::try_from(retry.checked_sub(QUEUED)?) {
            let before = GcraState::new(remaining, rest, 0);
            return Some(ReplyLine::Queued { before });
        }
        let answer = Assessment::new(
            retry == FITS || retry <= FITS_AGAIN,
            remaining,
            reset_after,
            match retry {
                FITS | REPEAT => Retry::Now,
                NEVER => Retry::Never,
                FAILED => return None,
                WOULD_WAIT => Retry::Now,
                ABOVE_BALANCE => Retry::Never,
                wait if wait <= WOULD_WAIT => Retry::after_micros(WOULD_WAIT.abs_diff(wait)),
                again if again <= FITS_AGAIN => Retry::after_micros(FITS_AGAIN.abs_diff(again)),
                later if later >= OF_ANOTHER_QUOTA => {
                    Retry::after_micros(later.abs_diff(OF_ANOTHER_QUOTA))
                }
                after => Retry::after_micros(u64::try_from(after).ok()?),
            },
        );
        // Of a rule with credits it says who has paid.
        Some(
            match retry <= WOULD_WAIT && retry != REPEAT && !has_credits {
                true => ReplyLine::WouldWait { answer },
                false => ReplyLine::Answer(answer),
            },
        )
    }
}

/// A number n that is marked is -1 - n, which is its complement.
fn without_mark(number: i64) -> i64 {
    if number < 0 { !number } else { number }
}

// Why a server does not run a command of one check, while it may run those of others.

/// The line of an error, as a server says it, that the script gives this number. None: it met a value that is not ours.
fn refusal_line(number: i64) -> Option<&'static str> {
    Some(match number {
        1 => "OOM the server has reached maxmemory and refuses to write; give it more memory",
        2 => "MISCONF the server cannot save to its disk and refuses to write; see its log",
        3 => {
            "NOREPLICAS fewer replicas follow than min-replicas-to-write asks for, and the server refuses to write"
        }
        4 => NO_RIGHT,
        5 => "ERR the server refuses a command of the script",
        _ => return None,
    })
}
