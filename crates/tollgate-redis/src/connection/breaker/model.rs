//! Every history of a few steps, held to a model that only remembers what happened.

use std::time::Duration;

use crate::connection::breaker::{BreakerOptions, BreakerState, Machine};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Answered,
    Failed,
    ProbeAnswered,
    ProbeFailed,
    Connected,
    Disconnected,
    /// One hundred milliseconds, a slice of the window.
    Pass,
    /// Ten seconds.
    PassLong,
}

const STEPS: [Step; 8] = [
    Step::Answered,
    Step::Failed,
    Step::ProbeAnswered,
    Step::ProbeFailed,
    Step::Connected,
    Step::Disconnected,
    Step::Pass,
    Step::PassLong,
];

/// Small, so that short histories reach every state.
fn options() -> BreakerOptions {
    BreakerOptions {
        failures: 2,
        window: Duration::from_millis(800),
        busy: 3,
        percent: 60,
        pause: Duration::from_millis(200),
        longest_pause: Duration::from_millis(700),
        probes: 2,
        ramp: Duration::from_millis(200),
    }
}

/// What happened, and what follows from it by the sentences of the documentation. Times are in milliseconds.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Calls since requests are let through: when, and whether it was answered.
    calls: Vec<(u64, bool)>,
    closed_at: u64,
    opened_at: u64,
    /// The last pause that an opening began with.
    pause: u64,
    /// The least that the present pause may be.
    present: u64,
    probes: u32,
    ramp: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Closed,
    Open,
    Ramp(u8),
}

/// The times of failures that count: none within a slice of the one before.
fn moments(failures: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut moments: Vec<u64> = Vec::new();
    for at in failures {
        if moments.last().is_none_or(|last| at >= last + 100) {
            moments.push(at);
        }
    }
    moments
}

impl Model {
    fn open(&mut self, now: u64) {
        self.probes = 0;
        if self.state == State::Open {
            self.present = self.pause.max((now - self.opened_at) / 16);
        } else {
            let well = match self.state {
                State::Closed => (now - self.closed_at) / 1_000,
                _ => 0,
            };
            self.pause = ((self.pause * 2) >> well.min(40)).clamp(200, 700);
            self.opened_at = now;
            self.present = self.pause;
        }
        self.present = self.present.min(700);
        self.calls.clear();
        self.state = State::Open;
    }

    fn call(&mut self, now: u64, answered: bool) {
        if self.state == State::Open {
            return;
        }
        self.calls.push((now, answered));
        if answered {
            return;
        }
        let is_recent = |at: u64| at / 100 + 8 >= now / 100;
        let recent = self.calls.iter().filter(|call| is_recent(call.0)).count();
        let failed = |calls: &[(u64, bool)]| {
            let failed = calls.iter().filter(|call| !call.1);
            failed.map(|call| call.0).collect::<Vec<_>>()
        };
        let failures = failed(&self.calls);
        let recently_failed = failures.iter().filter(|at| is_recent(**at)).count();
        let all = moments(failed(&self.calls).into_iter());
        let recent_moments = all.iter().filter(|at| is_recent(**at)).count();
        let is_rate = recent_moments >= 2 && recently_failed * 100 >= recent * 60;
        // The moments that had not begun before the last answer.
        let answered = self.calls.iter().rposition(|call| call.1);
        let before = failed(&self.calls[..answered.unwrap_or(0)]);
        let row = all.len() - moments(before.into_iter()).len();
        let opens = match self.state {
            State::Closed if recent < 3 => row >= 2,
            _ => is_rate,
        };
        if opens {
            self.open(now);
        }
    }

    fn step(&mut self, step: Step, now: u64) {
        match step {
            Step::Answered => self.call(now, true),
            Step::Failed => self.call(now, false),
            Step::Disconnected => match self.state {
                State::Open if self.probes > 0 => self.open(now),
                _ => self.call(now, false),
            },
            Step::ProbeAnswered if self.state == State::Open => {
                self.probes += 1;
                if self.probes == 2 {
                    self.state = State::Ramp(10);
                    self.ramp = now + 100;
                }
            }
            Step::ProbeFailed if self.state == State::Open => self.open(now),
            Step::Pass | Step::PassLong => match self.state {
                State::Ramp(10) if now >= self.ramp => {
                    self.state = State::Ramp(50);
                    self.ramp = now + 100;
                }
                State::Ramp(_) if now >= self.ramp => {
                    self.state = State::Closed;
                    self.closed_at = now;
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open if self.probes > 0 => BreakerState::Probing,
            State::Open => BreakerState::Open,
            State::Ramp(percent) => BreakerState::Ramping { percent },
        }
    }
}

fn explore(machine: &Machine, model: &Model, now: u64, depth: u32, history: &mut Vec<Step>) -> u64 {
    if depth == 0 {
        return 1;
    }
    let mut histories = 0;
    for step in STEPS {
        let (mut machine, mut model) = (machine.clone(), model.clone());
        let now = match step {
            Step::Pass => now + 100,
            Step::PassLong => now + 10_000,
            _ => now,
        };
        let time = Duration::from_millis(now);
        history.push(step);
        let before = machine.due();
        match step {
            Step::Answered => machine.record(1, 0, time),
            Step::Failed => machine.record(0, 1, time),
            Step::ProbeAnswered => machine.probed(true, time),
            Step::ProbeFailed => machine.probed(false, time),
            Step::Connected => machine.connected(time),
            Step::Disconnected => machine.disconnected(time),
            Step::Pass | Step::PassLong => machine.tick(time),
        }
        model.step(step, now);
        assert_eq!(machine.state(), model.state(), "{history:?}");
        match (machine.state(), machine.due()) {
            (BreakerState::Closed, None) => {}
            (BreakerState::Open, Some(at)) => {
                if step == Step::Connected {
                    // Not before the shortest pause has passed.
                    let earliest = Duration::from_millis(now.max(model.opened_at + 200));
                    assert!(at <= earliest, "{history:?}");
                    assert!(before == Some(at) || at == earliest, "{history:?}");
                } else if before != Some(at) {
                    let paused = at.saturating_sub(time).as_micros() as u64;
                    let least = model.present * 1_000;
                    assert!(
                        (least..=least * 3 / 2 + 1_000).contains(&paused),
                        "{history:?}: {paused}"
                    );
                }
            }
            (BreakerState::Probing, Some(at)) => assert!(at <= time, "{history:?}"),
            (BreakerState::Ramping { .. }, Some(at)) => {
                assert!(at <= time + Duration::from_millis(100), "{history:?}");
            }
            // Without a time it would stay as it is for ever.
            other => panic!("{history:?}: {other:?}"),
        }
        histories += explore(&machine, &model, now, depth - 1, history);
        history.pop();
    }
    histories
}

#[test]
fn every_history_of_seven_steps_is_what_the_model_says() {
    let machine = Machine::new(options(), 7);
    let histories = explore(&machine, &Model::default(), 0, 7, &mut Vec::new());
    assert_eq!(histories, 8_u64.pow(7));
}

#[test]
fn every_history_of_six_steps_after_a_recovery_is_what_the_model_says() {
    let (mut machine, mut model) = (Machine::new(options(), 7), Model::default());
    let mut history = Vec::new();
    for (step, now) in [
        (Step::Failed, 0),
        (Step::Failed, 100),
        (Step::ProbeAnswered, 100),
        (Step::ProbeAnswered, 100),
    ] {
        model.step(step, now);
        history.push(step);
    }
    let after = Duration::from_millis(100);
    machine.record(0, 1, Duration::ZERO);
    machine.record(0, 1, after);
    machine.probed(true, after);
    machine.probed(true, after);
    assert_eq!(machine.state(), BreakerState::Ramping { percent: 10 });
    explore(&machine, &model, 100, 6, &mut history);
}

#[test]
fn one_failure_does_not_end_a_ramp_and_a_rate_of_them_does() {
    let ms = Duration::from_millis;
    let ramping = || {
        let mut machine = Machine::new(BreakerOptions::default(), 1);
        for moment in 0..5 {
            machine.record(0, 7, ms(moment * 125));
        }
        machine.probed(true, ms(700));
        machine.probed(true, ms(700));
        assert_eq!(machine.state(), BreakerState::Ramping { percent: 10 });
        machine
    };
    let mut machine = ramping();
    machine.record(0, 3, ms(710));
    machine.record(0, 1, ms(800));
    assert_eq!(machine.state(), BreakerState::Ramping { percent: 10 });
    machine.tick(ms(850));
    machine.record(9, 1, ms(900));
    machine.tick(ms(1_000));
    assert_eq!(machine.state(), BreakerState::Closed);
    let mut machine = ramping();
    machine.record(0, 1, ms(710));
    machine.record(0, 1, ms(840));
    assert_eq!(machine.state(), BreakerState::Open);
}
