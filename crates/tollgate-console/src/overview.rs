//! What the pages are made of: the state as a whole, and one sample a second for all tabs, while there is one. The sums of each minute
//! are taken without one too.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::{runtime::Handle, time::sleep};
use tollgate::siblings::preview_name;
use tollgate_core::{Mode, sync::lock};
use tollgate_rules::{
    RulesStatus,
    operators::{EntryKind, EntryOrigin, EntryStatus},
};

use crate::{
    client::is_override,
    console::Shared,
    samples::{DEGRADED, FALLBACK, Samples, Tally, add, share_denied, share_shadowed},
};

const SECOND: u64 = 1_000_000;

/// Begins to take samples, inside of a runtime. It ends with the router.
pub(crate) fn start(shared: &Arc<Shared>) {
    if let Ok(runtime) = Handle::try_current() {
        let task = || drop(runtime.spawn(take_samples(Arc::downgrade(shared))));
        shared.sampler.get_or_init(task);
    }
}

async fn take_samples(shared: Weak<Shared>) {
    while let Some(now) = shared.upgrade().map(|it| it.clock.now()) {
        sleep(Duration::from_micros(SECOND - now % SECOND)).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let has_tabs = shared.latest.receiver_count() > 0;
        if !has_tabs && now / (60 * SECOND) == shared.clock.now() / (60 * SECOND) {
            continue;
        }
        let since = shared.take_sample();
        if has_tabs {
            scrape(&shared);
            let event = format!("data: {}\n\n", sample(&shared, since));
            shared.latest.send_replace(event.into());
        }
    }
}

/// Reads the metrics of the process.
fn scrape(shared: &Shared) {
    let now = shared.clock.now();
    if let Some(render) = &shared.parts.metrics
        && lock(&shared.scrapes).is_due(now)
    {
        // It is code of the application, and the samples go on without it.
        let text = catch_unwind(AssertUnwindSafe(|| render())).unwrap_or_default();
        lock(&shared.scrapes).add(now, &text);
    }
}

/// What each tab hears each second.
fn sample(shared: &Shared, since: u64) -> Value {
    let problems = problems(shared);
    let (samples, scrapes) = (lock(&shared.samples), lock(&shared.scrapes));
    let last = samples.seconds.front();
    json!({
        "version": version(shared),
        "at": shared.clock.now() / 1_000,
        "since": since / 1_000,
        "problems": problems,
        "meters": scrapes.shown(),
        "sum": last.map(|(_, sum)| *sum).unwrap_or_default(),
        "rules": used(shared, &samples),
        "previews": previews(shared, &samples),
        "near": scrapes.near_limit(),
    })
}

/// What changes whenever the page has to ask for the state again.
fn version(shared: &Shared) -> u64 {
    let layers = shared.parts.layers.iter();
    let versions = layers.map(|(_, layer)| layer.limiter().rules().version());
    let status = shared
        .parts
        .rules
        .as_ref()
        .map(|rules| rules.status())
        .map_or(0, |it| it.revision.wrapping_add(it.rejected << 32));
    versions.fold(status, |sum, version| {
        sum.wrapping_mul(31).wrapping_add(version)
    }) % (1 << 53)
}

/// All that a page begins with.
pub(crate) fn state(shared: &Shared) -> Value {
    let samples = lock(&shared.samples);
    let document = shared.parts.rules.as_ref().map(|rules| rules.document());
    let keyed = document.iter().flat_map(|document| document.keyed_rules());
    let by: HashMap<String, Vec<&str>> = keyed
        .map(|(rule, by)| (rule.name().to_owned(), by))
        .collect();
    let mut rules = Vec::new();
    for (number, (name, layer)) in shared.parts.layers.iter().enumerate() {
        let limiter = layer.limiter();
        let all = limiter.rules().rules();
        let previews: HashSet<String> = all.iter().map(|it| preview_name(it.name())).collect();
        for rule in all {
            // Overrides are shown apart, whomever they are of.
            let of_requests =
                (rule.plan_names().enumerate()).filter(|(_, name)| !is_override(name));
            let plans = of_requests.map(|(index, name)| {
                json!({ "name": name, "limit": rule.quota_of(index + 1).to_string() })
            });
            let mode = match rule.mode() {
                Mode::Enforce => "enforced".to_owned(),
                // No action knows it but that of its rule.
                Mode::Shadow if !by.contains_key(rule.name()) && previews.contains(rule.name()) => {
                    "preview".to_owned()
                }
                Mode::Shadow => "shadow".to_owned(),
                Mode::Off => "off".to_owned(),
                Mode::Threshold { of } => format!("threshold of {of}"),
                _ => "other".to_owned(),
            };
            rules.push(json!({
                "layer": number,
                "layer_name": name,
                "name": rule.name(),
                "limit": rule.quota().to_string(),
                "plans": plans.collect::<Vec<_>>(),
                "mode": mode,
                "by": by.get(rule.name()),
                "hour": samples.recent(number, rule.name(), 59),
            }));
        }
    }
    let entries = document.iter().flat_map(|document| document.entries());
    let minutes = samples.minutes.each().map(|(at, sum)| json!([at, sum]));
    let seconds = samples
        .seconds
        .iter()
        .rev()
        .map(|(at, sum)| json!([at / 1_000, sum]));
    json!({
        "version": version(shared),
        "scope": scope(shared),
        "logs_in": shared.parts.access.shows_log_in(),
        "rules": rules,
        "entries": entries.map(|it| entry(&it)).collect::<Vec<_>>(),
        "minutes": minutes.collect::<Vec<_>>(),
        "seconds": seconds.collect::<Vec<_>>(),
        "status": status(shared),
    })
}

/// An override or a switch. Who it is for is a hash, if there is a secret to make it with.
fn entry(entry: &EntryStatus) -> Value {
    let origin = match entry.origin {
        EntryOrigin::Document => "the document",
        EntryOrigin::Redis => "all processes",
        EntryOrigin::Process => "this process",
        _ => "elsewhere",
    };
    let until = entry
        .until
        .and_then(|until| until.duration_since(SystemTime::UNIX_EPOCH).ok());
    json!({
        "id": entry.id,
        "is_override": entry.kind == EntryKind::Override,
        "rules": entry.rules,
        "client": entry.client.map(|hash| format!("{:08x}", hash >> 96)),
        "limit": entry.limit,
        "origin": origin,
        "is_local": entry.origin == EntryOrigin::Process,
        "until": until.map(|until| until.as_millis() as u64),
        "by": entry.author.as_ref().map(|author| author.actor()),
        "because": entry.reason.as_deref().or(entry.author.as_ref().map(|author| author.reason())),
        "problem": entry.problem,
    })
}

/// What a change of rules changes.
pub(crate) fn scope(shared: &Shared) -> &'static str {
    #[cfg(feature = "redis")]
    if shared.parts.fleet.is_some() {
        return "fleet";
    }
    match shared.parts.rules {
        Some(_) => "process",
        None => "none",
    }
}

fn status(shared: &Shared) -> Value {
    let Some(status) = shared.parts.rules.as_ref().map(|rules| rules.status()) else {
        return Value::Null;
    };
    let fleet = status.fleet.map(|fleet| {
        json!({ "revision": fleet.revision, "processes": fleet.processes, "lagging": fleet.lagging })
    });
    json!({
        "revision": status.revision,
        "rules": status.rules,
        "rejected": status.rejected,
        "fleet": fleet,
    })
}

/// The previews that run, with what their shadows would have denied.
fn previews(shared: &Shared, samples: &Samples) -> Vec<Value> {
    let mut previews = lock(&shared.previews);
    // Other rules have taken the place of those that had it.
    previews.retain(|(layer, rule), _| {
        let (name, layer) = (preview_name(rule), shared.parts.layers.get(*layer));
        layer.is_some_and(|(_, it)| it.limiter().rules().position(&name).is_some())
    });
    let shown = previews.iter().map(|((layer, rule), (limit, since))| {
        let counted = samples.recent(*layer, &preview_name(rule), 59);
        let (denied, decided) = share_shadowed(&counted);
        json!({
            "layer": layer,
            "rule": rule,
            "limit": limit,
            "since": since / 1_000,
            "denied": denied,
            "decided": decided,
        })
    });
    shown.collect()
}

/// How many rules are named.
const NAMED: usize = 10;
/// From how many denials on, and from which share of a rule's checks on, a rule is named.
const DENIALS: u64 = 10;
const PERCENT: u64 = 5;

/// What is wrong: `bad`, to be watched (`warn`), or worth a `note`.
fn problem(level: &str, text: impl Display) -> Value {
    json!({ "level": level, "text": text.to_string() })
}

/// What is wrong, in words: the worst first.
fn problems(shared: &Shared) -> Vec<Value> {
    let mut found = Vec::new();
    #[cfg(feature = "redis")]
    if let Some(store) = &shared.parts.store
        && let Some(trouble) = store.connection_error()
    {
        let text = "Redis does not decide, and each rule answers as it does when its store fails";
        found.push(problem("bad", format!("{text}: {trouble}")));
    }
    if let Some(rules) = &shared.parts.rules {
        found.extend(of_rules(&rules.status()));
    }
    let samples = lock(&shared.samples);
    let (mut all, mut denying, mut shadows) = (Tally::default(), Vec::new(), Vec::new());
    for (number, (_, layer)) in shared.parts.layers.iter().enumerate() {
        for rule in layer.limiter().rules().rules() {
            let recent = samples.recent(number, rule.name(), 1);
            add(&mut all, &recent);
            for ((denied, decided), list) in [
                (share_denied(&recent), &mut denying),
                (share_shadowed(&recent), &mut shadows),
            ] {
                if denied >= DENIALS && denied * 100 >= decided * PERCENT {
                    list.push((denied, decided, number, rule.name().to_owned()));
                }
            }
        }
    }
    drop(samples);
    if all[FALLBACK] > 0 {
        let (checks, passed) = (all[FALLBACK], all[DEGRADED]);
        found.push(problem("bad", format!(
            "The store fails: {checks} checks of the last two minutes were decided without it, {passed} of them let through uncounted"
        )));
    }
    let misses = lock(&shared.scrapes).deadline_misses();
    if misses > 0.0 {
        let text = "calls to Redis had no reply within the deadline in the last ten seconds";
        found.push(problem("warn", format!("{misses:.0} {text}")));
    }
    denying.sort_by(|one, other| other.cmp(one));
    for (denied, decided, layer, rule) in denying.iter().take(NAMED) {
        let share = share(*denied, *decided);
        let mut text = format!("{rule} denies {share} in the last two minutes");
        if let Some(client) = mostly_one(shared, *layer, rule) {
            text.push_str(&format!("; most denials are of one client, {client}"));
        }
        found.push(problem("warn", text));
    }
    if denying.len() > NAMED {
        let others = denying.len() - NAMED;
        let text = format!("{others} other rules deny more than {PERCENT} %");
        found.push(problem("warn", text));
    }
    shadows.sort_by(|one, other| other.cmp(one));
    for (denied, decided, _, rule) in shadows.iter().take(NAMED) {
        let share = share(*denied, *decided);
        let text = format!("{rule} is a shadow and would deny {share}");
        found.push(problem("note", text));
    }
    found
}

/// `15 %: 1,403 of 8,815 checks`.
fn share(denied: u64, decided: u64) -> String {
    let percent = denied * 100 / decided.max(1);
    format!(
        "{percent} %: {} of {} checks",
        grouped(denied),
        grouped(decided)
    )
}

/// A number as the page writes it, with a comma after thousands.
fn grouped(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), number % 1_000),
    }
}

fn of_rules(status: &RulesStatus) -> Vec<Value> {
    let mut found = Vec::new();
    if let Some(rejection) = &status.last_rejection {
        let revision = status.revision;
        let text = format!("The latest rules are rejected, and revision {revision} stays in force");
        found.push(problem("bad", format!("{text}:\n{rejection}")));
    }
    if let Some(error) = &status.source_error {
        let text = format!("The source of the rules has none at present: {error}");
        found.push(problem("bad", text));
    }
    let wrong = status.wrong_lists.iter().chain(&status.lost);
    found.extend(wrong.map(|wrong| problem("bad", wrong)));
    let Some(fleet) = &status.fleet else {
        return found;
    };
    for process in &fleet.lagging_processes {
        let text = format!(
            "Process {process}; the rules are of revision {}",
            fleet.revision
        );
        found.push(problem("warn", text));
    }
    if fleet.ahead > 0 {
        let (ahead, processes) = (fleet.ahead, fleet.processes);
        let text =
            format!("{ahead} of {processes} processes have newer rules than Redis: push again");
        found.push(problem("bad", text));
    }
    found
}

/// The client that has more than half of a rule's denials, as the log shows it.
fn mostly_one(shared: &Shared, layer: usize, rule: &str) -> Option<String> {
    let limiter = shared.parts.layers.get(layer)?.1.limiter();
    let keys = limiter.top_keys(rule, usize::MAX).ok()?;
    let all: u64 = keys.iter().map(|key| key.denials).sum();
    let most = keys.iter().max_by_key(|key| key.denials)?;
    let name = || most.label.clone().unwrap_or_else(|| most.key.to_string());
    (all >= DENIALS && most.denials * 2 > all).then(name)
}

/// What the last sample has of each rule that was used: its number, and its counts.
fn used(shared: &Shared, samples: &Samples) -> Vec<Value> {
    let (mut used, mut number) = (Vec::new(), 0);
    for (layer, (_, it)) in shared.parts.layers.iter().enumerate() {
        for rule in it.limiter().rules().rules() {
            let last = samples.last(layer, rule.name());
            if last.iter().any(|count| *count > 0) {
                used.push(json!([number, last]));
            }
            number += 1;
        }
    }
    used
}
