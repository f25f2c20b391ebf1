//! A proxy that does to a connection what networks do: delays it, swallows it, cuts it.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    select,
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

use crate::blocking_server::free_port;

/// What the proxy does to what passes through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Every piece, both ways, is held back for a time between these.
    Delay(Duration, Duration),
    /// Everything is taken and nothing is passed on. Connections are accepted.
    BlackHole,
    /// A connection is reset once this many more bytes of answers have passed, counted over all connections.
    ResetAfter(usize),
    /// Every connection is closed, and new ones as soon as they are there.
    Close,
    /// Every connection is closed, and there is no listener.
    Refuse,
}

/// Listens on a port of its own; ends with all its connections on drop.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    fault: watch::Sender<Fault>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    target: u16,
    accepted: AtomicU64,
    /// Bytes of answers that may still pass under [`Fault::ResetAfter`].
    left: AtomicUsize,
    rng: Mutex<Rng>,
}

impl Proxy {
    /// A proxy before the port `target` of the loopback. Its delays follow from `seed`.
    pub async fn start(target: u16, seed: u64) -> Self {
        // Reserved: without a listener, the port would be free for the server of another test.
        let port = free_port();
        let listener = listen(port).await.expect("it is reserved");
        let (fault, faults) = watch::channel(Fault::None);
        let shared = Arc::new(Shared {
            target,
            accepted: AtomicU64::new(0),
            left: AtomicUsize::new(0),
            rng: Mutex::new(Rng::with_seed(seed)),
        });
        let task = tokio::spawn(run(listener, port, faults, Arc::clone(&shared)));
        Self {
            port,
            fault,
            shared,
            task,
        }
    }

    /// The port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it is, as `RedisStore::builder` takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Does this from now on, also to the connections that are there.
    pub fn set(&self, fault: Fault) {
        if let Fault::ResetAfter(bytes) = fault {
            self.shared.left.store(bytes, Ordering::SeqCst);
        }
        self.fault.send_replace(fault);
    }

    /// Connections so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await
}

async fn run(
    listener: TcpListener,
    port: u16,
    mut faults: watch::Receiver<Fault>,
    shared: Arc<Shared>,
) {
    let mut listener = Some(listener);
    // Dropped with this task, and all connections with it.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let fault = *faults.borrow_and_update();
        if fault == Fault::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = listen(port).await.ok();
        }
        if matches!(fault, Fault::Refuse | Fault::Close) {
            connections.abort_all();
        }
        let accept = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        select! {
            changed = faults.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
            accepted = accept => if let Ok((client, _)) = accepted {
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                if fault != Fault::Close {
                    connections.spawn(connection(client, faults.clone(), Arc::clone(&shared)));
                }
            },
        }
    }
}

async fn connection(client: TcpStream, faults: watch::Receiver<Fault>, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", shared.target)).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let layout = async {
        let mut buffer = vec![0; 16_384];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            if !passes(&faults, &shared).await {
                continue;
            }
            if to_server.write_all(&buffer[..length]).await.is_err() {
                return false;
            }
        }
        false
    };
    let answered = async {
        let mut buffer = vec![0; 16_384];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if !passes(&faults, &shared).await {
                continue;
            }
            let mut length = length;
            let resets = matches!(*faults.borrow(), Fault::ResetAfter(_));
            if resets {
                let left = shared
                    .left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                        Some(left.saturating_sub(length))
                    });
                length = length.min(left.unwrap_or(0));
            }
            if to_client.write_all(&buffer[..length]).await.is_err() {
                return false;
            }
            if resets && shared.left.load(Ordering::SeqCst) == 0 {
                return true;
            }
        }
        false
    };
    let reset = select! {
        reset = layout => reset,
        reset = answered => reset,
    };
    if reset && let Ok(client) = from_client.reunite(to_client) {
        let _ = client.set_zero_linger();
    }
}

/// Holds a piece back for as long as it should be; `false` if it is swallowed.
async fn passes(faults: &watch::Receiver<Fault>, shared: &Shared) -> bool {
    let fault = *faults.borrow();
    match fault {
        Fault::BlackHole => false,
        Fault::Delay(least, most) => {
            let share = shared.rng.lock().map_or(0.5, |mut rng| rng.f64());
            sleep(least + (most - least).mul_f64(share)).await;
            true
        }
        _ => true,
    }
}
