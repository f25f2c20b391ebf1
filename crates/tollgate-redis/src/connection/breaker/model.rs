//! Every history of a few steps, held to a model that only remembers what happened.

use std::time::Duration;

use crate::connection::breaker::machine::{BreakerSettings, BreakerState, Machine, Plan};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Answered,
    Failed,
    ProbeAnswered,
    ProbeFailed,
    Connected,
    Disconnected,
    /// One hundred milliseconds.
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
fn settings() -> BreakerSettings {
    BreakerSettings {
        consecutive: 2,
        window: Duration::from_secs(1),
        calls: 3,
        percent: 60,
        first_pause: Duration::from_millis(200),
        longest_pause: Duration::from_millis(700),
        probes: 2,
        shares: [10, 50],
        step: Duration::from_millis(100),
    }
}

/// What happened, and what follows from it by the sentences of the documentation.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Calls since it was closed: when, and whether it was answered.
    calls: Vec<(u64, bool)>,
    window: u64,
    opened: u32,
    probes: u32,
    ramp: u64,
    state: Told,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Told {
    #[default]
    Closed,
    Open,
    Ramp(u8),
}

impl Model {
    fn open(&mut self) {
        self.opened += 1;
        self.probes = 0;
        self.calls.clear();
        self.state = Told::Open;
    }

    fn call(&mut self, now: u64, answered: bool) {
        match self.state {
            Told::Closed => {
                if now >= self.window + 1_000 {
                    self.window = now;
                }
                self.calls.push((now, answered));
                let row = self.calls.iter().rev().take_while(|call| !call.1).count();
                let recent: Vec<_> = self
                    .calls
                    .iter()
                    .filter(|call| call.0 >= self.window)
                    .collect();
                let failed = recent.iter().filter(|call| !call.1).count();
                let often = recent.len() >= 3 && failed * 100 >= recent.len() * 60;
                if row >= 2 || (often && !answered) {
                    self.open();
                }
            }
            Told::Ramp(_) if !answered => self.open(),
            _ => {}
        }
    }

    fn step(&mut self, step: Step, now: u64) {
        match step {
            Step::Answered => self.call(now, true),
            Step::Failed => self.call(now, false),
            Step::Disconnected => match self.state {
                Told::Open if self.probes > 0 => self.open(),
                _ => self.call(now, false),
            },
            Step::ProbeAnswered if self.state == Told::Open => {
                self.probes += 1;
                if self.probes == 2 {
                    self.state = Told::Ramp(10);
                    self.ramp = now + 100;
                }
            }
            Step::ProbeFailed if self.state == Told::Open => self.open(),
            Step::Pass | Step::PassLong => match self.state {
                Told::Ramp(10) if now >= self.ramp => {
                    self.state = Told::Ramp(50);
                    self.ramp = now + 100;
                }
                Told::Ramp(_) if now >= self.ramp => {
                    *self = Self {
                        window: now,
                        ..Self::default()
                    };
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn state(&self) -> BreakerState {
        match self.state {
            Told::Closed => BreakerState::Closed,
            Told::Open if self.probes > 0 => BreakerState::Probing,
            Told::Open => BreakerState::Open,
            Told::Ramp(percent) => BreakerState::Ramping { percent },
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
        let before = model.opened;
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
                if model.opened > before {
                    let pause = (200 << (model.opened - 1).min(8)).min(700);
                    let paused = at.saturating_sub(time).as_millis();
                    assert!(
                        (pause / 2..=pause).contains(&paused),
                        "{history:?}: {paused}"
                    );
                }
                if step == Step::Connected {
                    assert!(at <= time, "{history:?}");
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
    let machine = Machine::new(settings(), 7);
    let histories = explore(&machine, &Model::default(), 0, 7, &mut Vec::new());
    assert_eq!(histories, 8_u64.pow(7));
}

#[test]
fn every_history_of_five_steps_after_a_recovery_is_what_the_model_says() {
    let (mut machine, mut model) = (Machine::new(settings(), 7), Model::default());
    let mut history = Vec::new();
    for step in [
        Step::Failed,
        Step::Failed,
        Step::ProbeAnswered,
        Step::ProbeAnswered,
    ] {
        model.step(step, 0);
        history.push(step);
    }
    machine.record(0, 2, Duration::ZERO);
    machine.probed(true, Duration::ZERO);
    machine.probed(true, Duration::ZERO);
    assert_eq!(machine.state(), BreakerState::Ramping { percent: 10 });
    explore(&machine, &model, 0, 5, &mut history);
}

#[test]
fn half_of_many_calls_failing_opens_it_although_others_are_answered() {
    let mut machine = Machine::new(BreakerSettings::default(), 1);
    for call in 0..19 {
        machine.record(
            u32::from(call % 2 == 0),
            u32::from(call % 2 == 1),
            Duration::ZERO,
        );
        assert_eq!(machine.state(), BreakerState::Closed);
    }
    machine.record(0, 1, Duration::ZERO);
    assert_eq!(machine.state(), BreakerState::Open);
}

#[test]
fn failures_of_an_earlier_window_are_forgotten() {
    let mut machine = Machine::new(BreakerSettings::default(), 1);
    for call in 0..200 {
        let now = Duration::from_millis(call * 150);
        machine.record(u32::from(call % 2 == 0), u32::from(call % 2 == 1), now);
        assert_eq!(machine.state(), BreakerState::Closed);
    }
}
