//! The router: pages, their parts, events and actions.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{OriginalUri, Request, State},
    response::Response,
    routing::any,
};
use http::{HeaderValue, Method, StatusCode, header, request::Parts};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use tokio_stream::{StreamExt, once, wrappers::WatchStream};

use crate::{
    access::{Access, Refusal, refuse_other_sites},
    action, client,
    console::{Console, Operator, Shared},
    explain, overview,
    response::{Wrong, answer, redirect, respond},
};

/// The largest body.
const LARGEST: usize = 64 << 10;
/// How many tabs there may be.
const MOST: usize = 64;
/// How many samples a tab hears before it asks again: a service that shuts down need not wait longer.
const SAMPLES: usize = 20;

/// The pages, all of which are one file; scripts show what belongs to the name.
const PAGES: [&str; 4] = ["overview", "rules", "keys", "explain"];
const PAGE: &str = include_str!("../page/console.html");
const LOG_IN: &str = include_str!("../page/login.html");

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const HTML: &str = "text/html; charset=utf-8";

macro_rules! files {
    ($($name:literal $kind:ident $path:literal)*) => { [$(($name, $kind, include_str!($path))),*] };
}

/// What has no secrets.
const FILES: [(&str, &str, &str); 10] = files![
    "console.css" CSS "../page/console.css"
    "console.js" JAVASCRIPT "../page/console.js"
    "icon.svg" SVG "../page/icon.svg"
    "dom.js" JAVASCRIPT "../page/dom.js"
    "overview.js" JAVASCRIPT "../page/overview.js"
    "rules.js" JAVASCRIPT "../page/rules.js"
    "clients.js" JAVASCRIPT "../page/clients.js"
    "login.js" JAVASCRIPT "../page/login.js"
    "uPlot.js" JAVASCRIPT "../page/uplot/uPlot.iife.min.js"
    "uPlot.css" CSS "../page/uplot/uPlot.min.css"
];

impl Console {
    /// The router: `.nest("/tollgate", console.router())`, outside of the limits that it looks at. All of its addresses are relative.
    /// To axum, `/tollgate/` is another page.
    ///
    /// What it counts and samples ends when the router is dropped.
    pub fn router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let shared = Shared::new(self);
        overview::start(&shared);
        Router::new()
            .route("/", any(respond_to))
            .route("/{*path}", any(respond_to))
            .with_state(shared)
    }
}

async fn respond_to(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Wrong> {
    overview::start(&shared);
    let (head, body) = request.into_parts();
    let path = head.uri.path().trim_start_matches('/');
    let access = &shared.parts.access;
    let (is_get, is_post) = (head.method == Method::GET, head.method == Method::POST);
    let file = FILES.iter().find(|(name, ..)| is_get && *name == path);
    // What says nothing of a token is no try of one.
    let is_open = access.shows_log_in() && (file.is_some() || is_post && path == "login");
    let admitted = refuse_other_sites(&head).and_then(|()| match is_open {
        true => Ok(()),
        false => access.check(&head),
    });
    if let Err(Refusal::Forbidden(why)) = admitted {
        tracing::warn!(target: "tollgate", "the console refuses a request: {why}");
        return Err(Wrong::new(StatusCode::FORBIDDEN, why));
    }
    let is_in = admitted.is_ok();
    if let Some((_, kind, text)) = file {
        return Ok(respond(StatusCode::OK, kind, *text));
    }
    Ok(match path {
        "login" if is_post && access.shows_log_in() => log_in(access, &head, body).await?,
        path if is_get && PAGES.contains(&path) => match is_in {
            true => respond(StatusCode::OK, HTML, PAGE),
            false => respond(StatusCode::UNAUTHORIZED, HTML, LOG_IN),
        },
        "" if is_get => redirect(&first_page(&head)),
        _ if !is_in => return Err(refused(admitted.err(), "log in first")),
        "events" if is_get => events(&shared)?,
        "logout" if is_post => {
            let mut response = answer(&json!({}));
            Access::log_out(&head).for_each(|cookie| set_cookie(&mut response, &cookie));
            response
        }
        "state" if is_get => answer(&overview::state(&shared)),
        "top" if is_get => answer(&client::top(&shared)),
        "act" if is_post => {
            let operator = head.extensions.get::<Operator>().map(|it| &*it.0);
            answer(&action::act(&shared, &read(&head, body).await?, operator).await?)
        }
        "client" if is_post => {
            #[derive(Deserialize)]
            struct Asked {
                client: String,
            }
            let Asked { client } = read(&head, body).await?;
            answer(&client::look_up(&shared, &client).await?)
        }
        "explain" if is_post => {
            answer(&explain::explain(&shared, &read(&head, body).await?).await?)
        }
        _ if is_get || is_post => {
            let message = "the console has no such page";
            return Err(Wrong::new(StatusCode::NOT_FOUND, message));
        }
        _ => {
            let message = "it is read by GET, and changed by POST";
            return Err(Wrong::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
    })
}

/// Where the pages are, from where the router is: its address may end without a slash.
fn first_page(head: &Parts) -> String {
    let original = head.extensions.get::<OriginalUri>();
    let path = original.map_or_else(|| head.uri.path(), |OriginalUri(uri)| uri.path());
    match path.rsplit('/').next() {
        None | Some("") => PAGES[0].to_owned(),
        // A name with a colon would be a scheme.
        Some(last) => format!("./{last}/{}", PAGES[0]),
    }
}

async fn log_in(access: &Access, head: &Parts, body: Body) -> Result<Response, Wrong> {
    #[derive(Deserialize)]
    struct LogIn {
        token: String,
    }
    let LogIn { token } = read(head, body).await?;
    let logged_in = access.log_in(token.trim(), head);
    let cookie = logged_in.map_err(|refusal| refused(Some(refusal), "this is not the token"))?;
    let mut response = answer(&json!({}));
    set_cookie(&mut response, &cookie);
    Ok(response)
}

/// What who has no token is told.
fn refused(refusal: Option<Refusal>, message: &str) -> Wrong {
    match refusal {
        Some(Refusal::Wait) => Wrong::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong tokens from your address; wait for a minute",
        ),
        _ => Wrong::new(StatusCode::UNAUTHORIZED, message),
    }
}

fn set_cookie(response: &mut Response, cookie: &str) {
    // Letters, digits and signs of our own.
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// A body as JSON, which no form of another site can send.
async fn read<T: DeserializeOwned>(head: &Parts, body: Body) -> Result<T, Wrong> {
    let kind = head
        .headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], |it| it.as_bytes());
    if !kind.starts_with(b"application/json") {
        return Err(Wrong::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send it as application/json",
        ));
    }
    let body = to_bytes(body, LARGEST).await.map_err(|_| {
        Wrong::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("send at most {LARGEST} bytes"),
        )
    })?;
    // The message of the parser may quote a key.
    serde_json::from_slice(&body).map_err(|_| {
        Wrong::new(
            StatusCode::BAD_REQUEST,
            "the request is not what this address takes",
        )
    })
}

/// Samples for a page as server-sent events. A tab that reads slowly gets the latest one when it reads.
fn events(shared: &Shared) -> Result<Response, Wrong> {
    if shared.latest.receiver_count() >= MOST {
        let message = "too many tabs look already";
        return Err(Wrong::new(StatusCode::SERVICE_UNAVAILABLE, message));
    }
    let samples = WatchStream::from_changes(shared.latest.subscribe()).take(SAMPLES);
    // After which time a tab asks again.
    let begin = once("retry: 500\n\n".into());
    let stream = begin.chain(samples).map(Ok::<_, Infallible>);
    let mut response = respond(
        StatusCode::OK,
        "text/event-stream",
        Body::from_stream(stream),
    );
    // Proxies that collect responses would hold them back.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}
