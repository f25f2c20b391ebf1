//! The one task of a cluster: learns who has which hash slot, and starts and ends nodes by that.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use tokio::{select, time::sleep};

use crate::{
    address::{Address, Place},
    connection::{
        cluster::map::{ClusterState, Map, Member, Table},
        connect::Connector,
        error::ConnectError,
        node::Node,
        options::{NodeEvent, NodeOptions},
        resp::Value,
        supervisor::FIRST_PAUSE,
    },
    keys::keyspace::hash_tag_in,
};

/// How often the map is learnt anew while all is well.
const REFRESH: Duration = Duration::from_secs(5);

/// The same while there is no map, or no connection to a server of the map.
const HURRY: Duration = Duration::from_millis(500);

/// Runs until it is dropped.
pub(super) async fn learn(address: Address, shared: Arc<ClusterState>) {
    let mut refresh = TopologyRefresh::new(address, shared);
    loop {
        let is_news = refresh.round().await;
        // However often the map turns out to be old, servers have some peace.
        let peace = if is_news { FIRST_PAUSE } else { HURRY };
        sleep(refresh.jittered(peace)).await;
        let pause = match refresh.shared.is_connected() {
            true => REFRESH,
            false => HURRY,
        };
        let rest = refresh.jittered(pause.saturating_sub(peace));
        select! {
            () = refresh.shared.stale.notified() => {}
            () = sleep(rest) => {}
        }
    }
}

struct TopologyRefresh {
    shared: Arc<ClusterState>,
    connector: Connector,
    /// How long one server may take, with the connection. The whole connect timeout once none has answered in a part of it.
    patience: Duration,
    table: Option<Table>,
    rng: Rng,
}

impl TopologyRefresh {
    fn new(address: Address, shared: Arc<ClusterState>) -> Self {
        const LEAST: Duration = Duration::from_millis(500);
        let options = shared.options.clone();
        let most = options.connect_timeout();
        Self {
            patience: (most / 4).max(LEAST).min(most),
            rng: Rng::with_seed(options.seed),
            connector: Connector::new(address, options),
            shared,
            table: None,
        }
    }

    /// Asks for the table, and makes it the map. Says whether it is another one than before.
    async fn round(&mut self) -> bool {
        let places = self.places();
        match self.query_all(&places).await {
            Ok(table) => {
                self.install(&table);
                let is_news = self.table.as_ref() != Some(&table);
                self.table = Some(table);
                is_news
            }
            Err(error) => {
                (self.shared.options).tell(&NodeEvent::NotLearnt(error.message()));
                if self.table.is_none() {
                    let map = Map::empty(error.to_call_error());
                    self.shared.map.store(Arc::new(map));
                }
                false
            }
        }
    }

    /// Who can be asked: the servers of the table in any order, so that not every process asks the same one, and then
    /// those of the address.
    fn places(&mut self) -> Vec<Place> {
        let table = self.table.as_ref();
        let mut places = table.map_or_else(Vec::new, |table| table.servers.clone());
        let known = places.len();
        for seed in &self.connector.address.places {
            if !places.contains(seed) {
                places.push(seed.clone());
            }
        }
        self.rng.shuffle(&mut places[..known]);
        self.rng.shuffle(&mut places[known..]);
        places
    }

    fn install(&mut self, table: &Table) {
        let old = self.shared.map.load_full();
        let guests = self.shared.guests();
        let map = Map::of(table, &guests, |place, hash_slot| {
            let known = old.member(place).cloned();
            known.unwrap_or_else(|| self.start(place, hash_slot))
        });
        let map = Arc::new(map);
        self.shared.map.store(Arc::clone(&map));
        for member in old.members() {
            if map.member(&member.place).is_none() {
                (self.shared.options.events)(&member.place.to_string(), &NodeEvent::Left);
            }
        }
    }

    fn start(&mut self, place: &Place, hash_slot: Option<u16>) -> Arc<Member> {
        let events = Arc::clone(&self.shared.options.events);
        let stale = Arc::clone(&self.shared.stale);
        let options = NodeOptions {
            name: place.to_string().into(),
            seed: self.rng.u64(..),
            // In a hash slot of its own the server has to write, elsewhere it only says whose it is.
            probe_tag: Some(hash_tag_in(hash_slot.unwrap_or(0))),
            events: Arc::new(move |node, event| {
                if let NodeEvent::Lost { .. } = event {
                    stale.notify_one();
                }
                events(node, event);
            }),
            ..self.shared.options.clone()
        };
        Arc::new(Member {
            node: Node::start(self.connector.address.of_node(place.clone()), options),
            place: place.clone(),
        })
    }

    /// The time, give or take a quarter.
    fn jittered(&mut self, time: Duration) -> Duration {
        time.mul_f64(0.75 + self.rng.f64() / 2.0)
    }

    // Asking servers for the table of hash slots.

    /// The table of the first server that sees the cluster work, or of any if none does. They are asked one after the other.
    async fn query_all(&mut self, places: &[Place]) -> Result<Table, ConnectError> {
        let mut second_best = Err(ConnectError::unresolved("no server of it is known"));
        for place in places {
            match self.query(place).await {
                Ok((table, true)) => return Ok(table),
                Ok((table, false)) => second_best = Ok(table),
                Err(error) => second_best = second_best.or(Err(error)),
            }
        }
        if second_best.is_err() {
            self.patience = self.shared.options.connect_timeout();
        }
        second_best
    }

    /// The table of one server, and whether it sees a cluster that works: one that was cut off from the others does not, and its
    /// table may be old.
    async fn query(&self, place: &Place) -> Result<(Table, bool), ConnectError> {
        const QUESTIONS: [&[&str]; 2] = [&["CLUSTER", "INFO"], &["CLUSTER", "SLOTS"]];
        let Connector {
            address, options, ..
        } = &self.connector;
        let answer = async {
            let used = options.known_credentials().await?;
            let login = used.as_ref().map_or(&address.login, |used| &used.login);
            let asked = (self.connector).connect(place, login, &QUESTIONS, self.patience);
            let answers = asked.await?.answers;
            let [info, hash_slots] = &answers[..] else {
                return Err(ConnectError::unresolved("it was not asked"));
            };
            // A server that keeps this to itself is believed.
            let is_in_touch =
                !matches!(info, Ok(Value::Text(info)) if info.starts_with(b"cluster_state:fail"));
            let table = match hash_slots {
                Ok(hash_slots) => Table::read(hash_slots, place, options),
                Err(line) => return Err(ConnectError::of_server("CLUSTER SLOTS", line)),
            };
            table.map(|table| (table, is_in_touch)).ok_or_else(|| {
                ConnectError::unresolved("it knows of no hash slots that anybody has")
            })
        };
        let answer: Result<_, ConnectError> = answer.await;
        answer.map_err(|error| {
            options.forget_credentials();
            error.at(format_args!("{place}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;
    use crate::{
        connection::stream::memory,
        credentials::{Credentials, CredentialsProvider},
    };

    const WORKS: &str = "$16\r\ncluster_state:ok\r\n";

    fn topology(credentials: Option<Arc<dyn CredentialsProvider>>) -> TopologyRefresh {
        let address = "redis-cluster://127.0.0.1:1".parse();
        let address: Address = address.expect("an address");
        let options = NodeOptions {
            credentials,
            ..NodeOptions::default()
        };
        let state = ClusterState::new(options);
        TopologyRefresh::new(address, Arc::new(state))
    }

    /// A server at this path with these answers. In its table all hash slots are with the server at port `owner`.
    fn play(path: &str, info: &'static str, owner: &'static str) -> Place {
        memory::play(path, move |words| match words {
            ["CLUSTER", "INFO"] => info.to_owned(),
            _ if owner.starts_with('-') => owner.to_owned(),
            _ if owner.is_empty() => String::new(),
            _ => format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:{owner}\r\n"),
        });
        Place::Unix(path.into())
    }

    /// The port of the owner in the table that is believed, or why none is; and how long it took.
    async fn of(topology: &mut TopologyRefresh, places: &[&Place]) -> (Result<u16, String>, u128) {
        let began = Instant::now();
        let places: Vec<_> = places.iter().map(|place| (*place).clone()).collect();
        let table = topology
            .query_all(&places)
            .await
            .map_err(|error| error.message().to_string());
        let owner = table.map(|table| match table.ranges[0].1 {
            Place::Tcp(_, port) => port,
            Place::Unix(_) => 0,
        });
        (owner, began.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_dawdles_has_half_a_second_until_none_has_answered() {
        let (silent, other) = (play("/silent", "", ""), play("/other", WORKS, "2"));
        let mut topology = topology(None);
        let answer = of(&mut topology, &[&silent, &other]).await;
        assert_eq!(answer, (Ok(2), 500));
        for (took, within) in [(500, "500ms"), (2_000, "2s")] {
            let answer = of(&mut topology, &[&silent]).await;
            let why = format!("/silent: not ready within {within}");
            assert_eq!(answer, (Err(why), took));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_are_asked_for_again_where_a_server_has_not_answered() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let mut topology = topology(Some(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                let credentials = Credentials::new("limits", "sesame");
                Ok::<_, std::io::Error>(credentials.expires_in(Duration::from_secs(3_600)))
            }
        })));
        let works = play("/works", WORKS, "1");
        let refuses = play("/refuses", WORKS, "-NOPERM no permissions\r\n");
        for (place, expected) in [(&works, 1), (&works, 1), (&refuses, 1), (&works, 2)] {
            let _ = topology.query_all(std::slice::from_ref(place)).await;
            assert_eq!(asked.load(Ordering::Relaxed), expected, "{place}");
        }
        // A server's connection has asked for new ones, or was refused.
        let of_server = topology.shared.options.clone();
        of_server.fetch_credentials().await.expect("they are given");
        for expected in [3, 4] {
            let _ = topology.query_all(std::slice::from_ref(&works)).await;
            assert_eq!(asked.load(Ordering::Relaxed), expected);
            of_server.forget_credentials();
        }
    }
}
