//! A rule of a document.

use std::{collections::HashSet, ops::Range, sync::Arc, time::Duration};

use http::{HeaderName, StatusCode};
use tollgate::{
    Head, Missing, RequestRule, Rule,
    condition::{method_in, path_matches, words_are},
    key::header,
};
use tollgate_core::{
    AlgorithmKind, Block, Consistency, MAX_UNITS, MINUTE, Quota, RuleErrorKind, RuleSet,
};

use crate::{
    bindings::{Bindings, PlanFn, QuotaFn, Side},
    condition::Condition,
    cost::{Cost, read_response_cost},
    descriptor::Descriptor,
    json_text::one_line,
    key_label::KeyLabel,
    node::{Node, Value},
    reader::{At, Fields, Reader},
    response_condition::read as read_condition,
    rollout::Rollout,
    rule_key::RuleKey,
    store_policy::{StoreErrorAnswers, consistency},
};

/// Those that are for checks by the layer: a handler decides when it checks, and for whom.
const FOR_LAYER: &[&str] = &[
    "when",
    "unless",
    "cost_by_response",
    "count_if",
    "plan",
    "plans",
    "quota_by",
    "exact_when",
    "rollout",
    "missing",
    "blocked_status",
    "slow_denials",
    "idempotent",
    "keep_on_error",
    "audit",
];

/// Those for which a rule has to see the response, or to hold the request.
const FOR_SERVICE: &[&str] = &["count_if", "cost_by_response", "wait"];

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

/// What a rule in a rollout is for the others.
pub(crate) const OTHERS: &[(&str, Mode)] = &[("off", Mode::Off), ("shadow", Mode::Shadow)];

/// The words for where a rule applies.
pub(crate) const SIDES: &[(&str, Side)] = &[("service", Side::Service), ("edge", Side::Edge)];

/// The words for requests without a key.
pub(crate) const MISSING: &[(&str, Missing)] =
    &[("shared", Missing::Shared), ("skip", Missing::Skip)];

/// What a document says of a rule besides its numbers, for requests.
type Setting = dyn Fn(RequestRule) -> RequestRule + Send + Sync;

/// A rule as a document says it.
#[derive(Clone)]
pub(crate) struct RuleEntry {
    /// A hash of what it says.
    pub(crate) content: u64,
    pub(crate) name: At<String>,
    /// Whether it applies on the side that has read it.
    pub(crate) is_here: bool,
    pub(crate) limit: At<Quota>,
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
    /// Whether denials are recorded.
    pub(crate) audit: bool,
    /// Whether its keys may owe units.
    owes: bool,
    /// Its numbers, where no switch changes them.
    rule: tollgate_core::Rule,
    settings: Vec<Arc<Setting>>,
}

impl RuleEntry {
    /// Reads a rule; notes what is wrong.
    pub(crate) fn read(reader: Reader<'_>, node: &Node, bindings: &Bindings) -> Option<Self> {
        let fields = reader.fields(node, "a rule", "rule")?;
        let at = fields.read("at", |node| reader.word(node, "side", SIDES));
        let is_here = at.is_none_or(|at| at == reader.side);
        let side = at.unwrap_or(reader.side);
        let reader = Reader { side, ..reader };
        let name = fields
            .required("name", "\"search-per-key\"")
            .and_then(|node| reader.text(node, "the name of the rule as text"))
            .map(|name| At {
                span: name.span,
                value: name.value.to_owned(),
            });
        let limit = fields
            .required("limit", "\"100/min\"")
            .and_then(|node| reader.quota(node, None));
        let condition = |name| {
            let node = fields.get(name)?;
            Some(Condition::read(reader, node, bindings))
        };
        let (mut when, unless) = (condition("when").unwrap_or_default(), condition("unless"));
        let pattern = when.path.as_ref().map(|path| &path.value);
        let key = fields
            .required("by", "\"client_ip\"")
            .and_then(|node| RuleKey::read(reader, node, bindings, pattern));
        let of_descriptor = key.as_ref().map_or(Vec::new(), RuleKey::of_descriptor);
        if !of_descriptor.is_empty() {
            // Descriptors without such an entry are none of its requests.
            let holds =
                move |head: &Head<'_>| of_descriptor.iter().all(|key| Descriptor::has(head, key));
            when.add_with(Arc::new(holds), |_| Some(true));
        }
        let cost = match fields.get("cost") {
            Some(node) => Cost::read(reader, node, bindings),
            None => Some(Cost::Fixed(1)),
        };
        let own = limit.as_ref().map(|limit| &limit.value);
        let of_name = name.as_ref().map_or("", |name| &*name.value);
        // What is wrong is noted, also where there is no name and no limit.
        let quota_or = own.copied().unwrap_or(Quota::unlimited());
        let mut rule = tollgate_core::Rule::new(of_name, quota_or);
        if let Some(Cost::Fixed(units)) = &cost {
            rule = rule.cost(*units);
        }
        let mut settings: Vec<Arc<Setting>> = Vec::new();
        let by_response = ["count_if", "cost_by_response"].map(|name| fields.get(name));
        if let (Some(node), Some(limit)) = (by_response.into_iter().flatten().next(), &limit)
            && limit.value.algorithm() == AlgorithmKind::Concurrent
        {
            let message = "a slot goes back when its request ends, whatever the response is; leave this out, or limit a rate in a rule \
                           of its own";
            reader.wrong(&node.span, message);
        }
        if let Some(counts) = fields.read("count_if", |it| read_condition(reader, it, bindings)) {
            settings.push(Arc::new(move |rule| {
                let holds = Arc::clone(&counts);
                rule.count_if(move |response| holds(response))
            }));
        }
        let response_cost = fields.get("cost_by_response");
        if let Some(cost) = response_cost.and_then(|it| read_response_cost(reader, it, bindings)) {
            settings.push(Arc::new(move |rule| {
                let cost = Arc::clone(&cost);
                rule.cost_by_response(move |response| cost(response))
            }));
        }
        let wait = fields.read("wait", |node| reader.duration(node));
        if let (Some(node), None) = (fields.get("max_waiting"), &wait) {
            let wait = reader.example("wait = \"5s\"");
            let message = format!("no request of this rule waits; add {wait}, or leave this out");
            reader.wrong(&node.span, message);
        }
        if let Some(at_most) = wait {
            rule = rule.wait(at_most);
        }
        let max_waiting = fields.get("max_waiting");
        if let Some((per_key, in_all)) = max_waiting.and_then(|it| read_max_waiting(reader, it)) {
            rule = rule.max_waiting(per_key, in_all);
        }
        let debt = fields.read("debt", |node| {
            reader.number(node, "how many units may be owed, as 20000", 1, MAX_UNITS)
        });
        if let Some(at_most) = debt {
            rule = rule.debt(at_most);
        }
        if fields.read("credits", |node| reader.boolean(node)) == Some(true) {
            rule = rule.credits();
        }
        if let Some(block) = fields.read("block", |node| read_block(reader, node)) {
            rule = rule.block(block);
        }
        let ids = fields.read("idempotent", |node| read_ids(reader, node));
        if let Some((name, period, repeats)) = ids {
            rule = rule.idempotent(period).free_repeats(repeats);
            settings.push(Arc::new(move |rule| rule.idempotent(header(&name), period)));
        }
        let plan = fields.read("plan", |node| read_plan(reader, node, bindings));
        let plans = fields.read("plans", |node| Some(read_plans(reader, node, own)));
        let plans = plans.unwrap_or_default();
        for (name, quota) in &plans {
            rule = rule.plan(&**name, quota.value);
        }
        if let (Some(node), true) = (fields.get("plan"), plans.is_empty()) {
            let plans = reader.example("plans = { gold = \"200/s\" }");
            let message =
                format!("plan selects one of the rule's plans, and it has none; add {plans}");
            reader.wrong(&node.span, message);
        }
        let quota = fields.read("quota_by", |node| read_quota(reader, node, bindings));
        let consistency = fields.read("consistency", |node| consistency(reader, node));
        let on_store_error = fields.read("on_store_error", |node| {
            StoreErrorAnswers::read(reader, node, bindings)
        });
        if let (Some(node), None | Some(Consistency::Exact)) =
            (fields.get("exact_when"), consistency)
        {
            let leased = reader.example("consistency = { leased = \"10%\" }");
            let message =
                format!("the rule is exact for all requests; leave this out, or add {leased}");
            reader.wrong(&node.span, message);
        }
        if let Some(exact) = condition("exact_when") {
            settings.push(Arc::new(move |rule| {
                let holds = exact.predicate();
                rule.exact_when(move |head: &Head<'_>| holds(head))
            }));
        }
        let mode = fields.read("mode", |node| reader.word(node, "mode", MODES));
        let missing = fields.read("missing", |node| missing(reader, node));
        let blocked_status = fields.read("blocked_status", |node| {
            let status = reader.number(node, "a status for who is blocked, as 401", 400, 499)?;
            StatusCode::from_u16(status as u16).ok()
        });
        if let Some(status) = blocked_status {
            settings.push(Arc::new(move |rule| rule.blocked_status(status)));
        }
        let slow_denials = fields.get("slow_denials");
        if let Some((by, at_most)) = slow_denials.and_then(|it| read_slow_denials(reader, it)) {
            settings.push(Arc::new(move |rule| rule.slow_denials(by, at_most)));
        }
        let boolean = |name| {
            fields
                .read(name, |node| reader.boolean(node))
                .unwrap_or(false)
        };
        let audit = boolean("audit");
        if boolean("keep_on_error") {
            settings.push(Arc::new(RequestRule::keep_on_error));
        }
        if boolean("top_keys") {
            rule = rule.top_keys();
        }
        fields.read("description", |node| {
            reader.text(node, "a text for readers of the file")
        });
        let rollout = fields.read("rollout", |node| read_rollout(reader, node, name.as_ref()));
        if let (Some(key), Some(node)) = (&key, fields.get("label"))
            && let Some(label) = KeyLabel::read(reader, node, key)
        {
            rule = rule.label(move |key| label.of(key));
        }
        if let (Some(key), Some(node)) = (&key, fields.get("durable"))
            && let Some(account) = KeyLabel::read_name(reader, node, key)
        {
            rule = rule.durable(move |key| account.of(key));
        }
        if let (Some(key), Some(node)) = (&key, fields.get("daily_usage"))
            && let Some(account) = KeyLabel::read_name(reader, node, key)
        {
            rule = rule.daily_usage(move |key| account.of(key));
        }
        if boolean("deny_unwritten") {
            rule = rule.deny_unwritten();
        }
        if let (Some(node), None) = (fields.get("deny_unwritten"), fields.get("durable")) {
            let durable = reader.example("durable = \"key\"");
            let message = format!(
                "only what a durable rule uses has to be written; add {durable}, or leave this out"
            );
            reader.wrong(&node.span, message);
        }
        let unit = fields.get("unit");
        if let Some(unit) = unit.and_then(|it| reader.text(it, "what is counted, as \"tokens\"")) {
            rule = rule.unit(unit.value);
        }
        if key.as_ref().is_some_and(RuleKey::is_of_handler) {
            let is_fixed = matches!(cost, None | Some(Cost::Fixed(_)));
            let by_request = ["cost"].iter().filter(|_| !is_fixed);
            let by_request = by_request.chain(["on_store_error"].iter().filter(|_| {
                on_store_error
                    .as_ref()
                    .is_some_and(|all| !all.by_condition.is_empty())
            }));
            for name in FOR_LAYER.iter().chain(by_request) {
                if let Some(node) = fields.get(name) {
                    let message = format!(
                        "{name} is for checks by the layer, and with \"handler\" the handler decides when to check, with which key \
                         and at what cost; remove it"
                    );
                    reader.wrong(&node.span, message);
                }
            }
        }
        if side == Side::Edge {
            let limit = limit.as_ref().map(|limit| &limit.value);
            refuse_for_service(reader, &fields, limit, key.as_ref());
        }
        let on_store_error = on_store_error.unwrap_or_default();
        rule = rule
            .consistency(consistency.unwrap_or_default())
            .on_store_error(on_store_error.own);
        for (holds, answer) in on_store_error.by_condition {
            settings.push(Arc::new(move |rule| {
                let holds = Arc::clone(&holds);
                rule.on_store_error_when(move |head: &Head<'_>| holds(head), answer)
            }));
        }
        let entry = Self {
            content: node.content(),
            name: name?,
            is_here,
            limit: limit?,
            key: key?,
            condition: when,
            unless,
            cost: cost?,
            counts_if: fields.get("count_if").map(|node| one_line(&node.value)),
            plan,
            quota,
            mode: mode.unwrap_or(Mode::Enforce),
            rollout,
            missing: missing.unwrap_or_default(),
            audit,
            owes: debt.is_some(),
            rule,
            settings,
        };
        entry.validate(reader, &fields, &plans).then_some(entry)
    }

    /// Notes what the core refuses, at the part that it is about.
    fn validate(
        &self,
        reader: Reader<'_>,
        fields: &Fields<'_>,
        plans: &[(String, At<Quota>)],
    ) -> bool {
        let Err(wrong) = RuleSet::new([self.numbers(&|quota| quota)]) else {
            return true;
        };
        let (span, message) = self.wrong_plan(plans).unwrap_or_else(|| {
            let field = match wrong.kind() {
                RuleErrorKind::Name if wrong.to_string().contains("a unit ") => "unit",
                RuleErrorKind::Name => "name",
                RuleErrorKind::Cost => "cost",
                RuleErrorKind::Mode => "consistency",
                RuleErrorKind::Wait => "wait",
                RuleErrorKind::Debt => "debt",
                RuleErrorKind::Credits => "credits",
                RuleErrorKind::Block => "block",
                RuleErrorKind::Idempotency => "idempotent",
                _ => "limit",
            };
            let span = fields.get(field).map(|node| node.span.clone());
            let span = span.unwrap_or_else(|| self.limit.span.clone());
            // As a document writes it.
            let message = wrong.to_string();
            let grow = "[MINUTE, 10 * MINUTE, HOUR]";
            (span, message.replace(grow, "[\"1min\", \"10min\", \"1h\"]"))
        });
        reader.wrong(&span, without_name(&message));
        false
    }

    /// The first plan that does not go with the rule's own quota and the plans before it.
    fn wrong_plan(&self, plans: &[(String, At<Quota>)]) -> Option<(Range<usize>, String)> {
        let wrong = |plans: &[(String, At<Quota>)]| {
            let mut rule = tollgate_core::Rule::new("rule", self.limit.value);
            for (name, quota) in plans {
                rule = rule.plan(&**name, quota.value);
            }
            let wrong = RuleSet::new([rule]).err();
            wrong.filter(|wrong| wrong.kind() == RuleErrorKind::Plan)
        };
        // What does not go together does not with more plans either: so it is found in a few steps among thousands.
        let counts: Vec<usize> = (1..=plans.len()).collect();
        let right = counts.partition_point(|count| wrong(&plans[..*count]).is_none());
        let (_, quota) = plans.get(right)?;
        let wrong = wrong(&plans[..=right])?;
        Some((quota.span.clone(), wrong.to_string()))
    }

    /// A warning, where requests have no plan. It is no mistake: code may check by a plan that it names.
    pub(crate) fn unused_plans(&self) -> Option<String> {
        let plans: Vec<&str> = self.rule.plan_names().collect();
        let is_unused = self.plan.is_none() && !plans.is_empty();
        is_unused.then(|| {
            format!(
                "no request has one of its plans ({}), because nothing says which request has which: add plan = \"NAME\", and bind \
                 NAME in code by Bindings::plan (here: --bind-plan NAME); limits of single clients are overrides",
                plans.join(", ")
            )
        })
    }

    /// The least that a limit may be for a request to pass.
    pub(crate) fn least_limit(&self) -> u64 {
        match &self.cost {
            Cost::Fixed(units) => *units,
            Cost::Computed(_) => 1,
        }
    }

    /// Whether its requests wait, or its keys may owe units: then a limit may be too large.
    pub(crate) fn waits_or_owes(&self) -> bool {
        self.rule.at_most_wait().is_some() || self.owes
    }

    /// The consistency next to scaled limits: a process reports no later than when all of a limit is used.
    fn scaled_consistency(&self, scaled: &dyn Fn(Quota) -> Quota) -> Consistency {
        let largest = |limits: &dyn Fn(Quota) -> Quota| {
            let quotas = (0..self.rule.quotas()).map(|plan| *self.rule.quota_of(plan));
            let limited = quotas.filter(|quota| quota.has_state());
            let limits = limited.map(|quota| limits(quota).limit());
            limits.max().unwrap_or(u64::MAX)
        };
        match self.rule.consistency_of() {
            Consistency::Eventual {
                interval,
                max_unreported,
            } if max_unreported <= largest(&|quota| quota) => Consistency::Eventual {
                interval,
                max_unreported: max_unreported.min(largest(scaled)),
            },
            other => other,
        }
    }

    /// The rule with its numbers, as the core has it.
    pub(crate) fn numbers(&self, scaled: &dyn Fn(Quota) -> Quota) -> tollgate_core::Rule {
        let rule = self.rule.clone().map_quotas(scaled);
        let rule = rule.consistency(self.scaled_consistency(scaled));
        match self.quota {
            Some(_) => rule.variable_quota(),
            None => rule,
        }
    }

    /// The rules for a layer: one, or two where a rollout leaves others to a shadow. `scaled` is what switches make of a quota.
    pub(crate) fn request_rules(
        &self,
        numbers: &tollgate_core::Rule,
        scaled: impl Fn(Quota) -> Quota + Copy + Send + Sync + 'static,
        mode: Mode,
        applies: Option<&Condition>,
    ) -> Vec<RequestRule> {
        if self.key.is_of_handler() {
            return vec![Rule::from(mode.of(numbers.clone())).by_handler()];
        }
        let made = |numbers: tollgate_core::Rule, mode: Mode| {
            self.request_rule(numbers, scaled, mode, applies)
        };
        let Some((rollout, others)) = self.rollout.filter(|_| mode != Mode::Off) else {
            return vec![made(numbers.clone(), mode)];
        };
        let inside = made(numbers.clone(), mode).when_key(move |key| rollout.has(key));
        if others == Mode::Off {
            return vec![inside];
        }
        let name = shadow_name(&self.name.value);
        let shadow = made(renamed(numbers, &name, |quota| quota), Mode::Shadow);
        vec![inside, shadow.when_key(move |key| !rollout.has(key))]
    }

    /// The rule that blocks whom this one blocks, while a switch for all rules takes this one out of force.
    pub(crate) fn blocking_rule(
        &self,
        numbers: &tollgate_core::Rule,
        applies: Option<&Condition>,
    ) -> Option<RequestRule> {
        let blocks = (1..numbers.quotas()).any(|plan| numbers.quota_of(plan).is_none());
        if !blocks || self.key.is_of_handler() {
            return None;
        }
        let stays = |quota: Quota| match quota.is_none() {
            true => quota,
            false => Quota::unlimited(),
        };
        let blocking = renamed(numbers, &blocking_name(&self.name.value), stays);
        let rule = self.request_rule(blocking, stays, Mode::Enforce, applies);
        Some(match self.rollout {
            Some((rollout, _)) => rule.when_key(move |key| rollout.has(key)),
            None => rule,
        })
    }

    /// A rule of these numbers for requests.
    fn request_rule(
        &self,
        numbers: tollgate_core::Rule,
        scaled: impl Fn(Quota) -> Quota + Copy + Send + Sync + 'static,
        mode: Mode,
        applies: Option<&Condition>,
    ) -> RequestRule {
        let mut rule = Rule::from(mode.of(numbers))
            .by(self.key.extractor())
            .when_missing(self.missing);
        let condition = applies.unwrap_or(&self.condition);
        // Of these the index of a layer knows.
        if let Some(path) = &condition.path {
            rule = rule.when(path_matches(path.value.clone()));
        }
        if !condition.methods.is_empty() {
            rule = rule.when(method_in(condition.methods.clone()));
        }
        if let Some(words) = &condition.words {
            rule = rule.when(words_are(words.clone()));
        }
        if let Some(holds) = condition.others() {
            rule = rule.when(move |head: &Head<'_>| holds(head));
        }
        if let Some(unless) = &self.unless {
            let holds = unless.predicate();
            rule = rule.exempt(move |head: &Head<'_>| holds(head));
        }
        if let Cost::Computed(cost) = &self.cost {
            let cost = Arc::clone(cost);
            rule = rule.cost_by(move |head: &Head<'_>| cost(head));
        }
        if let Some(plan) = &self.plan {
            let plan = Arc::clone(plan);
            rule = rule.plan_by(move |head: &Head<'_>| plan(head));
        }
        if let Some(quota) = &self.quota {
            let quota = Arc::clone(quota);
            rule = rule.quota_by(move |head: &Head<'_>| quota(head).map(scaled));
        }
        self.settings.iter().fold(rule, |rule, set| set(rule))
    }
}

/// The name of the rule that blocks while its rule is switched off.
fn blocking_name(name: &str) -> String {
    match name.len() {
        // A name has at most 64 characters.
        57.. => {
            // FNV-1a: the same in each process.
            let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
                (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
            });
            format!("{}:{hash:08x}:blocked", &name[..47])
        }
        _ => format!("{name}:blocked"),
    }
}

/// The name of the shadow for clients that are not in yet.
pub(crate) fn shadow_name(name: &str) -> String {
    format!("{name}:shadow")
}

/// The same numbers under another name, on a state of its own.
pub(crate) fn renamed(
    rule: &tollgate_core::Rule,
    name: &str,
    quota: impl Fn(Quota) -> Quota,
) -> tollgate_core::Rule {
    let mut named = tollgate_core::Rule::new(name, quota(*rule.quota()))
        .cost(rule.fixed_cost())
        .consistency(rule.consistency_of())
        .on_store_error(rule.store_error_answer());
    if let Some(at_most) = rule.at_most_wait() {
        named = named.wait(at_most);
    }
    if let Some(unit) = rule.unit_name() {
        named = named.unit(unit);
    }
    for plan in 1..rule.quotas() {
        let plan_name = rule.plan_name(plan).unwrap_or_default();
        named = named.plan(plan_name, quota(*rule.quota_of(plan)));
    }
    // Where nothing has a limit there is nothing to count.
    let is_limited = (0..named.quotas()).any(|plan| named.quota_of(plan).has_state());
    if let Some(block) = rule.block_setting().filter(|_| is_limited) {
        named = named.block(block.clone());
    }
    named
}

/// An error of the core, whose rule is known by its place.
pub(crate) fn without_name(message: &str) -> String {
    match message
        .strip_prefix("rule \"")
        .and_then(|rest| rest.split_once("\": "))
    {
        Some((_, message)) => message.to_owned(),
        None => message.to_owned(),
    }
}

/// Notes what only a service can do.
fn refuse_for_service(
    reader: Reader<'_>,
    fields: &Fields<'_>,
    limit: Option<&Quota>,
    key: Option<&RuleKey>,
) {
    let named = FOR_SERVICE
        .iter()
        .filter_map(|name| Some((format!("{name} is"), fields.get(name)?)));
    let slots = limit.is_some_and(|limit| limit.algorithm() == AlgorithmKind::Concurrent);
    let slots = fields.get("limit").filter(|_| slots);
    let slots = slots.map(|node| ("slots are".to_owned(), node));
    let by = key.and_then(RuleKey::of_service);
    let by = by.and_then(|by| Some((format!("{by:?} is"), fields.get("by")?)));
    for (what, node) in named.chain(slots).chain(by) {
        let at = reader.example("at = \"service\"");
        let message = format!(
            "{what} for services: a proxy asks once, before the request goes on, and waits for milliseconds; give the rule {at}"
        );
        reader.wrong(&node.span, message);
    }
}

fn read_plan(reader: Reader<'_>, node: &Node, bindings: &Bindings) -> Option<Arc<PlanFn>> {
    let name = reader.text(node, "the name of a bound plan")?;
    reader.bound(node, "bound plan", name.value, &bindings.plans)
}

fn read_quota(reader: Reader<'_>, node: &Node, bindings: &Bindings) -> Option<Arc<QuotaFn>> {
    let name = reader.text(node, "the name of a bound quota")?;
    reader.bound(node, "bound quota", name.value, &bindings.quotas)
}

fn read_plans(reader: Reader<'_>, node: &Node, own: Option<&Quota>) -> Vec<(String, At<Quota>)> {
    let Value::Table(entries) = &node.value else {
        let message = format!(
            "this is {}; write {}",
            node.value.kind(),
            reader.example("plans = { gold = \"200/s\", internal = \"unlimited\" }")
        );
        reader.wrong(&node.span, message);
        return Vec::new();
    };
    let mut plans: Vec<(String, At<Quota>)> = Vec::new();
    let mut names = HashSet::new();
    for (name, node) in entries {
        if !names.insert(&name.text) {
            reader.wrong(
                &name.span,
                format!("{:?} is there twice; remove one", name.text),
            );
        } else if let Some(quota) = reader.quota(node, own) {
            plans.push((name.text.clone(), quota));
        }
    }
    plans
}

fn missing(reader: Reader<'_>, node: &Node) -> Option<Missing> {
    if let Value::Integer(_) = node.value {
        let status = reader.number(node, "a status for requests without a key", 400, 599)?;
        return StatusCode::from_u16(status as u16)
            .ok()
            .map(Missing::Reject);
    }
    if reader.is_quoted_number(node) {
        return None;
    }
    let found = match &node.value {
        Value::Text(text) => MISSING.iter().find(|(name, _)| name == text),
        _ => None,
    };
    if found.is_none() {
        let words = MISSING.iter().map(|(name, _)| *name);
        let what = "way to count requests without a key";
        match &node.value {
            Value::Text(text) => {
                reader.unknown(&node.span, what, text, words.chain(["a status as 401"]));
            }
            _ => reader.expected(node, "\"shared\", \"skip\" or a status as 401"),
        }
    }
    found.map(|(_, missing)| *missing)
}

fn read_slow_denials(reader: Reader<'_>, node: &Node) -> Option<(Duration, usize)> {
    let what = "slow_denials";
    let fields = reader.fields(node, what, "slow_denials")?;
    let by = fields.required("by", "\"2s\"");
    let by = by.and_then(|node| {
        let by = reader.duration(node)?;
        if by > MINUTE {
            let message = "a denial that is held for more than a minute holds a connection of yours; write \"2s\"";
            reader.wrong(&node.span, message);
        }
        Some(by)
    });
    let at_most = fields.required("at_most", "500");
    let at_most =
        at_most.and_then(|node| reader.number(node, "a number of requests", 1, MAX_UNITS));
    Some((by?, usize::try_from(at_most?).ok()?))
}

fn read_max_waiting(reader: Reader<'_>, node: &Node) -> Option<(usize, usize)> {
    let what = "max_waiting";
    let fields = reader.fields(node, what, "max_waiting")?;
    let number = |name: &str, example: &str| {
        let node = fields.required(name, example)?;
        usize::try_from(reader.number(node, "a number of requests", 1, MAX_UNITS)?).ok()
    };
    let (per_key, in_all) = (number("per_key", "10"), number("in_all", "500"));
    Some((per_key?, in_all?))
}

fn read_block(reader: Reader<'_>, node: &Node) -> Option<Block> {
    let what = "a block";
    if !matches!(node.value, Value::Table(_)) {
        let block = r#"after = 5, within = "10min", for = ["1min", "10min", "1h"]"#;
        let block = reader.example(block);
        reader.expected(node, &format!("{what} as {{ {block} }}"));
        return None;
    }
    let fields = reader.fields(node, what, "block")?;
    let after = fields.required("after", "5");
    let after = after.and_then(|node| reader.number(node, "a number of denials", 1, 1_000));
    let times = fields.required("for", "[\"1min\", \"10min\", \"1h\"]");
    let times = times.and_then(|node| {
        let times = reader.list_or_one(node).iter();
        times
            .map(|node| reader.duration(node))
            .collect::<Option<Vec<_>>>()
    });
    let within = fields.required("within", "\"10min\"");
    let within = within.and_then(|node| reader.duration(node));
    let forget_after = fields.read("forget_after", |node| reader.duration(node));
    let settled = fields.read("count_settled", |node| reader.boolean(node));
    // There are 1 000 at most.
    let mut block = Block::after(after? as u32).within(within?).for_each(times?);
    if let Some(time) = forget_after {
        block = block.forget_after(time);
    }
    Some(match settled {
        Some(true) => block.count_settled(),
        _ => block,
    })
}

/// Where the id of a request is, how long it is known, and how many may repeat it.
fn read_ids(reader: Reader<'_>, node: &Node) -> Option<(HeaderName, Duration, u8)> {
    let fields = reader.fields(node, "ids of requests", "idempotent")?;
    let name = fields.required("header", "\"idempotency-key\"");
    let name = name.and_then(|node| reader.header_name(node, "idempotency-key"));
    let period = fields.required("for", "\"10min\"");
    let period = period.and_then(|node| reader.duration(node));
    let repeats = match fields.get("repeats") {
        None => Some(3),
        Some(node) => reader.number(node, "how many may repeat a request, as 3", 1, 255),
    };
    // There are 255 at most.
    Some((name?, period?, repeats? as u8))
}

fn read_rollout(
    reader: Reader<'_>,
    node: &Node,
    name: Option<&At<String>>,
) -> Option<(Rollout, Mode)> {
    let fields = reader.fields(node, "a rollout", "rollout")?;
    let percent = fields.required("percent", "5");
    let permille = percent.and_then(|node| reader.permille(node, 100));
    let others = match fields.get("others") {
        None => Some(Mode::Off),
        Some(node) => reader.word(node, "mode for the others", OTHERS),
    };
    let (name, others) = (name?, others?);
    if others == Mode::Shadow && shadow_name(&name.value).len() > 64 {
        let message = "with others = \"shadow\" a name has at most 57 characters: the shadow is called by it and \":shadow\"";
        reader.wrong(&name.span, message);
        return None;
    }
    Some((Rollout::new(&name.value, permille?), others))
}
