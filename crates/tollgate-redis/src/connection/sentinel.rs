//! Asking sentinels where the master is.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::timeout};

use crate::{
    address::{Access, Place, Sentinels},
    connection::{
        address_map::AddressMap,
        connect::Connector,
        connect_error::{ConnectError, ConnectErrorKind},
        value::Value,
    },
};

/// The sentinels of a master. Their majority decides where it is.
#[derive(Debug)]
pub(super) struct Resolver(Arc<SentinelQuery>);

/// How each of them is asked.
#[derive(Debug)]
struct SentinelQuery {
    sentinels: Sentinels,
    access: Access,
    patience: Duration,
    connector: Connector,
    map: AddressMap,
}

impl Resolver {
    /// Each sentinel is given `patience` to answer, and asked by `access`.
    pub(super) fn new(
        sentinels: Sentinels,
        access: Access,
        patience: Duration,
        connector: Connector,
        map: AddressMap,
    ) -> Self {
        Self(Arc::new(SentinelQuery {
            sentinels,
            access,
            patience,
            connector,
            map,
        }))
    }

    /// Where the master is: what more than half of all sentinels say, or, once none is waited for any more, more than half of
    /// those that have answered. One that was cut off from the others may still name the old master.
    pub(super) async fn resolve(&self) -> Result<Place, ConnectError> {
        let places = self.0.sentinels.places();
        // Dropped with this future, and all connections with it.
        let mut queries = JoinSet::new();
        for number in 0..places.len() {
            let query = Arc::clone(&self.0);
            queries.spawn(async move { query.send(number).await });
        }
        let mut votes: Vec<(Place, usize)> = Vec::new();
        let mut last = unresolved("there are no sentinels");
        while let Some(answer) = queries.join_next().await {
            match answer {
                Ok(Ok(master)) => {
                    let known = votes.iter().position(|(place, _)| *place == master);
                    let index = known.unwrap_or_else(|| {
                        votes.push((master, 0));
                        votes.len() - 1
                    });
                    votes[index].1 += 1;
                    if votes[index].1 * 2 > places.len() {
                        return Ok(votes.swap_remove(index).0);
                    }
                }
                Ok(Err(error)) => last = error,
                Err(_) => {}
            }
        }
        elect(votes, last)
    }
}

fn unresolved(what: impl Into<Arc<str>>) -> ConnectError {
    ConnectError::new(ConnectErrorKind::Unresolved, what)
}

/// The place with more than half of the votes that there are.
fn elect(votes: Vec<(Place, usize)>, without: ConnectError) -> Result<Place, ConnectError> {
    let all: usize = votes.iter().map(|(_, votes)| votes).sum();
    if all == 0 {
        return Err(without);
    }
    let named: Vec<_> = votes
        .iter()
        .map(|(place, votes)| format!("{place} by {votes}"))
        .collect();
    let elected = votes.into_iter().find(|(_, votes)| votes * 2 > all);
    elected.map(|(place, _)| place).ok_or_else(|| {
        unresolved(format!(
            "the sentinels that answer do not agree on the master: {}",
            named.join(", ")
        ))
    })
}

impl SentinelQuery {
    async fn send(&self, number: usize) -> Result<Place, ConnectError> {
        let Some(place) = self.sentinels.places().get(number) else {
            return Err(unresolved("there is no such sentinel"));
        };
        let answer = timeout(self.patience, self.master_by(place)).await;
        answer
            .unwrap_or_else(|_| {
                Err(ConnectError::new(
                    ConnectErrorKind::Timeout,
                    "no answer in time",
                ))
            })
            .map_err(|error| error.at(format_args!("sentinel {place}")))
    }

    async fn master_by(&self, place: &Place) -> Result<Place, ConnectError> {
        let name = self.sentinels.master();
        let query = vec!["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name];
        let connected = self
            .connector
            .connect(place, &self.access, &[query])
            .await?;
        match connected.answers.first() {
            Some(Ok(answer)) => match answer.list() {
                Some(address) => self.read(address),
                None => Err(unresolved(format!(
                    "no master is known by the name {name:?}"
                ))),
            },
            Some(Err(line)) => Err(ConnectError::of_server("SENTINEL", line)),
            None => Err(unresolved("it was not asked")),
        }
    }

    fn read(&self, address: &[Value]) -> Result<Place, ConnectError> {
        match address {
            [host, port] => {
                let port = port.text().and_then(|port| port.parse().ok());
                host.text().zip(port)
            }
            _ => None,
        }
        .map(|(host, port)| self.map.place(host.to_owned(), port))
        .ok_or_else(|| unresolved("the master's address could not be read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_of_those_that_answer_decide_and_a_tie_decides_nothing() {
        let place = |host: &str| Place::Tcp(host.to_owned(), 6379);
        let elect = |votes: &[(&str, usize)]| {
            let votes = votes.iter().map(|(host, votes)| (place(host), *votes));
            elect(votes.collect(), unresolved("no sentinel answers"))
        };
        assert_eq!(elect(&[("old", 1), ("new", 2)]).unwrap(), place("new"));
        assert_eq!(elect(&[("one", 1)]).unwrap(), place("one"));
        let error = elect(&[("old", 1), ("new", 1)]).unwrap_err();
        assert!(
            error.message().contains("old:6379 by 1, new:6379 by 1"),
            "{error}"
        );
        assert_eq!(
            elect(&[]).unwrap_err().message().as_ref(),
            "no sentinel answers"
        );
    }
}
