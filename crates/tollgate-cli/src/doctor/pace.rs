//! How fast it answers, and what time it is there.

use std::time::{Duration, Instant, SystemTime};

use crate::{
    doctor::{
        finding::{
            Finding,
            Level::{Error, Fine, Warning},
        },
        servers::Server,
    },
    time_text,
};

/// How often it is asked.
const ROUNDS: usize = 40;
/// A clock that is off by more is noted.
const OFF: Duration = Duration::from_millis(100);

/// Asks for the time, as decisions do.
pub(crate) async fn pace(server: &mut Server, namespace: &str, deadline: Duration) -> Vec<Finding> {
    let name = format!("{{{namespace}}}:doctor");
    let ask = ["EVAL", "return redis.call('TIME')", "1", &name];
    let (mut times, mut closest) = (Vec::with_capacity(ROUNDS), None);
    for _ in 0..ROUNDS {
        let (before, sent) = now();
        let answer = server.ask::<(u64, u64)>(&ask).await;
        let took = sent.elapsed();
        times.push(took);
        match answer {
            Ok((seconds, micros)) => {
                let there = Duration::from_secs(seconds) + Duration::from_micros(micros);
                let round = (took, before + took / 2, SystemTime::UNIX_EPOCH + there);
                closest = Some(closest.map_or(round, |least| round.min(least)));
            }
            Err(wrong) if wrong.is_io_error() => {
                let remedy =
                    "is something else keeping it busy? See SLOWLOG GET, and INFO commandstats";
                return vec![Error.of("latency", "the server has stopped to answer", remedy)];
            }
            // Another server has the key, or the script may not run; it has answered.
            Err(_) => {}
        }
    }
    times.sort_unstable();
    let mut findings = vec![latency(times[ROUNDS / 2], times[ROUNDS - 1], deadline)];
    findings.extend(closest.map(|(took, here, there)| clock(here, there, took / 2)));
    findings
}

fn latency(median: Duration, slowest: Duration, deadline: Duration) -> Finding {
    let [half, most, all] = [median, slowest, deadline].map(time_text::duration);
    let says = format!("median {half}, slowest of {ROUNDS} {most}, of a deadline of {all}");
    let remedy = "run the service nearer to Redis, or give RedisStoreBuilder::deadline more; see SLOWLOG GET for what keeps the server busy";
    let late = format!("{says}: requests will be decided without Redis");
    match () {
        () if median * 2 >= deadline => Error.of("latency", late, remedy),
        () if slowest * 2 >= deadline => Warning.of("latency", says, remedy),
        () => Fine.of("latency", says, ""),
    }
}

/// The two clocks at one moment, which is known up to `uncertain`.
fn clock(here: SystemTime, there: SystemTime, uncertain: Duration) -> Finding {
    let (offset, way) = match there.duration_since(here) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    let [off, may_be] = [offset, uncertain].map(time_text::duration);
    let says = format!("the server is {off} {way} this machine, give or take {may_be}");
    let remedy = "keep both on NTP without steps (chronyc tracking): a step of the server's clock locks clients out or lets them in, and \
                  `until` of overrides is by the clocks of the services";
    match offset > OFF + uncertain {
        true => Warning.of("clock", says, remedy),
        false => Fine.of("clock", says, ""),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of this machine is what is compared, and how long an answer takes what is asked"
)]
fn now() -> (SystemTime, Instant) {
    (SystemTime::now(), Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn half_of_the_deadline_is_too_slow() {
        let level = |median: u32, slowest: u32| latency(MS * median, MS * slowest, MS * 50).level;
        assert_eq!(level(1, 24), Fine);
        assert_eq!(level(1, 25), Warning);
        assert_eq!(level(25, 25), Error);
    }

    #[test]
    fn a_clock_is_off_by_more_than_is_uncertain() {
        let here = SystemTime::UNIX_EPOCH + MS * 10_000;
        for (offset, uncertain, level) in [(100, 1, Fine), (102, 1, Warning), (150, 60, Fine)] {
            for there in [here + MS * offset, here - MS * offset] {
                assert_eq!(clock(here, there, MS * uncertain).level, level);
            }
        }
    }
}
