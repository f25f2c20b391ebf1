//! The one task of a cluster: learns who has which slot, and starts and ends nodes by that.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use tokio::{select, time::sleep};

use crate::{
    address::{Address, Place, Target},
    connection::{
        cluster::{
            event::ClusterEvent,
            map::{Map, Member},
            shared::Shared,
            table::Table,
            topology::Topology,
        },
        connect::Connector,
        error::{CallError, CallErrorKind},
        event::{EventSink, NodeEvent},
        node::Node,
        options::NodeOptions,
    },
    keys::slot::tag_in,
};

/// Runs until it is dropped.
pub(super) async fn learn(address: Address, shared: Arc<Shared>) {
    let mut topology_refresh = TopologyRefresh::new(address, shared);
    let options = topology_refresh.shared.options.clone();
    loop {
        let is_news = topology_refresh.round().await;
        // However often the map turns out to be old, servers have some peace.
        let peace = if is_news {
            options.node.first_pause
        } else {
            options.hurry
        };
        sleep(topology_refresh.jittered(peace)).await;
        let pause = if topology_refresh.is_well() {
            options.refresh
        } else {
            options.hurry
        };
        let pause = topology_refresh.jittered(pause.saturating_sub(peace));
        select! {
            () = topology_refresh.shared.stale().notified() => {}
            () = sleep(pause) => {}
        }
    }
}

struct TopologyRefresh {
    address: Address,
    seeds: Vec<Place>,
    shared: Arc<Shared>,
    topology: Topology,
    table: Option<Table>,
    rng: Rng,
}

impl TopologyRefresh {
    fn new(address: Address, shared: Arc<Shared>) -> Self {
        let node = &shared.options.node;
        Self {
            seeds: match address.target() {
                Target::Cluster(seeds) => seeds.clone(),
                Target::Server(_) | Target::Sentinel(_) => Vec::new(),
            },
            topology: Topology {
                connector: Arc::new(Connector::new(&address, node)),
                map: node.address_map.clone(),
                credentials: node.credentials.clone(),
                address: address.clone(),
                patience: node.connect_timeout(),
                head_start: node.deadline.min(node.connect_timeout()),
            },
            rng: Rng::with_seed(node.seed),
            address,
            shared,
            table: None,
        }
    }

    /// Asks for the table, and makes it the map. Says whether it is another one than before.
    async fn round(&mut self) -> bool {
        let places = self.places();
        match self.topology.of(places).await {
            Ok(table) => {
                self.install(&table);
                let is_news = self.table.as_ref() != Some(&table);
                self.table = Some(table);
                is_news
            }
            Err(error) => {
                let message = error.message();
                let event = || ClusterEvent::NotLearnt(Arc::clone(message));
                self.shared.options.events.tell(event);
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
        let known = self.table.iter().flat_map(Table::servers);
        let mut places: Vec<_> = known.cloned().collect();
        self.rng.shuffle(&mut places);
        let known = places.len();
        for seed in &self.seeds {
            if !places.contains(seed) {
                places.push(seed.clone());
            }
        }
        self.rng.shuffle(&mut places[known..]);
        places
    }

    fn install(&mut self, table: &Table) {
        let unassigned = CallError::new(
            CallErrorKind::Unavailable,
            "no server of the cluster has the slot",
        );
        let old = self.shared.map.load_full();
        let unlisted = self.shared.unlisted();
        let map = Map::of(table, &unlisted, unassigned, |place, slot| {
            let known = old.member(place).cloned();
            known.or_else(|| self.start(place, slot))
        });
        let map = Arc::new(map);
        self.shared.map.store(Arc::clone(&map));
        for member in old.members() {
            if map.member(&member.place).is_none() {
                let event = || ClusterEvent::Left(member.place.clone());
                self.shared.options.events.tell(event);
            }
        }
    }

    fn start(&mut self, place: &Place, slot: Option<u16>) -> Option<Arc<Member>> {
        let options = self.options(place, slot);
        let events = &self.shared.options.events;
        match Node::start(self.address.of_node(place.clone()), options) {
            Ok(node) => {
                events.tell(|| ClusterEvent::Joined(place.clone()));
                let place = place.clone();
                Some(Arc::new(Member { place, node }))
            }
            Err(error) => {
                events.tell(|| ClusterEvent::NotLearnt(error.to_string().into()));
                None
            }
        }
    }

    fn options(&mut self, place: &Place, slot: Option<u16>) -> NodeOptions {
        let mut options = self.shared.options.node.clone();
        options.seed = self.rng.u64(..);
        // In a slot of its own the server has to write, elsewhere it only says whose slot it is.
        let tag = tag_in(slot.unwrap_or(0));
        options.probe_key = options.probe_key.with_tag(&tag);
        let (all, each) = (options.events, self.shared.options.events.clone());
        let (stale, place) = (Arc::clone(self.shared.stale()), place.clone());
        options.events = EventSink::new(move |event| {
            if let NodeEvent::Lost(_) = event {
                stale.notify_one();
            }
            all.tell(event);
            each.tell(|| ClusterEvent::Node(place.clone(), event.clone()));
        });
        options
    }

    /// Whether there is a map, and a connection to everybody in it.
    fn is_well(&self) -> bool {
        let map = self.shared.map.load();
        self.table.as_ref().is_some_and(|table| {
            table.ranges().iter().all(|range| {
                let member = map.member(&range.primary);
                member.is_some_and(|member| member.node.is_connected())
            })
        })
    }

    /// The time, give or take a quarter.
    fn jittered(&mut self, time: Duration) -> Duration {
        time.mul_f64(0.75 + self.rng.f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, io, sync::Mutex};

    use tokio::{runtime::Handle, time::Instant};

    use super::*;
    use crate::{
        connection::{
            cluster::{
                event::ClusterSink,
                options::ClusterOptions,
                played::{FIRST_HALF, Played, place, table},
            },
            host_resolver::HostResolver,
            stream::memory,
        },
        keys::slot::slot,
    };

    type Events<T> = Arc<Mutex<Vec<T>>>;

    /// Options for servers that are never reached, and what happens to the cluster.
    fn options() -> (ClusterOptions, Events<ClusterEvent>) {
        let events = Events::default();
        let sink = Arc::clone(&events);
        let mut options = ClusterOptions {
            events: ClusterSink::new(move |event| sink.lock().unwrap().push(event.clone())),
            ..ClusterOptions::default()
        };
        options.node.seed = 7;
        options.node.resolver = HostResolver::new(|_, _| async { Err(io::Error::other("none")) });
        (options, events)
    }

    fn refresh(options: ClusterOptions, seeds: Vec<Place>) -> TopologyRefresh {
        let address = Address::of_target(Target::Cluster(seeds));
        let shared = Shared::new(options, Handle::current());
        TopologyRefresh::new(address, Arc::new(shared))
    }

    /// A server that answers so when it is asked for its table. `ear` hears of it.
    fn play(path: &str, answer: &'static str, ear: impl Fn() + Send + Sync + 'static) -> Place {
        memory::play(path, move |words| match words {
            ["CLUSTER", "INFO"] => {
                ear();
                "-ERR unknown command\r\n".to_owned()
            }
            _ => answer.to_owned(),
        });
        Place::Unix(path.into())
    }

    const WHOLE: &str = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$2\r\ns1\r\n:1\r\n";
    const HALF: &str = "*1\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$2\r\ns1\r\n:1\r\n";
    const LOADING: &str = "-LOADING Redis is loading\r\n";

    #[tokio::test]
    async fn servers_of_the_table_are_asked_in_any_order_and_then_the_other_seeds() {
        let mut orders = HashSet::new();
        for seed in 0..64 {
            let (mut options, _) = options();
            options.node.seed = seed;
            let mut refresh = refresh(options, [1, 7, 8].map(place).into());
            refresh.table = Some(table(2));
            let places = refresh.places();
            let (known, seeds) = places.split_at(2);
            let all = |some: &[Place]| some.iter().cloned().collect::<HashSet<_>>();
            assert_eq!(all(known), [1, 2].map(place).into());
            assert_eq!(all(seeds), [7, 8].map(place).into());
            assert_eq!(places.len(), 4);
            orders.insert(places);
        }
        assert_eq!(orders.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn who_joins_and_leaves_is_reported_and_who_stays_keeps_the_connection() {
        let (options, events) = options();
        let mut refresh = refresh(options, Vec::new());
        let happened = |install: &mut dyn FnMut()| {
            events.lock().unwrap().clear();
            install();
            let events = events.lock().unwrap();
            let events = events.iter();
            let events = events.filter(|it| !matches!(it, ClusterEvent::Node(..)));
            events.cloned().collect::<Vec<_>>()
        };
        let joined = [1, 2].map(|number| ClusterEvent::Joined(place(number)));
        assert_eq!(happened(&mut || refresh.install(&table(2))), joined);
        let stays = refresh.shared.map.load().member(&place(1)).cloned();
        assert_eq!(happened(&mut || refresh.install(&table(2))), []);
        let left = [ClusterEvent::Left(place(2))];
        assert_eq!(happened(&mut || refresh.install(&table(1))), left);
        let map = refresh.shared.map.load();
        let member = map.member(&place(1));
        assert!(Arc::ptr_eq(
            member.expect("it stays"),
            &stays.expect("it was there")
        ));
        assert_eq!(map.owner(16_383).unwrap().place, place(1));
    }

    #[tokio::test]
    async fn each_node_is_probed_in_a_slot_of_its_own_and_its_events_are_those_of_all() {
        let (mut options, events) = options();
        let all = Events::default();
        let sink = Arc::clone(&all);
        options.node.events = EventSink::new(move |event| sink.lock().unwrap().push(event.clone()));
        let mut refresh = refresh(options, Vec::new());
        let second = refresh.options(&place(2), Some(FIRST_HALF as u16));
        let unlisted = refresh.options(&place(3), None);
        let slot_of = |options: &NodeOptions| slot(options.probe_key.name().as_bytes());
        assert_eq!(i64::from(slot_of(&second)), FIRST_HALF);
        assert_eq!(slot_of(&unlisted), 0);
        assert_ne!(second.seed, unlisted.seed);
        let is_stale = async || {
            let stale = refresh.shared.stale().notified();
            tokio::time::timeout(Duration::from_millis(1), stale)
                .await
                .is_ok()
        };
        let lost = NodeEvent::Lost("the server closed it".into());
        for (event, expected) in [(NodeEvent::LoggedInAnew, false), (lost, true)] {
            second.events.tell(&event);
            assert_eq!(all.lock().unwrap().pop(), Some(event.clone()));
            let of_cluster = ClusterEvent::Node(place(2), event);
            assert_eq!(events.lock().unwrap().pop(), Some(of_cluster));
            assert_eq!(is_stale().await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_is_well_with_a_connection_to_each_server_of_the_table() {
        let answer = Some(":1\r\n");
        for (primaries, answers, expected) in [
            (2, &[answer, answer][..], true),
            (2, &[answer, None], false),
            (2, &[None, answer], false),
            // The second one of the table is not in the map.
            (1, &[answer], false),
        ] {
            let played = Played::start(options().0, primaries, answers).await;
            let address = Address::of_target(Target::Cluster(Vec::new()));
            let mut refresh = TopologyRefresh::new(address, Arc::clone(&played.shared));
            assert!(!refresh.is_well());
            refresh.table = Some(table(2));
            assert_eq!(refresh.is_well(), expected, "{primaries}, {answers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_another_table_is_news_and_without_an_answer_the_old_map_holds() {
        let (options, events) = options();
        let seed = play("/seed", LOADING, || {});
        let mut refresh = refresh(options, vec![seed]);
        assert!(!refresh.round().await);
        let map = refresh.shared.map.load_full();
        let why = map.unknown().to_string();
        assert!(why.contains("/seed: CLUSTER SLOTS: LOADING"), "{why}");
        for (answer, expected) in [(HALF, true), (HALF, false), (WHOLE, true), (WHOLE, false)] {
            play("/seed", answer, || {});
            assert_eq!(refresh.round().await, expected, "{answer}");
        }
        events.lock().unwrap().clear();
        play("/seed", LOADING, || {});
        assert!(!refresh.round().await);
        let events = events.lock().unwrap();
        let failed = |event: &&ClusterEvent| matches!(event, ClusterEvent::NotLearnt(_));
        assert_eq!(events.iter().filter(failed).count(), 1);
        let map = refresh.shared.map.load_full();
        assert_eq!(map.owner(0).unwrap().place, place(1));
    }

    /// The pauses between two questions for the table while no server is connected, in milliseconds. `is_stale`: answers say
    /// all the time that the map is old.
    async fn pauses(is_stale: bool) -> Vec<u128> {
        let asked = Events::default();
        let ear = Arc::clone(&asked);
        let seed = play("/seed", WHOLE, move || {
            ear.lock().unwrap().push(Instant::now())
        });
        let address = Address::of_target(Target::Cluster(vec![seed]));
        let shared = Arc::new(Shared::new(options().0, Handle::current()));
        let task = tokio::spawn(learn(address, Arc::clone(&shared)));
        for _ in 0..10_000 {
            if is_stale {
                shared.stale().notify_one();
            }
            sleep(Duration::from_millis(1)).await;
        }
        task.abort();
        let asked = asked.lock().unwrap();
        let pauses = asked.windows(2).map(|two| (two[1] - two[0]).as_millis());
        pauses.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn while_no_server_is_connected_the_table_is_asked_for_every_half_second() {
        let pauses = pauses(false).await;
        assert!(
            pauses.iter().all(|pause| (375..=627).contains(pause)),
            "{pauses:?}"
        );
        assert!((15..=27).contains(&pauses.len()), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_map_is_learnt_anew_at_once_and_then_servers_have_some_peace() {
        let pauses = pauses(true).await;
        // The first table is news.
        assert!((37..=64).contains(&pauses[0]), "{pauses:?}");
        let later = &pauses[1..];
        assert!(
            later.iter().all(|pause| (375..=627).contains(pause)),
            "{pauses:?}"
        );
    }

    #[tokio::test]
    async fn pauses_differ_by_up_to_a_quarter() {
        let mut refresh = refresh(options().0, Vec::new());
        let second = Duration::from_secs(1);
        let times: Vec<_> = (0..1_000).map(|_| refresh.jittered(second)).collect();
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!((0.75..0.76).contains(&least.as_secs_f64()), "{least:?}");
        assert!((1.24..=1.25).contains(&most.as_secs_f64()), "{most:?}");
    }
}
