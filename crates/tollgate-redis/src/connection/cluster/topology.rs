//! Asking servers for the table of slots.

use std::{sync::Arc, time::Duration};

use tokio::{
    select,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    address::{Address, Place},
    connection::{
        address_map::AddressMap,
        cluster::table::Table,
        connect::{Connected, Connector},
        connect_error::{ConnectError, ConnectErrorKind},
        log_in::CredentialsSource,
        value::Value,
    },
};

/// How servers are asked.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    pub(super) address: Address,
    pub(super) connector: Arc<Connector>,
    /// Where servers are reached that others name.
    pub(super) map: AddressMap,
    pub(super) credentials: CredentialsSource,
    /// How long one server may take, with the connection.
    pub(super) patience: Duration,
    /// How long a server is waited for alone before the next one is asked too.
    pub(super) head_start: Duration,
}

/// What one server says.
struct Testimony {
    table: Table,
    /// Whether it sees a cluster that works. One that was cut off from the others does not, and what it says may be old.
    is_in_touch: bool,
}

impl Topology {
    /// The table of the first server that sees the cluster work, or of any if none does. Servers that dawdle are not waited
    /// for, and none is asked twice.
    pub(super) async fn of(&self, places: Vec<Place>) -> Result<Table, ConnectError> {
        let mut places = places.into_iter();
        // Dropped with this future, and all connections with it.
        let mut queries = JoinSet::new();
        let mut second_best = Err(unresolved("no server of it is known"));
        loop {
            let next = places.next();
            let is_last = next.is_none();
            if let Some(place) = next {
                let topology = self.clone();
                queries.spawn(async move { topology.query(&place).await });
            }
            select! {
                answer = queries.join_next() => match answer {
                    Some(Ok(Ok(said))) if said.is_in_touch => return Ok(said.table),
                    Some(Ok(Ok(said))) => second_best = Ok(said.table),
                    Some(Ok(Err(error))) => second_best = second_best.or(Err(error)),
                    Some(Err(_)) => {}
                    None if is_last => return second_best,
                    None => {}
                },
                () = sleep(self.head_start), if !is_last => {}
            }
        }
    }

    async fn query(&self, place: &Place) -> Result<Testimony, ConnectError> {
        let access = self.credentials.brief_access(self.address.access());
        let access = access
            .await
            .map_err(|error| error.at(format_args!("{place}")))?;
        let commands = [vec!["CLUSTER", "INFO"], vec!["CLUSTER", "SLOTS"]];
        let answer = timeout(
            self.patience,
            self.connector.connect(place, &access, &commands),
        );
        let timed_out = || ConnectError::new(ConnectErrorKind::Timeout, "no answer in time");
        let answer = answer
            .await
            .unwrap_or_else(|_| Err(timed_out()))
            .and_then(|connected| testify(&connected, place, &self.map));
        if answer.is_err() {
            self.credentials.forget();
        }
        answer.map_err(|error| error.at(format_args!("{place}")))
    }
}

fn unresolved(what: &str) -> ConnectError {
    ConnectError::new(ConnectErrorKind::Unresolved, what)
}

fn testify(
    connected: &Connected,
    place: &Place,
    map: &AddressMap,
) -> Result<Testimony, ConnectError> {
    let [info, slots] = &connected.answers[..] else {
        return Err(unresolved("it was not asked"));
    };
    // A server that keeps this to itself is believed.
    let is_in_touch = match info {
        Ok(Value::Text(info)) => !info.starts_with(b"cluster_state:fail"),
        Ok(_) | Err(_) => true,
    };
    match slots {
        Ok(answer) => Table::read(answer, place, map)
            .map(|table| Testimony { table, is_in_touch })
            .ok_or_else(|| unresolved("it knows of no slots that anybody has")),
        Err(line) => Err(ConnectError::of_server("CLUSTER SLOTS", line)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;
    use crate::{
        connection::{options::NodeOptions, stream::memory},
        credentials::Credentials,
    };

    const PATIENCE: Duration = Duration::from_secs(2);
    const HEAD_START: Duration = Duration::from_millis(50);
    const UNKNOWN: &str = "-ERR unknown command\r\n";
    const WORKS: &str = "$16\r\ncluster_state:ok\r\n";
    const FAILS: &str = "$18\r\ncluster_state:fail\r\n";

    fn topology(credentials: CredentialsSource) -> Topology {
        let address = Address::parse("redis-cluster://127.0.0.1:1").expect("an address");
        Topology {
            connector: Arc::new(Connector::new(&address, &NodeOptions::default())),
            map: AddressMap::default(),
            credentials,
            address,
            patience: PATIENCE,
            head_start: HEAD_START,
        }
    }

    /// A server at this path with these answers. In its table all slots are with the server at port `owner`.
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
    async fn of(places: &[&Place]) -> (Result<u16, String>, Duration) {
        let began = Instant::now();
        let places = places.iter().map(|place| (*place).clone()).collect();
        let table = topology(CredentialsSource::default()).of(places).await;
        let table = table.map_err(|error| error.message().to_string());
        let owner = table.map(|table| match table.ranges()[0].primary {
            Place::Tcp(_, port) => port,
            Place::Unix(_) => 0,
        });
        (owner, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_say_whether_it_sees_the_cluster_is_believed() {
        let silent = play("/silent", UNKNOWN, "1");
        let other = play("/other", WORKS, "2");
        assert_eq!(of(&[&silent, &other]).await.0, Ok(1));
        assert_eq!(of(&[&other, &silent]).await.0, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_of_a_server_that_sees_no_cluster_is_better_than_none() {
        let cut_off = play("/cut-off", FAILS, "1");
        let loading = play("/loading", UNKNOWN, "-LOADING Redis is loading\r\n");
        assert_eq!(of(&[&cut_off, &loading]).await.0, Ok(1));
        assert_eq!(of(&[&loading, &cut_off]).await.0, Ok(1));
        let other = play("/other", WORKS, "2");
        assert_eq!(of(&[&cut_off, &loading, &other]).await.0, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_server_is_asked_too_when_one_dawdles() {
        let (silent, other) = (play("/silent", "", ""), play("/other", WORKS, "2"));
        assert_eq!(of(&[&silent, &other]).await, (Ok(2), HEAD_START));
        let (answer, took) = of(&[&silent, &silent, &other]).await;
        assert_eq!((answer, took), (Ok(2), 2 * HEAD_START));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_named() {
        let silent = play("/silent", "", "");
        let (answer, took) = of(&[&silent]).await;
        assert_eq!(answer, Err("/silent: no answer in time".to_owned()));
        assert_eq!(took, PATIENCE);
        let refuses = play("/refuses", UNKNOWN, "-NOPERM no permissions\r\n");
        let why = of(&[&refuses]).await.0.expect_err("it is refused");
        assert!(why.starts_with("/refuses: CLUSTER SLOTS: NOPERM"), "{why}");
        let (none, _) = of(&[]).await;
        assert_eq!(none, Err("no server of it is known".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_are_asked_for_again_where_a_server_has_not_answered() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let topology = topology(CredentialsSource::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                let credentials = Credentials::new("limits", "sesame");
                Ok::<_, std::io::Error>(credentials.expires_in(Duration::from_secs(3_600)))
            }
        }));
        let works = play("/works", WORKS, "1");
        let refuses = play("/refuses", WORKS, "-NOPERM no permissions\r\n");
        for (place, expected) in [(&works, 1), (&works, 1), (&refuses, 1), (&works, 2)] {
            let _ = topology.of(vec![place.clone()]).await;
            assert_eq!(asked.load(Ordering::Relaxed), expected, "{place}");
        }
    }
}
