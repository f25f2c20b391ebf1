//! What the rule sets on one store have in common: the servers, the clock, the names of keys.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify, time::Instant};
use tollgate_core::{Clock, Consistency, Rule, Tick, micros, wall_clock};
use tollgate_prefilter::Engine;

use crate::{
    address::{Address, Place},
    connection::{
        breaker::BreakerState,
        cluster::router::Cluster,
        command::{Command, Script},
        error::{CallError, CallErrorKind},
        node::{AnswerFuture, Node},
        options::NodeOptions,
        resp::Value,
    },
    error::SetupError,
    keys::keyspace::{Keyspace, Partition},
    observe::{CallFor, Observer},
    script::{args::ScriptCall, reply::ScriptReply},
    store::new_key_cap::NewKeyCap,
};

/// What the rule sets on one store have in common.
pub(super) struct StoreContext {
    pub(super) backend: Backend,
    /// How long a request may wait for Redis, with all that it waits for.
    pub(super) deadline: Duration,
    pub(super) keyspace: Keyspace,
    /// How many instances share the store, for requests; 0 before Redis has replied.
    pub(super) instances: AtomicU32,
    pub(super) observer: Arc<Observer>,
    /// For servers whose scripts may not ask for the time, with how much longer states are kept.
    pub(super) clock: Option<(Clock, Duration)>,
    /// By the names of rules: how many keys this process may create for them.
    pub(super) caps: Vec<(Box<str>, Arc<NewKeyCap>)>,
    /// That of the connections, for what is sent without a request.
    pub(super) runtime: Handle,
    /// What this process decides locally.
    pub(super) engine: Arc<Engine>,
    /// The clock of the engine.
    pub(super) process_clock: Clock,
    /// Shared by what is in flight and must be processed also if no request waits for it.
    pub(super) in_flight: Arc<()>,
    /// How long Redis knows the slots of this process without hearing of them.
    pub(super) slot_term: Duration,
    /// Wakes the task that sends: something is due sooner than it expects.
    pub(super) wake: Arc<Notify>,
    /// What that task holds. It ends before the store only with its runtime.
    pub(super) sender: Weak<()>,
}

/// A service with several runtimes, or a static store in several tests.
const RUNTIME_ENDED: &str = "the tokio runtime in which the store was connected has ended, and its connection with it: connect it \
in a runtime that lasts as long as the store, or connect one in each";

impl StoreContext {
    pub(super) fn instances(&self) -> u32 {
        self.instances.load(Ordering::Relaxed)
    }

    /// The cap on the new keys of a rule.
    pub(super) fn cap(&self, rule: &Rule) -> Option<Arc<NewKeyCap>> {
        let mut caps = self.caps.iter();
        caps.find(|(name, _)| **name == *rule.name())
            .map(|(_, cap)| Arc::clone(cap))
    }

    /// Why a rule can only be exact, whatever its quota is.
    pub(super) fn exact(&self, rule: &Rule) -> Option<&'static str> {
        if matches!(rule.consistency_of(), Consistency::Eventual { .. }) && self.cap(rule).is_some()
        {
            return Some("a report of local usage would create a key beyond the cap on new keys");
        }
        match &self.keyspace.partition {
            Partition::ByRule(with) if **with != *rule.name() => Some(
                "with this partition its states are found only together with those of another rule",
            ),
            _ => None,
        }
    }

    /// An empty call, by the server's clock or by the caller's. It is `now` by the clock of this process.
    pub(super) fn new_call(&self, now: Tick) -> ScriptCall {
        match &self.clock {
            None => {
                // The wall clock may have been set since the clock of this process began with it.
                let heard = self.engine.heard_store_now(now);
                ScriptCall::by_server(heard.unwrap_or_else(wall_clock))
            }
            Some((clock, margin)) => ScriptCall::at(clock.now(), *margin),
        }
    }

    /// Sends a call for which no request waits. It is on its way when this returns, or has failed.
    pub(super) fn send_in_time(self: &Arc<Self>, call: ScriptCall, what_for: CallFor) -> SentCall {
        self.send(call, what_for, Instant::now() + self.deadline)
    }

    /// Sends a call. Late, after `by`, it is not sent, or its answer is lost.
    pub(super) fn send(
        self: &Arc<Self>,
        call: ScriptCall,
        what_for: CallFor,
        by: Instant,
    ) -> SentCall {
        let (began, checks) = (Instant::now(), call.checks());
        let is_behind_record = call.command.key_places.is_none();
        let answer = if by <= began {
            AnswerFuture::Refused(CallError::new(
                CallErrorKind::NotSent,
                "Redis was not asked: the time was gone with what was asked before",
            ))
        } else {
            self.observer.sent(what_for);
            self.ask(call.command, by)
        };
        SentCall {
            context: Arc::clone(self),
            answer,
            began,
            checks,
            is_behind_record,
        }
    }

    /// Runs a script of another kind.
    pub(super) fn run(&self, command: Command) -> AnswerFuture {
        self.ask(command, Instant::now() + self.deadline)
    }

    fn ask(&self, command: Command, by: Instant) -> AnswerFuture {
        match self.backend.send(command, by) {
            AnswerFuture::Refused(_) if self.has_runtime_ended() => {
                AnswerFuture::Refused(CallError::new(CallErrorKind::Misconfigured, RUNTIME_ENDED))
            }
            answer => answer,
        }
    }

    /// Why not every request goes to the server.
    pub(super) fn trouble(&self) -> Option<String> {
        match self.has_runtime_ended() {
            true => Some(RUNTIME_ENDED.to_owned()),
            false => self.backend.trouble(),
        }
    }

    fn has_runtime_ended(&self) -> bool {
        self.sender.strong_count() == 0
    }

    /// Runs a script that no request waits for. `None`: it has failed, and the observer knows.
    pub(super) async fn run_in_background(
        &self,
        script: &'static Script,
        keys: &[impl AsRef<[u8]> + Sync],
        args: &[&str],
    ) -> Option<Value> {
        let call = self.run(Command::new(script, keys, args));
        let answer = call.await;
        answer
            .inspect_err(|error| self.observer.background_failed(error))
            .ok()
    }

    /// Runs a task that no request waits for.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let in_flight = Arc::clone(&self.in_flight);
        // The caller may have no runtime, or one that is about to end.
        self.runtime.spawn(async move {
            task.await;
            drop(in_flight);
        });
    }
}

impl Drop for StoreContext {
    fn drop(&mut self) {
        self.wake.notify_one();
        // What has happened since the last look.
        #[cfg(feature = "metrics")]
        self.observer.engine(None, self.engine.counts());
    }
}

tollgate_core::debug_fields!(StoreContext, it => backend: it.backend);

/// A call of the script on its way: the reply, once it is there.
pub(super) struct SentCall {
    context: Arc<StoreContext>,
    pub(super) answer: AnswerFuture,
    began: Instant,
    checks: usize,
    is_behind_record: bool,
}

impl Future for SentCall {
    type Output = Result<ScriptReply, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        let reply = answer.and_then(|answer| match answer {
            Value::Integers(integers) => ScriptReply::new(self.checks, integers)
                .filter(|reply| self.is_behind_record || !reply.is_without_record())
                .ok_or_else(CallError::misunderstood),
            _ => Err(CallError::misunderstood()),
        });
        let refusal = match &reply {
            Ok(reply) => reply.first_refusal().map(CallError::of_server),
            Err(error) => Some(error.clone()),
        };
        self.context.observer.called(self.began, refusal.as_ref());
        Poll::Ready(reply)
    }
}

// The clock of this process, by which what it holds runs out.

/// A clock that goes on while the machine sleeps, where the system has one: Linux and Android. [`Clock::system`] stands still
/// meanwhile, and leases that the store has forgotten would be spent after it.
pub(super) fn process_clock() -> Clock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // The wall clock at the time of this call, and what passes from then on.
        let start = wall_clock().saturating_sub(micros(since_boot()));
        Clock::custom(move || start.saturating_add(micros(since_boot())))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        Clock::system()
    }
}

/// The time since the machine was started, with what it slept.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    // Neither is below zero, and there are fewer than 2^30 ns.
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

// One server, or a cluster of them.

/// The servers that decide.
pub(super) enum Backend {
    /// One server, or the one that sentinels name.
    One(Node),
    Cluster(Cluster),
}

impl Backend {
    /// Starts to connect. Needs a tokio runtime.
    pub(super) fn start(
        address: Address,
        mut options: NodeOptions,
        observer: &Arc<Observer>,
    ) -> Result<Self, SetupError> {
        let observer = Arc::clone(observer);
        options.events = Arc::new(move |node, event| observer.node(node, event));
        options.check(&address)?;
        if address.is_cluster {
            return Ok(Self::Cluster(Cluster::start(address, options)));
        }
        let place = || address.places.first().map(Place::to_string);
        let name = address.master.clone().or_else(place);
        options.name = name.unwrap_or_default().into();
        Ok(Self::One(Node::start(address, options)))
    }

    /// Runs a script, until the deadline. In a cluster all its keys are in one hash slot.
    pub(super) fn send(&self, command: Command, deadline: Instant) -> AnswerFuture {
        match self {
            Self::One(node) => node.send(command, deadline, false),
            Self::Cluster(cluster) => cluster.send(command, deadline),
        }
    }

    /// A hash slot of each server that decides.
    #[cfg(feature = "metrics")]
    pub(super) fn hash_slots(&self) -> Vec<u16> {
        match self {
            Self::One(_) => vec![0],
            Self::Cluster(cluster) => cluster.map().first_slots(),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether there is a connection to each server that decides.
    pub(super) fn is_connected(&self) -> bool {
        let connected = self.of_servers(Node::is_connected);
        !connected.is_empty() && connected.iter().all(|(_, is_connected)| *is_connected)
    }

    /// Why not every request goes to the server: there is no connection, or a breaker keeps requests from it.
    pub(super) fn trouble(&self) -> Option<String> {
        let mut troubles = self.of_servers(Node::trouble).into_iter();
        match self {
            Self::One(_) => troubles.find_map(|(_, trouble)| trouble),
            Self::Cluster(cluster) if troubles.len() == 0 => {
                Some(cluster.map().unassigned.to_string())
            }
            Self::Cluster(_) => {
                troubles.find_map(|(name, trouble)| Some(format!("{name}: {}", trouble?)))
            }
        }
    }

    /// The servers that decide requests, and whether requests are kept from them.
    pub(super) fn breakers(&self) -> Vec<(String, BreakerState)> {
        self.of_servers(Node::breaker)
    }

    /// The servers that decide, by name, and what is to be known of each.
    fn of_servers<T>(&self, of: impl Fn(&Node) -> T) -> Vec<(String, T)> {
        let named = |node: &Node| (node.name().to_owned(), of(node));
        match self {
            Self::One(node) => vec![named(node)],
            Self::Cluster(cluster) => {
                let primaries = &cluster.map().primaries;
                primaries.iter().map(|it| named(&it.node)).collect()
            }
        }
    }
}

tollgate_core::debug_fields!(Backend, it => servers: it.breakers());

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize},
        thread,
    };

    use tokio::{
        runtime::Builder,
        time::{sleep, timeout},
    };
    use tollgate_core::{Key, Limiter, Quota};

    use super::*;
    use crate::{
        connection::{
            stream::memory,
            supervisor::{LIFE, PROBE},
        },
        keys::keys::Keys,
        store::redis_store::RedisStore,
    };

    fn store(path: &str) -> RedisStore {
        RedisStore::builder(format!("unix://{path}"), "shop", Keys::plain())
            .without_heartbeats()
            .connect()
            .expect("a valid address and a runtime")
    }

    /// Until it is so, within a minute.
    async fn until(is_so: impl Fn() -> bool) {
        let wait = async {
            while !is_so() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(60), wait)
            .await
            .expect("it is so");
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_that_a_thread_without_a_runtime_cancels_is_settled() {
        let heard = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&heard);
        memory::play("/settled", move |words| {
            count.fetch_add(usize::from(words[0].starts_with("EVAL")), Ordering::Relaxed);
            "*4\r\n:1700000000000000\r\n:-1\r\n:99\r\n:1000\r\n".to_owned()
        });
        let store = store("/settled");
        store.connected().await;
        let rule = Rule::new("rule", Quota::fixed_window(100, Duration::from_secs(3_600)));
        let limiter = Limiter::new(store, [rule]).expect("a valid rule");
        let check = limiter.check("rule", &Key::of(["acme"])).expect("the rule");
        let decision = limiter.acquire(&[check]).await;
        assert!(decision.is_allowed(), "{decision:?}");
        let ticket = limiter.ticket(&[check], &decision);
        assert!(thread::spawn(move || ticket.cancel()).join().is_ok());
        until(|| heard.load(Ordering::Relaxed) == 2).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_request_waits_for_outlives_the_runtime_of_its_caller() {
        let shared = Arc::clone(&store("/nowhere").shared);
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let caller = thread::spawn(move || {
            let runtime = Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                shared.spawn(async move { done.store(true, Ordering::Relaxed) });
            });
        });
        assert!(caller.join().is_ok());
        until(|| is_done.load(Ordering::Relaxed)).await;
    }

    #[test]
    fn a_store_whose_runtime_has_ended_says_so_and_asks_for_another() {
        let [first, second] = [(); 2].map(|()| Builder::new_current_thread().enable_all().build());
        let (first, second) = (first.expect("a runtime"), second.expect("a runtime"));
        let store = first.block_on(async { store("/nowhere") });
        drop(first);
        let probe = Command::new(&PROBE, &["key"], &["1", LIFE]);
        let error = second.block_on(store.shared.run(probe));
        let error = error.expect_err("its connection has ended");
        assert_eq!(error.kind(), CallErrorKind::Misconfigured);
        assert_eq!(store.connection_error(), Some(error.to_string()));
        assert!(error.to_string().contains("runtime"), "{error}");
    }

    #[test]
    fn what_passes_is_what_passes_since_the_machine_was_started() {
        let clock = process_clock();
        let (outer, start, binding) = (since_boot(), clock.now(), since_boot());
        while since_boot() - binding < Duration::from_millis(2) {}
        let (least, end, most) = (since_boot() - binding, clock.now(), since_boot() - outer);
        // A microsecond may be cut off at either end.
        let passed = micros(least) - 1..=micros(most) + 1;
        assert!(
            passed.contains(&(end - start)),
            "{} µs of {passed:?}",
            end - start
        );
    }
}
