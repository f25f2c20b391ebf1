//! The one task of a cluster: learns who has which slot, and starts and ends nodes by that.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use tokio::{select, time::sleep};

use crate::{
    address::{Address, Place, Target},
    connection::{
        cluster::{
            map::{Map, Member},
            shared::Shared,
            table::Table,
            topology::Topology,
        },
        error::{CallError, CallErrorKind},
        event::NodeEvent,
        node::Node,
        options::NodeOptions,
    },
    keys::slot::tag_in,
};

/// How often the map is learnt anew while all is well.
const REFRESH: Duration = Duration::from_secs(5);

/// The same while there is no map, or no connection to a server of the map.
const HURRY: Duration = Duration::from_millis(500);

/// Runs until it is dropped.
pub(super) async fn learn(address: Address, shared: Arc<Shared>) {
    let mut refresh = TopologyRefresh::new(address, shared);
    loop {
        let is_news = refresh.round().await;
        // However often the map turns out to be old, servers have some peace.
        let peace = if is_news {
            refresh.shared.options.first_pause
        } else {
            HURRY
        };
        sleep(refresh.jittered(peace)).await;
        let pause = if refresh.is_well() { REFRESH } else { HURRY };
        let rest = refresh.jittered(pause.saturating_sub(peace));
        select! {
            () = refresh.shared.stale.notified() => {}
            () = sleep(rest) => {}
        }
    }
}

struct TopologyRefresh {
    address: Address,
    shared: Arc<Shared>,
    topology: Topology,
    table: Option<Table>,
    rng: Rng,
}

impl TopologyRefresh {
    fn new(address: Address, shared: Arc<Shared>) -> Self {
        let options = &shared.options;
        Self {
            topology: Topology::new(address.clone(), options.clone()),
            rng: Rng::with_seed(options.seed),
            address,
            shared,
            table: None,
        }
    }

    /// Asks for the table, and makes it the map. Says whether it is another one than before.
    async fn round(&mut self) -> bool {
        let places = self.places();
        match self.topology.of(&places).await {
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
        if let Target::Cluster(seeds) = &self.address.target {
            for seed in seeds {
                if !places.contains(seed) {
                    places.push(seed.clone());
                }
            }
        }
        self.rng.shuffle(&mut places[..known]);
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
        for member in &old.members {
            if map.member(&member.place).is_none() {
                (self.shared.options.events)(&member.place.to_string(), &NodeEvent::Left);
            }
        }
    }

    fn start(&mut self, place: &Place, slot: Option<u16>) -> Option<Arc<Member>> {
        let options = self.options(place, slot);
        match Node::start(self.address.of_node(place.clone()), options) {
            Ok(node) => {
                let place = place.clone();
                Some(Arc::new(Member { place, node }))
            }
            Err(error) => {
                let why = error.to_string().into();
                self.shared.options.tell(&NodeEvent::NotLearnt(why));
                None
            }
        }
    }

    fn options(&mut self, place: &Place, slot: Option<u16>) -> NodeOptions {
        let events = Arc::clone(&self.shared.options.events);
        let stale = Arc::clone(&self.shared.stale);
        NodeOptions {
            name: place.to_string().into(),
            seed: self.rng.u64(..),
            // In a hash slot of its own the server has to write, elsewhere it only says whose it is.
            probe_tag: Some(tag_in(slot.unwrap_or(0))),
            events: Arc::new(move |node, event| {
                if let NodeEvent::Lost { .. } = event {
                    stale.notify_one();
                }
                events(node, event);
            }),
            ..self.shared.options.clone()
        }
    }

    /// Whether there is a map, and a connection to everybody in it.
    fn is_well(&self) -> bool {
        let map = self.shared.map.load();
        self.table.as_ref().is_some_and(|table| {
            table.ranges.iter().all(|range| {
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
