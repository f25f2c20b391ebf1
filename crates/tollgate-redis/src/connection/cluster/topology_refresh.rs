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
