//! Asking servers for the table of hash slots.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    address::{Address, Place},
    connection::{
        cluster::table::Table,
        connect::{Connected, Connector},
        connect_error::{ConnectError, ConnectErrorKind},
        options::NodeOptions,
        value::Value,
    },
};

/// How servers are asked.
pub(super) struct Topology {
    address: Address,
    connector: Connector,
    options: NodeOptions,
    /// How long one server may take, with the connection. The whole connect timeout once none has answered in a part of it.
    patience: Duration,
}

/// What one server says.
struct Testimony {
    table: Table,
    /// Whether it sees a cluster that works. One that was cut off from the others does not, and what it says may be old.
    is_in_touch: bool,
}

impl Topology {
    pub(super) fn new(address: Address, options: NodeOptions) -> Self {
        const LEAST: Duration = Duration::from_millis(500);
        let most = options.connect_timeout();
        Self {
            connector: Connector::new(&address, &options),
            address,
            patience: (most / 4).max(LEAST).min(most),
            options,
        }
    }

    /// The table of the first server that sees the cluster work, or of any if none does. They are asked one after the other.
    pub(super) async fn of(&mut self, places: &[Place]) -> Result<Table, ConnectError> {
        let mut second_best = Err(unresolved("no server of it is known"));
        for place in places {
            match self.query(place).await {
                Ok(testimony) if testimony.is_in_touch => return Ok(testimony.table),
                Ok(testimony) => second_best = Ok(testimony.table),
                Err(error) => second_best = second_best.or(Err(error)),
            }
        }
        if second_best.is_err() {
            self.patience = self.options.connect_timeout();
        }
        second_best
    }

    async fn query(&self, place: &Place) -> Result<Testimony, ConnectError> {
        const COMMANDS: [&[&str]; 2] = [&["CLUSTER", "INFO"], &["CLUSTER", "SLOTS"]];
        let credentials = &self.options.credentials;
        let answer = async {
            let access = credentials.brief_access(self.address.access()).await?;
            let commands = COMMANDS.map(<[&str]>::to_vec);
            let connected = self.connector.connect(place, &access, &commands);
            match timeout(self.patience, connected).await {
                Ok(connected) => testify(&connected?, place, &self.options),
                Err(_) => Err(ConnectError::new(
                    ConnectErrorKind::Timeout,
                    "no answer in time",
                )),
            }
        };
        answer.await.map_err(|error| {
            credentials.forget();
            error.at(format_args!("{place}"))
        })
    }
}

fn unresolved(what: &str) -> ConnectError {
    ConnectError::new(ConnectErrorKind::Unresolved, what)
}

fn testify(
    connected: &Connected,
    place: &Place,
    options: &NodeOptions,
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
        Ok(answer) => Table::read(answer, place, options)
            .map(|table| Testimony { table, is_in_touch })
            .ok_or_else(|| unresolved("it knows of no slots that anybody has")),
        Err(line) => Err(ConnectError::of_server("CLUSTER SLOTS", line)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::time::Instant;

    use super::*;
    use crate::{
        connection::{log_in::CredentialsSource, stream::memory},
        credentials::Credentials,
    };

    const UNKNOWN: &str = "-ERR unknown command\r\n";
    const WORKS: &str = "$16\r\ncluster_state:ok\r\n";
    const FAILS: &str = "$18\r\ncluster_state:fail\r\n";

    fn topology(credentials: CredentialsSource) -> Topology {
        let address = Address::parse("redis-cluster://127.0.0.1:1").expect("an address");
        let options = NodeOptions {
            credentials,
            ..NodeOptions::default()
        };
        Topology::new(address, options)
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
    async fn of(topology: &mut Topology, places: &[&Place]) -> (Result<u16, String>, u128) {
        let began = Instant::now();
        let places: Vec<_> = places.iter().map(|place| (*place).clone()).collect();
        let table = topology.of(&places).await;
        let table = table.map_err(|error| error.message().to_string());
        let owner = table.map(|table| match table.ranges()[0].primary {
            Place::Tcp(_, port) => port,
            Place::Unix(_) => 0,
        });
        (owner, began.elapsed().as_millis())
    }

    async fn owner(places: &[&Place]) -> Result<u16, String> {
        of(&mut topology(CredentialsSource::default()), places)
            .await
            .0
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_of_a_server_that_sees_no_cluster_is_better_than_none() {
        let cut_off = play("/cut-off", FAILS, "1");
        let loading = play("/loading", UNKNOWN, "-LOADING Redis is loading\r\n");
        assert_eq!(owner(&[&cut_off, &loading]).await, Ok(1));
        assert_eq!(owner(&[&loading, &cut_off]).await, Ok(1));
        let other = play("/other", WORKS, "2");
        assert_eq!(owner(&[&cut_off, &loading, &other]).await, Ok(2));
        // One that keeps it to itself is believed.
        let closed = play("/closed", UNKNOWN, "3");
        assert_eq!(owner(&[&closed, &other]).await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_dawdles_has_half_a_second_until_none_has_answered() {
        let (silent, other) = (play("/silent", "", ""), play("/other", WORKS, "2"));
        let mut topology = topology(CredentialsSource::default());
        let answer = of(&mut topology, &[&silent, &other]).await;
        assert_eq!(answer, (Ok(2), 500));
        let why = Err("/silent: no answer in time".to_owned());
        for took in [500, 2_000] {
            let answer = of(&mut topology, &[&silent]).await;
            assert_eq!(answer, (why.clone(), took));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn why_there_is_no_table_names_the_server() {
        let refuses = play("/refuses", UNKNOWN, "-NOPERM no permissions\r\n");
        let why = owner(&[&refuses]).await.expect_err("it is refused");
        assert!(why.starts_with("/refuses: CLUSTER SLOTS: NOPERM"), "{why}");
        assert_eq!(owner(&[]).await, Err("no server of it is known".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_are_asked_for_again_where_a_server_has_not_answered() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let mut topology = topology(CredentialsSource::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                let credentials = Credentials::new("limits", "sesame");
                Ok::<_, std::io::Error>(credentials.expires_in(Duration::from_secs(3_600)))
            }
        }));
        let works = play("/works", WORKS, "1");
        let refuses = play("/refuses", WORKS, "-NOPERM no permissions\r\n");
        for (place, expected) in [(&works, 1), (&works, 1), (&refuses, 1), (&works, 2)] {
            let _ = topology.of(std::slice::from_ref(place)).await;
            assert_eq!(asked.load(Ordering::Relaxed), expected, "{place}");
        }
    }
}
