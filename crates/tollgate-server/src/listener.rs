//! Accepting connections, for all doors: over TCP or a Unix socket, encrypted or not, until the server ends.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fs,
    future::pending,
    io,
    net::IpAddr,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::PathBuf,
    pin::{Pin, pin},
    sync::{Arc, atomic::AtomicU64},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, UnixListener, UnixStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use crate::{
    metrics::{full, refused},
    mistakes::Mistakes,
    settings::{DoorSettings, Listen},
    tls::Tls,
};

/// Connections of a door at once. Envoy has one for each of its workers.
const MAX_CONNECTIONS: usize = 4_096;
/// Those that anybody may open: to pages, and of peers that may not ask. Of more, the oldest ends, so that the next one is heard.
const MAX_STRANGERS: usize = 64;
/// The most fields of a request over HTTP/1.1: nginx takes a thousand, and asks with all of them. What is refused here may pass.
const MAX_FIELDS: usize = 1_024;
/// How long a client may take to greet.
const GREETING: Duration = Duration::from_secs(5);
/// How long a silent client is waited for, whose host may be gone.
const SILENCE: Duration = Duration::from_secs(30);
/// After which time it is said again that a door is full.
const MINUTE: Duration = Duration::from_secs(60);

/// What answers the requests of a door.
pub(crate) trait Door: Send + Sync + 'static {
    /// As it is called in metrics.
    const NAME: &'static str;

    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;

    /// The answer to who may not ask.
    fn refuse(&self) -> Response<Body>;
}

/// A socket that is bound.
pub(crate) struct Listener {
    socket: Socket,
    tls: Option<Tls>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

impl Listener {
    pub(crate) async fn bind(listen: &Listen, tls: Option<Tls>) -> Result<Self, Mistakes> {
        let socket = Socket::bind(listen)
            .await
            .map_err(|wrong| Mistakes::one(format!("{listen}: {wrong}")))?;
        Ok(Self { socket, tls })
    }

    /// Where it listens: the port, if the system has chosen it.
    pub(crate) fn address(&self) -> String {
        match &self.socket {
            Socket::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| String::new(), |it| it.to_string()),
            Socket::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// Serves until `ending` says that the server ends, and then until the requests under way are answered.
    pub(crate) async fn serve<D: Door>(
        self,
        settings: Option<Arc<DoorSettings>>,
        door: Arc<D>,
        mut ending: watch::Receiver<bool>,
    ) {
        let (mut connections, mut strangers) = (JoinSet::new(), JoinSet::new());
        let mut by_age: VecDeque<AbortHandle> = VecDeque::new();
        let (ends, last_full) = (ending.clone(), AtomicU64::new(0));
        loop {
            let accepted = tokio::select! {
                _ = ending.wait_for(|ending| *ending) => break,
                Some(_) = connections.join_next() => continue,
                Some(_) = strangers.join_next() => continue,
                accepted = self.socket.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
                () = sleep(MINUTE), if connections.len() == MAX_CONNECTIONS => {
                    full(D::NAME, MAX_CONNECTIONS, &last_full);
                    continue;
                }
            };
            match accepted {
                Ok((io, peer)) => {
                    let is_known = settings.as_ref().is_some_and(|it| it.allows(peer));
                    let connection = Connection {
                        is_allowed: is_known || settings.is_none(),
                        age: settings.as_ref().and_then(|it| it.max_connection_age()),
                        peer,
                        door: Arc::clone(&door),
                    };
                    let greeted = connection.greet(io, self.tls.clone(), ends.clone());
                    if is_known {
                        connections.spawn(greeted);
                        if connections.len() == MAX_CONNECTIONS {
                            full(D::NAME, MAX_CONNECTIONS, &last_full);
                        }
                    } else {
                        by_age.retain(|stranger| !stranger.is_finished());
                        by_age.push_back(strangers.spawn(greeted));
                        if by_age.len() > MAX_STRANGERS
                            && let Some(oldest) = by_age.pop_front()
                        {
                            oldest.abort();
                        }
                    }
                }
                // No file descriptor is left, say.
                Err(wrong) => {
                    tracing::error!(target: "tollgate", "no connection can be accepted: {wrong}");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(self);
        if settings.is_none() {
            // Those of a page are as welcome.
            while strangers.join_next().await.is_some() {}
        }
        while connections.join_next().await.is_some() {}
    }
}

impl Socket {
    async fn bind(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            Listen::Unix(path) => {
                // What a server has left that was killed. Of one that lives, the name is kept.
                if UnixStream::connect(path)
                    .await
                    .is_err_and(|it| it.kind() == io::ErrorKind::ConnectionRefused)
                    && fs::metadata(path).is_ok_and(|it| it.file_type().is_socket())
                {
                    fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
                Ok(Self::Unix(listener, path.clone()))
            }
        }
    }

    async fn accept(&self) -> io::Result<(Box<dyn Io>, Option<IpAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let keepalive = TcpKeepalive::new()
                    .with_time(SILENCE)
                    .with_interval(SILENCE / 3)
                    .with_retries(3);
                SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                Ok((Box::new(stream), Some(peer.ip())))
            }
            Self::Unix(listener, _) => Ok((Box::new(listener.accept().await?.0), None)),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Another server may have taken it.
            let _ = fs::remove_file(path);
        }
    }
}

/// One client.
struct Connection<D> {
    peer: Option<IpAddr>,
    is_allowed: bool,
    age: Option<Duration>,
    door: Arc<D>,
}

impl<D: Door> Connection<D> {
    async fn greet(self, io: Box<dyn Io>, tls: Option<Tls>, ending: watch::Receiver<bool>) {
        let Some(tls) = tls else {
            return self.serve(io, ending).await;
        };
        match timeout(GREETING, tls.accept(io)).await {
            Ok(Ok(stream)) => self.serve(stream, ending).await,
            Ok(Err(wrong)) => refused(D::NAME, self.peer, &wrong),
            Err(_) => {}
        }
    }

    async fn serve<I: Io + 'static>(self, io: I, mut ending: watch::Receiver<bool>) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_headers(MAX_FIELDS);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(SILENCE)
            .max_concurrent_streams(1_024)
            .max_header_list_size(128 << 10);
        let (age, shared) = (self.age, Arc::new(self));
        let service = service_fn(|request| {
            let connection = Arc::clone(&shared);
            async move {
                Ok::<_, Infallible>(match connection.is_allowed {
                    true => connection.door.answer(request).await,
                    false => {
                        refused(D::NAME, connection.peer, &"its network is not in `allow`");
                        connection.door.refuse()
                    }
                })
            }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(Copied(io)), service));
        let mut ends = pin!(async {
            let aged = async {
                match age {
                    // So that connections do not all end at once.
                    Some(age) => sleep(age.mul_f64(0.9 + fastrand::f64() / 5.0)).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = ending.wait_for(|ending| *ending) => {}
                () = aged => {}
            }
        });
        tokio::select! {
            // A client that is gone is no mistake.
            _ = connection.as_mut() => return,
            () = ends.as_mut() => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// A stream that takes one buffer at a time. To one that takes several, h2 writes each answer of 256 bytes or more by a call of the
/// system of its own; to this one it copies all up to 1 KiB, and writes what has gathered.
struct Copied<I>(I);

impl<I: AsyncRead + Unpin> AsyncRead for Copied<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Copied<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
