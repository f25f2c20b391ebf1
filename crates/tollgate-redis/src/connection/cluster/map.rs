//! Who has which hash slot: as a server says it in `CLUSTER SLOTS`, and as requests look it up.

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{sync::Notify, time::Instant};
use tollgate_core::sync::{Mutex, lock};

use crate::{
    address::Place,
    connection::{
        error::{CallError, CallErrorKind},
        node::Node,
        options::{NodeOptions, Resent},
        resp::Value,
    },
    keys::keyspace::HASH_SLOTS,
};

/// A server of the cluster. It lasts until its last call is answered, also when the map has forgotten it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(super) place: Place,
    pub(crate) node: Node,
}

/// The owner of each hash slot.
pub(crate) struct Map {
    /// For each hash slot the number of its owner among the members, or [`NOBODY`]. `MOVED` changes one at once.
    owners: Box<[AtomicU16]>,
    /// The servers that have hash slots by the table.
    pub(crate) primaries: Vec<Arc<Member>>,
    /// Others that a server has named. They may be gone for good by now.
    guests: Vec<Arc<Member>>,
    /// Why a hash slot has no owner here.
    pub(crate) unassigned: CallError,
}

const NOBODY: u16 = u16::MAX;

impl Map {
    /// A map of nothing. Calls fail with `unassigned`.
    pub(super) fn empty(unassigned: CallError) -> Self {
        Self {
            owners: (0..HASH_SLOTS).map(|_| AtomicU16::new(NOBODY)).collect(),
            primaries: Vec::new(),
            guests: Vec::new(),
            unassigned,
        }
    }

    /// The map of a table, with `guests` that have no hash slots. Each server is taken from `member`, by its place and its first hash
    /// slot.
    pub(super) fn of(
        table: &Table,
        guests: &[Place],
        mut member: impl FnMut(&Place, Option<u16>) -> Arc<Member>,
    ) -> Self {
        let mut map = Self::empty(CallError::new(
            CallErrorKind::Unavailable,
            "no server of the cluster has the hash slot",
        ));
        for (hash_slots, primary) in &table.ranges {
            if map.member(primary).is_none() {
                map.primaries
                    .push(member(primary, Some(*hash_slots.start())));
            }
            let owner = map.number(primary).unwrap_or(NOBODY);
            for hash_slot in hash_slots.clone() {
                map.owners[usize::from(hash_slot)].store(owner, Ordering::Relaxed);
            }
        }
        let others = guests.iter().filter(|place| map.member(place).is_none());
        map.guests = others.map(|place| member(place, None)).collect();
        map
    }

    /// Whose hash slot it is.
    ///
    /// # Errors
    ///
    /// This map knows no server for it.
    pub(super) fn owner(&self, hash_slot: u16) -> Result<&Arc<Member>, CallError> {
        let number = self.owners[usize::from(hash_slot)].load(Ordering::Relaxed);
        let owner = self.members().nth(usize::from(number));
        owner.ok_or_else(|| self.unassigned.clone())
    }

    /// Makes the server at `place` the owner of a hash slot, if it is a member.
    fn correct(&self, hash_slot: u16, place: &Place) {
        if let Some(owner) = self.number(place) {
            self.owners[usize::from(hash_slot)].store(owner, Ordering::Relaxed);
        }
    }

    /// All servers.
    pub(super) fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.primaries.iter().chain(&self.guests)
    }

    fn number(&self, place: &Place) -> Option<u16> {
        let number = self.members().position(|member| member.place == *place);
        u16::try_from(number?).ok()
    }

    pub(super) fn member(&self, place: &Place) -> Option<&Arc<Member>> {
        self.members().find(|member| member.place == *place)
    }

    /// The first hash slot of each server that has hash slots.
    #[cfg(feature = "metrics")]
    pub(crate) fn first_slots(&self) -> Vec<u16> {
        let mut seen = vec![false; self.members().count()];
        let first = (0..).zip(&self.owners).filter(|(_, owner)| {
            let seen = seen.get_mut(usize::from(owner.load(Ordering::Relaxed)));
            seen.is_some_and(|seen| !std::mem::replace(seen, true))
        });
        first.map(|(hash_slot, _)| hash_slot).collect()
    }
}

// What requests and the topology refresh of a cluster share.

/// The state of a cluster.
pub(super) struct ClusterState {
    pub(super) map: ArcSwap<Map>,
    pub(super) options: NodeOptions,
    /// A notice here starts a topology refresh.
    pub(super) stale: Arc<Notify>,
    named: Mutex<HashMap<Place, Instant>>,
}

/// How long a server that no map knows is kept after another one has redirected a call to it.
const WELCOME: Duration = Duration::from_secs(30);
/// More of them are not remembered.
const MOST_NAMED: usize = 1_000;

impl ClusterState {
    pub(super) fn new(options: NodeOptions) -> Self {
        let unknown = CallError::new(
            CallErrorKind::Unavailable,
            "not connected to Redis: the servers of the cluster are not known yet",
        );
        Self {
            map: ArcSwap::from_pointee(Map::empty(unknown)),
            options,
            stale: Arc::new(Notify::new()),
            named: Mutex::new(HashMap::new()),
        }
    }

    /// Whether the map is known, and there is a connection to every server in it that has hash slots.
    pub(super) fn is_connected(&self) -> bool {
        let primaries = &self.map.load().primaries;
        !primaries.is_empty() && primaries.iter().all(|it| it.node.is_connected())
    }

    /// The member at `place`, which a server sent a call to. If it is not known yet it will be. It has the hash slot that has `moved`
    /// there from now on, until the next table.
    pub(super) fn named(&self, place: &Place, moved: Option<u16>) -> Option<Arc<Member>> {
        let map = self.map.load();
        if let Some(hash_slot) = moved {
            map.correct(hash_slot, place);
        }
        let known = map.member(place).cloned();
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
    pub(super) fn guests(&self) -> Vec<Place> {
        let mut named = lock(&self.named);
        named.retain(|_, at| at.elapsed() < WELCOME);
        named.keys().cloned().collect()
    }
}

// Reading `CLUSTER SLOTS`.

/// Who has which hash slots, as one server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Hash slots in a row, and their primary.
    pub(super) ranges: Vec<(RangeInclusive<u16>, Place)>,
    /// Primaries and replicas: all that can be asked for the table.
    pub(super) servers: Vec<Place>,
}

impl Table {
    /// Reads the answer of the server at `from`. `None` if it cannot be read, or no hash slot has a server.
    ///
    /// What cannot be read in part, such as a server without a name yet, is left out.
    pub(super) fn read(answer: &Value, from: &Place, options: &NodeOptions) -> Option<Self> {
        let (mut ranges, mut servers) = (Vec::new(), Vec::new());
        for entry in answer.list()? {
            let [Value::Integer(first), Value::Integer(last), members @ ..] = entry.list()? else {
                return None;
            };
            let hash_slots = number(*first)?..=number(*last)?;
            if hash_slots.is_empty() {
                return None;
            }
            let mut places = members
                .iter()
                .map(|it| server(it, from, options))
                .peekable();
            if let Some(Some(primary)) = places.peek().cloned() {
                ranges.push((hash_slots, primary));
            }
            for place in places.flatten() {
                if !servers.contains(&place) {
                    servers.push(place);
                }
            }
        }
        (!ranges.is_empty()).then_some(Self { ranges, servers })
    }
}

fn number(hash_slot: i64) -> Option<u16> {
    u16::try_from(hash_slot)
        .ok()
        .filter(|hash_slot| usize::from(*hash_slot) < HASH_SLOTS)
}

/// `[host, port, id, what else is known]`. The host may be absent, and the last is names and values, alternating, or not there.
fn server(member: &Value, from: &Place, options: &NodeOptions) -> Option<Place> {
    let [host, Value::Integer(port), rest @ ..] = member.list()? else {
        return None;
    };
    let port = u16::try_from(*port).ok().filter(|port| *port != 0)?;
    let host = match host {
        Value::Nil => "",
        host => host.text()?,
    };
    // One that has no name yet has a number.
    let ip = || rest.get(1)?.text_of("ip").filter(|ip| !ip.is_empty());
    let host = named(host, from).or_else(|| ip().map(str::to_owned))?;
    Some(options.mapped(host, port))
}

// `MOVED` and `ASK`: the server did not run a call and says who would.

/// Where a call should go instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    /// By `ASK`, the hash slot is on its way there, and what this call is about has arrived already or is new. By `MOVED` it belongs there.
    pub(super) why: Resent,
    /// `None` if the server that said so does not know its name.
    pub(super) place: Option<Place>,
}

impl Redirect {
    /// Reads `MOVED 3999 127.0.0.1:6381`, which the server `from` answered.
    pub(super) fn of(error: &CallError, from: &Place, options: &NodeOptions) -> Option<Self> {
        let mut words = error.line().split(' ');
        let why = match words.next()? {
            "MOVED" => Resent::Moved,
            "ASK" => Resent::AskRedirect,
            _ => return None,
        };
        words.next()?.parse::<u16>().ok()?;
        let place = place(words.next()?, from, options);
        Some(Self { why, place })
    }
}

/// The last colon ends the host, also that of an IPv6 address. No host is the host of `from`.
fn place(text: &str, from: &Place, options: &NodeOptions) -> Option<Place> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    named(host.trim_matches(['[', ']']), from).map(|host| options.mapped(host, port))
}

/// What a server of a cluster means by a host: nothing is the one that it was asked at, `?` that it does not know.
fn named(host: &str, from: &Place) -> Option<String> {
    match (host, from) {
        ("", Place::Tcp(asked, _)) => Some(asked.clone()),
        ("" | "?", _) => None,
        (host, _) => Some(host.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::resp::decode;

    fn read(answer: &str) -> Option<Table> {
        let answer = answer.split(' ').collect::<Vec<_>>().join("\r\n") + "\r\n";
        let reply = decode(answer.as_bytes());
        let Ok(Some((value, _))) = reply else {
            panic!("{answer:?} is no answer");
        };
        Table::read(&value, &tcp("asked", 7000), &NodeOptions::default())
    }

    fn tcp(host: &str, port: u16) -> Place {
        Place::Tcp(host.into(), port)
    }

    #[test]
    fn a_server_with_several_ranges_is_asked_once() {
        let (a, b) = ("*3 $1 a :7000 $2 id", "*3 $1 b :7001 $2 id");
        let answer = format!("*3 *4 :0 :1 {a} {b} *4 :2 :2 {b} {a} *3 :3 :4 {a}");
        let table = read(&answer).unwrap();
        assert_eq!(table.servers, [tcp("a", 7000), tcp("b", 7001)]);
        let ranges: Vec<_> = table.ranges.into_iter().map(|it| it.0).collect();
        assert_eq!(ranges, [0..=1, 2..=2, 3..=4]);
    }

    #[test]
    fn a_server_without_a_host_is_where_it_was_asked() {
        for host in ["$-1", "$0 "] {
            let table = read(&format!("*1 *3 :0 :1 *3 {host} :7001 $2 id")).unwrap();
            assert_eq!(table.ranges[0].1, tcp("asked", 7001), "{host}");
        }
    }

    #[test]
    fn a_server_without_a_name_is_found_by_its_number_or_left_out() {
        for known in ["*2 $2 ip $3 ::2", "*4 $8 hostname $1 b $2 ip $3 ::2"] {
            let table = read(&format!("*1 *3 :0 :1 *4 $1 ? :7001 $2 id {known}")).unwrap();
            assert_eq!(table.ranges[0].1, tcp("::2", 7001), "{known}");
        }
        let table = read("*2 *3 :0 :1 *3 $1 ? :7001 $2 id *3 :2 :3 *3 $1 a :7002 $2 id").unwrap();
        assert_eq!(table.ranges.len(), 1);
        assert_eq!(table.servers, [tcp("a", 7002)]);
    }

    #[tokio::test]
    async fn a_hash_slot_is_with_the_last_server_that_it_is_said_to_be_with() {
        let (a, b) = ("*3 $1 a :7000 $2 id", "*3 $1 b :7001 $2 id");
        let table = read(&format!("*2 *3 :0 :9 {a} *3 :2 :4 {b}")).unwrap();
        let state = ClusterState::new(NodeOptions::default());
        let map = Map::of(&table, &[tcp("c", 7002)], |place, _| {
            let address = "unix:///nobody".parse().unwrap();
            let (place, node) = (place.clone(), Node::start(address, NodeOptions::default()));
            Arc::new(Member { place, node })
        });
        state.map.store(Arc::new(map));
        let owners =
            || [1, 2, 4, 5, 10].map(|it| Some(state.map.load().owner(it).ok()?.place.clone()));
        let [a, b, c] =
            [("a", 7000), ("b", 7001), ("c", 7002)].map(|(host, port)| Some(tcp(host, port)));
        assert_eq!(owners(), [a.clone(), b.clone(), b.clone(), a.clone(), None]);
        assert!(state.named(&tcp("c", 7002), Some(4)).is_some());
        assert!(state.named(&tcp("d", 7003), Some(5)).is_none());
        assert!(state.named(&tcp("b", 7001), None).is_some());
        assert_eq!(owners(), [a.clone(), b, c, a, None]);
    }

    #[test]
    fn no_slots_and_nonsense_are_no_table() {
        for answer in [
            "*0",
            ":1",
            "*1 *2 :0 :1",
            "*1 *3 :0 :16384 *3 $1 a :7001 $2 id",
            "*1 *3 :-1 :1 *3 $1 a :7001 $2 id",
            "*1 *3 :2 :1 *3 $1 a :7001 $2 id",
            "*1 *3 :0 :1 *3 $1 a :70000 $2 id",
            "*1 *3 :0 :1 *4 $1 ? :7001 $2 id *2 $2 ip $0 ",
            "*1 *3 :0 :1 *4 $1 ? :7001 $2 id *2 $8 hostname $1 b",
        ] {
            assert_eq!(read(answer), None, "{answer}");
        }
    }

    fn redirect(line: &str) -> Option<Redirect> {
        let from = Place::Tcp("asked".into(), 7000);
        Redirect::of(&CallError::of_server(line), &from, &NodeOptions::default())
    }

    #[test]
    fn the_place_is_read_in_all_its_forms() {
        let to = |why, place| Some(Redirect { why, place });
        let moved = |place| to(Resent::Moved, place);
        assert_eq!(
            redirect("MOVED 3999 127.0.0.1:6381"),
            moved(Some(tcp("127.0.0.1", 6381)))
        );
        assert_eq!(redirect("MOVED 1 ::1:6381"), moved(Some(tcp("::1", 6381))));
        assert_eq!(
            redirect("MOVED 1 [::1]:6381"),
            moved(Some(tcp("::1", 6381)))
        );
        assert_eq!(
            redirect("MOVED 1 a.example:1"),
            moved(Some(tcp("a.example", 1)))
        );
        assert_eq!(redirect("MOVED 1 :6381"), moved(Some(tcp("asked", 6381))));
        assert_eq!(
            redirect("ASK 16383 127.0.0.1:6381"),
            to(Resent::AskRedirect, Some(tcp("127.0.0.1", 6381)))
        );
    }
}
