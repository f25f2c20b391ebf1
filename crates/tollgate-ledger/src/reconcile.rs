//! Counters and sums, compared.

use std::{ops::ControlFlow, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};
use tollgate_core::{
    Check, Limiter, Tick,
    journal::Window,
    store::{CreditChange, CreditState, Fingerprint, RuleStore},
    wall_clock,
};

use crate::{
    counter::{change, check_of, key_of},
    error::LedgerError,
    ledger::Ledger,
};

/// A key whose counter differs from its account: see [`Ledger::reconcile`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drift {
    /// The account.
    pub account: String,
    /// The rule.
    pub rule: String,
    /// Whether it is the balance of the key that differs, and not what it has used.
    pub is_balance: bool,
    /// Whether the account has or had several keys of the rule. The sum is of all of them, so no counter is repaired by it.
    pub is_shared: bool,
    /// The units that the ledger has of the present window, or has left of the balance.
    pub written: i64,
    /// Those that the store counts.
    pub counted: u64,
}

/// How counters are compared with accounts.
#[derive(Clone, Copy, Debug)]
pub struct Reconciliation {
    /// How many counters are read in a second, at most.
    pub per_second: u32,
    /// Whether counters are told what differs for certain: of a key at rest, they are then as the ledger has them.
    pub repairs: bool,
    /// After how long a counter that differs is read again: by then other processes have written what it had counted. Above the
    /// time after which they write.
    pub again_after: Duration,
}

impl Default for Reconciliation {
    fn default() -> Self {
        Self {
            per_second: 500,
            repairs: false,
            again_after: Duration::from_secs(3),
        }
    }
}

struct Candidate {
    /// What is known of it so far.
    drift: Drift,
    key: Fingerprint,
    /// `None`: its balance.
    window: Option<Window>,
}

impl Ledger {
    /// Compares what the limiter's store counts with the sums of the ledger, for every account of a window that is not over, and tells
    /// `each` those that differ twice. Of what a counter has too much, and of a balance, what a key uses between both readings is not
    /// told from a difference, and is taken off; what has come back and is in no entry yet, at either reading, is taken for units that
    /// the counter lacks: repeat it when the key rests. The answer is how many were compared.
    ///
    /// A counter that shows more than the ledger may have units on lease, or those of requests under way. One that shows less has lost
    /// them: a key was evicted, a failover lost the last writes, or what was charged did not fit. One that is not there at all begins
    /// with the ledger's sum at the next request, if the store has lost its states since the window began.
    ///
    /// # Errors
    ///
    /// The database does not answer. A counter that cannot be read is left out.
    pub async fn reconcile(
        &self,
        limiter: &Limiter,
        how: Reconciliation,
        mut each: impl FnMut(&Drift) -> ControlFlow<()>,
    ) -> Result<u64, LedgerError> {
        let mut last = (String::new(), String::new(), String::new(), -1);
        let (mut compared, begun) = (0_u64, Instant::now());
        let pause = Duration::from_secs(1) / how.per_second.max(1);
        loop {
            self.flush().await?;
            let candidates = self.candidates(&mut last).await?;
            if candidates.is_empty() {
                return Ok(compared);
            }
            let mut differing = Vec::new();
            for mut candidate in candidates {
                compared += 1;
                sleep_until(
                    begun + pause.saturating_mul(u32::try_from(compared).unwrap_or(u32::MAX)),
                )
                .await;
                if let Some(counted) = counted(limiter, &candidate).await
                    && candidate.drift.written != counted as i64
                {
                    candidate.drift.counted = counted;
                    differing.push(candidate);
                }
            }
            if differing.is_empty() {
                continue;
            }
            sleep(how.again_after).await;
            self.flush().await?;
            for mut candidate in differing {
                let before = candidate.drift.clone();
                let (database, rule) = (&self.shared.database, &*before.rule);
                let balance = database.credits(rule, &before.account).await?;
                candidate.drift.written = match candidate.window {
                    Some(window) => database.sum(rule, &before.account, window.end).await?,
                    None => balance.units(0) as i64,
                };
                let Some(counted) = counted(limiter, &candidate).await else {
                    continue;
                };
                let (mut drift, key, window) = (candidate.drift, candidate.key, candidate.window);
                drift.counted = counted;
                let (written_before, counted_before) = (before.written, before.counted as i64);
                let (written_now, counted_now) = (drift.written, counted as i64);
                let has_less = match window {
                    // The sum was read before the counter: what was used in between is not taken for units that the counter lacks.
                    Some(_) => (written_before - counted_before).min(written_now - counted_now),
                    None => written_before.min(written_now) - counted_before.max(counted_now),
                };
                let has_more = counted_before.min(counted_now) - written_before.max(written_now);
                let lacks = has_less.max(0) - has_more.max(0);
                if lacks == 0 {
                    continue;
                }
                let mut others = database.subjects(rule, &before.account).await?;
                others.retain(|other| *other != key);
                drift.is_shared = !others.is_empty();
                if counted == 0 && window.is_some() {
                    let mut is_counted = false;
                    for key in others {
                        let drift = before.clone();
                        let other = Candidate { drift, key, window };
                        is_counted |= self::counted(limiter, &other).await > Some(0);
                        if is_counted {
                            break;
                        }
                    }
                    // The rule may have had this key before a change. What the other key lacks is told for that key.
                    if is_counted {
                        continue;
                    }
                }
                if how.repairs && !drift.is_shared {
                    let store = &**limiter.rule_store();
                    match window {
                        Some(window) => change(store, rule, key, window, lacks)?,
                        None => correct(store, rule, key, &balance, lacks).await?,
                    }
                }
                if each(&drift).is_break() {
                    return Ok(compared);
                }
            }
        }
    }

    /// The next accounts of windows that are not over, behind the `last` one.
    async fn candidates(
        &self,
        last: &mut (String, String, String, i64),
    ) -> Result<Vec<Candidate>, LedgerError> {
        let sql = format!(
            "SELECT * FROM (
                SELECT t.account, t.rule, s.subject, t.window_end, t.window_begin, t.units + t.late AS written
                FROM tollgate_totals AS t JOIN tollgate_subjects AS s ON s.rule = t.rule AND s.account = t.account
                WHERE t.window_end > {now} AND t.window_begin <= {now}
                UNION ALL
                SELECT b.account, b.rule, s.subject, 0, 0, CASE WHEN b.units > 0 THEN b.units ELSE 0 END
                FROM tollgate_balances AS b JOIN tollgate_subjects AS s ON s.rule = b.rule AND s.account = b.account
                WHERE b.until > {now}
            ) AS c WHERE (account, rule, subject, window_end) > ($1, $2, $3, $4)
            ORDER BY account, rule, subject, window_end LIMIT 500",
            now = self.shared.database.dialect.now()
        );
        let (account, rule, subject, end) = &*last;
        let query = sqlx::query_as::<_, (String, String, String, i64, i64, i64)>(&sql)
            .bind(account)
            .bind(rule)
            .bind(subject)
            .bind(*end);
        let rows = query.fetch_all(&self.shared.database.pool).await?;
        let mut candidates = Vec::new();
        for (account, rule, subject, end, begin, written) in rows {
            let key = key_of(&subject);
            *last = (account.clone(), rule.clone(), subject, end);
            let (begin, end) = (begin as Tick, end as Tick);
            // That of a balance is of no window.
            let window = (end > 0).then_some(Window { begin, end });
            let drift = Drift {
                account,
                rule,
                is_balance: window.is_none(),
                is_shared: false,
                written,
                counted: 0,
            };
            candidates.push(Candidate { drift, key, window });
        }
        Ok(candidates)
    }
}

/// What the store counts of a key, as far as its largest quota shows it.
async fn counted(limiter: &Limiter, candidate: &Candidate) -> Option<u64> {
    let index = limiter.rules().position(&candidate.drift.rule)?;
    let rule = limiter.rules().rules().get(index)?;
    if candidate.window.is_none() {
        let check = Check::new(index as u16, candidate.key, 0);
        let store = limiter.rule_store();
        let told = rule
            .has_credits()
            .then(|| store.credits(&check, CreditChange::Query))?;
        return Some(told.await.ok()?.units);
    }
    let plan = (0..rule.quotas()).max_by_key(|plan| rule.limit_under(*plan))?;
    let limit = rule.limit_under(plan)?;
    // A rule set has fewer than 65 536 rules, and a rule fewer plans.
    let check = Check::new(index as u16, candidate.key, 0).with_plan(plan as u16);
    let decision = limiter.peek(&[check]).await;
    let verdict = decision.verdicts().first()?;
    let is_over = |window: Window| window.end <= wall_clock();
    if !verdict.has_numbers() || candidate.window.is_some_and(is_over) {
        return None;
    }
    let counted = limit - verdict.remaining().min(limit) + verdict.debt();
    // What lies beyond the limit is not seen.
    let written = u64::try_from(candidate.drift.written).unwrap_or(0);
    Some(if counted == limit {
        counted.max(written)
    } else {
        counted
    })
}

/// Gives the store a balance, or what it lacks of it.
async fn correct(
    store: &dyn RuleStore,
    rule: &str,
    key: Fingerprint,
    balance: &CreditState,
    lacks: i64,
) -> Result<(), LedgerError> {
    let check = check_of(store, rule, key, 0)?;
    let mut told = store.restore_credits(&check, balance).await;
    if told.as_ref().is_ok_and(|told| told.changed == 0) {
        told = store.credits(&check, CreditChange::Correct(lacks)).await;
    }
    told.map(drop)
        .map_err(|wrong| LedgerError::setup(format!("the store: {wrong}")))
}
