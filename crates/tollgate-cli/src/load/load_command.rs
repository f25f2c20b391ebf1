//! The command: requests out when they are due, which no slow answer holds up; a verdict in.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hdrhistogram::Histogram;
use serde_json::json;
use tokio::{
    task::{JoinSet, yield_now},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    load::target::{Answer, Kind, LoadArgs, Target},
    report::{self, Failure, Report, Table},
};

/// The longest Retry-After that is obeyed here.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How late a timer may be.
const TIMER: Duration = Duration::from_millis(1);
/// How many requests use up what a client has, before it obeys again.
const MOST_AT_ONCE: u32 = 10_000;

/// What became of one request.
struct Done {
    client: u32,
    /// Since the start.
    sent: Duration,
    since_due: Duration,
    since_sent: Duration,
    answer: Answer,
}

pub(crate) async fn run(args: &LoadArgs) -> Result<Report, Failure> {
    let requests = args.requests()?;
    let target = Arc::new(Target::find(args).await?);
    let (start, mut running) = (Instant::now() + TIMER, JoinSet::new());
    for (number, client) in (0..requests).zip(args.clients()) {
        let due = start + args.due(number);
        // A timer is up to a millisecond late.
        sleep_until(due - TIMER).await;
        while Instant::now() < due {
            yield_now().await;
        }
        let target = Arc::clone(&target);
        running.spawn(async move {
            let mut sent = due;
            let answer = target.ask(client, || sent = Instant::now()).await;
            Done {
                client,
                sent: sent - start,
                since_due: due.elapsed(),
                since_sent: sent.elapsed(),
                answer,
            }
        });
    }
    let mut done = running.join_all().await;
    let lasted = start.elapsed();
    done.sort_by_key(|done| done.sent);
    let denied = done.iter().rfind(|done| done.answer.kind == Kind::Denied);
    let obedient = match denied {
        Some(last) => Obedient::of(args, &target, last.client).await,
        None => Obedient::default(),
    };
    report(args, &done, lasted, &obedient)
}

/// A client that obeys `Retry-After`.
#[derive(Default)]
struct Obedient {
    waits: u32,
    denied_again: u32,
    /// Why it could not be tried, or not to the end.
    instead: Option<String>,
}

impl Obedient {
    /// Uses up what a client has, comes back when the denial has said, and again.
    async fn of(args: &LoadArgs, target: &Target, client: u32) -> Self {
        let (mut it, mut asked) = (Self::default(), 0);
        while it.waits < args.obey && it.instead.is_none() {
            asked += 1;
            let answer = target.ask(client, || {}).await;
            it.instead = match (answer.kind, answer.retry_after) {
                (Kind::Allowed, _) if asked < MOST_AT_ONCE => None,
                (Kind::Allowed, _) => Some("the limit was not met again".to_owned()),
                (Kind::Failed, _) => Some(answer.status),
                (Kind::Denied, None) => {
                    Some("a denial had no Retry-After that can be read".to_owned())
                }
                (Kind::Denied, Some(wait)) if wait > LONGEST_WAIT => {
                    Some(format!("Retry-After is {}", report::duration(wait)))
                }
                (Kind::Denied, Some(wait)) => {
                    sleep(wait).await;
                    let again = target.ask(client, || {}).await;
                    it.denied_again += u32::from(again.kind == Kind::Denied);
                    it.waits += 1;
                    asked = 0;
                    None
                }
            };
        }
        it
    }

    fn text(&self) -> String {
        match (self.waits, self.denied_again, &self.instead) {
            (0, _, None) => String::new(),
            (0, _, Some(why)) => format!(
                "whether a client that obeys Retry-After is denied again was not tried: {why}"
            ),
            (waits, 0, _) => {
                format!("a client that obeys Retry-After was never denied again ({waits} waits)")
            }
            (waits, again, _) => format!(
                "a client that obeys Retry-After was denied again after {again} of {waits} waits"
            ),
        }
    }
}

fn report(
    args: &LoadArgs,
    done: &[Done],
    lasted: Duration,
    obedient: &Obedient,
) -> Result<Report, Failure> {
    let mut answers = BTreeMap::new();
    // Microseconds, to three digits.
    let new = || Histogram::<u64>::new(3).map_err(Failure::failed);
    let mut times = [new()?, new()?];
    let mut kinds = [0_u64; 3];
    for done in done {
        kinds[done.answer.kind as usize] += 1;
        *answers.entry(&*done.answer.status).or_insert(0_u64) += 1;
        for (times, time) in times.iter_mut().zip([done.since_due, done.since_sent]) {
            times
                .record(time.as_micros() as u64)
                .map_err(Failure::failed)?;
        }
    }
    let [allowed, denied, failed] = kinds;
    // Of the client that comes most often.
    let answered = done.iter().filter(|done| done.answer.kind != Kind::Failed);
    let of_first = answered.filter(|done| done.client == 0);
    let sent: Vec<Sent> = of_first
        .map(|done| (done.sent, done.answer.kind == Kind::Allowed))
        .collect();
    let limit = ObservedLimit::of(&sent);
    let mut text = format!(
        "{} requests in {}: {allowed} allowed, {denied} denied, {failed} failed\n",
        done.len(),
        report::duration(lasted)
    );
    for (answer, number) in &answers {
        text += &format!("  {answer}: {number}\n");
    }
    let mut table = Table::new("time to the answer | #50 % | #90 % | #99 % | #99.9 % | #longest");
    let [since_due, since_sent] =
        times.map(|times| [0.5, 0.9, 0.99, 0.999, 1.0].map(|at| times.value_at_quantile(at)));
    for (name, times) in [
        ("since the request was due", since_due),
        ("since it was sent", since_sent),
    ] {
        let [half, most, nearly, all_but, longest] =
            times.map(|micros| report::duration(Duration::from_micros(micros)));
        table.row([name.to_owned(), half, most, nearly, all_but, longest]);
    }
    text += &format!("\n{}\n", table.text());
    if let Some(last) = done.iter().rfind(|done| !done.answer.limits.is_empty()) {
        text += &format!("the server says\n  {}\n", last.answer.limits.join("\n  "));
    }
    text += &match limit {
        Some(ObservedLimit { rate, burst }) => {
            let whose = args.keys.map_or("", |_| " of load-1");
            format!("limit observed{whose}: {rate:.1}/s, burst {burst}\n")
        }
        None => "no limit observed: nothing was denied\n".to_owned(),
    };
    text += &obedient.text();
    let json = json!({
        "requests": done.len(),
        "seconds": lasted.as_secs_f64(),
        "allowed": allowed,
        "denied": denied,
        "failed": failed,
        "answers": answers,
        "micros_at_50_90_99_99.9_100_percent": { "since_due": since_due, "since_sent": since_sent },
        "limit": limit.map(|limit| json!({ "rate": limit.rate, "burst": limit.burst })),
        "obedient": { "waits": obedient.waits, "denied_again": obedient.denied_again, "instead": obedient.instead },
    });
    let is_well = failed == 0 && obedient.denied_again == 0;
    Ok(Report::new(text, json, is_well))
}

/// A request of one client: when it was sent, and whether it was allowed.
pub(crate) type Sent = (Duration, bool);

/// The limit that answers show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ObservedLimit {
    /// Allowed requests a second, once some were denied.
    pub(crate) rate: f64,
    /// How many passed at once before that.
    pub(crate) burst: u64,
}

impl ObservedLimit {
    /// By the requests of one client, in the order in which they were sent. `None`: it was never denied.
    pub(crate) fn of(requests: &[Sent]) -> Option<Self> {
        let first = requests.iter().position(|(_, allowed)| !allowed)?;
        let (denied, end) = (requests[first].0, requests[requests.len() - 1].0);
        // Requests that are sent at once come in any order: those of the next moment count as before it.
        let settled = denied + (end - denied) / 20;
        let allowed = requests.iter().filter(|(_, allowed)| *allowed);
        let (before, after): (Vec<&Sent>, Vec<&Sent>) =
            allowed.partition(|(sent, _)| *sent <= settled);
        let seconds = (end - settled).as_secs_f64();
        let rate = if seconds > 0.0 {
            after.len() as f64 / seconds
        } else {
            0.0
        };
        // What came back meanwhile was not part of the burst, since the bucket was full for the last time.
        let since = before.iter().rev().zip(1_u32..);
        let burst = since
            .map(|((sent, _), passed)| f64::from(passed) - rate * (settled - *sent).as_secs_f64())
            .fold(0.0, f64::max);
        Some(Self {
            rate,
            burst: burst.round() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of a bucket of whole units, to requests at `each` a second for ten seconds after one a second and some at once.
    fn answers(rate: f64, size: f64, slow: u32, at_once: u32, each: u32) -> Vec<Sent> {
        let (mut left, mut before) = (size, 0.0);
        let steady = (1..=each * 10).map(|number| f64::from(number) / f64::from(each));
        let burst = std::iter::repeat_n(0.0, at_once as usize);
        let later = burst.chain(steady).map(|time| time + f64::from(slow));
        let times = (0..slow).map(f64::from).chain(later);
        let answers = times.map(|time| {
            left = (left + (time - before) * rate).min(size);
            before = time;
            let allowed = left >= 1.0 - 1e-9;
            left -= f64::from(u8::from(allowed));
            (Duration::from_secs_f64(time), allowed)
        });
        answers.collect()
    }

    #[test]
    fn the_numbers_of_a_bucket_are_found_within_two_percent() {
        for (rate, size, slow, at_once, each) in [
            (20.0, 50.0, 0, 100, 60),
            (20.0, 50.0, 0, 0, 60),
            (20.0, 50.0, 10, 0, 60),
            (5.0, 1.0, 0, 3, 20),
            (200.0, 10.0, 0, 0, 1_000),
        ] {
            let answers = answers(rate, size, slow, at_once, each);
            let observed = ObservedLimit::of(&answers).expect("some are denied");
            let wrong = (observed.rate - rate).abs() / rate;
            assert!(wrong <= 0.02, "{rate} {size}: {observed:?}");
            assert!(
                (observed.burst as f64 - size).abs() <= 1.0,
                "{rate} {size}: {observed:?}"
            );
        }
        assert_eq!(ObservedLimit::of(&answers(20.0, 50.0, 0, 0, 19)), None);
        assert_eq!(ObservedLimit::of(&[]), None);
    }
}
