//! Each step of a history: the algorithm says what the oracle says.

use std::time::Duration;

use tollgate_core::{
    AlgorithmKind, Quota, Retry, Tick,
    algorithm::{Algorithm, Assessment},
};

use crate::{
    history::{Request, for_each_algorithm, property, quota, requests, requests_back, start},
    oracle::{Oracle, assess, left},
};

for_each_algorithm! {
    each_answer_is_the_oracles_while_time_stands_and_goes_ahead => time_ahead;
    each_answer_is_the_oracles_while_time_goes_back => time_back;
}

fn time_ahead<O: Oracle>(kind: AlgorithmKind) {
    property(
        60,
        &(quota(kind), start(), requests(50)),
        |(quota, start, requests)| {
            Run::<O>::new(quota, start).all(requests);
            Ok(())
        },
    );
}

fn time_back<O: Oracle>(kind: AlgorithmKind) {
    property(
        60,
        &(quota(kind), start(), requests_back(50)),
        |(quota, start, requests)| {
            Run::<O>::new(quota, start).all(requests);
            Ok(())
        },
    );
}

/// An algorithm and its oracle on their way through one history.
pub(crate) struct Run<O: Oracle> {
    pub(crate) quota: Quota,
    pub(crate) algorithm: O::Algorithm,
    pub(crate) state: <O::Algorithm as Algorithm>::State,
    pub(crate) oracle: O,
    pub(crate) now: Tick,
    retry: Tick,
}

impl<O: Oracle> Run<O> {
    pub(crate) fn new(quota: Quota, now: Tick) -> Self {
        Self {
            quota,
            algorithm: O::Algorithm::new(&quota).expect("a valid quota of this algorithm"),
            state: Default::default(),
            oracle: O::new(&quota),
            now,
            retry: now,
        }
    }

    pub(crate) fn all(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            let cost = self.moved(request);
            let answer = self.compared(cost);
            self.nothing_for_nothing();
            self.deny_bound_agrees(cost);
            if answer.fits {
                self.taken(cost, answer);
            } else {
                self.denied(cost, answer);
            }
            self.fresh();
        }
    }

    /// Moves the time; then the cost of the request.
    pub(crate) fn moved(&mut self, request: Request) -> u64 {
        let period = self.quota.period().as_micros() as u64;
        self.now = request.step.from(self.now, period, self.retry);
        let left = self.algorithm.assess(&self.state, self.now, 0).remaining;
        request.cost.of(self.quota.limit(), left)
    }

    /// Decides and writes, on both sides.
    pub(crate) fn decide(&mut self, cost: u64) -> Assessment {
        let answer = self.algorithm.assess(&self.state, self.now, cost);
        if answer.fits {
            self.algorithm.take(&mut self.state, self.now, cost);
            self.oracle.take(self.now, cost);
        } else {
            self.algorithm.repair(&mut self.state, self.now);
            self.oracle.repair(self.now);
        }
        if let Retry::After(wait) = answer.retry {
            self.retry = self.now + wait.as_micros() as u64;
        }
        answer
    }

    fn compared(&self, cost: u64) -> Assessment {
        let answer = self.algorithm.assess(&self.state, self.now, cost);
        let limit = self.quota.limit();
        let exact = assess(&self.oracle, limit, self.now, cost);
        let slack = self.oracle.slack();
        if slack == 0 {
            assert_eq!(
                answer, exact,
                "{:?} asked for {cost} at {}",
                self.quota, self.now
            );
            return answer;
        }
        // Rounded against the client, by no more than the slack.
        if answer.fits == exact.fits {
            assert_eq!(answer.reset_after, exact.reset_after);
            assert!(
                (answer.remaining..=answer.remaining + slack).contains(&exact.remaining),
                "{answer:?} is not {exact:?}"
            );
            assert!(
                delay(answer) >= delay(exact),
                "{answer:?} is before {exact:?}"
            );
        } else {
            assert!(
                exact.fits && exact.remaining < slack,
                "{answer:?} is not {exact:?}"
            );
        }
        answer
    }

    fn nothing_for_nothing(&self) {
        let answer = self.algorithm.assess(&self.state, self.now, 0);
        assert!(answer.fits);
        assert_eq!(answer.retry == Retry::Now, answer.remaining > 0);
        let mut after = self.state.clone();
        self.algorithm.take(&mut after, self.now, 0);
        assert_eq!(after, self.state, "a cost of 0 takes nothing");
        let never = self
            .algorithm
            .assess(&self.state, self.now, self.quota.limit() + 1);
        assert_eq!((never.fits, never.retry), (false, Retry::Never));
    }

    fn taken(&mut self, cost: u64, answer: Assessment) {
        self.decide(cost);
        let after = self.algorithm.assess(&self.state, self.now, 0);
        assert_eq!(after.remaining, answer.remaining);
        if cost > 0 {
            assert_eq!(after.reset_after, answer.reset_after);
            assert_eq!(
                self.algorithm.fresh_at(&self.state),
                self.now + answer.reset_after
            );
            self.fits_again(cost, answer);
        }
    }

    /// What was taken fits again when it was said to, for one client alone, and not a tick before.
    fn fits_again(&self, cost: u64, answer: Assessment) {
        let fits = |at| self.algorithm.assess(&self.state, at, cost).fits;
        match answer.retry {
            Retry::Now => assert!(fits(self.now)),
            Retry::After(wait) => {
                let at = self.now + wait.as_micros() as u64;
                assert!(
                    fits(at) && !fits(at - 1),
                    "{:?}: {cost} at {}, {answer:?}",
                    self.quota,
                    self.now
                );
            }
            other => panic!("{other:?} is no answer to what was taken"),
        }
    }

    fn denied(&mut self, cost: u64, answer: Assessment) {
        let before = self.state.clone();
        let (algorithm, limit) = (&self.algorithm, self.quota.limit());
        let had = left(&self.oracle, limit, self.now, 0);
        let peeked = algorithm.assess(&before, self.now, 0);
        self.decide(cost);
        let (algorithm, now) = (&self.algorithm, self.now);
        // A denial takes nothing and gives nothing, not even where it repairs.
        let after = algorithm.assess(&self.state, now, 0);
        assert_eq!(
            (after.remaining, after.reset_after),
            (answer.remaining, answer.reset_after)
        );
        assert!(after.remaining <= peeked.remaining && after.remaining <= had);
        let mut again = self.state.clone();
        algorithm.repair(&mut again, now);
        assert_eq!(again, self.state, "there is nothing to repair twice");
        assert_eq!(algorithm.assess(&self.state, now, cost), answer);
        match answer.retry {
            Retry::After(wait) => {
                let wait = wait.as_micros() as u64;
                assert!(wait > 0, "to try again at once is no answer");
                assert!(algorithm.assess(&self.state, now + wait, cost).fits);
                assert!(!algorithm.assess(&self.state, now + wait - 1, cost).fits);
            }
            Retry::Never => assert!(cost > limit),
            other => panic!("{other:?} is no answer to a denial"),
        }
    }

    /// A deny bound says what the state says, or nothing: for all costs, later and earlier.
    fn deny_bound_agrees(&self, cost: u64) {
        let Some(bound) = self.algorithm.deny_bound(&self.state, self.now) else {
            return;
        };
        let reset = self.algorithm.fresh_at(&self.state);
        let period = self.quota.period().as_micros() as u64;
        for now in [
            self.now,
            self.now + 1,
            self.now + period / 3,
            self.now + period,
            self.retry.saturating_sub(1),
            self.retry,
            reset.saturating_sub(1),
            reset,
            self.now.saturating_sub(1),
            self.now.saturating_sub(period / 60),
            self.now.saturating_sub(period),
            self.now / 2,
        ] {
            for cost in [0, 1, 2, cost, self.quota.limit(), self.quota.limit() + 1] {
                if let Some(answer) = self.algorithm.deny_by(bound, now, cost) {
                    assert!(!answer.fits);
                    assert_eq!(answer, self.algorithm.assess(&self.state, now, cost));
                }
            }
        }
    }

    /// The state equals the fresh one from `fresh_at` on, and not a tick before.
    fn fresh(&self) {
        let at = self.algorithm.fresh_at(&self.state);
        let fresh = Default::default();
        for now in [at, at + 1, at * 2] {
            for cost in [0, 1, self.quota.limit(), u64::MAX] {
                assert_eq!(
                    self.algorithm.assess(&self.state, now, cost),
                    self.algorithm.assess(&fresh, now, cost),
                );
            }
        }
        if let Some(before) = at.checked_sub(1) {
            let answer = self.algorithm.assess(&self.state, before, 0);
            assert!(
                answer.remaining < self.quota.limit(),
                "{answer:?} is fresh before {at}"
            );
        }
    }
}

fn delay(answer: Assessment) -> Duration {
    answer.retry.delay().unwrap_or(Duration::MAX)
}
