//! Who has which hash slot, for requests.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{runtime::Handle, sync::Notify, time::Instant};

use crate::{
    address::Place,
    connection::{
        cluster::table::Table,
        error::{CallError, CallErrorKind},
        node::Node,
        options::NodeOptions,
    },
    keys::hash_slot::HASH_SLOTS,
    lock::lock,
};

/// A server of the cluster. It lasts until its last call is answered, also when the map has forgotten it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) place: Place,
    pub(super) node: Node,
}

/// The owner of each hash slot.
pub(super) struct Map {
    /// Those that have hash slots, and behind them the unlisted ones.
    pub(super) members: Vec<Arc<Member>>,
    primaries: usize,
    /// For each hash slot the place of its owner among the members, or [`UNLISTED`].
    owners: Box<[AtomicU16]>,
    /// Why a hash slot has no owner here.
    pub(super) unassigned: CallError,
}

const UNLISTED: u16 = u16::MAX;

impl Map {
    /// A map of nothing. Calls fail with `unassigned`.
    pub(super) fn empty(unassigned: CallError) -> Self {
        Self {
            members: Vec::new(),
            primaries: 0,
            owners: (0..HASH_SLOTS).map(|_| AtomicU16::new(UNLISTED)).collect(),
            unassigned,
        }
    }

    /// The map of a table, with `unlisted` servers that have no hash slots. Each server is taken from `member`, and left out where that
    /// gives none.
    pub(super) fn of(
        table: &Table,
        unlisted: &[Place],
        unassigned: CallError,
        mut member: impl FnMut(&Place, Option<u16>) -> Option<Arc<Member>>,
    ) -> Self {
        let mut map = Self::empty(unassigned);
        for range in &table.ranges {
            let owner = (map.find(&range.primary))
                .or_else(|| map.add(member(&range.primary, Some(range.first))?))
                .unwrap_or(UNLISTED);
            for hash_slot in &map.owners[usize::from(range.first)..=usize::from(range.last)] {
                hash_slot.store(owner, Ordering::Relaxed);
            }
        }
        map.primaries = map.members.len();
        for place in unlisted {
            if map.find(place).is_none()
                && let Some(unlisted) = member(place, None)
            {
                map.add(unlisted);
            }
        }
        map
    }

    /// Whose hash slot it is.
    ///
    /// # Errors
    ///
    /// This map knows no server for it.
    pub(super) fn owner(&self, hash_slot: u16) -> Result<&Arc<Member>, CallError> {
        // Nothing is read on the strength of a number but members that were there before the map was shared.
        let owner = (self.owners.get(usize::from(hash_slot)))
            .map_or(UNLISTED, |owner| owner.load(Ordering::Relaxed));
        let member = self.members.get(usize::from(owner));
        member.ok_or_else(|| self.unassigned.clone())
    }

    /// Makes the server at `place` the owner of a hash slot, if it is a member.
    pub(super) fn correct(&self, hash_slot: u16, place: &Place) -> Option<&Arc<Member>> {
        let owner = self.find(place)?;
        if let Some(hash_slot) = self.owners.get(usize::from(hash_slot)) {
            hash_slot.store(owner, Ordering::Relaxed);
        }
        self.members.get(usize::from(owner))
    }

    pub(super) fn member(&self, place: &Place) -> Option<&Arc<Member>> {
        self.members.iter().find(|member| member.place == *place)
    }

    /// The members that have hash slots by the table. A guest may be gone for good by now.
    pub(super) fn primaries(&self) -> &[Arc<Member>] {
        &self.members[..self.primaries]
    }

    /// The first hash slot of each server that has hash slots.
    #[cfg(feature = "metrics")]
    pub(super) fn first_slots(&self) -> Vec<u16> {
        let mut seen = vec![false; self.members.len()];
        let owners = (0..).zip(&self.owners);
        let first = owners.filter(|(_, owner)| {
            let owner = usize::from(owner.load(Ordering::Relaxed));
            let is_seen = seen.get_mut(owner);
            is_seen.is_some_and(|is_seen| !std::mem::replace(is_seen, true))
        });
        first.map(|(hash_slot, _)| hash_slot).collect()
    }

    fn find(&self, place: &Place) -> Option<u16> {
        let mut members = self.members.iter();
        u16::try_from(members.position(|member| member.place == *place)?).ok()
    }

    fn add(&mut self, member: Arc<Member>) -> Option<u16> {
        let count = u16::try_from(self.members.len()).ok();
        let place = count.filter(|place| *place != UNLISTED)?;
        self.members.push(member);
        Some(place)
    }
}

// What requests and the topology refresh of a cluster share.

/// The state of a cluster.
pub(super) struct ClusterState {
    pub(super) map: ArcSwap<Map>,
    pub(super) options: NodeOptions,
    /// So that a call finds a timer wherever it is polled.
    pub(super) runtime: Handle,
    /// A notice here starts a topology refresh.
    pub(super) stale: Arc<Notify>,
    named: Mutex<HashMap<Place, Instant>>,
}

/// How long a server that no map knows is kept after another one has redirected a call to it.
const WELCOME: Duration = Duration::from_secs(30);
/// More of them are not remembered.
const MOST_NAMED: usize = 1_000;

impl ClusterState {
    pub(super) fn new(options: NodeOptions, runtime: Handle) -> Self {
        let unknown = CallError::new(
            CallErrorKind::Unavailable,
            "not connected to Redis: the servers of the cluster are not known yet",
        );
        Self {
            map: ArcSwap::from_pointee(Map::empty(unknown)),
            options,
            runtime,
            stale: Arc::new(Notify::new()),
            named: Mutex::new(HashMap::new()),
        }
    }

    /// The member at `place`, which a server sent a call to. If it is not known yet it will be.
    pub(super) fn named(&self, place: &Place) -> Option<Arc<Member>> {
        let known = self.map.load().member(place).cloned();
        let mut named = lock(&self.named);
        if named.len() < MOST_NAMED || named.contains_key(place) {
            named.insert(place.clone(), Instant::now());
        }
        drop(named);
        if known.is_none() {
            self.stale.notify_one();
        }
        known
    }

    /// The servers that were named of late.
    pub(super) fn unlisted(&self) -> Vec<Place> {
        let mut named = lock(&self.named);
        named.retain(|_, at| at.elapsed() < WELCOME);
        named.keys().cloned().collect()
    }
}
