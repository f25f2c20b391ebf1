//! What the pages are made of: the state as a whole, and one sample a second for all tabs, while there is one. The sums of each minute
//! are taken without one too.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::{runtime::Handle, time::sleep};
use tollgate_core::{Mode, sync::lock};
use tollgate_rules::operators::{EntryKind, EntryOrigin, EntryStatus};

use crate::{
    client::is_override,
    console::Shared,
    problems::{problems, used},
    samples::{Samples, share_shadowed},
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
        for rule in layer.limiter().rules().rules() {
            // Overrides are shown apart, whomever they are of.
            let of_requests =
                (rule.plan_names().enumerate()).filter(|(_, name)| !is_override(name));
            let plans = of_requests.map(|(index, name)| {
                json!({ "name": name, "limit": rule.quota_of(index + 1).to_string() })
            });
            let mode = match rule.mode() {
                Mode::Enforce => "enforced".to_owned(),
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
        let (name, layer) = (shadow_name(rule), shared.parts.layers.get(*layer));
        layer.is_some_and(|(_, it)| it.limiter().rules().position(&name).is_some())
    });
    let shown = previews.iter().map(|((layer, rule), (limit, since))| {
        let counted = samples.recent(*layer, &shadow_name(rule), 59);
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

/// What a layer calls the shadow of a preview.
pub(crate) fn shadow_name(rule: &str) -> String {
    format!("{rule}-preview")
}
