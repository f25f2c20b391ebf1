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
    connection::{
        cluster::{slot::SLOTS, table::Table},
        error::CallError,
        node::Node,
    },
};

/// A server of the cluster. It lasts until its last call is answered, also when the map has forgotten it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) place: Place,
    pub(super) node: Node,
}

/// The owner of each slot.
pub(super) struct Map {
    members: Vec<Arc<Member>>,
    /// For each slot the place of its owner among the members, or [`NOBODY`].
    owners: Box<[AtomicU16]>,
    nobody: CallError,
}

const NOBODY: u16 = u16::MAX;

impl Map {
    /// A map of nothing. Calls are told `nobody`.
    pub(super) fn empty(nobody: CallError) -> Self {
        Self {
            members: Vec::new(),
            owners: (0..SLOTS).map(|_| AtomicU16::new(NOBODY)).collect(),
            nobody,
        }
    }

    /// The map of a table, with `guests` that have no slots. Each server is taken from `member`, and left out where that
    /// gives none.
    pub(super) fn of(
        table: &Table,
        guests: &[Place],
        nobody: CallError,
        mut member: impl FnMut(&Place, Option<u16>) -> Option<Arc<Member>>,
    ) -> Self {
        let mut map = Self::empty(nobody);
        for range in table.ranges() {
            let owner = map
                .find(&range.primary)
                .or_else(|| map.add(member(&range.primary, Some(range.first))?));
            let owner = owner.unwrap_or(NOBODY);
            for slot in &map.owners[usize::from(range.first)..=usize::from(range.last)] {
                slot.store(owner, Ordering::Relaxed);
            }
        }
        for guest in guests {
            if map.find(guest).is_none()
                && let Some(guest) = member(guest, None)
            {
                map.add(guest);
            }
        }
        map
    }

    /// Whose slot it is.
    ///
    /// # Errors
    ///
    /// Nobody's, as far as this map knows.
    pub(super) fn owner(&self, slot: u16) -> Result<&Arc<Member>, CallError> {
        // Nothing is read on the strength of a number but members that were there before the map was shared.
        let owner = self.owners.get(usize::from(slot));
        let owner = owner.map_or(NOBODY, |owner| owner.load(Ordering::Relaxed));
        self.members
            .get(usize::from(owner))
            .ok_or_else(|| self.nobody.clone())
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

    pub(super) fn members(&self) -> &[Arc<Member>] {
        &self.members
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
        let place = place.filter(|place| *place != NOBODY)?;
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
