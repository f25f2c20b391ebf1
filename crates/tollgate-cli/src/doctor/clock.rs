//! What time it is on a server.

use std::time::{Duration, SystemTime};

use crate::{
    doctor::{
        finding::{
            Finding,
            Level::{Fine, Warning},
        },
        servers::Server,
    },
    time_text,
};

/// How often it is asked: the quickest answer is taken.
const ROUNDS: usize = 10;
/// A clock that is off by more is noted.
const OFF: Duration = Duration::from_millis(100);

/// Asks for the time, as decisions do. A server that does not say it, as one of a cluster that does not have the key, has no finding.
pub(crate) async fn clock(server: &mut Server, namespace: &str) -> Option<Finding> {
    let name = format!("{{{namespace}}}:doctor");
    let ask = ["EVAL", "return redis.call('TIME')", "1", &name];
    let mut closest: Option<(Duration, SystemTime, SystemTime)> = None;
    for _ in 0..ROUNDS {
        let before = now();
        let Ok((seconds, micros)) = server.ask::<(u64, u64)>(&ask).await else {
            continue;
        };
        let took = now().duration_since(before).unwrap_or(Duration::MAX);
        let there = Duration::from_secs(seconds) + Duration::from_micros(micros);
        let round = (took, before + took / 2, SystemTime::UNIX_EPOCH + there);
        closest = Some(closest.map_or(round, |least| round.min(least)));
    }
    closest.map(|(took, here, there)| compared(here, there, took / 2))
}

/// The two clocks at one moment, which is known up to `uncertain`.
fn compared(here: SystemTime, there: SystemTime, uncertain: Duration) -> Finding {
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
    reason = "the clock of this machine is what is compared"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_clock_is_off_by_more_than_is_uncertain() {
        let here = SystemTime::UNIX_EPOCH + MS * 10_000;
        for (offset, uncertain, level) in [(100, 1, Fine), (102, 1, Warning), (150, 60, Fine)] {
            for there in [here + MS * offset, here - MS * offset] {
                assert_eq!(compared(here, there, MS * uncertain).level, level);
            }
        }
    }
}
