//! Which server has the rules, and connecting to it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisError,
    RedisResult, ServerErrorKind,
    aio::{MultiplexedConnection, PubSub},
};
use tokio::time::timeout;
use tollgate_redis::{AddressParts, Place};

use crate::redis::dial::{ByteStream, Dialer, PATIENCE, late};

/// The servers of an address: one, the one that sentinels name, or those of a cluster.
pub(crate) struct Servers {
    address: AddressParts,
    dialer: Dialer,
    /// The server of the cluster that has the rules, as far as it is known.
    owner: Mutex<Option<Place>>,
}

/// Where else a call is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// To the server that the next connection is made to.
    Always,
    /// To this one, which is about to have the rules, for one call.
    Once(Place),
}

impl Servers {
    pub(crate) fn new(address: AddressParts, dialer: Dialer) -> Self {
        Self {
            address,
            dialer,
            owner: Mutex::new(None),
        }
    }

    /// A connection for scripts and commands.
    pub(crate) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let connecting = async {
            let stream = self.dial().await?;
            of_stream(&self.info(), stream).await
        };
        timeout(2 * PATIENCE, connecting)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// A connection to this server for a call that it would not answer before it has the slot.
    pub(crate) async fn connect_to(&self, place: &Place) -> RedisResult<MultiplexedConnection> {
        let connecting = async {
            let stream = self.dialer.dial(place).await?;
            of_stream(&self.info(), stream).await
        };
        timeout(2 * PATIENCE, connecting)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// A connection for publications.
    pub(crate) async fn listen(&self) -> RedisResult<PubSub> {
        let stream = self.dial().await?;
        PubSub::new(&self.info(), stream).await
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

    async fn dial(&self) -> RedisResult<Box<dyn ByteStream>> {
        if let Some(master) = &self.address.master {
            let place = self.ask_sentinels(master).await?;
            return self.dialer.dial(&place).await;
        }
        let owner = self.owner().clone();
        let mut wrong = late();
        for place in owner.iter().chain(&self.address.places) {
            match self.dialer.dial(place).await {
                Ok(stream) => {
                    *self.owner() = Some(place.clone());
                    return Ok(stream);
                }
                Err(refused) => wrong = refused,
            }
        }
        Err(wrong)
    }

    /// The master that the first sentinel names that knows it.
    async fn ask_sentinels(&self, master: &str) -> RedisResult<Place> {
        let info = info(&self.address.sentinel_login, 0);
        let mut wrong = late();
        for sentinel in &self.address.places {
            let asking = async {
                let stream = self.dialer.dial(sentinel).await?;
                let mut connection = of_stream(&info, stream).await?;
                let mut command = Cmd::new();
                command.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME");
                command.arg(master).query_async(&mut connection).await
            };
            let answer: RedisResult<Option<(String, u16)>> = timeout(PATIENCE, asking)
                .await
                .unwrap_or_else(|_| Err(late()));
            wrong = match answer {
                Ok(Some((host, port))) => return Ok(Place::Tcp(host, port)),
                Ok(None) => RedisError::from((
                    ErrorKind::MasterNameNotFoundBySentinel,
                    "the sentinels know no master of this name",
                    master.to_owned(),
                )),
                Err(wrong) => wrong,
            };
        }
        Err(wrong)
    }

    fn info(&self) -> RedisConnectionInfo {
        info(&self.address.login, self.address.database)
    }

    /// Each change under the lock is one step, so that a poisoned lock guards whole data.
    fn owner(&self) -> MutexGuard<'_, Option<Place>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

async fn of_stream(
    info: &RedisConnectionInfo,
    stream: Box<dyn ByteStream>,
) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let (connection, driver) = MultiplexedConnection::new_with_config(info, stream, config).await?;
    // It ends with the last clone of the connection.
    tokio::spawn(driver);
    Ok(connection)
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
        // One that is about to have them is asked once.
        let ask = server_error(ServerErrorKind::Ask, "3999 four:6384");
        let there = Redirect::Once(Place::Tcp("four".to_owned(), 6384));
        assert_eq!(servers.redirect(&ask), Some(there));
        assert_eq!(*servers.owner(), place("::1", 6383));
    }
}
