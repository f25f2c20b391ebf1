//! What a rule of a document says in tables and lists of its own: cost, plans, blocks, a rollout, answers while the store fails.

use std::{collections::HashSet, sync::Arc};

use http::StatusCode;
use tollgate::{Head, Missing, key::KeyBuf, siblings::only_line};
use tollgate_core::{Block, Consistency, FNV, LeaseShare, MAX_UNITS, OnStoreError, Quota, fnv};

use crate::{
    bindings::{CostFn, PlanFn, ResponseCostFn},
    condition::Condition,
    node::Value,
    reader::{Fields, Item},
};

/// Whether a rule is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    Enforce,
    Shadow,
    Off,
}

impl Mode {
    /// A rule in this mode.
    pub(crate) fn of(self, rule: tollgate_core::Rule) -> tollgate_core::Rule {
        match self {
            Self::Enforce => rule,
            Self::Shadow => rule.shadow(),
            Self::Off => rule.off(),
        }
    }
}

/// The words for modes.
pub(crate) const MODES: &[(&str, Mode)] = &[
    ("enforce", Mode::Enforce),
    ("shadow", Mode::Shadow),
    ("off", Mode::Off),
];

/// The words for requests without a key.
pub(crate) const MISSING: &[(&str, Missing)] =
    &[("shared", Missing::Shared), ("skip", Missing::Skip)];

/// What a rule in a rollout is for the others.
pub(crate) const OTHERS: &[(&str, Mode)] = &[("off", Mode::Off), ("shadow", Mode::Shadow)];

/// A plan of a rule that is read.
pub(crate) struct Plan<'a> {
    pub(crate) name: &'a str,
    pub(crate) item: Item<'a>,
    pub(crate) quota: Quota,
}

/// The units that a request takes.
#[derive(Clone)]
pub(crate) enum Cost {
    Fixed(u64),
    Computed(Arc<CostFn>),
    /// That in a header, and what a request without it costs.
    Header(Arc<CostFn>, u64),
}

impl Cost {
    pub(crate) fn read(item: Item<'_>) -> Option<Self> {
        let bound = &item.reader.bindings.costs;
        match item.value() {
            Value::Text(name) if name.parse::<u64>().is_ok() && !bound.contains_key(name) => {
                item.expected("a cost in units without quotes")
            }
            Value::Text(_) => item.bound("bound cost", bound).map(Self::Computed),
            Value::Table(_) => {
                let fields = item.fields("a cost", "cost_header")?;
                let name = fields.header("header", "x-cost");
                let max = fields.number("max", "a cost in units", 1, MAX_UNITS);
                let (name, max) = (name?, max?);
                // What a client leaves out or misspells costs most.
                let cost = move |head: &Head<'_>| {
                    let value = head
                        .headers
                        .get(&name)
                        .and_then(|value| value.to_str().ok());
                    let units = value.and_then(|value| value.trim().parse::<u64>().ok());
                    units.map_or(max, |units| units.clamp(1, max))
                };
                Some(Self::Header(Arc::new(cost), max))
            }
            _ => (item.number("a cost in units", 1, MAX_UNITS)).map(Self::Fixed),
        }
    }
}

/// The units that a request has cost, by its response: a bound name, or a header of the service.
pub(crate) fn read_response_cost(item: Item<'_>) -> Option<Arc<ResponseCostFn>> {
    if let Value::Text(_) = item.value() {
        let bound = &item.reader.bindings.response_costs;
        return item.bound("cost by the response", bound);
    }
    let fields = item.fields("a cost by the response", "response_cost")?;
    let name = fields.header("header", "x-tokens-used")?;
    Some(Arc::new(move |response| {
        response.header(name.as_str())?.trim().parse().ok()
    }))
}

/// Which keys a rule is enforced for: a part of them, the same in all processes and versions. A key that is in at 5 % is still
/// in at 20 %.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rollout {
    /// A hash of the rule's name, so that rules differ in their keys. It is part of the format: another hash would put other clients in.
    seed: u64,
    /// Hashes below this are in.
    end: u64,
}

impl Rollout {
    pub(crate) fn new(rule: &str, permille: u64) -> Self {
        let parts = u128::from(permille.min(1_000)) << 64;
        Self {
            seed: fnv(FNV, rule.as_bytes()),
            // All of them at 1000, but for one hash in 2^64.
            end: u64::try_from(parts / 1_000).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn has(&self, key: &KeyBuf) -> bool {
        let mut state = self.seed;
        for (_, part) in key.parts() {
            state = fnv(state, &(part.len() as u64).to_le_bytes());
            state = fnv(state, part);
        }
        mixed(state) < self.end
    }
}

/// Spreads a hash over all of its bits.
fn mixed(mut n: u64) -> u64 {
    n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// The words for answers that depend on the request: they count nothing.
pub(crate) const ANSWERS: &[(&str, OnStoreError)] = STORE_ERRORS.split_at(1).1;
/// The words for answers to a store failure.
pub(crate) const STORE_ERRORS: &[(&str, OnStoreError)] = &[
    ("local_share", OnStoreError::LocalShare),
    ("allow", OnStoreError::Allow),
    ("deny", OnStoreError::Deny),
    ("degraded", OnStoreError::Degraded),
];

/// How exactly processes count together.
pub(crate) fn consistency(item: Item<'_>) -> Option<Consistency> {
    let refuse = || {
        item.refuse(
            "write one of \"exact\", «{ leased = \"10%\" }» and \
             «{ eventual = { interval = \"100ms\", max_unreported = 50 } }»",
        )
    };
    match item.value() {
        Value::Text(text) if text == "exact" => return Some(Consistency::Exact),
        Value::Table(_) => {}
        _ => return refuse(),
    }
    let fields = item.fields("a consistency", "consistency_table")?;
    match (fields.get("leased"), fields.table("eventual", "eventual")) {
        (Some(share), None) => {
            let permille = share.permille("0.1", 50)?;
            // At most 500.
            let share = LeaseShare::permille(permille as u16);
            Some(Consistency::Leased { share })
        }
        (None, Some(fields)) => {
            let interval = fields.duration("interval");
            let most = fields.number("max_unreported", "a number of units", 0, MAX_UNITS);
            Some(Consistency::Eventual {
                interval: interval?,
                max_unreported: most?,
            })
        }
        _ => refuse(),
    }
}

/// How a rule decides while the store fails: each request by the first of its answers whose condition holds, or else by the
/// rule's own.
#[derive(Clone, Default)]
pub(crate) struct StoreErrorAnswers {
    pub(crate) own: OnStoreError,
    pub(crate) by_condition: Vec<(Condition, OnStoreError)>,
}

impl StoreErrorAnswers {
    /// Reads one answer for all requests, or a list of answers.
    pub(crate) fn read(item: Item<'_>) -> Option<Self> {
        let mut answers = Self::default();
        if !matches!(item.value(), Value::List(_)) {
            answers.own = store_error(item)?;
            return Some(answers);
        }
        let entries = item.list_or_one();
        let last = entries.len().checked_sub(1);
        if last.is_none() {
            item.wrong("there is no answer in the list; write one as \"deny\", or «{ when = { methods = [\"GET\"] }, answer = \"allow\" }»");
        }
        for (index, entry) in entries.enumerate() {
            let what = "an entry of on_store_error";
            let Some(fields) = entry.fields(what, "store_error_answer") else {
                continue;
            };
            if let Some(when) = fields.get("when") {
                let when = Condition::read(when);
                let answer = fields.read("answer", by_condition);
                answers
                    .by_condition
                    .extend(answer.map(|answer| (when, answer)));
            } else if Some(index) < last {
                entry.wrong("this answer applies to all requests, so none after it ever applies; put it last, or add when");
            } else {
                answers.own = fields.read("answer", store_error).unwrap_or_default();
            }
        }
        Some(answers)
    }
}

/// The answer for the requests of a condition.
fn by_condition(item: Item<'_>) -> Option<OnStoreError> {
    if matches!(item.value(), Value::Text(text) if text == "local_share") {
        return item.refuse("a local share counts all requests of the rule, so it has no condition; take allow, deny or degraded");
    }
    item.word("answer", ANSWERS)
}

fn store_error(item: Item<'_>) -> Option<OnStoreError> {
    if matches!(item.value(), Value::Table(_)) {
        let what = "an entry of on_store_error";
        let fields = item.fields(what, "on_store_error_table")?;
        let cap = fields.read("cap", |cap| cap.quota(None));
        return cap.map(OnStoreError::Cap);
    }
    item.word("answer of on_store_error", STORE_ERRORS)
}

/// What selects a plan: a bound name, or a header that is there once.
pub(crate) fn read_plan(item: Item<'_>) -> Option<Arc<PlanFn>> {
    if !matches!(item.value(), Value::Table(_)) {
        return item.bound("bound plan", &item.reader.bindings.plans);
    }
    let fields = item.fields("a plan in a header", "plan_header")?;
    let name = fields.header("header", "x-plan")?;
    Some(Arc::new(move |head: &Head<'_>| {
        let plan = only_line(head, &name).ok()?;
        Some(str::from_utf8(&plan).ok()?.into())
    }))
}

pub(crate) fn read_plans<'a>(item: Item<'a>, own: Option<&Quota>) -> Option<Vec<Plan<'a>>> {
    let Value::Table(entries) = item.value() else {
        return item.expected("«plans = { gold = \"200/s\", internal = \"unlimited\" }»");
    };
    let mut names = HashSet::new();
    let plans = entries.iter().filter_map(|(name, node)| {
        let (item, text) = (item.reader.item(node), &name.text);
        if !names.insert(text) {
            let message = format!("{text:?} is there twice; remove one");
            return item.reader.refuse(&name.span, message);
        }
        if text.is_empty() {
            let message = "a plan has a name, by which requests have it; write it as gold";
            return item.reader.refuse(&name.span, message);
        }
        let quota = item.quota(own)?;
        Some(Plan {
            name: text,
            item,
            quota,
        })
    });
    Some(plans.collect())
}

pub(crate) fn missing(item: Item<'_>) -> Option<Missing> {
    if matches!(item.value(), Value::Integer(_)) {
        let code = item.number("a status for requests without a key", 400, 599)?;
        let status = StatusCode::from_u16(code as u16).ok();
        return status.map(Missing::Reject);
    }
    let is_word = |word: &str| matches!(item.value(), Value::Text(text) if text == word);
    match MISSING.iter().find(|(word, _)| is_word(word)) {
        Some((_, missing)) => Some(*missing),
        None => item.expected("\"shared\", \"skip\" or a status as 401 without quotes"),
    }
}

/// A number of requests.
pub(crate) fn requests(fields: &Fields<'_>, name: &str) -> Option<usize> {
    let requests = fields.number(name, "a number of requests", 1, MAX_UNITS)?;
    usize::try_from(requests).ok()
}

pub(crate) fn read_block(item: Item<'_>) -> Option<Block> {
    if !matches!(item.value(), Value::Table(_)) {
        return item.expected(
            r#"a block as { «after = 5, within = "10min", for = ["1min", "10min", "1h"]» }"#,
        );
    }
    let fields = item.fields("a block", "block")?;
    let after = fields.number("after", "a number of denials", 1, 1_000);
    let times: Option<Vec<_>> = fields.read("for", |times| {
        times.list_or_one().map(Item::duration).collect()
    });
    let (within, forget_after) = (fields.duration("within"), fields.duration("forget_after"));
    let is_of_settled = fields.is("count_settled");
    // There are 1 000 at most.
    let mut block = Block::after(after? as u32).within(within?).for_each(times?);
    if let Some(time) = forget_after {
        block = block.forget_after(time);
    }
    if is_of_settled {
        block = block.count_settled();
    }
    Some(block)
}

pub(crate) fn read_rollout(rule: &Fields<'_>, item: Item<'_>) -> Option<(Rollout, Mode)> {
    let fields = item.fields("a rollout", "rollout")?;
    let permille = fields.read("percent", |percent| percent.permille("0", 100));
    let others = match fields.get("others") {
        None => Some(Mode::Off),
        Some(others) => others.word("mode for the others", OTHERS),
    };
    let (item, others) = (rule.get("name")?, others?);
    let Value::Text(name) = item.value() else {
        return None;
    };
    if others == Mode::Shadow && shadow_name(name).len() > 64 {
        return item.refuse("with others = \"shadow\" a name has at most 57 characters: the shadow is called by it and \":shadow\"");
    }
    Some((Rollout::new(name, permille?), others))
}

/// The name of the shadow for clients that are not in yet.
pub(crate) fn shadow_name(name: &str) -> String {
    format!("{name}:shadow")
}

#[cfg(test)]
mod tests {
    use tollgate::Key;

    use super::*;

    fn key(n: u64) -> Key {
        Key::of(format!("customer-{n}"))
    }

    #[test]
    fn of_many_keys_as_many_are_in_as_was_said_and_stay_in() {
        let at = |permille| Rollout::new("search", permille);
        for (permille, least, most) in [
            (0, 0, 0),
            (50, 4_500, 5_500),
            (200, 19_500, 20_500),
            (1_000, 100_000, 100_000),
        ] {
            let rollout = at(permille);
            let inside = (0..100_000)
                .filter(|n| rollout.has(key(*n).as_ref()))
                .count();
            assert!((least..=most).contains(&inside), "{permille}: {inside}");
        }
        let (few, more) = (at(50), at(200));
        for n in 0..100_000 {
            assert!(
                !few.has(key(n).as_ref()) || more.has(key(n).as_ref()),
                "{n}"
            );
        }
    }

    #[test]
    fn the_same_clients_are_in_in_every_process_and_version() {
        let rollout = Rollout::new("search", 100);
        let inside: Vec<u64> = (0..60).filter(|n| rollout.has(key(*n).as_ref())).collect();
        assert_eq!(
            inside,
            [23, 30, 44, 55, 57],
            "the clients that are in at 10 %"
        );
    }

    #[test]
    fn rules_differ_in_their_clients() {
        let (one, other) = (Rollout::new("one", 500), Rollout::new("other", 500));
        let both = (0..10_000)
            .filter(|n| one.has(key(*n).as_ref()) && other.has(key(*n).as_ref()))
            .count();
        assert!((2_200..2_800).contains(&both), "{both}");
    }
}
