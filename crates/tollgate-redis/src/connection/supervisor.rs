//! The one task of a node: connects, keeps the connection at work, and connects anew.

use std::sync::Arc;

use tokio::{
    select,
    time::{Instant, sleep, timeout},
};

use crate::{
    address::{Address, Place, Target},
    connection::{
        backoff::Backoff,
        connect::{Connector, is_master},
        connect_error::{ConnectError, ConnectErrorKind},
        driver::{Driver, Lost},
        event::NodeEvent,
        link::Shared,
        peer::Peer,
        prober::probe,
        queue::Queue,
        renewal::Renewal,
        sentinel::Resolver,
        stream::Stream,
    },
    credentials::Credentials,
};

/// Runs until it is dropped, and takes the connection along.
pub(super) async fn supervise(address: Address, shared: Arc<Shared>) {
    let options = shared.options();
    let mut backoff = Backoff::new(options.first_pause, options.longest_pause, options.seed);
    let connector = Connector::new(&address, options);
    let resolver = match address.target() {
        Target::Server(_) | Target::Cluster(_) => None,
        Target::Sentinel(sentinels) => Some(Resolver::new(
            sentinels.clone(),
            address.sentinel_access(sentinels),
            options.connect_timeout() / 2,
            Connector::new(&address, options),
            options.address_map.clone(),
        )),
    };
    loop {
        match connect_within(&address, &connector, resolver.as_ref(), &shared).await {
            Ok((stream, peer, used)) => {
                let began = Instant::now();
                let renewal = Renewal {
                    connector: &connector,
                    place: &peer.place,
                    access: address.access(),
                    options,
                };
                let renewal = (renewal, used);
                let was_of_use = serve(stream, &peer, renewal, resolver.as_ref(), &shared).await;
                if was_of_use || began.elapsed() > options.longest_pause {
                    backoff.reset();
                }
            }
            Err(error) => {
                options.credentials.forget();
                let why = Arc::clone(error.message());
                let event = NodeEvent::NotConnected(error.kind(), why);
                shared.events().tell(&event);
                shared.set_missing(&error);
            }
        }
        shared.breaker().disconnected();
        sleep(backoff.next(Instant::now())).await;
    }
}

async fn connect_within(
    address: &Address,
    connector: &Connector,
    resolver: Option<&Resolver>,
    shared: &Shared,
) -> Result<(Stream, Arc<Peer>, Option<Credentials>), ConnectError> {
    let patience = shared.options().connect_timeout();
    let credentials = &shared.options().credentials;
    let in_time = |place: Place, verify| async move {
        // Not part of the time to connect in: a token service may be far away.
        let (access, used) = match credentials.access(address.access()).await {
            Ok(access) => access,
            Err(error) => return Err(error.at(format_args!("{place}"))),
        };
        let further = match verify {
            true => vec![vec!["ROLE"]],
            false => Vec::new(),
        };
        let ready = async {
            let connected = connector.connect(&place, &access, &further).await?;
            if verify && !is_master(connected.answers.first())? {
                let what = "it is not the master";
                return Err(ConnectError::new(ConnectErrorKind::NotMaster, what));
            }
            Ok((
                connected.handshake.finish()?,
                Arc::new(connected.peer),
                used,
            ))
        };
        match timeout(patience, ready).await {
            Ok(ready) => ready.map_err(|error| error.at(format_args!("{place}"))),
            Err(_) => Err(ConnectError::new(
                ConnectErrorKind::Timeout,
                format!("{place}: not ready within {patience:?}"),
            )),
        }
    };
    let unresolved = |what: &str| ConnectError::new(ConnectErrorKind::Unresolved, what);
    match (address.target(), resolver) {
        (Target::Server(place), _) => in_time(place.clone(), false).await,
        (Target::Sentinel(_), Some(resolver)) => in_time(resolver.resolve().await?, true).await,
        (Target::Sentinel(_), None) => Err(unresolved("there are no sentinels")),
        (Target::Cluster(_), _) => Err(unresolved("a cluster is no server")),
    }
}

/// Serves one connection until it is lost. Says whether the server was of use.
async fn serve(
    stream: Stream,
    peer: &Arc<Peer>,
    (renewal, used): (Renewal<'_>, Option<Credentials>),
    resolver: Option<&Resolver>,
    shared: &Shared,
) -> bool {
    let options = shared.options();
    let queue = Arc::new(Queue::new(options.waiting));
    let mut driver = Driver::new(
        stream,
        Arc::clone(&queue),
        Arc::clone(shared.breaker()),
        options,
    );
    shared.set_connected(Arc::clone(&queue));
    shared.breaker().connected();
    let event = NodeEvent::Connected(Arc::clone(peer));
    shared.events().tell(&event);
    let lost = select! {
        // What was answered counts before what is lost.
        biased;
        lost = &mut driver => lost,
        () = moved(&peer.place, resolver, shared) => Lost::Moved,
        () = probe(shared.breaker(), &queue, options) => Lost::Dropped,
        () = renewal.run(used, &queue) => Lost::Dropped,
    };
    driver.lose(lost.clone());
    let why: Arc<str> = lost.to_string().into();
    shared.set_missing(&ConnectError::new(
        ConnectErrorKind::Server,
        Arc::clone(&why),
    ));
    shared.events().tell(&NodeEvent::Lost(why));
    driver.was_of_use()
}

/// Ends when sentinels name another master. Where there are none, never.
async fn moved(place: &Place, resolver: Option<&Resolver>, shared: &Shared) {
    let Some(resolver) = resolver else {
        return std::future::pending().await;
    };
    loop {
        sleep(shared.options().sentinel_interval).await;
        // Sentinels that do not answer say nothing about the master.
        if let Ok(master) = resolver.resolve().await
            && master != *place
        {
            return;
        }
    }
}
