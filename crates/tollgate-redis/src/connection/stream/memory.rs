//! Servers that a test plays in its own memory, so that its clock may be paused.

use std::{cell::RefCell, collections::HashMap, io, path::Path, path::PathBuf, rc::Rc};

use tokio::io::{DuplexStream, duplex};

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

pub(super) fn is_server(path: &Path) -> bool {
    SERVERS.with_borrow(|servers| servers.contains_key(path))
}

pub(super) fn connect(path: &Path) -> io::Result<DuplexStream> {
    let accept = SERVERS.with_borrow(|servers| servers.get(path).cloned());
    let accept = accept.ok_or(io::ErrorKind::NotFound)?;
    // More than is ever in flight: a write does not wait, as it would not for the buffer of a socket.
    let (client, server) = duplex(1 << 20);
    accept(server).map(|()| client)
}
