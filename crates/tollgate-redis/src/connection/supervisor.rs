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
        connect::{connect, is_master},
        connect_error::ConnectError,
        driver::{Driver, Lost},
        event::NodeEvent,
        link::Shared,
        prober::probe,
        queue::Queue,
        sentinel::Resolver,
        stream::Stream,
    },
};

/// Runs until it is dropped, and takes the connection along.
pub(super) async fn supervise(address: Address, shared: Arc<Shared>) {
    let options = shared.options();
    let mut backoff = Backoff::new(options.first_pause, options.longest_pause, options.seed);
    let mut resolver = match address.target() {
        Target::Server(_) | Target::Cluster(_) => None,
        Target::Sentinel(sentinels) => {
            let security = address.is_encrypted().then(|| options.security.clone());
            Some(Resolver::new(
                sentinels.clone(),
                address.sentinel_access(sentinels),
                options.connect_timeout(),
                security,
            ))
        }
    };
    loop {
        match connect_within(&address, resolver.as_mut(), &shared).await {
            Ok((stream, place)) => {
                let began = Instant::now();
                let was_of_use = serve(stream, &place, resolver.as_mut(), &shared).await;
                if was_of_use || began.elapsed() > options.longest_pause {
                    backoff.reset();
                }
            }
            Err(error) => {
                shared
                    .events()
                    .tell(&NodeEvent::NotConnected(Arc::clone(error.message())));
                shared.set_missing(&error);
            }
        }
        shared.breaker().disconnected();
        sleep(backoff.next(Instant::now())).await;
    }
}

async fn connect_within(
    address: &Address,
    resolver: Option<&mut Resolver>,
    shared: &Shared,
) -> Result<(Stream, Place), ConnectError> {
    let patience = shared.options().connect_timeout();
    let security = address.is_encrypted().then_some(&shared.options().security);
    let in_time = |place: Place, verify| async move {
        let ready = async {
            let mut handshake = connect(&place, address.access(), security).await?;
            if verify && !is_master(&mut handshake).await? {
                return Err(ConnectError::unavailable("it is not the master"));
            }
            handshake.finish()
        };
        match timeout(patience, ready).await {
            Ok(Ok(stream)) => Ok((stream, place)),
            Ok(Err(error)) => Err(error.at(format_args!("{place}"))),
            Err(_) => Err(ConnectError::unavailable(format!(
                "{place}: not ready within {patience:?}"
            ))),
        }
    };
    match (address.target(), resolver) {
        (Target::Server(place), _) => in_time(place.clone(), false).await,
        (Target::Sentinel(_), Some(resolver)) => {
            let place = resolver.resolve().await?;
            let connected = in_time(place, true).await;
            if connected.is_err() {
                resolver.distrust();
            }
            connected
        }
        (Target::Sentinel(_), None) => Err(ConnectError::unavailable("there are no sentinels")),
        (Target::Cluster(_), _) => Err(ConnectError::unavailable("a cluster is no server")),
    }
}

/// Serves one connection until it is lost. Says whether the server was of use.
async fn serve(
    stream: Stream,
    place: &Place,
    resolver: Option<&mut Resolver>,
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
    shared.events().tell(&NodeEvent::Connected);
    let lost = select! {
        // What was answered counts before what is lost.
        biased;
        lost = &mut driver => lost,
        () = moved(place, resolver, shared) => Lost::Moved,
        () = probe(shared.breaker(), &queue, options) => Lost::Dropped,
    };
    driver.lose(lost.clone());
    let why: Arc<str> = lost.to_string().into();
    shared.set_missing(&ConnectError::unavailable(Arc::clone(&why)));
    shared.events().tell(&NodeEvent::Lost(why));
    driver.was_of_use()
}

/// Ends when sentinels name another master. Where there are none, never.
async fn moved(place: &Place, resolver: Option<&mut Resolver>, shared: &Shared) {
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
