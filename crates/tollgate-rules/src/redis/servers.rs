//! Which server has the rules, and connecting to it.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use ::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisError,
    RedisResult, ServerErrorKind,
    aio::{MultiplexedConnection, PubSub},
};
use tokio::{task::JoinSet, time::timeout};
use tollgate_redis::{AddressParts, Place};

use crate::redis::dial::{ByteStream, Dialer, PATIENCE, late};

/// The servers of an address: one, the one that sentinels name, or those of a cluster.
pub(crate) struct Servers {
    address: AddressParts,
    dialer: Dialer,
    /// The server of the cluster that has the rules, as far as it is known.
    owner: Mutex<Option<Place>>,
    /// Which server of the address is tried first: the one after the last that was tried.
    first: AtomicUsize,
}

/// Where else a call is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// To the server that the next connection is made to.
    Always,
    /// To this one, which is about to have the rules, for one call.
    Once(Place),
    /// To none: some of the keys have moved to another server, and the others are about to.
    Later,
}

/// Whether a server said that only some of the keys of a call are there, because their slot moves.
pub(crate) fn is_moving(wrong: &RedisError) -> bool {
    wrong.kind() == ErrorKind::Server(ServerErrorKind::TryAgain)
}

impl Servers {
    pub(crate) fn new(address: AddressParts, dialer: Dialer) -> Self {
        Self {
            address,
            dialer,
            owner: Mutex::new(None),
            first: AtomicUsize::new(0),
        }
    }

    /// A connection for scripts and commands, and to which server.
    pub(crate) async fn connect(&self) -> RedisResult<(MultiplexedConnection, Place)> {
        timeout(2 * PATIENCE, self.first_that_answers())
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// A connection to this server for a call that it would not answer before it has the slot.
    pub(crate) async fn connect_to(&self, place: &Place) -> RedisResult<MultiplexedConnection> {
        timeout(2 * PATIENCE, self.made(place))
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// A connection for publications.
    pub(crate) async fn listen(&self) -> RedisResult<PubSub> {
        let (publications, _) = self.first_that_answers().await?;
        Ok(publications)
    }

    /// Whether the sentinels name another master than `place` by now: one that was replaced may go on answering.
    pub(crate) async fn have_another_master(&self, place: &Place) -> bool {
        let Some(master) = &self.address.master else {
            return false;
        };
        let named = self.ask_sentinels(master).await;
        named.is_ok_and(|named| named != *place)
    }

    /// Which other server has to be asked after this error, which certainly changed nothing.
    pub(crate) fn redirect(&self, wrong: &RedisError) -> Option<Redirect> {
        if self.address.master.is_some() {
            // It was the master; the sentinels name another one. Older servers wrap what a script's command was told.
            let was_master = wrong.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
                || wrong.detail().is_some_and(|what| what.contains("READONLY"));
            return was_master.then_some(Redirect::Always);
        }
        if !self.address.is_cluster {
            return None;
        }
        if wrong.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown) {
            // It may be cut off from the others, which know better.
            *self.owner() = None;
            return Some(Redirect::Always);
        }
        if is_moving(wrong) {
            return Some(Redirect::Later);
        }
        let (server, _) = wrong.redirect_node()?;
        let (host, port) = server.rsplit_once(':')?;
        let port = port.parse::<u16>().ok()?;
        let mut owner = self.owner();
        let host = match (host, &*owner) {
            // As that of the server that says so.
            ("", Some(Place::Tcp(host, _))) => host.clone(),
            ("", _) => return None,
            (host, _) => host.to_owned(),
        };
        let place = Place::Tcp(host, port);
        if wrong.kind() == ErrorKind::Server(ServerErrorKind::Ask) {
            return Some(Redirect::Once(place));
        }
        *owner = Some(place);
        Some(Redirect::Always)
    }

    /// Whether the servers are a cluster, to whose servers calls are sent on.
    pub(crate) fn are_cluster(&self) -> bool {
        self.address.is_cluster
    }

    async fn made<T: Connection>(&self, place: &Place) -> RedisResult<T> {
        let stream = self.dialer.dial(place).await?;
        T::of_stream(&self.info(), stream).await
    }

    async fn made_in_time<T: Connection>(&self, place: &Place) -> RedisResult<T> {
        let made = timeout(PATIENCE, self.made(place)).await;
        made.unwrap_or_else(|_| Err(late()))
    }

    /// A connection to the server that has the rules, or to the first one that answers. One that accepts connections and stands
    /// still gets no more time than one that cannot be reached, and is not the first to be tried again.
    async fn first_that_answers<T: Connection>(&self) -> RedisResult<(T, Place)> {
        if let Some(master) = &self.address.master {
            let place = self.ask_sentinels(master).await?;
            return Ok((self.made_in_time(&place).await?, place));
        }
        let mut wrong = late();
        let owner = self.owner().clone();
        if let Some(place) = &owner {
            match self.made_in_time(place).await {
                Ok(connected) => return Ok((connected, place.clone())),
                Err(refused) => wrong = refused,
            }
            self.owner().take_if(|known| known == place);
        }
        let places = &self.address.places;
        let first = self.first.load(Ordering::Relaxed);
        for number in (first..first + places.len()).map(|number| number % places.len()) {
            let place = &places[number];
            if owner.as_ref() == Some(place) {
                continue;
            }
            // Before the attempt, because its caller may give up meanwhile.
            self.first.store(number + 1, Ordering::Relaxed);
            match self.made_in_time(place).await {
                Ok(connected) => {
                    *self.owner() = Some(place.clone());
                    return Ok((connected, place.clone()));
                }
                Err(refused) => wrong = refused,
            }
        }
        Err(wrong)
    }

    /// The master that more than half of the sentinels name, or, once none is waited for any more, more than half of those that
    /// have answered. One that was cut off from the others may still name the old master.
    async fn ask_sentinels(&self, master: &str) -> RedisResult<Place> {
        let info = info(&self.address.sentinel_login, 0);
        let places = &self.address.places;
        // Dropped with this future, and all connections with it.
        let mut queries = JoinSet::new();
        for sentinel in places {
            let (dialer, sentinel) = (self.dialer.clone(), sentinel.clone());
            let (info, master) = (info.clone(), master.to_owned());
            queries.spawn(async move {
                let asking = ask_sentinel(&dialer, &sentinel, &info, &master);
                let answer = timeout(PATIENCE, asking).await;
                answer.unwrap_or_else(|_| Err(late()))
            });
        }
        let mut votes: Vec<(Place, usize)> = Vec::new();
        let mut wrong = late();
        while let Some(answer) = queries.join_next().await {
            match answer {
                Ok(Ok(named)) => {
                    let known = votes.iter().position(|(place, _)| *place == named);
                    let index = known.unwrap_or_else(|| {
                        votes.push((named, 0));
                        votes.len() - 1
                    });
                    votes[index].1 += 1;
                    if votes[index].1 * 2 > places.len() {
                        return Ok(votes.swap_remove(index).0);
                    }
                }
                Ok(Err(refused)) => wrong = refused,
                Err(_) => {}
            }
        }
        elect(votes, wrong)
    }

    fn info(&self) -> RedisConnectionInfo {
        info(&self.address.login, self.address.database)
    }

    /// Each change under the lock is one step, so that a poisoned lock guards whole data.
    fn owner(&self) -> MutexGuard<'_, Option<Place>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The master that one sentinel names.
async fn ask_sentinel(
    dialer: &Dialer,
    sentinel: &Place,
    info: &RedisConnectionInfo,
    master: &str,
) -> RedisResult<Place> {
    let stream = dialer.dial(sentinel).await?;
    let mut connection = MultiplexedConnection::of_stream(info, stream).await?;
    let mut command = Cmd::new();
    command.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME");
    let answer = command.arg(master).query_async(&mut connection).await?;
    let named: Option<(String, u16)> = answer;
    named
        .map(|(host, port)| Place::Tcp(host, port))
        .ok_or_else(|| {
            RedisError::from((
                ErrorKind::MasterNameNotFoundBySentinel,
                "the sentinels know no master of this name",
                master.to_owned(),
            ))
        })
}

/// The place with more than half of the votes that there are.
fn elect(votes: Vec<(Place, usize)>, without: RedisError) -> RedisResult<Place> {
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
        RedisError::from((
            ErrorKind::Io,
            "the sentinels that answer do not agree on the master",
            named.join(", "),
        ))
    })
}

fn info(login: &[Option<String>; 2], database: u32) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP2)
        .set_db(i64::from(database));
    let [user, password] = login;
    if let Some(user) = user {
        info = info.set_username(user);
    }
    if let Some(password) = password {
        info = info.set_password(password);
    }
    info
}

/// What is made of a stream to a server.
trait Connection: Sized {
    fn of_stream(
        info: &RedisConnectionInfo,
        stream: Box<dyn ByteStream>,
    ) -> impl Future<Output = RedisResult<Self>> + Send;
}

impl Connection for MultiplexedConnection {
    async fn of_stream(
        info: &RedisConnectionInfo,
        stream: Box<dyn ByteStream>,
    ) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let (connection, driver) = Self::new_with_config(info, stream, config).await?;
        // It ends with the last clone of the connection.
        tokio::spawn(driver);
        Ok(connection)
    }
}

impl Connection for PubSub {
    async fn of_stream(
        info: &RedisConnectionInfo,
        stream: Box<dyn ByteStream>,
    ) -> RedisResult<Self> {
        Self::new(info, stream).await
    }
}

#[cfg(test)]
mod tests {
    use tollgate_redis::Address;

    use super::*;

    fn servers(address: &str) -> Servers {
        let address: Address = address.parse().expect("an address");
        Servers::new(address.parts(), Dialer::default())
    }

    fn server_error(kind: ServerErrorKind, detail: &str) -> RedisError {
        RedisError::from((
            ErrorKind::Server(kind),
            "the server says so",
            detail.to_owned(),
        ))
    }

    #[test]
    fn a_master_that_is_a_replica_by_now_is_looked_for_again() {
        let servers = servers("redis-sentinel://one,two/shops");
        let says = "You can't write against a read only replica.";
        assert_eq!(
            servers.redirect(&server_error(ServerErrorKind::ReadOnly, says)),
            Some(Redirect::Always)
        );
        let wrapped = "Error running script: @user_script:18: -READONLY You can't write";
        assert_eq!(
            servers.redirect(&server_error(ServerErrorKind::ResponseError, wrapped)),
            Some(Redirect::Always)
        );
        let loading = server_error(ServerErrorKind::BusyLoading, "loading");
        assert_eq!(servers.redirect(&loading), None);
        // One server alone has no other.
        let alone = self::servers("redis://one");
        assert_eq!(
            alone.redirect(&server_error(ServerErrorKind::ReadOnly, says)),
            None
        );
    }

    #[test]
    fn half_of_the_sentinels_are_no_majority() {
        let place = |port| Place::Tcp("10.0.0.1".to_owned(), port);
        let elected = elect(vec![(place(6379), 1), (place(6380), 2)], late());
        assert_eq!(elected.ok(), Some(place(6380)));
        let wrong = elect(vec![(place(6379), 1), (place(6380), 1)], late());
        let wrong = wrong.expect_err("they do not agree").to_string();
        assert!(
            wrong.contains("10.0.0.1:6379 by 1, 10.0.0.1:6380 by 1"),
            "{wrong}"
        );
        assert!(elect(Vec::new(), late()).is_err());
    }

    #[test]
    fn the_server_of_a_cluster_that_has_the_rules_is_remembered() {
        let servers = servers("redis-cluster://one:6379,two:6380");
        let moved = |to: &str| server_error(ServerErrorKind::Moved, &format!("3999 {to}"));
        assert_eq!(
            servers.redirect(&moved("three:6381")),
            Some(Redirect::Always)
        );
        let place = |host: &str, port| Some(Place::Tcp(host.to_owned(), port));
        assert_eq!(*servers.owner(), place("three", 6381));
        // The host of the server that says so.
        assert_eq!(servers.redirect(&moved(":6382")), Some(Redirect::Always));
        assert_eq!(*servers.owner(), place("three", 6382));
        assert_eq!(servers.redirect(&moved("::1:6383")), Some(Redirect::Always));
        assert_eq!(*servers.owner(), place("::1", 6383));
        for other in ["three", "three:many", ""] {
            assert_eq!(servers.redirect(&moved(other)), None, "{other:?}");
        }
        assert_eq!(*servers.owner(), place("::1", 6383));
        // One that is cut off from the others is left.
        let down = server_error(ServerErrorKind::ClusterDown, "The cluster is down");
        assert_eq!(servers.redirect(&down), Some(Redirect::Always));
        assert_eq!(*servers.owner(), None);
        let _ = servers.redirect(&moved("::1:6383"));
        // One that is about to have them is asked once.
        let ask = server_error(ServerErrorKind::Ask, "3999 four:6384");
        let there = Redirect::Once(Place::Tcp("four".to_owned(), 6384));
        assert_eq!(servers.redirect(&ask), Some(there));
        assert_eq!(*servers.owner(), place("::1", 6383));
    }
}
