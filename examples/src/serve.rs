//! Serving an example on the loopback interface.

use std::{error::Error, io, net::SocketAddr};

use axum::Router;
use tokio::net::TcpListener;

/// Serves `app` on 127.0.0.1, on `$PORT` or 3000, until Ctrl-C or a polite `kill`, and prints what to try.
///
/// # Errors
///
/// `$PORT` is not a port, or is in use.
pub async fn serve(
    app: Router,
    try_this: impl Fn(SocketAddr) -> String,
) -> Result<(), Box<dyn Error>> {
    let port = match std::env::var("PORT") {
        Ok(port) => port
            .parse()
            .map_err(|_| format!("PORT is {port:?}; it has to be a number from 0 to 65535"))?,
        Err(_) => 3000,
    };
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .map_err(|error| format!("127.0.0.1:{port}: {error}; choose another with PORT=…"))?;
    let address = listener.local_addr()?;
    // Before anybody can know that it is there.
    let end = shutdown_signal()?;
    println!("listening on http://{address}\n\n{}", try_this(address));
    // Client IP addresses come from the socket, so the server has to hand them to the requests.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(end)
        .await?;
    Ok(())
}

/// Until Ctrl-C or a polite `kill`, which are waited for from this call on: what an example has started ends with it.
#[cfg(unix)]
fn shutdown_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn shutdown_signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        // Where there is no Ctrl-C to wait for, the server runs until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    })
}
