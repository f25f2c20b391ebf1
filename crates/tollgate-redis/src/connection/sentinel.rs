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
    use tokio::time::Instant;

    use super::*;
    use crate::{
        address::{Address, Login, Target},
        connection::{options::NodeOptions, stream::memory},
    };

    const PATIENCE: Duration = Duration::from_secs(1);

    /// A sentinel at this path that names the master at this host, or answers with an error, or not at all.
    fn play(path: &str, says: &'static str) -> Place {
        memory::play(path, move |words| {
            assert_eq!(words, ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]);
            match says {
                "" => String::new(),
                error if error.starts_with('-') => error.to_owned(),
                host => format!("*2\r\n${}\r\n{host}\r\n$4\r\n6379\r\n", host.len()),
            }
        });
        Place::Unix(path.into())
    }

    /// The master that these sentinels name, or why none; and how long it took.
    async fn resolve(sentinels: &[&Place]) -> (Result<String, String>, Duration) {
        let sentinels = Sentinels {
            places: sentinels.iter().map(|place| (*place).clone()).collect(),
            master: "mymaster".to_owned(),
            login: Login::default(),
        };
        let address = Address::of_target(Target::Sentinel(sentinels.clone()));
        let options = NodeOptions::default();
        let access = address.sentinel_access(&sentinels);
        let connector = Connector::new(&address, &options);
        let map = AddressMap::default();
        let resolver = Resolver::new(sentinels, access, PATIENCE, connector, map);
        let began = Instant::now();
        let master = resolver.resolve().await;
        let master = master.map(|place| place.to_string());
        let master = master.map_err(|error| error.message().to_string());
        (master, began.elapsed())
    }

    fn at(host: &str) -> Result<String, String> {
        Ok(format!("{host}:6379"))
    }

    #[tokio::test(start_paused = true)]
    async fn once_more_than_half_of_all_agree_no_other_is_waited_for() {
        let (silent, new) = (play("/silent", ""), play("/new", "new"));
        let answer = resolve(&[&silent, &new, &new]).await;
        assert_eq!(answer, (at("new"), Duration::ZERO));
        // Half are not enough.
        let answer = resolve(&[&silent, &new]).await;
        assert_eq!(answer, (at("new"), PATIENCE));
        let old = play("/old", "old");
        let (answer, took) = resolve(&[&silent, &new, &old]).await;
        let why = answer.expect_err("they do not agree");
        assert!(why.contains("do not agree on the master"), "{why}");
        assert_eq!(took, PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_does_not_say_is_named_with_what_it_says() {
        let silent = play("/silent", "");
        let (answer, _) = resolve(&[&silent]).await;
        let why = answer.expect_err("it is silent");
        assert_eq!(why, "sentinel /silent: no answer in time");
        let refuses = play("/refuses", "-NOPERM no permissions\r\n");
        let (answer, _) = resolve(&[&refuses]).await;
        let why = answer.expect_err("it refuses");
        assert!(
            why.starts_with("sentinel /refuses: SENTINEL: NOPERM"),
            "{why}"
        );
        let (answer, _) = resolve(&[]).await;
        assert_eq!(answer, Err("there are no sentinels".to_owned()));
    }

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
