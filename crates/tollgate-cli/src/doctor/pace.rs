//! How fast it answers, and what time it is there.

use std::time::{Duration, Instant, SystemTime};

use redis::RedisError;

use crate::{
    doctor::{finding::Finding, server::Server},
    time_text,
};

/// How often it is asked.
const ROUNDS: usize = 40;
/// A clock that is off by more is noted.
const OFF: Duration = Duration::from_millis(100);

const TIME: &str = "return redis.call('TIME')";

/// Asks for the time, by a script as decisions are. Another server's key is no obstacle: it has to answer, whatever it says.
pub(crate) async fn pace(server: &mut Server, namespace: &str, deadline: Duration) -> Vec<Finding> {
    let name = format!("{{{namespace}}}:doctor");
    let (mut times, mut offset) = (Vec::with_capacity(ROUNDS), None);
    for _ in 0..ROUNDS {
        let (before, sent) = (clock(), timer());
        let answer: Result<Vec<String>, RedisError> = match times.len() % 2 {
            0 => server.eval(TIME, &name).await,
            _ => server.ask(&["TIME"]).await,
        };
        let took = sent.elapsed();
        if answer.as_ref().is_err_and(RedisError::is_io_error) {
            return vec![Finding::error(
                "latency",
                "the server has stopped to answer",
                "is something else keeping it busy? See SLOWLOG GET, and INFO commandstats",
            )];
        }
        let fastest = times.iter().min().copied();
        if let Some(there) = answer.ok().and_then(|parts| server_time(&parts))
            && fastest.is_none_or(|fastest| took <= fastest)
        {
            offset = Some((difference(there, before + took / 2), took));
        }
        times.push(took);
    }
    times.sort_unstable();
    let mut findings = vec![latency(times[ROUNDS / 2], times[ROUNDS - 1], deadline)];
    findings.extend(offset.map(|(offset, took)| clock_finding(offset, took / 2)));
    findings
}

fn latency(median: Duration, slowest: Duration, deadline: Duration) -> Finding {
    const CHECK: &str = "latency";
    let says = format!(
        "median {}, slowest of {ROUNDS} {}, of a deadline of {}",
        time_text::duration(median),
        time_text::duration(slowest),
        time_text::duration(deadline)
    );
    let remedy = "run the service nearer to Redis, or give RedisStoreBuilder::deadline more; see SLOWLOG GET for what keeps the server busy";
    if median * 2 >= deadline {
        Finding::error(
            CHECK,
            format!("{says}: requests will be decided without Redis"),
            remedy,
        )
    } else if slowest * 2 >= deadline {
        Finding::warning(CHECK, says, remedy)
    } else {
        Finding::fine(CHECK, says)
    }
}

/// `offset` is positive where the server is ahead, and is known up to `uncertain`.
fn clock_finding((is_ahead, offset): (bool, Duration), uncertain: Duration) -> Finding {
    const CHECK: &str = "clock";
    let way = if is_ahead { "ahead of" } else { "behind" };
    let says = format!(
        "the server is {} {way} this machine, give or take {}",
        time_text::duration(offset),
        time_text::duration(uncertain)
    );
    match offset > OFF + uncertain {
        true => Finding::warning(
            CHECK,
            says,
            "keep both on NTP without steps (chronyc tracking): a step of the server's clock locks clients out or lets them in, and \
             `until` of overrides is by the clocks of the services",
        ),
        false => Finding::fine(CHECK, says),
    }
}

fn difference(there: SystemTime, here: SystemTime) -> (bool, Duration) {
    match there.duration_since(here) {
        Ok(ahead) => (true, ahead),
        Err(behind) => (false, behind.duration()),
    }
}

fn server_time(parts: &[String]) -> Option<SystemTime> {
    let [seconds, micros] = parts else {
        return None;
    };
    let time =
        Duration::from_secs(seconds.parse().ok()?) + Duration::from_micros(micros.parse().ok()?);
    Some(SystemTime::UNIX_EPOCH + time)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of this machine is what is compared"
)]
fn clock() -> SystemTime {
    SystemTime::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long an answer takes is what is asked"
)]
fn timer() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn half_of_the_deadline_is_too_slow() {
        let level = |median: u32, slowest: u32| latency(MS * median, MS * slowest, MS * 50).level;
        assert_eq!(level(1, 24), Level::Fine);
        assert_eq!(level(1, 25), Level::Warning);
        assert_eq!(level(25, 25), Level::Error);
        let finding = latency(MS * 25, MS * 25, MS * 50);
        assert!(finding.says.contains("without Redis"), "{finding:?}");
    }

    #[test]
    fn a_clock_is_off_by_more_than_is_uncertain() {
        for is_ahead in [false, true] {
            let level = |offset: u32, uncertain: u32| {
                clock_finding((is_ahead, MS * offset), MS * uncertain).level
            };
            assert_eq!(level(100, 1), Level::Fine);
            assert_eq!(level(102, 1), Level::Warning);
            assert_eq!(level(150, 60), Level::Fine);
        }
    }
}
