//! A rule of a document.

use std::sync::Arc;

use http::StatusCode;
use tollgate::{
    Head, Key, Missing, RequestRule, Rule,
    key::{constant, header},
};
use tollgate_core::{
    AlgorithmKind, Block, Consistency, FNV, MAX_UNITS, MINUTE, Quota, RuleErrorKind, RuleSet, Tick,
    fnv,
};

use crate::{
    bindings::{PlanFn, QuotaFn, Side},
    condition::{Condition, Subject},
    descriptor::Descriptor,
    key_label::KeyLabel,
    node::Value,
    operator_entries::OperatorEntry,
    reader::{Fields, Item},
    response_condition::read as read_condition,
    rule_key::RuleKey,
    rule_settings::{
        Cost, MODES, Mode, Plan, Rollout, StoreErrorAnswers, consistency, missing, read_block,
        read_plan, read_plans, read_response_cost, read_rollout, requests, shadow_name,
    },
    schema::table_of,
    term::Term,
};

/// Those for which a rule has to see the response, or to hold the request.
const FOR_SERVICE: &[&str] = &["count_if", "cost_by_response", "wait"];

/// The words for where a rule applies.
pub(crate) const SIDES: &[(&str, Side)] = &[("service", Side::Service), ("edge", Side::Edge)];

/// A client's own limit.
#[derive(Clone)]
pub(crate) struct Override {
    /// A hash of what it says.
    pub(crate) content: u64,
    pub(crate) rule: usize,
    pub(crate) client: Client,
    pub(crate) quota: Quota,
    pub(crate) term: Term,
    /// `None`: it is part of the document.
    pub(crate) set: Option<Arc<OperatorEntry>>,
}

/// Whose limit it is.
#[derive(Clone)]
pub(crate) enum Client {
    Key(Key),
    /// A client that the document knows by a keyed hash only.
    Hash(u128),
}

/// A rule as a document says it.
#[derive(Clone)]
pub(crate) struct RuleEntry {
    /// What it says, as JSON.
    pub(crate) written: String,
    pub(crate) name: String,
    /// What is right in it, and probably not meant.
    pub(crate) warnings: Vec<String>,
    /// Whether it applies on the side that has read it.
    pub(crate) is_here: bool,
    pub(crate) limit: Quota,
    pub(crate) key: RuleKey,
    pub(crate) condition: Condition,
    pub(crate) unless: Option<Condition>,
    pub(crate) cost: Cost,
    /// Which responses count, as the document writes it.
    pub(crate) counts_if: Option<String>,
    pub(crate) plan: Option<Arc<PlanFn>>,
    pub(crate) quota: Option<Arc<QuotaFn>>,
    pub(crate) mode: Mode,
    pub(crate) rollout: Option<(Rollout, Mode)>,
    pub(crate) missing: Missing,
    /// The more specific rules of its group.
    pub(crate) behind: Vec<usize>,
    /// The limits of single clients. Of several for one, the last one that is in force counts.
    pub(crate) overrides: Vec<Override>,
    /// Its numbers, where no switch changes them.
    rule: tollgate_core::Rule,
    /// What it does with requests, for any numbers.
    pub(crate) of_requests: RequestRule,
}

/// Which field of a setting that is a table the core is not content with, by its words.
const INNER: [(&str, &str); 6] = [
    ("on lease", "leased"),
    ("unreported units", "eventual"),
    ("a block that counts", "within"),
    ("a block that is forgotten", "forget_after"),
    ("a block for", "for"),
    ("times are above", "for"),
];

impl RuleEntry {
    /// Reads a rule; notes what is wrong.
    pub(crate) fn read(item: Item<'_>) -> Option<Self> {
        let mut fields = item.fields("a rule", "rule")?;
        let at = fields.read("at", |at| at.word("side", SIDES));
        let is_here = at.is_none_or(|at| at == fields.reader.side);
        // What is wrong with it there.
        fields.reader.side = at.unwrap_or(fields.reader.side);
        let name = fields.text("name", "the name of the rule as text");
        if name == Some("*") {
            fields.wrong(
                "name",
                "a switch of \"*\" is for all rules; write another name",
            );
        }
        let limit = fields.read("limit", |limit| limit.quota(None));
        let condition = |name| fields.get(name).map(Condition::read);
        let (mut when, unless) = (condition("when").unwrap_or_default(), condition("unless"));
        let key = fields.read("by", |by| RuleKey::read(by, when.path.as_ref()));
        let of_descriptor = key.as_ref().map_or(Vec::new(), RuleKey::of_descriptor);
        if !of_descriptor.is_empty() {
            // Descriptors without such an entry are none of its requests.
            let holds =
                move |head: &Head<'_>| of_descriptor.iter().all(|key| Descriptor::has(head, key));
            when.add_with(move |subject| match subject {
                Subject::Request(head) => Some(holds(head)),
                Subject::Client(_) => Some(true),
            });
        }
        // What is wrong is noted, also where there is no name and no limit.
        let own = limit.unwrap_or(Quota::unlimited());
        let mut rule = tollgate_core::Rule::new(name.unwrap_or_default(), own);
        let mut of_requests = match &key {
            Some(key) if key.is_of_handler() => Rule::from(rule.clone()).by_handler(),
            Some(key) => Rule::from(rule.clone()).by(key.extractor()),
            None => Rule::from(rule.clone()).by(constant("")),
        };
        of_requests = when.select(of_requests);
        if let Some(unless) = &unless {
            of_requests = of_requests.exempt(unless.predicate());
        }
        let cost = match fields.get("cost") {
            Some(cost) => Cost::read(cost),
            None => Some(Cost::Fixed(1)),
        };
        match cost.clone() {
            Some(Cost::Fixed(units)) => rule = rule.cost(units),
            Some(Cost::Computed(cost) | Cost::Header(cost, _)) => {
                of_requests = of_requests.cost_by(move |head| cost(head));
            }
            None => {}
        }
        let by_response = ["count_if", "cost_by_response"];
        if own.algorithm() == AlgorithmKind::Concurrent
            && let Some(item) = by_response.iter().find_map(|name| fields.get(name))
        {
            item.wrong(
                "a slot goes back when its request ends, whatever the response is; leave this out, or limit a rate in a rule \
                 of its own",
            );
        }
        if let Some(counts) = fields.read("count_if", read_condition) {
            of_requests = of_requests.count_if(move |response| counts(response));
        }
        if let Some(cost) = fields.read("cost_by_response", read_response_cost) {
            of_requests = of_requests.cost_by_response(move |response| cost(response));
        }
        match fields.duration("wait") {
            Some(at_most) => rule = rule.wait(at_most),
            None => fields.wrong(
                "max_waiting",
                "no request of this rule waits; add «wait = \"5s\"», or leave this out",
            ),
        }
        if let Some(bounds) = fields.table("max_waiting", "max_waiting") {
            let (per_key, in_all) = (requests(&bounds, "per_key"), requests(&bounds, "in_all"));
            if let (Some(per_key), Some(in_all)) = (per_key, in_all) {
                rule = rule.max_waiting(per_key, in_all);
            }
        }
        let owed = "how many units may be owed, as 20000";
        if let Some(at_most) = fields.number("debt", owed, 1, MAX_UNITS) {
            rule = rule.debt(at_most);
        }
        if fields.is("credits") {
            rule = rule.credits();
        }
        if let Some(block) = fields.read("block", read_block) {
            rule = rule.block(block);
        }
        if let Some(ids) = fields.table("idempotent", "ids of requests") {
            let id = ids.header("header", "idempotency-key");
            let repeats = match ids.get("repeats") {
                None => Some(3),
                Some(repeats) => repeats.number("how many may repeat a request, as 3", 1, 255),
            };
            if let (Some(id), Some(period), Some(repeats)) = (id, ids.duration("for"), repeats) {
                // There are 255 at most.
                rule = rule.idempotent(period).free_repeats(repeats as u8);
                of_requests = of_requests.idempotent(header(id), period);
            }
        }
        let plan = fields.read("plan", read_plan);
        if let Some(plan) = plan.clone() {
            of_requests = of_requests.plan_by(move |head| plan(head));
        }
        let read = fields.read("plans", |plans| read_plans(plans, limit.as_ref()));
        let plans = read.unwrap_or_default();
        for plan in &plans {
            rule = rule.plan(plan.name, plan.quota);
        }
        // Plans that cannot be read are mistakes of their own.
        let is_empty = |plans: Item<'_>| matches!(plans.value(), Value::Table(it) if it.is_empty());
        if fields.get("plans").is_none_or(is_empty) {
            let message = "plan selects one of the rule's plans, and it has none; add «plans = { gold = \"200/s\" }»";
            fields.wrong("plan", message);
        }
        let quotas = &fields.reader.bindings.quotas;
        let quota = fields.read("quota_by", |name| name.bound("bound quota", quotas));
        // A switch leaves what is blocked blocked.
        let quota = quota.map(|quota: Arc<QuotaFn>| -> Arc<QuotaFn> {
            Arc::new(move |head: &Head<'_>| quota(head).map(Quota::or_none))
        });
        if quota.is_some() {
            rule = rule.variable_quota();
        }
        let consistency = fields.read("consistency", consistency).unwrap_or_default();
        rule = rule.consistency(consistency);
        if consistency == Consistency::Exact {
            let message = "the rule is exact for all requests; leave this out, or add «consistency = { leased = \"10%\" }»";
            fields.wrong("exact_when", message);
        }
        if let Some(exact) = condition("exact_when") {
            of_requests = of_requests.exact_when(exact.predicate());
        }
        let read = fields.read("on_store_error", StoreErrorAnswers::read);
        let answers = read.unwrap_or_default();
        rule = rule.on_store_error(answers.own);
        let is_of_handler = key.as_ref().is_some_and(RuleKey::is_of_handler);
        if is_of_handler {
            refuse_for_layer(&fields, cost.as_ref(), &answers);
        }
        for (when, answer) in &answers.by_condition {
            of_requests = of_requests.on_store_error_when(when.predicate(), *answer);
        }
        let mode = fields.read("mode", |mode| mode.word("mode", MODES));
        let missing = fields.read("missing", missing).unwrap_or_default();
        of_requests = of_requests.when_missing(missing);
        let status = "a status for who is blocked, as 401";
        let blocked = fields.number("blocked_status", status, 400, 499);
        if let Some(Ok(status)) = blocked.map(|status| StatusCode::from_u16(status as u16)) {
            of_requests = of_requests.blocked_status(status);
        }
        if let Some(denials) = fields.table("slow_denials", "slow_denials") {
            let by = denials.duration("by");
            if by.is_some_and(|by| by > MINUTE) {
                let message = "a denial that is held for more than a minute holds a connection of yours; write \"2s\"";
                denials.wrong("by", message);
            }
            if let (Some(by), Some(at_most)) = (by, requests(&denials, "at_most")) {
                of_requests = of_requests.slow_denials(by, at_most);
            }
        }
        if fields.is("keep_on_error") {
            of_requests = of_requests.keep_on_error();
        }
        if fields.is("top_keys") {
            rule = rule.top_keys();
        }
        fields.text("description", "a text for readers of the file");
        let rollout = fields.read("rollout", |rollout| read_rollout(&fields, rollout));
        if let Some(key) = &key {
            let account = |name| fields.read(name, |account| KeyLabel::read_name(account, key));
            if let Some(label) = fields.read("label", |label| KeyLabel::read(label, key)) {
                rule = rule.label(move |key| label.of(key));
            }
            if let Some(account) = account("durable") {
                rule = rule.durable(move |key| account.of(key));
            }
            if let Some(account) = account("daily_usage") {
                rule = rule.daily_usage(move |key| account.of(key));
            }
        }
        if fields.is("deny_unwritten") {
            rule = rule.deny_unwritten();
        }
        if fields.get("durable").is_none() {
            let message = "only what a durable rule uses has to be written; add «durable = \"key\"», or leave this out";
            fields.wrong("deny_unwritten", message);
        }
        if let Some(unit) = fields.text("unit", "what is counted, as \"tokens\"") {
            rule = rule.unit(unit);
        }
        if fields.reader.side == Side::Edge {
            refuse_for_service(&fields, &rule, key.as_ref());
        }
        let counts_if = fields.get("count_if");
        let entry = Self {
            written: item.value().to_string(),
            name: name?.to_owned(),
            warnings: fields.reader.problems.take_warnings(),
            is_here,
            limit: limit?,
            key: key?,
            condition: when,
            unless,
            cost: cost?,
            counts_if: counts_if.map(|counts| counts.value().to_string()),
            plan,
            quota,
            mode: mode.unwrap_or(Mode::Enforce),
            rollout,
            missing,
            behind: Vec::new(),
            overrides: Vec::new(),
            rule,
            of_requests,
        };
        entry.validate(&fields, &plans).then_some(entry)
    }

    /// Notes what the core refuses, at the part that it is about.
    fn validate(&self, fields: &Fields<'_>, plans: &[Plan<'_>]) -> bool {
        let Err(wrong) = RuleSet::new([self.rule.clone()]) else {
            return true;
        };
        let message = wrong.message();
        let is_about = |plan: &&Plan<'_>| message.starts_with(&format!("plan {:?}", plan.name));
        if let Some(plan) = plans.iter().find(is_about) {
            plan.item.wrong(message);
            return false;
        }
        let named = match wrong.kind() {
            RuleErrorKind::Name if message.contains("a unit ") => "unit",
            RuleErrorKind::Name => "name",
            RuleErrorKind::Cost => "cost",
            RuleErrorKind::Plan => "plans",
            RuleErrorKind::Mode if message.contains("durable()") => "durable",
            RuleErrorKind::Mode => "consistency",
            RuleErrorKind::Wait => "wait",
            RuleErrorKind::Debt => "debt",
            RuleErrorKind::Credits => "credits",
            RuleErrorKind::Block => "block",
            RuleErrorKind::Idempotency => "idempotent",
            _ => "limit",
        };
        if let Some(field) = fields.get(named).or_else(|| fields.get("limit")) {
            let mut inner = INNER.iter().filter(|(words, _)| message.contains(words));
            let node = inner.find_map(|(_, name)| field.node.get(name));
            fields
                .reader
                .item(node.unwrap_or(field.node))
                .wrong(message);
        }
        false
    }

    /// A warning, where requests have no plan. It is no mistake: code may check by a plan that it names.
    pub(crate) fn unused_plans(&self) -> Option<String> {
        let plans: Vec<&str> = self.rule.plan_names().collect();
        let is_unused = self.plan.is_none() && !plans.is_empty();
        is_unused.then(|| {
            format!(
                "no request has one of its plans ({}), because nothing says which request has which: add plan = \"NAME\", and bind \
                 NAME in code by Bindings::plan (here: --bind plan:NAME); limits of single clients are overrides",
                plans.join(", ")
            )
        })
    }

    /// A warning, where requests that do not say their cost never pass. It is no mistake: a gateway may say it in all of them.
    pub(crate) fn denied_without_cost(&self) -> Option<String> {
        let Cost::Header(_, most) = self.cost else {
            return None;
        };
        let mut quotas = (0..self.rule.quotas()).map(|plan| self.rule.quota_of(plan));
        let quota = quotas.find(|quota| quota.has_state() && quota.limit() < most)?;
        let limit = quota.limit();
        (!self.rule.has_credits()).then(|| {
            format!(
                "a request without the header of its cost costs {most} units, and {quota} lets at most {limit} pass at once, so it is \
                 always denied; write max = {limit}, or a limit or burst of at least {most}"
            )
        })
    }

    /// A warning, where overrides have ended.
    pub(crate) fn ended_overrides(&self, now: Tick) -> Option<String> {
        let ended = self.overrides.iter().filter(|it| it.term.until <= now);
        let last = ended.clone().max_by_key(|it| it.term.until)?;
        Some(format!(
            "{} of its overrides are over, the last one since {}; remove them, or write a later until",
            ended.count(),
            last.term.timestamp()?
        ))
    }

    /// The least that a limit may be for a request to pass.
    pub(crate) fn least_limit(&self) -> u64 {
        self.rule.fixed_cost()
    }

    /// Whether its requests wait, or its keys may owe units: then a limit may be too large.
    pub(crate) fn waits_or_owes(&self) -> bool {
        self.rule.at_most_wait().is_some() || self.rule.debt_of() > 0
    }

    /// What is left of one of its quotas, in thousandths: all where there is no such part.
    pub(crate) fn scaled(&self, quota: Quota, permille: u64) -> Quota {
        let part = quota.scaled(permille, self.least_limit());
        part.unwrap_or(quota)
    }

    /// The rule as the core has it. Switches leave `permille` thousandths of its numbers.
    pub(crate) fn numbers(&self, permille: u64) -> tollgate_core::Rule {
        let largest = |permille: u64| {
            let quotas = (0..self.rule.quotas()).map(|plan| *self.rule.quota_of(plan));
            let limited = quotas.filter(|quota| quota.has_state());
            let limits = limited.map(|quota| self.scaled(quota, permille).limit());
            limits.max().unwrap_or(u64::MAX)
        };
        let rule = (self.rule.clone()).map_quotas(|quota| self.scaled(quota, permille));
        match self.rule.consistency_of() {
            // A process reports no later than when all of a limit is used.
            Consistency::Eventual {
                interval,
                max_unreported,
            } if max_unreported <= largest(1_000) => rule.consistency(Consistency::Eventual {
                interval,
                max_unreported: max_unreported.min(largest(permille)),
            }),
            _ => rule,
        }
    }

    /// Its numbers for the clients that are not in its rollout yet, on a state of their own.
    pub(crate) fn shadow(&self, numbers: &tollgate_core::Rule) -> tollgate_core::Rule {
        let mut shadow = numbers.twin(shadow_name(&self.name));
        if let Some((period, repeats)) = numbers.idempotent_for() {
            shadow = shadow.idempotent(period).free_repeats(repeats);
        }
        match numbers.block_setting() {
            Some(block) => shadow.block(block.clone()),
            None => shadow,
        }
    }

    /// The numbers of the rule that blocks whom this one blocks, while a switch for all rules takes this one out of force.
    pub(crate) fn blocking(&self, numbers: &tollgate_core::Rule) -> Option<tollgate_core::Rule> {
        let blocks = (1..numbers.quotas()).any(|plan| numbers.quota_of(plan).is_none());
        let is_checked = (blocks || self.quota.is_some()) && !self.key.is_of_handler();
        // Where nothing has a limit there is nothing to count, and so no growing block and no repeat.
        is_checked.then(|| (numbers.twin(blocking_name(&self.name))).map_quotas(only_none))
    }
}

/// A limit of none; another one is unlimited.
pub(crate) fn only_none(quota: Quota) -> Quota {
    match quota.is_none() {
        true => quota,
        false => Quota::unlimited(),
    }
}

/// The name of the rule that blocks while its rule is switched off.
fn blocking_name(name: &str) -> String {
    match name.len() {
        // A name has at most 64 characters.
        57.. => {
            // The same in each process.
            let hash = fnv(FNV, name.as_bytes()) as u32;
            format!("{}:{hash:08x}:blocked", &name[..47])
        }
        _ => format!("{name}:blocked"),
    }
}

/// Notes what only the layer can do.
fn refuse_for_layer(fields: &Fields<'_>, cost: Option<&Cost>, answers: &StoreErrorAnswers) {
    let is_computed = matches!(cost, Some(Cost::Computed(_) | Cost::Header(..)));
    let cost = is_computed.then_some(&"cost");
    let answers = (!answers.by_condition.is_empty()).then_some(&"on_store_error");
    let of_schema = table_of("rule").for_layer.iter();
    for name in of_schema.chain(cost).chain(answers) {
        let message = format!(
            "{name} is for checks by the layer, and with \"handler\" the handler decides when to check, with which key \
             and at what cost; remove it"
        );
        fields.wrong(name, message);
    }
}

/// Notes what only a service can do.
fn refuse_for_service(fields: &Fields<'_>, rule: &tollgate_core::Rule, key: Option<&RuleKey>) {
    let refuse = |field: &str, what: &str| {
        let message = format!(
            "{what} for services: a proxy asks once, before the request goes on, and waits for milliseconds; give the rule \
             «at = \"service\"»"
        );
        fields.wrong(field, message);
    };
    for name in FOR_SERVICE {
        refuse(name, &format!("{name} is"));
    }
    if rule.quota().algorithm() == AlgorithmKind::Concurrent {
        refuse("limit", "slots are");
    }
    if rule.block_setting().is_some_and(Block::counts_settled) {
        refuse("block", "count_settled is");
    }
    if let Some(by) = key.and_then(RuleKey::of_service) {
        refuse("by", &format!("{by:?} is"));
    }
}
