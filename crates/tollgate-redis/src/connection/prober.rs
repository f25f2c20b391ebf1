//! Finding out whether a server that failed works again, without a request that waits for it.

use std::sync::{Arc, LazyLock};

use tokio::{
    select,
    time::{Instant, sleep_until},
};

use crate::connection::{
    breaker::{Breaker, Plan},
    call::Waiting,
    options::NodeOptions,
    queue::Queue,
    request::Request,
    script::Script,
};

/// Writes, for a replica and a server without memory answer everything else.
pub(crate) static PROBE: LazyLock<Arc<Script>> = LazyLock::new(|| {
    Arc::new(Script::new(
        "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
    ))
});

/// How long a probe's key lives, in milliseconds.
pub(crate) const LIFE: &str = "5000";

/// Probes on one connection, whenever the breaker plans one. Never ends.
pub(super) async fn probe(breaker: &Breaker, queue: &Queue, options: &NodeOptions) {
    loop {
        match breaker.plan() {
            Plan::Nothing => breaker.changed().await,
            Plan::Tick(at) => wait(breaker, at).await,
            Plan::Probe(at) if at > Instant::now() => wait(breaker, at).await,
            Plan::Probe(_) => {
                let deadline = Instant::now() + options.deadline;
                let key = options.probe_key.name();
                let (key, args) = ([key.as_bytes()], [&b"1"[..], LIFE.as_bytes()]);
                let (waiting, call) = Waiting::new(Request::new(&PROBE, &key, &args), deadline);
                if queue.push(waiting).is_err() {
                    // Closed, or full of calls from before: either way it is no answer.
                    breaker.probed(false);
                    continue;
                }
                // An error that does not weigh is about the probe's key or its rights: the server works.
                breaker.probed(call.await.map_or_else(|error| !error.weighs(), |_| true));
            }
        }
    }
}

async fn wait(breaker: &Breaker, until: Instant) {
    select! {
        () = sleep_until(until) => {}
        () = breaker.changed() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, time::Duration};

    use tokio::{task::AbortHandle, time::sleep};

    use super::*;
    use crate::connection::{
        breaker::BreakerOptions,
        breaker_state::BreakerState,
        error::{CallError, CallErrorKind},
        event::EventSink,
        value::Value,
    };

    /// A timer may be late by one of these, and so may the test.
    const TICK: Duration = Duration::from_millis(1);

    /// A breaker that one failure has opened, and its probes.
    struct Bench {
        breaker: Arc<Breaker>,
        queue: Arc<Queue>,
        deadline: Duration,
        task: AbortHandle,
    }

    impl Bench {
        fn start(options: BreakerOptions) -> Self {
            let breaker = Breaker::new(options.failures(1), 1, EventSink::default());
            let (breaker, queue) = (Arc::new(breaker), Arc::new(Queue::new(1)));
            let options = NodeOptions::default().probing_with("tests", "one");
            breaker.record(0, 1);
            let deadline = options.deadline;
            let (asked, calls) = (Arc::clone(&breaker), Arc::clone(&queue));
            let task = tokio::spawn(async move { probe(&asked, &calls, &options).await });
            Self {
                breaker,
                queue,
                deadline,
                task: task.abort_handle(),
            }
        }

        /// When the next probe is planned.
        fn planned(&self) -> Instant {
            match self.breaker.plan() {
                Plan::Probe(at) => at,
                other => panic!("{other:?}"),
            }
        }

        /// The next probe, once it is there.
        async fn probe(&self) -> Waiting {
            let mut taken = VecDeque::new();
            for _ in 0..60_000 {
                let all = (&mut taken, &mut Vec::new());
                self.queue.take(1, all, |_| false);
                match taken.pop_front() {
                    Some(probe) => return probe,
                    None => sleep(TICK).await,
                }
            }
            panic!("none is sent");
        }

        /// Lets the task see what has happened.
        async fn settle(&self) {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            self.task.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_is_sent_when_it_is_planned_and_writes_a_key_that_expires() {
        let bench = Bench::start(BreakerOptions::default());
        let planned = bench.planned();
        sleep_until(planned - 2 * TICK).await;
        assert_eq!(bench.queue.len(), 0);
        let probe = bench.probe().await;
        assert!(Instant::now() <= planned + 3 * TICK);
        let life = probe.deadline() - Instant::now();
        assert!(life <= bench.deadline && life + 2 * TICK >= bench.deadline);
        let mut bytes = Vec::new();
        Request::write_all([probe.request()].into_iter(), true, &mut bytes);
        let text = String::from_utf8(bytes).expect("it is text");
        let words: Vec<_> = text.split("\r\n").skip(2).step_by(2).collect();
        let script = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])";
        let key = "{tests}:probe:one";
        assert_eq!(words, ["EVAL", script, "1", key, "1", "5000"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_answered_counts_as_does_a_refusal_of_the_probe_itself() {
        for (line, expected) in [
            ("NOPERM no permissions", BreakerState::Probing),
            ("OOM command not allowed", BreakerState::Probing),
            ("LOADING Redis is loading", BreakerState::Open),
            ("BUSY Redis is busy", BreakerState::Open),
        ] {
            let bench = Bench::start(BreakerOptions::default());
            let error = CallError::of_server(line);
            bench.probe().await.answer(Err(error));
            bench.settle().await;
            assert_eq!(bench.breaker.state(), expected, "{line}");
        }
        let bench = Bench::start(BreakerOptions::default());
        bench.probe().await.answer(Ok(Value::Nil));
        bench.settle().await;
        assert_eq!(bench.breaker.state(), BreakerState::Probing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_cannot_be_sent_is_no_answer() {
        let full = Bench::start(BreakerOptions::default());
        let request = Request::command(&["PING"]);
        let deadline = Instant::now() + full.deadline;
        let (waiting, _call) = Waiting::new(request, deadline);
        full.queue.push(waiting).expect("there is room for one");
        let closed = Bench::start(BreakerOptions::default());
        let error = CallError::new(CallErrorKind::Unavailable, "it is lost");
        closed.queue.close(&error);
        for bench in [full, closed] {
            let first = bench.planned();
            sleep_until(first + 2 * TICK).await;
            bench.settle().await;
            assert_eq!(bench.breaker.state(), BreakerState::Open);
            assert!(bench.planned() > first);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_breaker_that_opens_on_its_way_back_is_probed_when_it_plans_that() {
        let options = BreakerOptions::default().probes(1);
        let bench = Bench::start(options.ramp(Duration::from_secs(3_600)));
        bench.probe().await.answer(Ok(Value::Nil));
        bench.settle().await;
        assert_eq!(bench.breaker.state(), BreakerState::Ramping { percent: 10 });
        bench.breaker.record(0, 1);
        assert_eq!(bench.breaker.state(), BreakerState::Open);
        let planned = bench.planned();
        bench.probe().await;
        assert!(Instant::now() <= planned + 3 * TICK);
    }
}
