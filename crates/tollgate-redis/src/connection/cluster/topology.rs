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
