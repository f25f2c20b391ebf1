//! Windows of a calendar, as two processes bring them that have other versions of the time zone database, or another clock.

use tollgate_core::{Decision, Outcome, Quota, Rule, Tick, calendar::CalendarUnit};
use tollgate_test_servers::redis_client::Integers as _;

use crate::{
    internal_tests::{
        script::{MARGIN, Subject},
        scripted::run_with,
    },
    script::{args::ScriptCall, reply::ScriptReply},
};

/// An hour before the end of November 2023 in UTC.
const NOW: Tick = 1_701_388_800_000_000 - HOUR;
const HOUR: Tick = 3_600_000_000;
const LIMIT: u64 = 10;

impl Subject {
    /// A request of a process for which the windows end by so many seconds later.
    fn acquire_later(&mut self, now: Tick, cost: u64, later: i64) -> Decision {
        let checks = [Self::check(0, cost)];
        let mut call = ScriptCall::at(now, MARGIN);
        let layout = call.acquire(&self.encoder, &checks).expect("there is room");
        let mut args: Vec<Vec<u8>> = call.args().map(<[u8]>::to_vec).collect();
        let first = args[1][14..22].first_chunk().expect("eight bytes");
        let moved = f64::from_le_bytes(*first) + later as f64 * f64::from(1 << 18);
        args[1][14..22].copy_from_slice(&moved.to_le_bytes());
        let args = args.iter().map(Vec::as_slice);
        let reply = run_with(&mut self.connection, call.keys(), args).integers();
        let reply = ScriptReply::new(call.checks(), reply).expect("a whole reply");
        reply.decision(&layout, &checks, &self.rules)
    }
}

fn subject() -> Subject {
    Subject::new([Rule::new(
        "budget",
        Quota::calendar(LIMIT, CalendarUnit::Month),
    )])
}

fn after(decision: &Decision) -> (bool, u64, u128) {
    let verdict = &decision.verdicts()[0];
    let reset = verdict.reset_after().as_micros() / u128::from(HOUR);
    (decision.is_allowed(), verdict.remaining(), reset)
}

#[test]
fn of_two_ends_of_a_window_the_later_stands_and_used_units_are_not_lost() {
    for order in [[0, 3_600], [3_600, 0]] {
        let mut subject = subject();
        let [one, other] = order.map(|later| subject.acquire_later(NOW, 4, later));
        assert_eq!(after(&one).1, 6);
        // Whoever comes later: both have counted, until the later end.
        assert_eq!(after(&other), (true, 2, 2), "{order:?}");
        // The earlier end has passed for one of them.
        let denied = subject.acquire_later(NOW + HOUR + 1, 4, 3_600);
        assert!(!denied.is_allowed(), "{denied:?}");
        let anew = subject.acquire_later(NOW + 2 * HOUR + 1, 4, 3_600);
        assert_eq!(after(&anew).1, 6);
    }
}

#[test]
fn at_a_time_in_none_of_the_windows_nothing_is_done() {
    const DAY: i64 = 86_400;
    let mut subject = subject();
    for (later, is_done) in [
        // In the window before, in this one, in the next one.
        (31 * DAY, true),
        (0, true),
        (-30 * DAY, true),
        (-7 * 30 * DAY, false),
        (7 * 30 * DAY, false),
    ] {
        let decision = subject.acquire_later(NOW, 1, later);
        let outcome = decision.verdicts()[0].outcome();
        assert_eq!(outcome == Outcome::Allow, is_done, "{later}: {decision:?}");
        assert_eq!(outcome == Outcome::Failed, !is_done, "{later}");
    }
    // Those in a window have counted.
    let last = subject.acquire_later(NOW, LIMIT - 3, 0);
    assert_eq!(after(&last).1, 0);
}
