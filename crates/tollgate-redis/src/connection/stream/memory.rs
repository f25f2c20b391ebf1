//! Servers that a test plays in its own memory, so that its clock may be paused.

use std::{cell::RefCell, collections::HashMap, io, path::Path, path::PathBuf, rc::Rc, sync::Arc};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};

use crate::connection::{resp::decode, stream::Transport, supervisor::NOTHING};

/// Takes a connection, or refuses it.
type Accept = Rc<dyn Fn(DuplexStream) -> io::Result<()>>;

thread_local! {
    /// By the path of the socket that they would listen on. A test with one thread finds its own.
    static SERVERS: RefCell<HashMap<PathBuf, Accept>> = RefCell::default();
}

/// From now on `accept` is given each connection to this path.
pub(crate) fn listen(path: &str, accept: impl Fn(DuplexStream) -> io::Result<()> + 'static) {
    SERVERS.with_borrow_mut(|servers| servers.insert(path.into(), Rc::new(accept)));
}

/// What a server says to a command, by its words; nothing if that is empty.
type Say = dyn Fn(&[&str]) -> String + Send + Sync;

/// From now on there is a server at this path. It lets everybody in, and `say` gives its answers to all else.
pub(crate) fn play(path: &str, say: impl Fn(&[&str]) -> String + Send + Sync + 'static) {
    let say: Arc<Say> = Arc::new(say);
    listen(path, move |stream| {
        tokio::spawn(serve(stream, Arc::clone(&say)));
        Ok(())
    });
}

/// Serves one connection until its client closes it.
pub(crate) async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, say: Arc<Say>) {
    let mut input = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut input).await {
        let mut answers = String::new();
        while let Ok(Some((command, length))) = decode(&input) {
            let words = command.list().expect("a command is a list").iter();
            let words: Vec<_> = words.map(|word| word.text().unwrap_or("?")).collect();
            answers += &match words[0] {
                "HELLO" | "CLIENT" | "AUTH" => "+OK\r\n".to_owned(),
                _ if words == NOTHING => ":1\r\n".to_owned(),
                _ => say(&words),
            };
            input.drain(..length);
        }
        if stream.write_all(answers.as_bytes()).await.is_err() {
            return;
        }
    }
}

pub(super) fn is_server(path: &Path) -> bool {
    SERVERS.with_borrow(|servers| servers.contains_key(path))
}

pub(super) fn connect(path: &Path) -> io::Result<DuplexStream> {
    let server = SERVERS.with_borrow(|servers| servers.get(path).cloned());
    let accept = server.ok_or(io::ErrorKind::NotFound)?;
    // More than is ever in flight: a write does not wait, as it would not for the buffer of a socket.
    let (client, server) = duplex(1 << 20);
    accept(server).map(|()| client)
}

impl Transport for DuplexStream {}
