//! A cluster whose servers a test plays, so that its clock may be paused.

use std::{
    io::ErrorKind,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout},
};

use crate::{
    address::{Address, Place, Target},
    connection::{
        address_map::AddressMap,
        call::Waiting,
        cluster::{
            map::{Map, Member},
            options::ClusterOptions,
            routed::ClusterCall,
            shared::Shared,
            table::Table,
        },
        error::{CallError, CallErrorKind},
        node::Node,
        options::NodeOptions,
        request::Request,
        script::Script,
        stream::memory,
        value::Value,
    },
};

/// The slots of the first server; the others are with the second, where there is one.
pub(super) const FIRST_HALF: i64 = 8_192;

/// A cluster of servers at `s1:1`, `s2:2` and so on.
pub(super) struct Played {
    pub(super) shared: Arc<Shared>,
    heard: Arc<Mutex<Vec<String>>>,
}

/// Where the server with this number is.
pub(super) fn place(number: usize) -> Place {
    Place::Tcp(format!("s{number}"), number as u16)
}

/// A table in which the first two servers have half of the slots each.
pub(super) fn table(servers: usize) -> Table {
    let last = Value::Integer(16_383);
    let server = |number: usize| {
        let host = Value::Text(format!("s{number}").into());
        Value::List(vec![host, Value::Integer(number as i64)])
    };
    let first = |last| Value::List(vec![Value::Integer(0), last, server(1)]);
    let ranges = match servers {
        1 => vec![first(last)],
        _ => vec![
            first(Value::Integer(FIRST_HALF - 1)),
            Value::List(vec![Value::Integer(FIRST_HALF), last, server(2)]),
        ],
    };
    let (from, map) = (place(1), AddressMap::default());
    Table::read(&Value::List(ranges), &from, &map).expect("it is a table")
}

/// A node of a server that is played at this path.
pub(super) fn node(path: &str) -> Node {
    let address = Address::of_target(Target::Server(Place::Unix(path.into())));
    let options = NodeOptions {
        // None is closed for its silence.
        silence: Some(Duration::from_secs(600)),
        ..NodeOptions::default()
    };
    Node::start(address, options).expect("an address of a server")
}

impl Played {
    /// Servers that answer each call so, or not at all where that is empty. Without an answer there is no server. The first
    /// `primaries` have slots.
    pub(super) async fn start(
        options: ClusterOptions,
        primaries: usize,
        answers: &[Option<&'static str>],
    ) -> Self {
        let shared = Arc::new(Shared::new(options, Handle::current()));
        let heard = Arc::new(Mutex::new(Vec::new()));
        for (index, answer) in answers.iter().enumerate() {
            let (name, ear) = (place(index + 1).to_string(), Arc::clone(&heard));
            let Some(answer) = *answer else {
                memory::listen(&format!("/{name}"), |_| {
                    Err(ErrorKind::ConnectionRefused.into())
                });
                continue;
            };
            memory::play(&format!("/{name}"), move |words| match words[0] {
                "ASKING" => "+OK\r\n".to_owned(),
                _ => {
                    ear.lock().unwrap().push(name.clone());
                    answer.to_owned()
                }
            });
        }
        let unassigned = CallError::new(CallErrorKind::Unavailable, "no server has it");
        let unlisted: Vec<_> = (primaries + 1..=answers.len()).map(place).collect();
        let map = Map::of(&table(primaries), &unlisted, unassigned, |place, _| {
            let (node, place) = (node(&format!("/{place}")), place.clone());
            Some(Arc::new(Member { place, node }))
        });
        for (member, _) in map
            .members()
            .iter()
            .zip(answers)
            .filter(|it| it.1.is_some())
        {
            let connected = async {
                while !member.node.is_connected() {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            let connected = timeout(Duration::from_secs(60), connected).await;
            connected.expect("it is there");
        }
        shared.map.store(Arc::new(map));
        Self { shared, heard }
    }

    pub(super) fn member(&self, number: usize) -> Arc<Member> {
        let map = self.shared.map.load();
        Arc::clone(map.member(&place(number)).expect("it is a member"))
    }

    /// The owner of a slot.
    pub(super) fn owner(&self, slot: u16) -> Place {
        let map = self.shared.map.load();
        map.owner(slot).expect("it has an owner").place.clone()
    }

    /// A call about slot 0.
    pub(super) fn call(&self, deadline: Instant) -> ClusterCall {
        let owner = Arc::clone(self.shared.map.load().owner(0).expect("it has an owner"));
        ClusterCall::send(&self.shared, &owner, 0, deadline, request)
    }

    /// A call that a server is sent past the map.
    pub(super) fn occupy(&self, number: usize, deadline: Instant) -> impl Future + use<> {
        let node = &self.member(number).node;
        node.send(|| Waiting::new(request(), deadline))
    }

    /// Who has heard the calls, in their order.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// Whether the map is about to be learnt anew.
    pub(super) async fn is_stale(&self) -> bool {
        let stale = self.shared.stale().notified();
        let soon = timeout(Duration::from_millis(1), stale);
        soon.await.is_ok()
    }
}

fn request() -> Request {
    Request::new(&Arc::new(Script::new("return 1")), &["k"], &[])
}
