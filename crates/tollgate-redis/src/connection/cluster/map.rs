//! Who has which slot, for requests.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use crate::{
    address::Place,
    connection::{cluster::table::Table, error::CallError, node::Node},
    keys::slot::SLOTS,
};

/// A server of the cluster. It lasts until its last call is answered, also when the map has forgotten it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) place: Place,
    pub(super) node: Node,
}

/// The owner of each slot.
pub(super) struct Map {
    /// Those that have slots, and behind them the unlisted ones.
    members: Vec<Arc<Member>>,
    primaries: usize,
    /// For each slot the place of its owner among the members, or [`UNASSIGNED`].
    owners: Box<[AtomicU16]>,
    unassigned: CallError,
}

const UNLISTED: u16 = u16::MAX;

impl Map {
    /// A map of nothing. Calls fail with `unassigned`.
    pub(super) fn empty(unassigned: CallError) -> Self {
        Self {
            members: Vec::new(),
            primaries: 0,
            owners: (0..SLOTS).map(|_| AtomicU16::new(UNLISTED)).collect(),
            unassigned,
        }
    }

    /// The map of a table, with `unlisted` servers that have no slots. Each server is taken from `member`, and left out where that
    /// gives none.
    pub(super) fn of(
        table: &Table,
        unlisted: &[Place],
        unassigned: CallError,
        mut member: impl FnMut(&Place, Option<u16>) -> Option<Arc<Member>>,
    ) -> Self {
        let mut map = Self::empty(unassigned);
        for range in table.ranges() {
            let owner = map
                .find(&range.primary)
                .or_else(|| map.add(member(&range.primary, Some(range.first))?));
            let owner = owner.unwrap_or(UNLISTED);
            for slot in &map.owners[usize::from(range.first)..=usize::from(range.last)] {
                slot.store(owner, Ordering::Relaxed);
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

    /// Whose slot it is.
    ///
    /// # Errors
    ///
    /// This map knows no server for it.
    pub(super) fn owner(&self, slot: u16) -> Result<&Arc<Member>, CallError> {
        // Nothing is read on the strength of a number but members that were there before the map was shared.
        let owner = self.owners.get(usize::from(slot));
        let owner = owner.map_or(UNLISTED, |owner| owner.load(Ordering::Relaxed));
        self.members
            .get(usize::from(owner))
            .ok_or_else(|| self.unassigned.clone())
    }

    /// Why a slot has no owner here.
    pub(super) fn unknown(&self) -> &CallError {
        &self.unassigned
    }

    /// Makes the server at `place` the owner of a slot, if it is a member.
    pub(super) fn correct(&self, slot: u16, place: &Place) -> Option<&Arc<Member>> {
        let owner = self.find(place)?;
        if let Some(slot) = self.owners.get(usize::from(slot)) {
            slot.store(owner, Ordering::Relaxed);
        }
        self.members.get(usize::from(owner))
    }

    pub(super) fn member(&self, place: &Place) -> Option<&Arc<Member>> {
        self.members.iter().find(|member| member.place == *place)
    }

    /// Primaries and unlisted servers.
    pub(super) fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// The members that have slots by the table. A guest may be gone for good by now.
    pub(super) fn primaries(&self) -> &[Arc<Member>] {
        &self.members[..self.primaries]
    }

    /// The first slot of each server that has slots.
    #[cfg(feature = "metrics")]
    pub(super) fn first_slots(&self) -> Vec<u16> {
        let mut seen = vec![false; self.members.len()];
        let owners = (0..).zip(&self.owners);
        let first = owners.filter(|(_, owner)| {
            let owner = usize::from(owner.load(Ordering::Relaxed));
            let is_seen = seen.get_mut(owner);
            is_seen.is_some_and(|is_seen| !std::mem::replace(is_seen, true))
        });
        first.map(|(slot, _)| slot).collect()
    }

    fn find(&self, place: &Place) -> Option<u16> {
        let place = self
            .members
            .iter()
            .position(|member| member.place == *place);
        place.and_then(|place| u16::try_from(place).ok())
    }

    fn add(&mut self, member: Arc<Member>) -> Option<u16> {
        let place = u16::try_from(self.members.len()).ok();
        let place = place.filter(|place| *place != UNLISTED)?;
        self.members.push(member);
        Some(place)
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        address::Address,
        connection::{
            address_map::AddressMap, error::CallErrorKind, options::NodeOptions,
            resp::decoder::Decoder,
        },
    };

    fn tcp(port: u16) -> Place {
        Place::Tcp("127.0.0.1".into(), port)
    }

    fn unassigned() -> CallError {
        CallError::new(CallErrorKind::Unavailable, "no server has it")
    }

    /// The table of these ranges: their ends, and the port of their primary.
    fn table(ranges: &[(u16, u16, u16)]) -> Table {
        let mut answer = format!("*{}\r\n", ranges.len());
        for (first, last, port) in ranges {
            let server = format!("*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid\r\n");
            answer += &format!("*3\r\n:{first}\r\n:{last}\r\n{server}");
        }
        let mut decoder = Decoder::default();
        let Ok(Some((answer, _))) = decoder.decode(answer.as_bytes()) else {
            panic!("it is an answer");
        };
        let answer = answer.into_value().unwrap();
        Table::read(&answer, &tcp(1), &AddressMap::default()).unwrap()
    }

    fn member(place: &Place) -> Arc<Member> {
        let address = Address::parse("redis-cluster://127.0.0.1:1").unwrap();
        let node = Node::start(address.of_node(place.clone()), NodeOptions::default());
        let (place, node) = (place.clone(), node.unwrap());
        Arc::new(Member { place, node })
    }

    fn places(members: &[Arc<Member>]) -> Vec<Place> {
        members.iter().map(|member| member.place.clone()).collect()
    }

    #[tokio::test]
    async fn a_server_that_a_call_was_sent_to_is_a_member_and_no_primary() {
        let table = table(&[(0, 16_383, 1)]);
        let map = Map::of(&table, &[tcp(1), tcp(2)], unassigned(), |place, _| {
            Some(member(place))
        });
        assert_eq!(places(map.members()), [tcp(1), tcp(2)]);
        // Once it is gone for good, no error may say for half a minute that the cluster has failed.
        assert_eq!(places(map.primaries()), [tcp(1)]);
    }

    #[tokio::test]
    async fn a_server_with_several_ranges_is_one_member_that_begins_with_the_first() {
        let table = table(&[(5, 9, 1), (10, 19, 2), (20, 29, 1)]);
        let mut begun = Vec::new();
        let map = Map::of(&table, &[tcp(3)], unassigned(), |place, slot| {
            begun.push((place.clone(), slot));
            Some(member(place))
        });
        let slots = [(tcp(1), Some(5)), (tcp(2), Some(10)), (tcp(3), None)];
        assert_eq!(begun, slots);
        assert_eq!(places(map.primaries()), [tcp(1), tcp(2)]);
        for (slot, port) in [(5, 1), (9, 1), (10, 2), (19, 2), (20, 1), (29, 1)] {
            assert_eq!(map.owner(slot).unwrap().place, tcp(port), "slot {slot}");
        }
        for slot in [0, 4, 30, 16_383, u16::MAX] {
            let error = map.owner(slot).unwrap_err().to_string();
            assert!(error.contains("no server has it"), "slot {slot}: {error}");
        }
        #[cfg(feature = "metrics")]
        assert_eq!(map.first_slots(), [5, 10]);
    }

    #[tokio::test]
    async fn a_slot_whose_server_cannot_be_started_has_none() {
        let table = table(&[(0, 9, 1), (10, 19, 2)]);
        let map = Map::of(&table, &[], unassigned(), |place, _| {
            (*place == tcp(2)).then(|| member(place))
        });
        assert!(map.owner(0).is_err());
        assert_eq!(map.owner(10).unwrap().place, tcp(2));
        assert_eq!(places(map.primaries()), [tcp(2)]);
    }

    #[tokio::test]
    async fn a_slot_that_has_moved_is_from_then_on_with_the_member_that_has_it() {
        let table = table(&[(0, 9, 1), (10, 19, 2)]);
        let map = Map::of(&table, &[tcp(3)], unassigned(), |place, _| {
            Some(member(place))
        });
        for port in [2, 3] {
            let owner = map.correct(5, &tcp(port)).expect("it is a member");
            assert_eq!(owner.place, tcp(port));
            assert_eq!(map.owner(5).unwrap().place, tcp(port));
        }
        assert!(map.correct(6, &tcp(4)).is_none());
        let others = [4, 6, 10].map(|slot| map.owner(slot).unwrap().place.clone());
        assert_eq!(others, [tcp(1), tcp(1), tcp(2)]);
    }
}
