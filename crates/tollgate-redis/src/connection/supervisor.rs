//! The one task of a node: connects, keeps the connection at work, and connects anew.

use std::sync::Arc;

use tokio::{
    select,
    time::{Instant, sleep, timeout},
};

use crate::{
    address::{Address, Place, Target},
    connection::{
        backoff::Backoff,
        caught::caught,
        connect::{Connector, is_master},
        connect_error::{ConnectError, ConnectErrorKind},
        driver::{Driver, Lost},
        event::NodeEvent,
        link::Shared,
        peer::Peer,
        prober::probe,
        queue::Queue,
        renewal::Renewal,
        sentinel::Resolver,
        stream::Stream,
    },
    credentials::Credentials,
};

/// Runs until it is dropped, and takes the connection along.
pub(super) async fn supervise(address: Address, shared: Arc<Shared>) {
    while caught(keep_connected(&address, &shared)).await.is_none() {
        // What was called, a receiver of events or a mistake of ours, may panic again.
        let why = "its task has panicked";
        shared.set_missing(&ConnectError::new(ConnectErrorKind::Server, why));
        sleep(shared.options().longest_pause).await;
    }
}

async fn keep_connected(address: &Address, shared: &Shared) {
    let options = shared.options();
    let mut backoff = Backoff::new(options.first_pause, options.longest_pause, options.seed);
    let connector = Connector::new(address, options);
    let resolver = match address.target() {
        Target::Server(_) | Target::Cluster(_) => None,
        Target::Sentinel(sentinels) => Some(Resolver::new(
            sentinels.clone(),
            address.sentinel_access(sentinels),
            options.connect_timeout() / 2,
            Connector::new(address, options),
            options.address_map.clone(),
        )),
    };
    loop {
        match connect_within(address, &connector, resolver.as_ref(), shared).await {
            Ok((stream, peer, used)) => {
                let began = Instant::now();
                let renewal = Renewal {
                    connector: &connector,
                    place: &peer.place,
                    access: address.access(),
                    options,
                };
                let renewal = (renewal, used);
                let was_of_use = serve(stream, &peer, renewal, resolver.as_ref(), shared).await;
                if was_of_use || began.elapsed() > options.longest_pause {
                    backoff.reset();
                }
            }
            Err(error) => {
                options.credentials.forget();
                let why = Arc::clone(error.message());
                let event = NodeEvent::NotConnected(error.kind(), why);
                shared.events().tell(&event);
                shared.set_missing(&error);
            }
        }
        shared.breaker().disconnected();
        sleep(backoff.next(Instant::now())).await;
    }
}

async fn connect_within(
    address: &Address,
    connector: &Connector,
    resolver: Option<&Resolver>,
    shared: &Shared,
) -> Result<(Stream, Arc<Peer>, Option<Credentials>), ConnectError> {
    let patience = shared.options().connect_timeout();
    let credentials = &shared.options().credentials;
    let in_time = |place: Place, verify| async move {
        // Not part of the time to connect in: a token service may be far away.
        let (access, used) = match credentials.access(address.access()).await {
            Ok(access) => access,
            Err(error) => return Err(error.at(format_args!("{place}"))),
        };
        let further = match verify {
            true => vec![vec!["ROLE"]],
            false => Vec::new(),
        };
        let ready = async {
            let connected = connector.connect(&place, &access, &further).await?;
            if verify && !is_master(connected.answers.first())? {
                let what = "it is not the master";
                return Err(ConnectError::new(ConnectErrorKind::NotMaster, what));
            }
            Ok((
                connected.handshake.finish()?,
                Arc::new(connected.peer),
                used,
            ))
        };
        match timeout(patience, ready).await {
            Ok(ready) => ready.map_err(|error| error.at(format_args!("{place}"))),
            Err(_) => Err(ConnectError::new(
                ConnectErrorKind::Timeout,
                format!("{place}: not ready within {patience:?}"),
            )),
        }
    };
    let unresolved = |what: &str| ConnectError::new(ConnectErrorKind::Unresolved, what);
    match (address.target(), resolver) {
        (Target::Server(place), _) => in_time(place.clone(), false).await,
        (Target::Sentinel(_), Some(resolver)) => in_time(resolver.resolve().await?, true).await,
        (Target::Sentinel(_), None) => Err(unresolved("there are no sentinels")),
        (Target::Cluster(_), _) => Err(unresolved("a cluster is no server")),
    }
}

/// Serves one connection until it is lost. Says whether the server was of use.
async fn serve(
    stream: Stream,
    peer: &Arc<Peer>,
    (renewal, used): (Renewal<'_>, Option<Credentials>),
    resolver: Option<&Resolver>,
    shared: &Shared,
) -> bool {
    let options = shared.options();
    let queue = Arc::new(Queue::new(options.waiting));
    let mut driver = Driver::new(
        stream,
        Arc::clone(&queue),
        Arc::clone(shared.breaker()),
        options,
    );
    shared.set_connected(Arc::clone(&queue));
    shared.breaker().connected();
    let event = NodeEvent::Connected(Arc::clone(peer));
    shared.events().tell(&event);
    let lost = select! {
        // What was answered counts before what is lost.
        biased;
        lost = &mut driver => lost,
        () = moved(&peer.place, resolver, shared) => Lost::Moved,
        () = probe(shared.breaker(), &queue, options) => Lost::Dropped,
        () = renewal.run(used, &queue) => Lost::Dropped,
    };
    driver.lose(lost.clone());
    let why: Arc<str> = lost.to_string().into();
    shared.set_missing(&ConnectError::new(
        ConnectErrorKind::Server,
        Arc::clone(&why),
    ));
    shared.events().tell(&NodeEvent::Lost(why));
    driver.was_of_use()
}

/// Ends when sentinels name another master. Where there are none, never.
async fn moved(place: &Place, resolver: Option<&Resolver>, shared: &Shared) {
    let Some(resolver) = resolver else {
        return std::future::pending().await;
    };
    loop {
        sleep(shared.options().sentinel_interval).await;
        // Sentinels that do not answer say nothing about the master.
        if let Ok(master) = resolver.resolve().await
            && master != *place
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        io,
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use tollgate_core::{Pending, Step};

    use super::*;
    use crate::{
        address::{Login, Sentinels},
        connection::{
            breaker_state::BreakerState, event::EventSink, log_in::CredentialsSource, node::Node,
            options::NodeOptions, request::Request, script::Script, stream::memory,
        },
        credentials::CredentialsProvider,
    };

    type Events = Arc<Mutex<Vec<(Instant, NodeEvent)>>>;

    fn start(target: Target, change: impl FnOnce(&mut NodeOptions)) -> (Node, Events) {
        let events = Events::default();
        let sink = Arc::clone(&events);
        let mut options = NodeOptions {
            seed: 7,
            events: EventSink::new(move |event| {
                sink.lock().unwrap().push((Instant::now(), event.clone()));
            }),
            ..NodeOptions::default()
        };
        change(&mut options);
        let node = Node::start(Address::of_target(target), options).expect("an address");
        (node, events)
    }

    fn server() -> Target {
        Target::Server(Place::Unix("/server".into()))
    }

    /// Waits for an event that `wanted` finds something in: when it happened, and that.
    async fn first<T>(events: &Events, wanted: impl Fn(&NodeEvent) -> Option<T>) -> (Instant, T) {
        let found = async {
            loop {
                let found = {
                    let events = events.lock().unwrap();
                    events
                        .iter()
                        .find_map(|(at, event)| Some((*at, wanted(event)?)))
                };
                match found {
                    Some(found) => return found,
                    None => sleep(Duration::from_millis(1)).await,
                }
            }
        };
        let found = timeout(Duration::from_secs(60), found).await;
        found.expect("it happens")
    }

    /// The first attempt that failed: after how long, and why.
    async fn failure(events: &Events) -> (Duration, ConnectErrorKind, String) {
        let began = Instant::now();
        let (at, (kind, why)) = first(events, |event| match event {
            NodeEvent::NotConnected(kind, why) => Some((*kind, why.to_string())),
            _ => None,
        })
        .await;
        (at - began, kind, why)
    }

    /// The pauses before new connections to a server that holds each for this time, in milliseconds. `is_of_use`: it answers
    /// calls meanwhile, and not by errors.
    async fn pauses(hold: Duration, is_of_use: bool) -> Vec<u128> {
        memory::listen("/server", move |stream| {
            let say = move |_: &[&str]| match is_of_use {
                true => ":1\r\n".to_owned(),
                false => "-LOADING Redis is loading\r\n".to_owned(),
            };
            let say = Arc::new(say);
            tokio::spawn(timeout(hold, memory::serve(stream, say)));
            Ok(())
        });
        let (node, events) = start(server(), |_| {});
        let script = Arc::new(Script::new("return 1"));
        let ends = Instant::now() + Duration::from_secs(300);
        while Instant::now() < ends {
            let _ = node.call(Request::new(&script, &["k"], &[])).await;
            sleep(Duration::from_millis(100)).await;
        }
        let (mut pauses, mut lost) = (Vec::new(), None);
        for (at, event) in events.lock().unwrap().iter() {
            match event {
                NodeEvent::Lost(_) => lost = Some(*at),
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
    async fn a_server_that_is_silent_at_the_log_in_is_left_in_time() {
        let held = Mutex::new(Vec::new());
        memory::listen("/server", move |stream| {
            held.lock().unwrap().push(stream);
            Ok(())
        });
        let (node, events) = start(server(), |_| {});
        let (after, kind, why) = failure(&events).await;
        assert_eq!(
            (after, kind),
            (Duration::from_secs(2), ConnectErrorKind::Timeout)
        );
        assert_eq!(why, "/server: not ready within 2s");
        let trouble = node.trouble().expect("there is no connection");
        assert!(trouble.contains("not ready within 2s"), "{trouble}");
    }

    #[tokio::test(start_paused = true)]
    async fn why_there_is_no_connection_names_the_server() {
        memory::listen("/server", |_| Err(io::ErrorKind::ConnectionRefused.into()));
        let (_node, events) = start(server(), |_| {});
        let (_, kind, why) = failure(&events).await;
        assert_eq!(kind, ConnectErrorKind::Tcp);
        assert!(why.starts_with("/server: "), "{why}");
        let (_node, events) = start(server(), |options| {
            let none = || async { Err(io::Error::other("the vault is sealed")) };
            options.credentials = CredentialsSource::new(none);
        });
        let (_, kind, why) = failure(&events).await;
        assert_eq!(kind, ConnectErrorKind::Credentials);
        assert_eq!(why, "/server: no credentials: the vault is sealed");
    }

    /// Panics when it is asked for the time with this number, and the first time that it is to say when others replace these.
    struct Panics {
        at: usize,
        asked: AtomicUsize,
        watched: AtomicUsize,
    }

    impl CredentialsProvider for Panics {
        fn credentials(&self) -> Step<Result<Credentials, Box<dyn Error + Send + Sync>>> {
            let number = self.asked.fetch_add(1, Ordering::Relaxed);
            assert!(number != self.at, "it is a test");
            let credentials = Credentials::new("limits", "sesame");
            Step::Ready(Ok(credentials.expires_in(Duration::from_secs(100))))
        }

        fn replaced(&self, _: &Credentials) -> Step<()> {
            let number = self.watched.fetch_add(1, Ordering::Relaxed);
            Step::Wait(Pending::new(async move {
                assert!(number > 0, "it is a test");
                std::future::pending().await
            }))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_panics_has_given_no_credentials_and_is_asked_again() {
        memory::play("/server", |_| ":1\r\n".to_owned());
        for at in [0, 1] {
            let (node, events) = start(server(), |options| {
                options.credentials = CredentialsSource::new(Panics {
                    at,
                    asked: AtomicUsize::new(0),
                    watched: AtomicUsize::new(0),
                });
            });
            sleep(Duration::from_secs(150)).await;
            let why = "no credentials: the provider has panicked";
            let happened = |wanted: &dyn Fn(&NodeEvent) -> bool| {
                let events = events.lock().unwrap();
                events.iter().filter(|(_, event)| wanted(event)).count()
            };
            let expected = match at {
                // That of `replaced` is an event, and not the end of it.
                0 => (1, 1),
                _ => (0, 2),
            };
            let not_connected = happened(&|event| {
                let why = format!("/server: {why}").into();
                *event == NodeEvent::NotConnected(ConnectErrorKind::Credentials, why)
            });
            let not_anew = happened(&|event| *event == NodeEvent::NotLoggedInAnew(why.into()));
            assert_eq!((not_connected, not_anew), expected);
            assert!(happened(&|event| *event == NodeEvent::LoggedInAnew) > 0);
            let script = Arc::new(Script::new("return 1"));
            let answer = node.call(Request::new(&script, &["k"], &[])).await;
            assert!(answer.is_ok(), "{answer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_has_panicked_says_so_and_connects_anew() {
        memory::play("/server", |_| ":1\r\n".to_owned());
        let (node, _) = start(server(), |options| {
            let events = AtomicUsize::new(0);
            options.events = EventSink::new(move |event| {
                let is_first = events.fetch_add(1, Ordering::Relaxed) == 0;
                assert!(!is_first, "it is a test of {event:?}");
            });
        });
        sleep(Duration::from_secs(1)).await;
        let trouble = node.trouble().expect("it is not connected");
        assert!(trouble.contains("panicked"), "{trouble}");
        sleep(Duration::from_secs(9)).await;
        assert_eq!(node.trouble(), None);
        let script = Arc::new(Script::new("return 1"));
        let answer = node.call(Request::new(&script, &["k"], &[])).await;
        assert!(answer.is_ok(), "{answer:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_provider_gave_is_forgotten_where_no_connection_can_be_made() {
        memory::listen("/server", |_| Err(io::ErrorKind::ConnectionRefused.into()));
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let source = CredentialsSource::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                let credentials = Credentials::new("limits", "sesame");
                Ok::<_, io::Error>(credentials.expires_in(Duration::from_secs(3_600)))
            }
        });
        let given = source.clone();
        let (_node, events) = start(server(), |options| options.credentials = given);
        failure(&events).await;
        let before = asked.load(Ordering::Relaxed);
        let access = source
            .brief_access(Address::of_target(server()).access())
            .await;
        assert!(access.is_ok());
        assert_eq!(asked.load(Ordering::Relaxed), before + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn sentinels_have_half_of_the_time_to_connect_in() {
        memory::play("/sentinel", |_| String::new());
        let sentinels = Sentinels {
            places: vec![Place::Unix("/sentinel".into())],
            master: "mymaster".to_owned(),
            login: Login::default(),
        };
        let (_node, events) = start(Target::Sentinel(sentinels), |_| {});
        let (after, kind, _) = failure(&events).await;
        assert_eq!(
            (after, kind),
            (Duration::from_secs(1), ConnectErrorKind::Timeout)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_that_fail_open_the_breaker() {
        memory::listen("/server", |_| Err(io::ErrorKind::ConnectionRefused.into()));
        let (node, _) = start(server(), |_| {});
        sleep(Duration::from_secs(60)).await;
        assert_eq!(node.breaker(), BreakerState::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn a_breaker_that_is_open_asks_a_new_connection_as_soon_as_it_may() {
        const PAUSE: Duration = Duration::from_secs(60);
        for seed in 0..4 {
            let began = Instant::now();
            memory::listen("/server", move |stream| {
                if began.elapsed() < PAUSE - Duration::from_secs(10) {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let say = Arc::new(|_: &[&str]| ":1\r\n".to_owned());
                tokio::spawn(memory::serve(stream, say));
                Ok(())
            });
            let (_node, events) = start(server(), |options| {
                options.seed = seed;
                let breaker = options.breaker.clone();
                options.breaker = breaker.pause(PAUSE).longest_pause(2 * PAUSE);
            });
            sleep(3 * PAUSE).await;
            let at = |state| {
                let events = events.lock().unwrap();
                let mut events = events.iter();
                let found = events.find(
                    |(_, event)| matches!(event, NodeEvent::Breaker { to, .. } if *to == state),
                );
                found.map(|(at, _)| *at).expect("it was there")
            };
            let after = at(BreakerState::Probing) - at(BreakerState::Open);
            // Timers count milliseconds.
            assert!(
                after >= PAUSE && after <= PAUSE + Duration::from_millis(2),
                "{after:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_lost_is_missing_from_then_on() {
        let held = Mutex::new(Vec::new());
        memory::listen("/server", move |stream| {
            let mut held = held.lock().unwrap();
            if held.is_empty() {
                held.push(None);
                let say = Arc::new(|_: &[&str]| ":1\r\n".to_owned());
                tokio::spawn(timeout(Duration::from_secs(1), memory::serve(stream, say)));
            } else {
                // It is accepted, and the log-in is not answered.
                held.push(Some(stream));
            }
            Ok(())
        });
        let (node, events) = start(server(), |_| {});
        first(&events, |event| {
            matches!(event, NodeEvent::Connected(_)).then_some(())
        })
        .await;
        assert!(node.is_connected());
        assert_eq!(node.trouble(), None);
        first(&events, |event| {
            matches!(event, NodeEvent::Lost(_)).then_some(())
        })
        .await;
        assert!(!node.is_connected());
        let trouble = node.trouble().expect("it is lost");
        assert!(trouble.contains("the server closed it"), "{trouble}");
    }
}
