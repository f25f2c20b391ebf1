//! Serving an example on the loopback interface.

use std::{error::Error, net::SocketAddr};

use axum::Router;
use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

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
    println!("listening on http://{address}\n\n{}", try_this(address));
    // Client IP addresses come from the socket, so the server has to hand them to the requests.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async {
            tokio::select! {
                () = ctrl_c() => {}
                () = terminated() => {}
            }
        })
        .await?;
    Ok(())
}

/// Where there is no Ctrl-C to wait for, the server runs until it is killed.
async fn ctrl_c() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// So that what the example has started ends with it.
async fn terminated() {
    #[cfg(unix)]
    if let Ok(mut terminate) = signal(SignalKind::terminate()) {
        terminate.recv().await;
        return;
    }
    std::future::pending().await
}
