//! The one task of a node: connects, keeps the connection at work, probes, and connects anew.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use tokio::{
    select,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    address::{Address, Place},
    connection::{
        breaker::{BreakerState, Machine},
        command::{Command, Script},
        connect::Connector,
        driver::Driver,
        error::{ConnectError, ConnectErrorKind, caught, code_of},
        node::{Node, NodeState},
        options::{NodeEvent, NodeOptions, due},
        sentinel::SentinelQuery,
        stream::Stream,
    },
    credentials::Credentials,
};

impl Node {
    /// Starts to connect.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its I/O and time drivers.
    pub(crate) fn start(address: Address, options: NodeOptions) -> Self {
        let shared = NodeState::new(options);
        let why = "it is being connected";
        shared.set_missing(&ConnectError::server(why));
        let mut supervisor = JoinSet::new();
        supervisor.spawn(supervise(address, Arc::clone(&shared)));
        Self {
            shared,
            _supervisor: supervisor,
        }
    }
}

/// Runs until it is dropped, and takes the connection along.
pub(super) async fn supervise(address: Address, shared: Arc<NodeState>) {
    while caught(keep_connected(&address, &shared)).await.is_none() {
        // What was called, a receiver of events or a mistake of ours, may panic again.
        let why = "its task has panicked";
        shared.set_missing(&ConnectError::server(why));
        sleep(shared.options.longest_pause).await;
    }
}

/// The bound of the first pauses between attempts to connect. Later it is a part of the time without a connection.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);

async fn keep_connected(address: &Address, shared: &Arc<NodeState>) {
    let options = &shared.options;
    let mut backoff = Backoff::new(FIRST_PAUSE, options.longest_pause, options.seed);
    let connector = Connector::new(address.clone(), options.clone());
    let sentinels = (address.master.as_ref())
        .map(|master| Arc::new(SentinelQuery::new(address, master, options)));
    loop {
        match connect(&connector, sentinels.as_ref()).await {
            Ok(connection) => {
                let began = Instant::now();
                let (was_of_use, was_idle) = serve(connection, sentinels.as_ref(), shared).await;
                if was_of_use || was_idle || began.elapsed() > options.longest_pause {
                    backoff.reset();
                }
                if was_idle {
                    // No failure: the server takes another connection.
                    continue;
                }
            }
            Err(error) => {
                options.forget_credentials();
                options.tell(&NodeEvent::NotConnected(error.kind(), error.message()));
                shared.set_missing(&error);
            }
        }
        shared.breaker.tell(Machine::disconnected);
        sleep(backoff.next(Instant::now())).await;
    }
}

/// A connection that may carry calls.
struct Connection {
    stream: Stream,
    place: Place,
    peer: Arc<str>,
    /// What it has logged in with, where that came from a provider.
    used: Option<Credentials>,
}

/// A server that loads its data lets everybody in, and then refuses this. What else is said to it decides nothing.
pub(super) const NOTHING: [&str; 3] = ["EVAL", "return 1", "0"];

async fn connect(
    connector: &Connector,
    sentinels: Option<&Arc<SentinelQuery>>,
) -> Result<Connection, ConnectError> {
    let (address, options) = (&connector.address, &connector.options);
    let place = match (sentinels, address.places.first()) {
        (Some(sentinels), _) => sentinels.master().await?,
        (None, Some(place)) => place.clone(),
        (None, None) => return Err(ConnectError::unresolved("no server is named")),
    };
    let ready = async {
        // Not part of the time to connect in: a token service may be far away.
        let used = options.fetch_credentials().await?;
        let login = used.as_ref().map_or(&address.login, |used| &used.login);
        let within = options.connect_timeout();
        // Without `HELLO` the server does not say its role. After a fail-over sentinels may name one that is no master any more.
        let further: &[&[&str]] = match sentinels.is_some() && address.without_hello {
            true => &[&NOTHING, &["ROLE"]],
            false => &[&NOTHING],
        };
        let connected = connector.connect(&place, login, further, within).await?;
        if let Some(Err(line)) = connected.answers.first()
            && code_of(line) == "LOADING"
        {
            return Err(ConnectError::of_server(NOTHING[0], line));
        }
        if let Some(role) = connected.answers.get(1) {
            let role = role
                .as_ref()
                .map_err(|line| ConnectError::of_server("ROLE", line))?;
            if role.list().and_then(|role| role.first()?.text()) != Some("master") {
                let what = "it is not the master";
                return Err(ConnectError::new(ConnectErrorKind::NotMaster, what));
            }
        }
        Ok(Connection {
            stream: connected.handshake.finish()?,
            peer: connected.peer.into(),
            place: place.clone(),
            used,
        })
    };
    let ready: Result<Connection, ConnectError> = ready.await;
    ready.map_err(|error| error.at(format_args!("{place}")))
}

/// A connection that closes sooner after its log-in or its last call is no idle one: the server, or a proxy, serves nobody.
const LEAST_IDLE: Duration = Duration::from_secs(1);

/// Serves one connection until it is lost. Whether the server has answered a call, and whether it has closed the connection while no call
/// was on it.
async fn serve(
    connection: Connection,
    sentinels: Option<&Arc<SentinelQuery>>,
    shared: &Arc<NodeState>,
) -> (bool, bool) {
    let options = &shared.options;
    let mut driver = Driver::new(connection.stream, Arc::clone(shared));
    shared.queue.set_closed(None);
    shared.breaker.tell(Machine::connected);
    options.tell(&NodeEvent::Connected(connection.peer));
    let lost = select! {
        // What was answered counts before what is lost.
        biased;
        lost = &mut driver => lost,
        () = moved(&connection.place, sentinels, options) => {
            ConnectError::server("another server is the master now")
        }
        () = probe(shared) => ConnectError::unserved(),
        () = renew(connection.used, shared) => ConnectError::unserved(),
    };
    // While the breaker is open, no call comes.
    let is_well = shared.breaker.state() == BreakerState::Closed;
    let was_idle =
        lost.kind() == ConnectErrorKind::Tcp && is_well && driver.is_idle_for(LEAST_IDLE);
    let why = lost.message();
    shared.set_missing(&lost);
    driver.lose(lost);
    options.tell(&NodeEvent::Lost { why, was_idle });
    (driver.was_of_use, was_idle)
}

/// Ends when sentinels name another master. Where there are none, never.
async fn moved(place: &Place, sentinels: Option<&Arc<SentinelQuery>>, options: &NodeOptions) {
    let Some(sentinels) = sentinels else {
        return std::future::pending().await;
    };
    loop {
        sleep(options.sentinel_interval).await;
        // Sentinels that do not answer say nothing about the master.
        if let Ok(master) = sentinels.master().await
            && master != *place
        {
            return;
        }
    }
}

// Pauses between attempts to connect.

/// A pause is at most this part of the time for which there has been no connection, unless that is below the first bound.
const PART_OF_OUTAGE: u32 = 12;

/// Full jitter: each pause is anything from nothing to a bound that grows with the time without a server, so that many
/// processes that lost the same one do not come back at once, and none comes back late after a short outage.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    /// Since when there has been no server that is of use.
    since: Option<Instant>,
    rng: Rng,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self {
            first,
            longest,
            since: None,
            rng: Rng::with_seed(seed),
        }
    }

    /// The pause before the next attempt, at this time.
    pub(super) fn next(&mut self, now: Instant) -> Duration {
        self.bound(now).mul_f64(self.rng.f64())
    }

    /// The server was of use: the next trouble is a new one.
    pub(super) fn reset(&mut self) {
        self.since = None;
    }

    fn bound(&mut self, now: Instant) -> Duration {
        let since = *self.since.get_or_insert(now);
        let part = now.saturating_duration_since(since) / PART_OF_OUTAGE;
        part.max(self.first).min(self.longest)
    }
}

// Logging in anew while a connection is open.

/// The bounds of the pauses after credentials that did not come, or were refused.
const LEAST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Logs in anew on an open connection, whenever its credentials are about to expire. Never ends. `used` are those of the connection.
async fn renew(used: Option<Credentials>, shared: &NodeState) {
    let options = &shared.options;
    let mut backoff = Backoff::new(LEAST_WAIT, LONGEST_WAIT, options.seed);
    let mut lifetime = used.and_then(|used| used.expires_in);
    // What an instant cannot hold is for ever.
    while let Some(until) =
        lifetime.and_then(|life| Instant::now().checked_add(due(life, options.seed)))
    {
        sleep_until(until).await;
        let anew = loop {
            match log_in(shared).await {
                Ok(anew) => break anew,
                Err(why) => {
                    options.tell(&NodeEvent::NotLoggedInAnew(why.message()));
                    // A token service that fails is not to be called without end.
                    sleep(LEAST_WAIT + backoff.next(Instant::now())).await;
                }
            }
        };
        lifetime = anew.and_then(|anew| anew.expires_in);
        backoff.reset();
        options.tell(&NodeEvent::LoggedInAnew);
    }
    std::future::pending().await
}

/// From Redis 8.2 on a log-in that is refused ends the earlier one. Then the next call is refused, and a connection is made anew.
async fn log_in(shared: &NodeState) -> Result<Option<Credentials>, ConnectError> {
    let credentials = shared.options.fetch_credentials().await?;
    if let Some(command) = (credentials.as_ref()).and_then(|credentials| credentials.login.auth()) {
        let command = Arc::new(Command::of_words(&command));
        let deadline = Instant::now() + shared.options.deadline;
        let call = shared.queue.push(command, deadline, false);
        if let Err(error) = call.await {
            shared.options.forget_credentials();
            return Err(ConnectError::of_server("AUTH", &error.to_string()));
        }
    }
    Ok(credentials)
}

// Finding out whether a server that failed works again, without a request that waits for it.

/// Writes, for a replica and a server without memory answer everything else.
pub(crate) static PROBE: Script =
    Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])");

/// How long a probe's key lives, in milliseconds.
pub(crate) const LIFE: &str = "5000";

/// Probes on one connection, whenever one is due. Never ends.
async fn probe(shared: &NodeState) {
    let (breaker, options) = (&shared.breaker, &shared.options);
    loop {
        match breaker.due() {
            None => breaker.changed().await,
            Some(at) if at > Instant::now() => select! {
                () = sleep_until(at) => {}
                () = breaker.changed() => {}
            },
            Some(_) => {
                let deadline = Instant::now() + options.deadline;
                let key = options.probe_key();
                let command = Command::new(&PROBE, &[key], &["1", LIFE]);
                let call = shared.queue.push(Arc::new(command), deadline, false);
                // Closed, or full of calls from before: either way it is no answer. An error that does not weigh is about the probe's
                // key or its rights: the server works.
                let is_answered =
                    !call.is_refused() && call.await.map_or_else(|error| !error.weighs(), |_| true);
                breaker.tell(|machine, now| machine.probed(is_answered, now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::time::timeout;

    use super::*;
    use crate::connection::{
        command::{Command, Script},
        node::{AnswerFuture, Node},
        stream::memory,
    };

    type Events = Arc<Mutex<Vec<(Instant, NodeEvent)>>>;

    fn start(change: impl FnOnce(&mut NodeOptions)) -> (Node, Events) {
        let events = Events::default();
        let sink = Arc::clone(&events);
        let mut options = NodeOptions {
            seed: 7,
            events: Arc::new(move |_, event| {
                sink.lock().unwrap().push((Instant::now(), event.clone()));
            }),
            ..NodeOptions::default()
        };
        change(&mut options);
        let node = Node::start("unix:///server".parse().expect("an address"), options);
        (node, events)
    }

    fn call(node: &Node) -> AnswerFuture {
        static SCRIPT: Script = Script::new("return 1");
        node.call(Command::new(&SCRIPT, &["k"], &[""; 0]))
    }

    /// The pauses before new connections to a server that holds each for this time, in milliseconds. `is_of_use`: it answers
    /// calls meanwhile, and not by errors.
    async fn pauses(hold: Duration, is_of_use: bool) -> Vec<u128> {
        memory::listen("/server", move |stream| {
            let say = Arc::new(move |_: &[&str]| match is_of_use {
                true => ":1\r\n".to_owned(),
                false => "-LOADING Redis is loading\r\n".to_owned(),
            });
            tokio::spawn(timeout(hold, memory::serve(stream, say)));
            Ok(())
        });
        let (node, events) = start(|_| {});
        let ends = Instant::now() + Duration::from_secs(300);
        while Instant::now() < ends {
            let _ = call(&node).await;
            sleep(Duration::from_millis(100)).await;
        }
        let (mut pauses, mut lost) = (Vec::new(), None);
        for (at, event) in events.lock().unwrap().iter() {
            match event {
                NodeEvent::Lost { .. } => lost = Some(*at),
                NodeEvent::Connected(_) => {
                    pauses.extend(lost.map(|lost| (*at - lost).as_millis()));
                }
                _ => {}
            }
        }
        pauses
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_before_a_server_that_is_of_no_use_and_closes_soon() {
        for hold in [100, 4_900].map(Duration::from_millis) {
            let pauses = pauses(hold, false).await;
            let longest = pauses.iter().max();
            assert!(
                longest.is_some_and(|it| (2_000..=5_000).contains(it)),
                "{pauses:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_stay_short_before_a_server_that_is_of_use_or_closes_late() {
        for (hold, is_of_use) in [(1_000, true), (5_100, false)] {
            let pauses = pauses(Duration::from_millis(hold), is_of_use).await;
            assert!(pauses.len() > 40, "{pauses:?}");
            assert!(pauses.iter().all(|it| *it <= 51), "{pauses:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_has_panicked_says_so_and_connects_anew() {
        memory::play("/server", |_| ":1\r\n".to_owned());
        let (node, _) = start(|options| {
            let events = AtomicUsize::new(0);
            options.events = Arc::new(move |_, event| {
                let is_first = events.fetch_add(1, Ordering::Relaxed) == 0;
                assert!(!is_first, "it is a test of {event:?}");
            });
        });
        sleep(Duration::from_secs(1)).await;
        let trouble = node.trouble().expect("it is not connected");
        assert!(trouble.contains("panicked"), "{trouble}");
        sleep(Duration::from_secs(9)).await;
        assert_eq!(node.trouble(), None);
        let answer = call(&node).await;
        assert!(answer.is_ok(), "{answer:?}");
    }

    #[test]
    fn pauses_grow_with_the_outage_to_their_bound_and_begin_anew() {
        let (first, longest) = (Duration::from_millis(50), Duration::from_secs(5));
        let mut backoff = Backoff::new(first, longest, 3);
        let began = Instant::now();
        for (outage_ms, bound_ms) in [
            (0, 50),
            (500, 50),
            (1_200, 100),
            (3_000, 250),
            (12_000, 1_000),
            (60_000, 5_000),
            (600_000, 5_000),
        ] {
            let now = began + Duration::from_millis(outage_ms);
            assert_eq!(backoff.bound(now).as_millis(), bound_ms);
            assert!(backoff.next(now) <= backoff.bound(now));
        }
        backoff.reset();
        assert_eq!(backoff.bound(began + longest), first);
    }

    #[test]
    fn processes_that_lost_one_server_do_not_come_back_together() {
        let pause = |seed| {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1), seed);
            backoff.next(Instant::now())
        };
        let mut pauses: Vec<_> = (0..1_000).map(pause).collect();
        pauses.sort();
        // Fifty thousandths of a second hold about fifty of a thousand attempts.
        for from in (0..950).step_by(50) {
            let from = Duration::from_millis(from);
            let until = from + Duration::from_millis(50);
            let together = pauses
                .iter()
                .filter(|&&pause| from <= pause && pause < until)
                .count();
            assert!(together < 100, "{together} in {from:?}");
        }
    }
}
