//! Asking sentinels where the master is.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use crate::{
    address::{Address, Place},
    connection::{connect::Connector, error::ConnectError, options::NodeOptions, resp::Value},
};

/// The sentinels of a master, and how each of them is asked. Their majority decides where the master is.
pub(super) struct SentinelQuery {
    master: String,
    /// How long one may take.
    patience: Duration,
    /// To the sentinels of the address.
    connector: Connector,
}

impl SentinelQuery {
    pub(super) fn new(address: &Address, master: &str, options: &NodeOptions) -> Self {
        Self {
            master: master.to_owned(),
            patience: options.connect_timeout() / 2,
            connector: Connector::new(address.sentinel_access(), options.clone()),
        }
    }

    /// Where the master is: what more than half of all sentinels say, or, once none is waited for any more, more than half of
    /// those that have answered. One that was cut off from the others may still name the old master.
    pub(super) async fn master(self: &Arc<Self>) -> Result<Place, ConnectError> {
        let places = &self.connector.address.places;
        // Dropped with this future, and all connections with it.
        let mut queries = JoinSet::new();
        for place in places {
            let (query, place) = (Arc::clone(self), place.clone());
            queries.spawn(async move { query.ask(&place).await });
        }
        let mut named: Vec<Place> = Vec::new();
        let mut last = ConnectError::unresolved("there are no sentinels");
        while let Some(answer) = queries.join_next().await {
            match answer {
                Ok(Ok(master)) => named.push(master),
                Ok(Err(error)) => last = error,
                Err(_) => {}
            }
            if let Some(master) = majority(&named, places.len()) {
                return Ok(master);
            }
        }
        if named.is_empty() {
            return Err(last);
        }
        majority(&named, named.len()).ok_or_else(|| {
            let named: Vec<_> = named.iter().map(Place::to_string).collect();
            let named = named.join(", ");
            ConnectError::unresolved(format!(
                "the sentinels that answer do not agree on the master: {named}"
            ))
        })
    }

    async fn ask(&self, place: &Place) -> Result<Place, ConnectError> {
        let login = &self.connector.address.login;
        let query: [&[&str]; 1] = [&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.master]];
        let asked = (self.connector).connect(place, login, &query, self.patience);
        let named = asked
            .await
            .and_then(|connected| match &connected.answers[..] {
                [Ok(answer)] => self.read(answer),
                [Err(line)] => Err(ConnectError::of_server("SENTINEL", line)),
                _ => Err(ConnectError::unresolved("it was not asked")),
            });
        named.map_err(|error| error.at(format_args!("sentinel {place}")))
    }

    /// What a sentinel names.
    fn read(&self, answer: &Value) -> Result<Place, ConnectError> {
        let [host, port] = answer.list().unwrap_or_default() else {
            let master = &self.master;
            let message = format!("no master is known by the name {master:?}");
            return Err(ConnectError::unresolved(message));
        };
        let port = port.text().and_then(|port| port.parse().ok());
        host.text()
            .zip(port)
            .map(|(host, port)| self.connector.options.mapped(host.to_owned(), port))
            .ok_or_else(|| ConnectError::unresolved("the master's address could not be read"))
    }
}

/// The place that more than half of so many have named.
fn majority(named: &[Place], of: usize) -> Option<Place> {
    let votes = |place: &&Place| named.iter().filter(|named| named == place).count();
    named.iter().find(|place| votes(place) * 2 > of).cloned()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::connection::stream::memory;

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
        let mut address: Address = "unix:///sentinels".parse().expect("an address");
        address.places = sentinels.iter().copied().cloned().collect();
        let query = Arc::new(SentinelQuery::new(
            &address,
            "mymaster",
            &NodeOptions::default(),
        ));
        let began = Instant::now();
        let master = query
            .master()
            .await
            .map(|place| place.to_string())
            .map_err(|error| error.message().to_string());
        (master, began.elapsed())
    }

    fn at(host: &str) -> Result<String, String> {
        Ok(format!("{host}:6379"))
    }

    #[tokio::test]
    async fn what_a_sentinel_says_behind_its_answer_does_not_matter() {
        let answer = "*2\r\n$3\r\nnew\r\n$4\r\n6379\r\n+more\r\n";
        memory::play("/more", |_| answer.to_owned());
        let (named, _) = resolve(&[&Place::Unix("/more".into())]).await;
        assert_eq!(named, at("new"));
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
        assert!(
            why.ends_with("do not agree on the master: new:6379, old:6379"),
            "{why}"
        );
        assert_eq!(took, PATIENCE);
    }
}
