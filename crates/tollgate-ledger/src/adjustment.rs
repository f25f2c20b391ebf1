//! Corrections by people.

use tollgate_core::{Limiter, Tick, journal::Window, wall_clock};

use crate::{
    counter::change,
    database::window_of,
    error::{LedgerError, LedgerErrorKind},
    ledger::Ledger,
    period::time_text,
    writer::name_of,
};

/// Units that somebody gives or takes: see [`Ledger::adjust`].
#[derive(Clone, Copy, Debug)]
pub struct Adjustment<'a> {
    /// The account.
    pub account: &'a str,
    /// The rule.
    pub rule: &'a str,
    /// The units that count as used: negative ones are given back.
    pub units: i64,
    /// What it is known by. An id is written once, however often it is sent.
    pub id: &'a str,
    /// Who adjusts.
    pub actor: &'a str,
    /// And why.
    pub reason: &'a str,
    /// A time of the window, in µs since the epoch. Default: now.
    pub at: Option<Tick>,
}

impl Ledger {
    /// Writes an adjustment, and changes the counter too if a limiter with the rule is given and the window is not over. False if
    /// it was written before.
    ///
    /// Adjustments may come in any order. Of a window that is closed, it is a correction. If a process ends between the two steps,
    /// [reconciling](Self::reconcile) finds what the counter lacks.
    ///
    /// # Errors
    ///
    /// Something is missing; the account has no such window; the id was used for another adjustment; the database does not answer, and
    /// then it is to be sent again.
    pub async fn adjust(
        &self,
        adjustment: &Adjustment<'_>,
        limiter: Option<&Limiter>,
    ) -> Result<bool, LedgerError> {
        let (rule, units, id) = (adjustment.rule, adjustment.units, adjustment.id);
        let (actor, reason) = (adjustment.actor, adjustment.reason);
        for (what, text) in [("an id", id), ("who", actor), ("why", reason)] {
            if text.trim().is_empty() || text.len() > 1_000 || text.contains('\0') {
                return Err(LedgerError::setup(format!(
                    "an adjustment says {what}, in 1 to 1000 bytes, none of which is 0"
                )));
            }
        }
        if units == 0 || units.unsigned_abs() >= 1 << 53 {
            return Err(LedgerError::setup(
                "an adjustment is of 1 to 2^53 units, or of as many below 0",
            ));
        }
        let account = name_of(adjustment.account);
        let (database, now) = (&self.shared.database, wall_clock());
        let at = adjustment.at.unwrap_or(now);
        let window = match self.window(&account, rule, at).await? {
            Some(window) => window,
            None => of_limiter(limiter, rule, at).ok_or_else(|| {
                LedgerError::setup(format!(
                    "account {account:?} has no window of rule {rule:?} at {}; are both written as in the ledger, and is it a time \
                     of the window?",
                    time_text(at)
                ))
            })?,
        };
        let sql = format!(
            "INSERT INTO tollgate_entries
                (writer, n, kind, rule, account, window_begin, window_end, units, at, id, actor, reason)
            SELECT $1, 0, 'adjustment', $2, $3, $4, $5, $6, {}, $7, $8, $9 WHERE true ON CONFLICT DO NOTHING",
            database.dialect.now()
        );
        let written = sqlx::query(&sql)
            .bind(fastrand::i64(1..))
            .bind(rule)
            .bind(&account)
            .bind(window.begin as i64)
            .bind(window.end as i64)
            .bind(units)
            .bind(id)
            .bind(actor)
            .bind(reason)
            .execute(&database.pool)
            .await?;
        if written.rows_affected() == 0 {
            let sql = "SELECT rule, account, units, window_begin, window_end FROM tollgate_entries
                WHERE kind = 'adjustment' AND id = $1";
            let before = sqlx::query_as::<_, (String, String, i64, i64, i64)>(sql)
                .bind(id)
                .fetch_one(&database.pool)
                .await?;
            let (of_rule, of_account, of_units, begin, end) = before;
            let is_within = |at: Tick| (begin as Tick..end as Tick).contains(&at);
            if (&*of_rule, &*of_account, of_units) != (rule, &*account, units)
                || !adjustment.at.is_none_or(is_within)
            {
                return Err(LedgerError::new(
                    LedgerErrorKind::Conflict,
                    format!(
                        "id {id:?} is that of {of_units} units of {of_rule:?} for {of_account:?}, in the window from {}; take another id",
                        time_text(begin as Tick)
                    ),
                ));
            }
            return Ok(false);
        }
        if let Some(limiter) = limiter.filter(|_| window.begin <= now && now < window.end) {
            for key in database.subjects(rule, &account).await? {
                change(&**limiter.rule_store(), rule, key, window, units)?;
            }
        }
        Ok(true)
    }

    /// The window of an account at a time, if anything was written of it.
    async fn window(
        &self,
        account: &str,
        rule: &str,
        at: Tick,
    ) -> Result<Option<Window>, LedgerError> {
        let sql = "SELECT window_begin, window_end FROM tollgate_totals
            WHERE account = $1 AND rule = $2 AND window_end > $3 AND window_begin <= $3 ORDER BY window_end DESC LIMIT 1";
        let query = sqlx::query(sql).bind(account).bind(rule).bind(at as i64);
        let row = query.fetch_optional(&self.shared.database.pool).await?;
        row.as_ref().map(window_of).transpose()
    }
}

/// The window of a rule's own quota.
fn of_limiter(limiter: Option<&Limiter>, rule: &str, at: Tick) -> Option<Window> {
    let rules = limiter?.rules();
    Window::of(rules.rules()[rules.position(rule)?].quota(), at)
}
