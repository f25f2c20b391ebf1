//! A proxy before the bus of a cluster's server, over which the servers see each other: one of them can be cut off.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    select,
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// Who is cut off from all others: its number, and its name.
pub type Cut = Option<(usize, String)>;

/// Ends with all its connections on drop.
#[derive(Debug)]
pub struct BusProxy {
    port: u16,
    task: JoinHandle<()>,
}

/// Where a message of the bus says who sends it.
const SENDER: std::ops::Range<usize> = 40..80;

impl BusProxy {
    /// A proxy before the port `target` of the server with this number.
    pub async fn start(target: u16, number: usize, cut: watch::Receiver<Cut>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("a port for the proxy");
        let port = listener.local_addr().expect("its address").port();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(connection(client, target, number, cut.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, task }
    }

    /// The port that the other servers have to be told.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for BusProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connection(
    mut client: TcpStream,
    target: u16,
    number: usize,
    mut cut: watch::Receiver<Cut>,
) {
    let mut first = Vec::new();
    while first.len() < SENDER.end {
        let Ok(1..) = client.read_buf(&mut first).await else {
            return;
        };
    }
    let sender = String::from_utf8_lossy(&first[SENDER]).into_owned();
    let is_cut = |cut: &Cut| {
        let off = cut.as_ref();
        off.is_some_and(|(server, name)| *server == number || *name == sender)
    };
    let pass = async {
        let mut server = TcpStream::connect(("127.0.0.1", target)).await?;
        server.write_all(&first).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    select! {
        biased;
        _ = cut.wait_for(is_cut) => {}
        _ = pass => {}
    }
}
