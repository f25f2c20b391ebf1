//! A log-in that guessers cannot try for ever, with a way in for the owner: `cargo run --example login`.
//!
//! Five failures a minute, by address before the body is read and by account once it has named it; who goes on is blocked for longer
//! each time. Networks in `abusive.txt` do not get so far. A device that has logged in before has budgets of its own.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{
    collections::HashMap,
    error::Error,
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Form, Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use tokio::net::TcpListener;
use tollgate::{
    Admission, Block, DAY, Denied, HOUR, Key, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule,
    key::{KeyExtractor, client_ip, computed},
    key_list::KeyList,
    rejection::Protocol,
};
use tollgate_rules::ListFile;

#[derive(Deserialize)]
struct Login {
    account: String,
    password: String,
}

/// The devices that have logged in, each with its account. A service has them in its database.
#[derive(Clone, Default)]
struct Devices(Arc<Mutex<HashMap<String, String>>>);

impl Devices {
    /// The device of a request that has logged in before, and its account.
    fn known(&self, headers: &HeaderMap) -> Option<(String, String)> {
        let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
        let mut cookies = cookies.split(';');
        let device = cookies.find_map(|cookie| cookie.trim().strip_prefix("device="))?;
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some((device.to_owned(), known.get(device)?.clone()))
    }

    /// Remembers a device by a name that nobody can guess: take 128 bits of your random number generator.
    fn remember(&self, account: &str) -> String {
        let random = || RandomState::new().hash_one(account);
        let device = format!("{:016x}{:016x}", random(), random());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(device.clone(), account.to_owned());
        device
    }
}

async fn login(
    State(devices): State<Devices>,
    admission: Admission,
    headers: HeaderMap,
    Form(login): Form<Login>,
) -> Result<Response, Denied> {
    // As the look-up compares it, so that no spelling has a budget of its own.
    let account = login.account.trim().to_ascii_lowercase();
    // An attacker locks out strangers, and not the owner's devices.
    let known = devices.known(&headers).filter(|(_, of)| *of == account);
    let device = known.map_or("a new device".to_owned(), |(device, _)| device);
    let key = Key::of((&*account, &*device));
    let attempt = admission
        .acquire_ticket("failures-per-account", &key)
        .await?;
    if login.password != "open sesame" {
        // What was taken stays taken.
        return Ok(StatusCode::UNAUTHORIZED.into_response());
    }
    attempt.cancel();
    // Over HTTPS with `Secure` as well.
    let device = devices.remember(&account);
    let cookie = format!("device={device}; HttpOnly; SameSite=Strict; Max-Age=31536000");
    Ok(([(header::SET_COOKIE, cookie)], "welcome\n").into_response())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = "abusive.txt";
    if !std::path::Path::new(path).exists() {
        std::fs::write(path, "# One network a line.\n")?;
    }
    let abusive = ListFile::watch(&KeyList::new("abusive"), path)?;
    let block = || {
        Block::after(5)
            .within(10 * MINUTE)
            .for_each([MINUTE, 10 * MINUTE, HOUR])
            .forget_after(DAY)
    };
    let devices = Devices::default();
    let known = devices.clone();
    let limits = RateLimitLayer::new(
        MemoryStore::new(),
        [
            Rule::new("abusive", Quota::none())
                .by(client_ip())
                .when_listed(abusive.list()),
            Rule::new("failures-per-client", Quota::sliding_log(5, MINUTE))
                .block(block())
                // The owner's devices, behind the attacker's address too. By account and not by device: one who has an account and
                // tries others would get a new device by each log-in.
                .by(computed(move |head| {
                    let (_, account) = known.known(head.headers)?;
                    Some(Key::of(account))
                })
                .or(client_ip()))
                .count_if(|response| response.is_failure()),
            Rule::new("failures-per-account", Quota::sliding_log(5, MINUTE))
                .block(block().count_settled())
                .by_handler(),
        ],
    )?
    .hide_quota()
    .protocol(Protocol::Http);
    let app = Router::new()
        .route("/login", post(login).route_layer(limits))
        .with_state(devices);
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Client IP addresses come from the socket, so the server has to hand them to the requests.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
