//! Rules that follow a text, a file or a folder.

use std::{
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
};

use axum::body::{Body, to_bytes};
use http::{Request, Response};
use tollgate::{
    MemoryStore, RateLimitLayer,
    clock::{Clock, ManualClock},
    message::MessageBody,
    shed::Priority,
};
use tollgate_rules::{Bindings, Format, LiveRules};
use tower::{Layer, ServiceExt, service_fn};

use crate::{says, until};

fn document(limit: &str) -> String {
    format!("version = 1\n\n[[rules]]\nname = \"api\"\nlimit = \"{limit}\"\nby = \"constant\"\n")
}

fn from_text(text: &str) -> LiveRules {
    LiveRules::from_text(text, Format::Toml, Bindings::new()).expect("valid")
}

/// A file with this limit, and rules that follow it.
fn watched(limit: &str) -> (tempfile::TempDir, PathBuf, LiveRules) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    fs::write(&path, document(limit)).expect("written");
    let rules = LiveRules::watch(&path, Bindings::new()).expect("valid");
    (folder, path, rules)
}

/// The limit that responses tell.
async fn limit(layer: &RateLimitLayer) -> String {
    let service = layer.layer(service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let Ok(response) = service.oneshot(Request::new(String::new())).await;
    let policy = response.headers().get("ratelimit-policy");
    let policy = policy.and_then(|policy| policy.to_str().ok()).unwrap_or("");
    policy.to_owned()
}

#[tokio::test]
async fn a_changed_file_is_in_force_and_a_wrong_one_is_not() {
    let (folder, path, rules) = watched("fixed_window 3/h");
    let layer = rules.layer(MemoryStore::new()).expect("valid");
    assert_eq!(limit(&layer).await, "\"api\";q=3;w=3600");

    fs::write(&path, document("fixed_window 5/h")).expect("written");
    until("the change is in force", || rules.status().revision == 2).await;
    assert_eq!(limit(&layer).await, "\"api\";q=5;w=3600");

    fs::write(&path, document("fixed_window 5/hh")).expect("written");
    until("the mistake is known", || rules.status().rejected == 1).await;
    assert_eq!(limit(&layer).await, "\"api\";q=5;w=3600");
    let rejection = rules.status().last_rejection.expect("it is rejected");
    says(&rejection, "limits.toml:5:25: \"hh\" is not a unit of time");
    let wrong = || rules.set_text(&document("5/hh"), Format::Toml).is_err();
    assert!(wrong() && wrong());
    assert_eq!(rules.status().rejected, 2, "it is the same mistake");

    // Deleted, and there again, as it was in force.
    fs::remove_file(&path).expect("removed");
    let is_absent = |wrong: String| wrong.contains("cannot be read");
    let rejection = || rules.status().last_rejection;
    until("its absence is known", || {
        rejection().is_some_and(is_absent)
    })
    .await;
    assert_eq!(limit(&layer).await, "\"api\";q=5;w=3600");
    fs::write(&path, document("fixed_window 5/h")).expect("written");
    until("it is there again", || rejection().is_none()).await;
    assert_eq!(rules.status().revision, 2);

    // An editor writes another file and renames it.
    let other = folder.path().join("limits.toml~");
    fs::write(&other, document("fixed_window 7/h")).expect("written");
    fs::rename(&other, &path).expect("renamed");
    until("the rename is seen", || rules.status().revision == 3).await;
    assert_eq!(limit(&layer).await, "\"api\";q=7;w=3600");
}

#[cfg(unix)]
#[tokio::test]
async fn a_swapped_link_of_kubernetes_is_followed() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let version = |name: &str, limit: &str| {
        fs::create_dir(at(name)).expect("a folder");
        fs::write(at(name).join("limits.toml"), document(limit)).expect("written");
    };
    version("..1", "fixed_window 3/h");
    symlink("..1", at("..data")).expect("a link");
    symlink("..data/limits.toml", at("limits.toml")).expect("a link");
    let rules = LiveRules::watch(at("limits.toml"), Bindings::new()).expect("valid");
    for (n, limit) in [(2, "fixed_window 4/h"), (3, "fixed_window 5/h")] {
        let name = format!("..{n}");
        version(&name, limit);
        symlink(&name, at("..data_tmp")).expect("a link");
        fs::rename(at("..data_tmp"), at("..data")).expect("swapped");
        until("the swap is seen", || rules.status().revision == n).await;
        let before = format!("..{}", n - 1);
        fs::remove_dir_all(at(&before)).expect("removed");
    }
    assert_eq!(rules.document().limiter_rules()[0].quota().limit(), 5);
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_that_takes_the_place_of_another_is_followed() {
    use std::{os::unix::fs::symlink, time::Duration};

    use tokio::time::timeout;

    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for (name, limit) in [("1", "3/h"), ("2", "4/h")] {
        fs::create_dir(at(name)).expect("a folder");
        fs::write(at(name).join("limits.toml"), document(limit)).expect("written");
    }
    symlink("1", at("limits")).expect("a link");
    let rules = LiveRules::watch(at("limits"), Bindings::new()).expect("valid");
    // Far less than the time after which contents are read without a change.
    let soon = async |revision| {
        let is_seen = until("the change is seen", || rules.status().revision == revision);
        let is_late = timeout(Duration::from_secs(15), is_seen).await.is_err();
        assert!(!is_late, "{rules:?}");
    };
    symlink("2", at("next")).expect("a link");
    fs::rename(at("next"), at("limits")).expect("swapped");
    soon(2).await;
    fs::write(at("2").join("limits.toml"), document("5/h")).expect("written");
    soon(3).await;
}

#[tokio::test]
async fn a_folder_has_a_file_for_each_team() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: String| fs::write(folder.path().join(name), text).expect("written");
    write("b.toml", document("3/h"));
    write(
        "a.yaml",
        "version: 1\nrules: [{ name: web, limit: 9/h, by: client_ip }]".into(),
    );
    write("notes.txt", "not a document".into());
    write(".hidden.toml", "neither = this".into());
    let rules = LiveRules::watch(folder.path(), Bindings::new()).expect("valid");
    assert_eq!(rules.document().names().collect::<Vec<_>>(), ["web", "api"]);

    write("c.toml", document("4/h"));
    until("the name is there twice", || rules.status().rejected == 1).await;
    let rejection = rules.status().last_rejection.expect("it is rejected");
    says(&rejection, "c.toml:4:8: there is a rule \"api\" already");
    says(&rejection, "b.toml:4");

    // An override may name a rule of another file.
    write(
        "c.toml",
        "version = 1\n[[switches]]\nrules = \"web\"\nlimit = \"shadow\"\n".into(),
    );
    until("the switch is in force", || rules.status().revision == 2).await;
}

#[test]
fn a_service_with_wrong_rules_does_not_start() {
    let wrong = LiveRules::from_text("version = 1\nrulez = []", Format::Toml, Bindings::new());
    let error = wrong.expect_err("it is wrong");
    says(&error, "did you mean \"rules\"?");
    let error = LiveRules::watch(Path::new("limits.toml"), Bindings::new());
    let error = error.expect_err("there is no runtime").to_string();
    says(&error, "tokio runtime");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let _inside = runtime.as_ref().expect("a runtime").enter();
    let folder = tempfile::tempdir().expect("a folder");
    for (name, words) in [("missing.toml", "cannot be read"), ("", "has no document")] {
        let error = LiveRules::watch(folder.path().join(name), Bindings::new());
        let error = error.expect_err("there is none").to_string();
        says(&error, words);
    }
    fs::write(folder.path().join("limits.ini"), "x").expect("written");
    let error = LiveRules::watch(folder.path().join("limits.ini"), Bindings::new());
    let error = error.expect_err("the format is unknown").to_string();
    says(&error, ".toml, .yaml or .json");
}

#[test]
fn a_document_that_the_store_refuses_is_rejected() {
    let store = MemoryStore::new();
    let rule = tollgate::Rule::new("other", tollgate::Quota::per_second(1));
    let _other = tollgate::Limiter::new(store.clone(), [rule]).expect("valid");
    let rules = from_text(&document("3/h"));
    let layer = rules.layer(store).expect("valid");
    let clash = document("4/h").replace("\"api\"", "\"other\"");
    let error = rules.set_text(&clash, Format::Toml);
    let error = error.expect_err("the name is in use");
    says(&error, "\"other\"");
    assert_eq!(layer.limiter().rules().rules()[0].name(), "api");
    assert_eq!(rules.status().revision, 1);
}

#[tokio::test]
async fn a_layer_of_messages_follows_a_document() {
    let clock = Clock::from(ManualClock::new(1_767_268_800_000_000));
    let store = MemoryStore::builder().clock(clock).build();
    let rules = from_text(&document("fixed_window 2/h"));
    let layer = rules.message_layer(store).expect("valid");
    let read = |request: Request<MessageBody<Body>>| async move {
        to_bytes(Body::new(request.into_body()), usize::MAX).await?;
        Ok::<_, axum::Error>(Response::new(Body::empty()))
    };
    let service = layer.layer(service_fn(read));
    // Whether so many messages of one call pass. An empty one is its prefix.
    let passes = async |messages: usize| {
        let call = Request::post("/a.B/C").header("content-type", "application/grpc");
        let call = call
            .body(Body::from([0; 5].repeat(messages)))
            .expect("a call");
        let answer = service.clone().oneshot(call).await.expect("an answer");
        answer.headers().get("grpc-status").is_none()
    };
    assert!(passes(2).await && !passes(1).await);
    let five = rules.set_text(&document("fixed_window 5/h"), Format::Toml);
    five.expect("valid");
    assert!(passes(3).await && !passes(1).await);
    // What messages cannot do is refused as a whole.
    let waits = document("gcra 5/h") + "wait = \"1s\"\n";
    let error = rules.set_text(&waits, Format::Toml);
    let error = error.expect_err("messages do not wait by rule");
    says(&error, "wait_up_to");
    assert_eq!(rules.status().revision, 2);
}

#[tokio::test]
async fn a_layer_that_sheds_follows_the_document() {
    let text = |shed: &str| format!("{shed}\n{}", document("9/s"));
    let capacity = |requests: u32| text(&format!("shed = {{ capacity = {requests} }}"));
    let rules = from_text(&capacity(1));
    let shed = rules.shed_layer(|layer| layer.priority(|_| Priority::P3));
    let service = shed.layer(service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let send = async || {
        let Ok(response) = service.clone().oneshot(Request::new(String::new())).await;
        response
    };
    let mut running = vec![send().await];
    assert_eq!(send().await.status(), 503);
    rules.set_text(&capacity(9), Format::Toml).expect("valid");
    running.push(send().await);
    assert_eq!(running[1].status(), 200);
    // The request that began under the old capacity counts.
    assert_eq!(shed.requests_in_flight(), 2);
    rules.set_text(&capacity(1), Format::Toml).expect("valid");
    assert_eq!(send().await.status(), 503);
    rules.set_text(&text(""), Format::Toml).expect("valid");
    assert_eq!(send().await.status(), 200);
}
