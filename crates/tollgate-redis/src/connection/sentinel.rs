//! Asking sentinels where the master is.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    address::{Access, Place, Sentinels},
    connection::{connect::connect, connect_error::ConnectError, security::Security, value::Value},
};

/// The sentinels of a master, the one that answered last first.
#[derive(Debug)]
pub(super) struct Resolver {
    sentinels: Sentinels,
    access: Access,
    order: Vec<usize>,
    patience: Duration,
    security: Option<Security>,
}

impl Resolver {
    /// Each sentinel is given `patience` to answer, and asked by `access`.
    pub(super) fn new(
        sentinels: Sentinels,
        access: Access,
        patience: Duration,
        security: Option<Security>,
    ) -> Self {
        Self {
            order: (0..sentinels.places().len()).collect(),
            sentinels,
            access,
            patience,
            security,
        }
    }

    /// Where the master is, by the first sentinel that knows. The next time a sentinel that did not know is asked last.
    pub(super) async fn resolve(&mut self) -> Result<Place, ConnectError> {
        let mut last = ConnectError::unavailable("there are no sentinels");
        for _ in 0..self.order.len() {
            let place = &self.sentinels.places()[self.order[0]];
            let error = match timeout(self.patience, self.ask(place)).await {
                Ok(Ok(master)) => return Ok(master),
                Ok(Err(error)) => error,
                Err(_) => ConnectError::unavailable("no answer in time"),
            };
            last = error.at(format_args!("sentinel {place}"));
            self.order.rotate_left(1);
        }
        Err(last)
    }

    /// The master that was named cannot be used: another sentinel may know better.
    pub(super) fn distrust(&mut self) {
        self.order.rotate_left(1);
    }

    async fn ask(&self, place: &Place) -> Result<Place, ConnectError> {
        let mut handshake = connect(place, &self.access, self.security.as_ref()).await?;
        let name = self.sentinels.master();
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name];
        match handshake.ask(&question).await? {
            Ok(answer) => answer.list().map(read).unwrap_or_else(|| {
                let message = format!("no master is known by the name {name:?}");
                Err(ConnectError::unavailable(message))
            }),
            Err(line) => Err(ConnectError::of_server("SENTINEL", &line)),
        }
    }
}

fn read(address: &[Value]) -> Result<Place, ConnectError> {
    match address {
        [host, port] => {
            let port = port.text().and_then(|port| port.parse().ok());
            host.text().zip(port)
        }
        _ => None,
    }
    .map(|(host, port)| Place::Tcp(host.to_owned(), port))
    .ok_or_else(|| ConnectError::unavailable("the master's address could not be read"))
}
