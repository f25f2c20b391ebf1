//! Every history of a few steps, held to a model that only remembers what happened.

use std::time::Duration;

use crate::connection::{
    breaker::{
        machine::{Machine, Plan},
        options::BreakerOptions,
    },
    breaker_state::BreakerState,
};

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
        let row = self.calls.iter().rev().take_while(|call| !call.1);
        let mut row: Vec<_> = row.map(|call| call.0).collect();
        row.reverse();
        let row = moments(row.into_iter()).len();
        let is_recent = |at: u64| at / 100 + 8 >= now / 100;
        let recent = self.calls.iter().filter(|call| is_recent(call.0)).count();
        let failed = self.calls.iter().filter(|call| !call.1);
        let failed: Vec<_> = failed.map(|call| call.0).collect();
        let recently_failed = failed.iter().filter(|at| is_recent(**at)).count();
        let moments = moments(failed.into_iter());
        let moments = moments.into_iter().filter(|at| is_recent(*at)).count();
        let is_rate = moments >= 2 && recently_failed * 100 >= recent * 60;
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
        let before = machine.plan();
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
        match (machine.state(), machine.plan()) {
            (BreakerState::Closed, Plan::Nothing) => {}
            (BreakerState::Open, Plan::Probe(at)) => {
                if step == Step::Connected {
                    // Not before the shortest pause has passed.
                    let earliest = Duration::from_millis(now.max(model.opened_at + 200));
                    assert!(at <= earliest, "{history:?}");
                    assert!(before == Plan::Probe(at) || at == earliest, "{history:?}");
                } else if before != Plan::Probe(at) {
                    let paused = at.saturating_sub(time).as_micros() as u64;
                    let least = model.present * 1_000;
                    assert!(
                        (least..=least * 3 / 2 + 1_000).contains(&paused),
                        "{history:?}: {paused}"
                    );
                }
            }
            (BreakerState::Probing, Plan::Probe(at)) => assert!(at <= time, "{history:?}"),
            (BreakerState::Ramping { .. }, Plan::Tick(at)) => {
                assert!(at <= time + Duration::from_millis(100), "{history:?}");
            }
            // Without a plan it would stay as it is for ever.
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

/// As usual, but one failure is enough.
fn one_failure() -> BreakerOptions {
    BreakerOptions {
        failures: 1,
        ..BreakerOptions::default()
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn failures_of_one_moment_count_once_however_many_they_are() {
    let mut machine = Machine::new(BreakerOptions::default(), 1);
    for moment in 0..4 {
        for call in 0..100 {
            machine.record(0, 7, ms(moment * 125 + call));
            assert_eq!(machine.state(), BreakerState::Closed);
        }
    }
    machine.record(0, 1, ms(500));
    assert_eq!(machine.state(), BreakerState::Open);
}

#[test]
fn one_failure_does_not_end_a_ramp_and_a_rate_of_them_does() {
    let ramping = || {
        let mut machine = Machine::new(one_failure(), 1);
        machine.record(0, 1, ms(0));
        machine.probed(true, ms(200));
        machine.probed(true, ms(200));
        machine.options = BreakerOptions::default();
        assert_eq!(machine.state(), BreakerState::Ramping { percent: 10 });
        machine
    };
    let mut machine = ramping();
    machine.record(0, 3, ms(210));
    machine.record(0, 1, ms(300));
    assert_eq!(machine.state(), BreakerState::Ramping { percent: 10 });
    machine.tick(ms(350));
    machine.record(9, 1, ms(400));
    machine.tick(ms(500));
    assert_eq!(machine.state(), BreakerState::Closed);
    let mut machine = ramping();
    machine.record(0, 1, ms(210));
    machine.record(0, 1, ms(340));
    assert_eq!(machine.state(), BreakerState::Open);
}
