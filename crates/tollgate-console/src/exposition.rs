//! What the metrics of a process say of latency and of Redis, from the text that Prometheus reads.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

/// What is compared: the text of now with that of ten seconds ago, and a little more.
const KEPT: u64 = 10_500_000;
/// The time between two texts, which may take long with many rules.
const EVERY: u64 = 4_900_000;

/// The latest texts as numbers, each with its time.
#[derive(Debug, Default)]
pub(crate) struct Scrapes(VecDeque<(u64, Sums)>);

/// Sums by name, and by the label that matters.
type Sums = HashMap<&'static str, HashMap<String, f64>>;

const CHECK: &str = "tollgate_check_duration_seconds_bucket";
const QUEUE: &str = "tollgate_redis_queue_duration_seconds_bucket";
const CALLS: &str = "tollgate_redis_calls_total";
const ERRORS: &str = "tollgate_redis_errors_total";
const BREAKER: &str = "tollgate_redis_breaker_share";
const NEAR: &str = "tollgate_near_limit_total";
/// Each with the label that tells its series apart.
const WANTED: [(&str, &str); 6] = [
    (CHECK, "le"),
    (QUEUE, "le"),
    (CALLS, "for"),
    (ERRORS, "error"),
    (BREAKER, "node"),
    (NEAR, "rule"),
];

fn parse(text: &str) -> Sums {
    let mut sums = Sums::new();
    for line in text.lines().filter(|line| line.starts_with("tollgate_")) {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let wanted = WANTED.iter().find(|(name, _)| *name == &line[..end]);
        let value = line
            .rsplit(' ')
            .next()
            .and_then(|it| it.parse::<f64>().ok());
        let Some(((name, label), value)) = wanted.zip(value) else {
            continue;
        };
        let of_label = line
            .split(['{', ','])
            .find_map(|part| part.strip_prefix(label)?.strip_prefix("=\""))
            .and_then(|rest| rest.split('"').next())
            .unwrap_or_default();
        let of_name = sums.entry(name).or_default();
        *of_name.entry(of_label.to_owned()).or_default() += value;
    }
    sums
}

impl Scrapes {
    /// Whether to read the metrics again.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let last = self.0.back();
        last.is_none_or(|(at, _)| now < *at || now - at >= EVERY)
    }

    pub(crate) fn add(&mut self, at: u64, text: &str) {
        self.0.push_back((at, parse(text)));
        let is_recent = |time: u64| time.saturating_add(KEPT) >= at && time <= at;
        self.0.retain(|(time, _)| is_recent(*time));
    }

    /// By label, how much a counter has grown in ten seconds.
    fn growth(&self, name: &str) -> HashMap<&str, f64> {
        let [first, last] = [self.0.front(), self.0.back()].map(|it| it?.1.get(name));
        let grown = last.into_iter().flatten().map(|(label, now)| {
            let before = first.and_then(|first| first.get(label));
            (&**label, (now - before.unwrap_or(&0.0)).max(0.0))
        });
        grown.collect()
    }

    /// Below which time this share of what was measured lies, in milliseconds. `None`: there was nothing.
    fn quantile(&self, name: &str, share: f64) -> Option<f64> {
        let grown = self.growth(name).into_iter();
        let mut buckets: Vec<(f64, f64)> = grown
            .filter_map(|(le, count)| Some((le.replace("+Inf", "inf").parse().ok()?, count)))
            .collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (_, all) = *buckets.last().filter(|(_, all)| *all > 0.0)?;
        let wanted = all * share;
        let at = buckets.iter().position(|(_, count)| *count >= wanted)?;
        let (le, count) = buckets[at];
        let (from, below) = at
            .checked_sub(1)
            .map_or((0.0, 0.0), |before| buckets[before]);
        let within = match le.is_finite() {
            true => from + (le - from) * (wanted - below) / (count - below).max(1.0),
            false => from,
        };
        Some(within * 1e3)
    }

    /// By rule, how many requests in ten seconds had little left.
    pub(crate) fn near_limit(&self) -> HashMap<&str, f64> {
        let mut near = self.growth(NEAR);
        near.retain(|_, requests| *requests > 0.0);
        near
    }

    /// How many calls to Redis had no reply within the deadline, in ten seconds.
    pub(crate) fn deadline_misses(&self) -> f64 {
        self.growth(ERRORS)
            .get("expired")
            .copied()
            .unwrap_or_default()
    }

    /// What the page shows. `null`: the application gives no metrics.
    pub(crate) fn shown(&self) -> Value {
        let Some((_, last)) = self.0.back() else {
            return Value::Null;
        };
        let decided = self.growth(CHECK).get("+Inf").copied().unwrap_or_default();
        let calls = self.growth(CALLS).get("requests").copied();
        // There is a gauge from the first time on that a breaker opens, and of servers that have left it is NaN.
        let shares = last.get(BREAKER).into_iter().flatten();
        let breaker = shares.fold(1.0, |least, (_, share)| share.min(least));
        let redis = last.contains_key(CALLS).then(|| {
            json!({
                "calls_per_request": (decided > 0.0).then(|| calls.unwrap_or_default() / decided),
                "deadline_misses": self.deadline_misses(),
                "queue_p99": self.quantile(QUEUE, 0.99),
                "breaker": breaker,
            })
        });
        json!({ "p50": self.quantile(CHECK, 0.5), "p99": self.quantile(CHECK, 0.99), "redis": redis })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_grown_since_the_first_text_is_shown() {
        let text = |fast: u64, all: u64| {
            let buckets = [("0.001", fast), ("0.002", all), ("+Inf", all)];
            let buckets =
                buckets.map(|(le, count)| format!("{CHECK}{{role=\"api\",le=\"{le}\"}} {count}\n"));
            let calls = format!(
                "{CALLS}{{for=\"requests\"}} {all}\n{ERRORS}{{error=\"expired\"}} {fast}\n"
            );
            buckets.concat() + &calls + &format!("{NEAR}{{rule=\"a\"}} {all}\n")
        };
        let mut scrapes = Scrapes::default();
        assert_eq!(scrapes.shown(), Value::Null);
        scrapes.add(1_000_000, &text(100, 1_000));
        scrapes.add(3_000_000, &text(150, 1_100));
        let shown = scrapes.shown();
        assert_eq!(shown["p50"], 1.0);
        let p99 = shown["p99"].as_f64().expect("a time");
        assert!((p99 - 1.98).abs() < 1e-9, "{p99}");
        let redis = &shown["redis"];
        assert_eq!(
            (&redis["calls_per_request"], &redis["breaker"]),
            (&json!(1.0), &json!(1.0))
        );
        assert_eq!(scrapes.deadline_misses(), 50.0);
        assert_eq!(scrapes.near_limit(), HashMap::from([("a", 100.0)]));
        // What is older than ten seconds is not compared with.
        scrapes.add(12_000_000, &text(150, 1_100));
        assert_eq!(scrapes.deadline_misses(), 0.0);
    }
}
