//! A socket that listens, and accepts no connection.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

/// A socket that listens and whose backlog is full: connections to it are neither accepted nor refused.
#[derive(Debug)]
pub struct FullBacklog {
    listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullBacklog {
    /// A socket on a free port of the loopback, whose backlog is full already.
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(any).expect("a port");
        let listener = socket.listen(1).expect("it listens");
        let address = listener.local_addr().expect("its address");
        let mut waiting = Vec::new();
        // The first that is not let in says that it is full.
        while let Ok(Ok(stream)) =
            timeout(Duration::from_millis(500), TcpStream::connect(address)).await
        {
            waiting.push(stream);
        }
        Self {
            listener,
            _waiting: waiting,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("its address")
    }
}
