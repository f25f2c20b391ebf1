//! What [durable](crate::Rule::durable) rules have admitted and no ledger has written yet.
//!
//! A request adds its units to an account of its rule and window, in memory. A ledger takes them out about once a second, so that no
//! request waits for a database. Settlements change the same sums. The journal is bounded by its number of accounts: units of an
//! account that has no room are lost, and counted.
//!
//! The way back: where a store has forgotten a window, a request asks the ledger for its [base](BaseQuery), the units that were used in
//! it.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use foldhash::fast::FixedState;
use smallvec::SmallVec;

mod daily_usage;
mod movement;

pub use self::daily_usage::DailyUsage;
pub(crate) use self::movement::UNKNOWN;
pub use self::movement::{CreditEntry, HoldId, MovementKind};
use self::{daily_usage::DayClient, movement::Movements};
use crate::{
    algorithm_kind::AlgorithmKind,
    check::Check,
    check_policy::OnStoreError,
    credits::CreditState,
    decision::{Decision, Outcome},
    hold::{Hold, Settlement, Source},
    journal_cells::{CellSum, JournalCells},
    key::{Fingerprint, KeyBuf},
    quota::{MAX_UNITS, Quota},
    rule::Rule,
    rule_set::RuleSet,
    step::Pending,
    store::rule_store::RuleStore,
    sync::{AtomicU64, Mutex, Ordering, lock},
    time::{Clock, Tick, micros},
};

/// A window of a rule, in µs since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// Its first µs.
    pub begin: Tick,
    /// The first µs after it.
    pub end: Tick,
}

impl Window {
    /// The window of a quota at a time; `None` if it has none.
    #[must_use]
    pub fn of(quota: &Quota, at: Tick) -> Option<Self> {
        if quota.algorithm() != AlgorithmKind::FixedWindow {
            return None;
        }
        #[cfg(feature = "calendar")]
        if let Some(calendar) = quota.calendar_of() {
            let (begin, end) = calendar.windows().window(at);
            return Some(Self { begin, end });
        }
        let period = micros(quota.period()).max(1);
        let begin = at - at % period;
        Some(Self {
            begin,
            end: begin + period,
        })
    }
}

/// The units of an account that a ledger has to write: what was used, or a [movement](MovementKind).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The name of the rule.
    pub rule: Arc<str>,
    /// What stands for the key in the store.
    pub subject: Fingerprint,
    /// The account, never empty. `None` if only the subject is known any more: a settlement came long after its request.
    pub account: Option<Arc<str>>,
    /// The window.
    pub window: Window,
    /// The units that were used: negative if more came back than were taken. Of a movement they are what its kind says.
    pub units: i64,
}

/// What a key has used in a window, that a store may have forgotten, is to be looked up.
#[derive(Clone, Debug)]
pub struct BaseQuery {
    /// The name of the rule.
    pub rule: Arc<str>,
    /// What stands for the key in the store.
    pub subject: Fingerprint,
    /// The account, if it is known.
    pub account: Option<Arc<str>>,
    /// The window.
    pub window: Window,
    /// Within which time the answer is of use.
    pub within: Duration,
    /// Whether the rule takes credits.
    pub has_credits: bool,
    /// How many earlier windows are asked for: of a rule where units may be owed.
    pub earlier: u8,
    /// What is written before.
    pub change: Option<CreditEntry>,
}

/// What a ledger has of a key.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The units that were used in the window.
    pub used: u64,
    /// Those of the windows before, the latest last.
    pub earlier: Vec<(Window, i64)>,
    /// Its balance.
    pub credits: CreditState,
}

type LookUp = dyn Fn(BaseQuery) -> Pending<Option<Base>> + Send + Sync;

/// What the durable rules of a limiter, and of those that replace it, have to tell a ledger.
#[derive(Default)]
pub struct Journal {
    rules: Mutex<Vec<Arc<RuleJournal>>>,
    /// From the first ledger on.
    cells: OnceLock<JournalCells>,
    look_up: Mutex<Option<Arc<LookUp>>>,
    movements: Movements,
    /// Of the rules that came last.
    store: Mutex<Option<Weak<dyn RuleStore>>>,
    is_attached: AtomicBool,
    /// Held while a state in memory begins with what was used, so that it takes that once.
    begins: Mutex<()>,
    /// Whether the ledger is behind by more than it should.
    is_behind: AtomicBool,
    accounts: AtomicUsize,
    day_clients: AtomicUsize,
    most: AtomicUsize,
    lost: AtomicU64,
    lost_daily: AtomicU64,
}

impl Journal {
    /// Notes usage for a ledger from now on, of at most so many accounts at once. `look_up` finds the units that were used in a window,
    /// with those that were taken out of this journal. `None`: it does not know, for now.
    ///
    /// False if it has a ledger already.
    pub fn attach(
        &self,
        most: usize,
        look_up: impl Fn(BaseQuery) -> Pending<Option<Base>> + Send + Sync + 'static,
    ) -> bool {
        let mut place = lock(&self.look_up);
        if place.is_some() {
            return false;
        }
        *place = Some(Arc::new(look_up));
        self.cells.get_or_init(|| JournalCells::new(most));
        self.most.store(most, Ordering::Relaxed);
        self.is_attached.store(true, Ordering::Release);
        true
    }

    pub(crate) fn set_store(&self, store: &Arc<dyn RuleStore>) {
        *lock(&self.store) = Some(Arc::downgrade(store));
    }

    /// The store with the rules that are in force, as long as they are.
    pub fn store(&self) -> Option<Arc<dyn RuleStore>> {
        lock(&self.store).as_ref()?.upgrade()
    }

    /// Notes nothing from now on.
    pub fn detach(&self) {
        *lock(&self.look_up) = None;
        self.is_attached.store(false, Ordering::Release);
        self.is_behind.store(false, Ordering::Relaxed);
    }

    /// Says whether the ledger is behind by more than it should: rules may [deny](crate::Rule::deny_unwritten) then.
    pub fn set_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::Relaxed);
    }

    /// Units that had no room. It only grows.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Its accounts, and those that were emptied a short time ago.
    pub fn accounts(&self) -> usize {
        self.accounts.load(Ordering::Relaxed)
    }

    /// Takes out what was noted. Accounts stay for ten minutes, so that settlements find them.
    #[must_use]
    pub fn take(&self, now: Tick) -> Vec<Usage> {
        if let Some(cells) = self.cells.get() {
            cells.spill(|subject, sum| self.spill(subject, sum, now));
        }
        let rules: Vec<Arc<RuleJournal>> = lock(&self.rules).clone();
        let is_crowded = self.accounts() > self.most.load(Ordering::Relaxed) / 2;
        let mut taken = Vec::new();
        let mut accounts = 0;
        for rule in &rules {
            for shard in &rule.accounts.0 {
                let mut shard = lock(shard);
                shard.retain(|subject, account| {
                    let is_idle = account.units.is_empty();
                    let is_written = account.name.as_deref() != Some("");
                    let units = account.units.drain(..);
                    taken.extend(units.filter(|it| is_written && it.1 != 0).map(
                        |(window, units)| Usage {
                            rule: Arc::clone(&rule.name),
                            subject: *subject,
                            account: account.name.clone(),
                            window,
                            units,
                        },
                    ));
                    let kept = account.used_at.saturating_add(KEPT);
                    !is_idle || !is_crowded && account.name.is_some() && kept > now
                });
                accounts += shard.len();
            }
        }
        self.accounts.store(accounts, Ordering::Relaxed);
        taken
    }

    fn is_attached(&self) -> bool {
        self.is_attached.load(Ordering::Acquire)
    }

    fn has_room(&self) -> bool {
        self.accounts() < self.most.load(Ordering::Relaxed)
    }

    /// Makes room for an account, for one more window of it, or for a client, if there is any.
    fn takes_room(&self, taken: &AtomicUsize) -> bool {
        let has_room = taken.load(Ordering::Relaxed) < self.most.load(Ordering::Relaxed);
        if has_room {
            taken.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// What a cell had goes to its account.
    fn spill(&self, subject: Fingerprint, sum: CellSum, now: Tick) {
        let rule = lock(&self.rules).get(sum.rule as usize).map(Arc::clone);
        if let Some(rule) = rule {
            let CellSum { begin, end, .. } = sum;
            rule.add(self, subject, Window { begin, end }, sum.units, now);
        }
    }

    fn rule(&self, name: &Arc<str>) -> Arc<RuleJournal> {
        let mut rules = lock(&self.rules);
        if let Some(rule) = rules.iter().find(|rule| rule.name == *name) {
            return Arc::clone(rule);
        }
        let rule = Arc::new(RuleJournal {
            name: Arc::clone(name),
            number: rules.len() as u32,
            accounts: KeyTable::default(),
            day_clients: KeyTable::default(),
        });
        rules.push(Arc::clone(&rule));
        rule
    }
}

crate::debug_fields!(Journal, it => accounts: it.accounts(), lost: it.lost());

/// For how long an account is known that was not used, in µs.
const KEPT: Tick = 600_000_000;
const SHARDS: usize = 32;

struct RuleJournal {
    name: Arc<str>,
    /// Its index in the journal.
    number: u32,
    accounts: KeyTable<Account>,
    day_clients: KeyTable<DayClient>,
}

/// What is known of keys. A fingerprint is a hash by a key that no client knows.
#[derive(Default)]
struct KeyTable<V>([Mutex<HashMap<Fingerprint, V, FixedState>>; SHARDS]);

impl<V: Default> KeyTable<V> {
    /// Changes what is known of a key. One that is new needs room.
    fn with<T>(
        &self,
        subject: Fingerprint,
        takes_room: impl FnOnce() -> bool,
        change: impl FnOnce(&mut V) -> T,
    ) -> Option<T> {
        // The lowest bits choose the cell.
        let index = (subject.bits() >> 64) as usize % SHARDS;
        let mut shard = lock(&self.0[index]);
        if let Some(value) = shard.get_mut(&subject) {
            return Some(change(value));
        }
        takes_room().then(|| change(shard.entry(subject).or_default()))
    }
}

#[derive(Default)]
struct Account {
    name: Option<Arc<str>>,
    /// Not yet written, of the present window and of those that settlements came for.
    units: SmallVec<[(Window, i64); 1]>,
    used_at: Tick,
    /// Until when its usage is known to be in a store that is this process's memory: the end of a window.
    known_until: Tick,
    /// Until when the store is taken to have its balance.
    balance_until: Tick,
}

impl RuleJournal {
    fn with<T>(
        &self,
        journal: &Journal,
        subject: Fingerprint,
        change: impl FnOnce(&mut Account) -> T,
    ) -> Option<T> {
        self.accounts
            .with(subject, || journal.takes_room(&journal.accounts), change)
    }

    /// Until when the usage of the account is known to be in the store, if there was room.
    fn add(
        &self,
        journal: &Journal,
        subject: Fingerprint,
        window: Window,
        units: i64,
        now: Tick,
    ) -> Option<Tick> {
        let added = self.with(journal, subject, |account| {
            account.used_at = account.used_at.max(now);
            let is_first = account.units.is_empty();
            match account.units.iter_mut().find(|(it, _)| *it == window) {
                Some((_, sum)) => *sum = sum.saturating_add(units),
                None if is_first || journal.takes_room(&journal.accounts) => {
                    account.units.push((window, units));
                }
                None => return None,
            }
            Some(account.known_until)
        });
        if added.flatten().is_none() {
            journal
                .lost
                .fetch_add(units.unsigned_abs(), Ordering::Relaxed);
        }
        added.flatten()
    }
}

/// The durable rules of a rule set, and those with daily usage, and where they note it.
pub(crate) struct DurableRules {
    rules: Arc<RuleSet>,
    journal: Arc<Journal>,
    by_rule: Box<[Option<Arc<RuleJournal>>]>,
    /// Empty if no rule has daily usage.
    daily: Box<[Option<Arc<RuleJournal>>]>,
    can_deny: bool,
    /// Whether the store is this process's memory, which knows nothing from before it.
    is_memory: bool,
    /// By which charges are of a window.
    clock: Clock,
}

impl DurableRules {
    /// `None` if no rule is durable or has daily usage.
    pub(crate) fn new(
        rules: &Arc<RuleSet>,
        journal: &Arc<Journal>,
        is_memory: bool,
        clock: Clock,
    ) -> Option<Arc<Self>> {
        let (all, is_durable) = (rules.rules(), |it: &Rule| {
            it.is_durable() && it.is_enforced()
        });
        let has_daily_usage = all.iter().any(Rule::has_daily_usage);
        if !has_daily_usage && !all.iter().any(is_durable) {
            return None;
        }
        let journals = |is_noted: fn(&Rule) -> bool| {
            let noted = |it: &Rule| is_noted(it).then(|| journal.rule(it.shared_name()));
            all.iter().map(noted).collect()
        };
        let denies = |it: &Rule| is_durable(it) && it.settings.denies_unwritten;
        Some(Arc::new(Self {
            by_rule: journals(is_durable),
            daily: match has_daily_usage {
                true => journals(Rule::has_daily_usage),
                false => Box::default(),
            },
            can_deny: all.iter().any(denies),
            rules: Arc::clone(rules),
            journal: Arc::clone(journal),
            is_memory,
            clock,
        }))
    }

    fn of(&self, check: &Check) -> Option<(&Rule, &RuleJournal)> {
        let rule = self.rules.rules().get(usize::from(check.rule()))?;
        Some((rule, self.of_rule(check.rule())?))
    }

    fn of_rule(&self, rule: u16) -> Option<&RuleJournal> {
        self.by_rule.get(usize::from(rule))?.as_deref()
    }

    fn window(rule: &Rule, check: &Check, at: Tick) -> Option<Window> {
        Window::of(&rule.quota_under(usize::from(check.plan())), at)
    }

    /// Whether a rule is durable.
    pub(crate) fn has_durable(&self) -> bool {
        self.by_rule.iter().any(Option::is_some)
    }

    /// Whether units of the rule at this index are written.
    pub(crate) fn is_durable(&self, rule: u16) -> bool {
        self.of_rule(rule).is_some() && self.journal.is_attached()
    }

    /// Adds units of a check to its cell, if it has one with the window at this time.
    fn add_to_cell(&self, check: &Check, at: Tick, units: i64) -> bool {
        let cells = self.of_rule(check.rule()).zip(self.journal.cells.get());
        cells.is_some_and(|(of_rule, cells)| cells.add(of_rule.number, check, at, units))
    }

    /// Adds units of the window at this time to their account, which has a cell from then on.
    fn add(&self, check: &Check, at: Tick, units: i64, now: Tick) {
        if self.add_to_cell(check, at, units) {
            return;
        }
        if let Some((rule, of_rule)) = self.of(check)
            && let Some(window) = Self::window(rule, check, at)
            && let Some(known_until) = of_rule.add(&self.journal, check.key(), window, units, now)
            && (known_until >= window.end || !self.is_memory)
            && (window.begin..window.end).contains(&now)
            && let Some(cells) = self.journal.cells.get()
        {
            let window = [window.begin, window.end];
            cells.put(of_rule.number, check, window, |subject, sum| {
                self.journal.spill(subject, sum, now);
            });
        }
    }

    /// A check was made for a key.
    pub(crate) fn note_key(&self, rule: u16, subject: Fingerprint, key: &KeyBuf) {
        if let Some(of_rule) = self.of_rule(rule)
            && let Some(cells) = self.journal.cells.get()
            && !cells.has(of_rule.number, subject)
        {
            self.note_new_key(rule, of_rule, subject, key);
        }
        if self.has_daily_usage() {
            self.note_day_client(rule, subject, key);
        }
    }

    /// Not inlined: its frame would be that of each request.
    #[inline(never)]
    fn note_new_key(&self, rule: u16, of_rule: &RuleJournal, subject: Fingerprint, key: &KeyBuf) {
        let is_known = |account: &mut Account| account.name.is_some();
        if self.journal.is_attached()
            && of_rule.with(&self.journal, subject, is_known) == Some(false)
            && let Some(rule) = self.rules.rules().get(usize::from(rule))
            && let Some(account) = &rule.settings.durable
        {
            // Not under the lock: it is code of the application.
            let name = account.account(key);
            of_rule.with(&self.journal, subject, |account| {
                account.name = Some(name);
                // What a ledger takes out before its first units leaves it.
                account.used_at = account.used_at.max(self.clock.now());
            });
        }
    }

    /// A request was decided. What passes while the store fails was used too.
    pub(crate) fn decided(&self, checks: &[Check], decision: &Decision) {
        if !decision.is_allowed() || !decision.delay().is_zero() || !self.journal.is_attached() {
            return;
        }
        let at = decision.at();
        for (check, verdict) in checks.iter().zip(decision.verdicts()) {
            // A repeat costs nothing.
            let check = verdict.hold(*check, at).check;
            if verdict.outcome() == Outcome::Allow && check.cost() > 0 {
                // A cost has 56 bits.
                let units = check.cost() as i64;
                match verdict.source() {
                    Source::Credits => self.note(&check, at, -units, MovementKind::Credits),
                    _ => self.add(&check, at, units, at),
                }
            }
        }
    }

    /// Whether nothing is to be noted of a decision in memory without credits, or it was noted: its check is of a key that is in use.
    pub(crate) fn is_added(&self, checks: &[Check], decision: &Decision) -> bool {
        match checks {
            _ if !self.journal.is_attached() => true,
            _ if !decision.is_allowed() => true,
            // A repeat costs nothing.
            [check] if !check.has_id() => {
                // A cost has 56 bits.
                self.add_to_cell(check, decision.at(), check.cost() as i64)
            }
            _ => false,
        }
    }

    /// A hold was settled. What comes back is of the window in which it was taken, what is charged of the present one, as in the store.
    /// Daily usage has its units from the report of its decision on.
    pub(crate) fn settled(&self, hold: &Hold, how: Settlement, is_reported: bool) {
        if is_reported {
            self.settled_by_day(hold, how);
        }
        let (check, now) = (&hold.check, self.clock.now());
        let (units, at) = self.change_of(hold, how);
        if hold.source == Source::Credits && units < 0 {
            return self.note(check, now, -units, MovementKind::Credits);
        }
        if units != 0 && self.journal.is_attached() {
            self.add(check, at, units, now);
        }
    }

    /// A hold that was settled to get everything back has not: it stays taken for a repeat of its request.
    pub(crate) fn kept(&self, hold: &Hold) {
        // A cost has 56 bits.
        let (check, units) = (&hold.check, hold.check.cost() as i64);
        let (at, now) = (hold.taken.at, self.clock.now());
        self.add_units_to_day(check, at, units);
        match hold.source {
            Source::Credits => self.note(check, now, -units, MovementKind::Credits),
            _ if self.journal.is_attached() => self.add(check, at, units, now),
            _ => {}
        }
    }

    /// The units that a settlement adds to what was used, and of which time.
    fn change_of(&self, hold: &Hold, how: Settlement) -> (i64, Tick) {
        let cost = hold.check.cost();
        match how {
            _ if cost == 0 => (0, hold.taken.at),
            Settlement::Refund(units) => (-(units.min(cost) as i64), hold.taken.at),
            Settlement::Cancel => (-(cost as i64), hold.taken.at),
            // So that sums stay within what a database adds up.
            Settlement::Charge(units) => (units.min(MAX_UNITS) as i64, self.clock.now()),
        }
    }

    /// Whether a rule of these checks denies because its usage would not be written.
    pub(crate) fn denies(&self, checks: &[Check]) -> bool {
        self.can_deny
            && self.journal.is_attached()
            && (self.journal.is_behind.load(Ordering::Relaxed) || !self.journal.has_room())
            && checks.iter().any(|check| {
                let denies = |(rule, _): (&Rule, _)| rule.settings.denies_unwritten;
                check.cost() > 0 && self.of(check).is_some_and(denies)
            })
    }

    /// The checks whose usage may be older than the store in memory, with the ends of their windows.
    pub(crate) fn unknown(&self, checks: &[Check], now: Tick) -> SmallVec<[(Check, Tick); 2]> {
        if !self.journal.is_attached() {
            return SmallVec::new();
        }
        let unknown = checks.iter().filter_map(|check| {
            let (rule, _) = self.of(check).filter(|_| check.cost() > 0)?;
            if self.add_to_cell(check, now, 0) {
                return None;
            }
            let end = Self::window(rule, check, now)?.end;
            let is_known = self.account(check, |account| account.known_until >= end);
            (is_known != Some(true)).then_some((*check, end))
        });
        unknown.collect()
    }

    /// Lets a state in memory begin with what was used. Of requests that come at once, each does, and only the first finds it lacking.
    pub(crate) fn begin(&self, begin: impl FnOnce()) {
        let _begins = lock(&self.journal.begins);
        begin();
    }

    /// The usage of a check in the window that ends then is in the store.
    pub(crate) fn set_known(&self, check: &Check, end: Tick) {
        self.account(check, |it| it.known_until = it.known_until.max(end));
    }

    /// What the ledger has of a key, after it has written a change: nothing without a ledger.
    pub(crate) async fn base(
        &self,
        check: &Check,
        now: Tick,
        within: Duration,
        change: Option<CreditEntry>,
    ) -> Option<Base> {
        let (rule, of_rule) = self.of(check)?;
        let Some(look_up) = lock(&self.journal.look_up).clone() else {
            return Some(Base::default());
        };
        let window = Self::window(rule, check, now)?;
        let mut base = look_up(BaseQuery {
            rule: Arc::clone(&of_rule.name),
            subject: check.key(),
            account: self.account_of(check),
            window,
            within,
            has_credits: rule.has_credits(),
            earlier: if rule.debt_of() > 0 { EARLIER } else { 0 },
            change,
        })
        .await?;
        let at_most = rule.debt_of();
        if at_most > 0 {
            let quota = rule.quota_under(usize::from(check.plan()));
            let owed = owed(&quota, at_most, &base.earlier, window.begin);
            let limits = rule.all_quotas().filter(|it| !it.is_unlimited());
            let most = limits.map(Quota::limit).fold(quota.limit(), u64::max);
            let used = base.used.saturating_add(owed);
            base.used = used.min(most.saturating_add(at_most));
        }
        Some(base)
    }

    /// Changes what is known of the account of a check, if there was room.
    fn account<T>(&self, check: &Check, change: impl FnOnce(&mut Account) -> T) -> Option<T> {
        let of_rule = self.of_rule(check.rule())?;
        of_rule.with(&self.journal, check.key(), change)
    }

    fn account_of(&self, check: &Check) -> Option<Arc<str>> {
        self.account(check, |account| account.name.clone())?
    }

    /// Whether a request with this check is denied where the ledger does not say what was used.
    pub(crate) fn denies_unknown(&self, check: &Check) -> bool {
        let denies = |(rule, _): (&Rule, _)| rule.answer_to_failure(check) == OnStoreError::Deny;
        self.of(check).is_some_and(denies)
    }
}

/// How many earlier windows with usage may have left a debt, and how many in all.
const EARLIER: u8 = 100;
const MOST_WINDOWS: usize = 10_000;

/// What is owed when a window begins, of more than the limit that was used in the windows before.
fn owed(quota: &Quota, at_most: u64, earlier: &[(Window, i64)], until: Tick) -> u64 {
    let (mut earlier, mut owed, mut at) = (earlier.iter().peekable(), 0_u64, until);
    for _ in 0..MOST_WINDOWS {
        if owed == 0 {
            at = earlier.peek().map_or(until, |(window, _)| window.begin);
        }
        if at >= until {
            return owed;
        }
        // Without an entry nothing was used.
        let used = earlier
            .next_if(|(window, _)| window.begin <= at)
            .map_or(0, |(_, used)| u64::try_from(*used).unwrap_or(0));
        let sum = owed.saturating_add(used);
        owed = sum.saturating_sub(quota.limit()).min(at_most);
        at = Window::of(quota, at).map_or(until, |window| window.end);
    }
    0
}

crate::debug_fields!(DurableRules, it => journal: it.journal);
