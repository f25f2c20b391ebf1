//! From a place to a connection that is logged in.

use std::io;

use crate::{
    address::{Access, Login, Place, Protocol},
    connection::{
        connect_error::ConnectError,
        handshake::Handshake,
        security::Security,
        stream::{Stream, Transport, tcp},
        value::Value,
    },
};

/// Connects, encrypted if there is a `security`, and logs in.
pub(super) async fn connect(
    place: &Place,
    access: &Access,
    security: Option<&Security>,
) -> Result<Handshake<Stream>, ConnectError> {
    let failed = |error: io::Error| ConnectError::unavailable(error.to_string());
    let stream = match (security, place) {
        (Some(security), Place::Tcp(host, port)) => {
            let stream = tcp(host, *port, &access.tcp).await.map_err(failed)?;
            security.encrypt(stream, host).await?
        }
        _ => Stream::open(place, &access.tcp).await.map_err(failed)?,
    };
    let mut handshake = Handshake::new(stream);
    log_in(&mut handshake, &access.login, access.protocol).await?;
    if access.database != 0 {
        let number = access.database.to_string();
        if let Err(line) = handshake.ask(&["SELECT", &number]).await? {
            return Err(ConnectError::of_server(&format!("SELECT {number}"), &line));
        }
    }
    Ok(handshake)
}

/// Protocol 3 where the server has it, for servers close connections more politely with it, otherwise 2.
async fn log_in<S: Transport>(
    handshake: &mut Handshake<S>,
    login: &Login,
    protocol: Protocol,
) -> Result<(), ConnectError> {
    if protocol == Protocol::Resp2 {
        return authenticate(handshake, login).await;
    }
    let mut hello = vec!["HELLO", "3"];
    if let Some((user, password)) = login.parts() {
        hello.extend(["AUTH", user, password]);
    }
    let Err(line) = handshake.ask(&hello).await? else {
        return Ok(());
    };
    let unknown = line.starts_with("NOPROTO") || line.starts_with("ERR unknown command");
    if !unknown {
        return Err(ConnectError::of_server("HELLO", &line));
    }
    authenticate(handshake, login).await
}

async fn authenticate<S: Transport>(
    handshake: &mut Handshake<S>,
    login: &Login,
) -> Result<(), ConnectError> {
    let Some((user, password)) = login.parts() else {
        return Ok(());
    };
    let auth = if login.names_a_user() {
        vec!["AUTH", user, password]
    } else {
        vec!["AUTH", password]
    };
    match handshake.ask(&auth).await? {
        Ok(_) => Ok(()),
        Err(line) => Err(ConnectError::of_server("AUTH", &line)),
    }
}

/// Whether the server says that it is a master. After a fail-over sentinels may name one that no longer is.
pub(super) async fn is_master<S: Transport>(
    handshake: &mut Handshake<S>,
) -> Result<bool, ConnectError> {
    match handshake.ask(&["ROLE"]).await? {
        Ok(answer) => match answer.list() {
            Some(role) => Ok(role.first().and_then(Value::text) == Some("master")),
            None => Err(ConnectError::unavailable("ROLE was answered with no list")),
        },
        Err(line) => Err(ConnectError::of_server("ROLE", &line)),
    }
}
