//! Lists of keys and networks in documents and in files.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use http::request::Parts;
use tollgate::{Key, key_list::KeyList};
use tollgate_redis::Secret;
use tollgate_rules::{
    Bindings, Format, ListFile, LiveRules, RuleDocument, RuleText, redis::RedisRules,
};

use crate::{passing, says, until};

fn hashed(list: &KeyList, key: &str) -> String {
    list.hashed_lines(key).expect("a key").concat()
}

fn has(list: &KeyList, key: &str) -> bool {
    list.has_key(Key::of(key).as_ref())
}

fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).expect("written");
    fs::rename(next, path).expect("renamed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_replaced_again_and_again_never_shows_half_a_list() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("revoked.txt");
    // The last line is in each version, and would be missing in half of one.
    let version = |n: u32| {
        let keys = (0..20_000).map(|key| format!("key-{n}-{key}\n"));
        keys.collect::<String>() + "always\n"
    };
    replace(&path, &version(0));
    let file = ListFile::watch(&KeyList::new("revoked"), &path).expect("valid");
    let (ends, seen) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (list, ends, seen) = (file.list().clone(), Arc::clone(&ends), Arc::clone(&seen));
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    assert!(has(&list, "always"));
                    assert_eq!(list.len(), 20_001);
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let list = file.list();
    for n in 1..=4 {
        replace(&path, &version(n));
        let (new, old) = (format!("key-{n}-7"), format!("key-{}-7", n - 1));
        until("the new version is in force", || has(list, &new)).await;
        assert!(!has(list, &old));
    }
    ends.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().expect("it has seen whole lists");
    }
    assert!(seen.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn a_file_with_a_mistake_leaves_the_entries_in_force_and_says_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("abusive.txt");
    let list = KeyList::new("abusive");
    let missing = ListFile::watch(&list, &path).expect_err("there is no file");
    says(&missing, "abusive.txt: the list cannot be read");
    replace(&path, "203.0.113.5/24\n");
    let wrong = ListFile::watch(&list, &path)
        .expect_err("it is wrong")
        .to_string();
    assert!(
        wrong.contains("line 1") && wrong.contains("203.0.113.0/24"),
        "{wrong}"
    );
    replace(&path, "203.0.113.0/24\n");
    let file = ListFile::watch(&list, &path).expect("it is right");
    let address = [203, 0, 113, 9].into();
    replace(&path, "192.0.2.0/24\n\n203.0.113.0/99\n");
    until("the mistake is known", || file.last_error().is_some()).await;
    let wrong = file.last_error().expect("it is wrong");
    says(&wrong, "list \"abusive\", line 3");
    assert!(list.has_address(address));
    replace(&path, "\u{feff}192.0.2.0/24\r\n");
    until("it is right again", || file.last_error().is_none()).await;
    assert!(!list.has_address(address) && list.has_address([192, 0, 2, 9].into()));
}

#[test]
fn a_document_asks_a_bound_list_for_a_named_key_and_a_hashed_one_holds_no_keys() {
    let secret = Secret::from_bytes(b"a secret of 32 bytes for a test.").expect("a secret");
    let revoked = Bindings::hashed_list("revoked", &secret);
    let entry = hashed(&revoked, "acme-key-1");
    let other = Bindings::hashed_list("other", &secret);
    assert_ne!(entry, hashed(&other, "acme-key-1"));
    revoked.set([&*entry, "192.0.2.0/24"]).expect("valid");
    assert!(has(&revoked, "acme-key-1") && !has(&revoked, "acme-key-2") && !has(&revoked, &entry));
    let wrong = revoked
        .set(["acme-key-1"])
        .expect_err("it is no hash")
        .to_string();
    assert!(
        wrong.contains("`tollgate key hash revoked KEY`") && !wrong.contains("acme"),
        "{wrong}"
    );

    let bindings = Bindings::new().list(&revoked);
    let parse = |when: &str| {
        let text = format!(
            "version = 1\n[[rules]]\nname = \"revoked\"\nlimit = \"none\"\nby = \"constant\"\nblocked_status = 401\nwhen = {when}\n"
        );
        RuleDocument::parse(&text, Format::Toml, &bindings)
    };
    let document = parse("{ in_list = \"revoked\", by = \"header:x-api-key\" }").expect("valid");
    let counts = |key: &str| {
        let request = http::Request::get("/").header("x-api-key", key);
        let (head, ()) = request.body(()).expect("a request").into_parts();
        document.explain(&head)[0].counts()
    };
    assert!(counts("acme-key-1") && !counts("acme-key-2"));
    for (when, words) in [
        (
            "in_list = 'revokd', by = 'path'",
            "did you mean \"revoked\"?",
        ),
        ("in_list = 'revoked'", "add by = \"client_ip\""),
        ("by = 'client_ip'", "add in_list"),
        (
            "in_list = 'revoked', by = ['path', 'method']",
            "keys of one part",
        ),
    ] {
        let error = parse(&format!("{{ {when} }}"))
            .map(drop)
            .expect_err("it is wrong")
            .to_string();
        says(&error, words);
    }
}

#[tokio::test]
async fn a_key_that_is_sent_twice_passes_no_deny_list_and_is_no_partner() {
    let lists = ["revoked", "partners"].map(KeyList::new);
    for list in &lists {
        list.set(["acme-key-1"]).expect("valid");
    }
    let bindings = lists.iter().fold(Bindings::new(), Bindings::list);
    for (rule, passed) in [
        (
            "limit = 'none'\nby = 'header:x-api-key'\nwhen = REVOKED",
            [0, 10, 0],
        ),
        (
            "limit = 'none'\nby = 'constant'\nwhen = { any = [{ all = [REVOKED] }] }",
            [0, 10, 0],
        ),
        (
            "limit = '2/min'\nby = 'constant'\nwhen = REVOKED",
            [2, 10, 2],
        ),
        (
            "limit = '2/min'\nby = 'constant'\nwhen = { not = [PARTNERS] }",
            [10, 2, 2],
        ),
        (
            "limit = '2/min'\nby = 'constant'\nunless = PARTNERS",
            [10, 2, 2],
        ),
    ] {
        let text = format!("version = 1\n[[rules]]\nname = 'rule'\n{rule}\n")
            .replace(
                "REVOKED",
                "{ in_list = 'revoked', by = 'header:x-api-key' }",
            )
            .replace(
                "PARTNERS",
                "{ in_list = 'partners', by = 'header:x-api-key' }",
            );
        let document = RuleDocument::parse(&text, Format::Toml, &bindings).expect("valid");
        let cases: [&[&str]; 3] = [&["acme-key-1"], &["other"], &["acme-key-1", "other"]];
        for (keys, passed) in cases.into_iter().zip(passed) {
            let request = || {
                let request = http::Request::get("/");
                let keys = keys.iter();
                let request = keys.fold(request, |request, key| request.header("x-api-key", *key));
                request.body(String::new()).expect("a request")
            };
            let passes = passing(document.rules(), request).await;
            assert_eq!(passes, passed, "{rule}: {keys:?}");
            let (head, _) = request().into_parts();
            assert_eq!(
                document.explain(&head)[0].counts(),
                passed < 10,
                "{rule}: {keys:?}"
            );
        }
    }
}

fn head(key: &str) -> Parts {
    let request = http::Request::get("/").header("x-api-key", key);
    request.body(()).expect("a request").into_parts().0
}

/// Whether each rule counts a request of this key.
fn counts(document: &RuleDocument, key: &str) -> Vec<bool> {
    let explained = document.explain(&head(key));
    explained.iter().map(|rule| rule.counts()).collect()
}

#[tokio::test]
async fn a_document_names_the_files_of_lists_which_are_followed() {
    let secret = Secret::from_bytes(b"a secret of 32 bytes for a test.").expect("a secret");
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let rules = |limit: &str| {
        format!(
            "version = 1\n[lists]\npartners.file = 'partners.txt'\nrevoked = {{ file = 'lists/revoked.txt', hashed = true }}\n\
             [[rules]]\nname = 'api'\nlimit = '{limit}'\nby = 'constant'\nunless = {{ in_list = 'partners', by = 'header:x-api-key' }}\n\
             [[rules]]\nname = 'revoked'\nlimit = 'none'\nby = 'constant'\nwhen = {{ in_list = 'revoked', by = 'header:x-api-key' }}\n"
        )
    };
    fs::create_dir(at("lists")).expect("a folder");
    replace(&at("limits.toml"), &rules("9/s"));
    replace(&at("partners.txt"), "acme-key-1\n");
    let entry = hashed(&Bindings::hashed_list("revoked", &secret), "acme-key-7");
    let error = |bindings: Bindings| {
        let rules = LiveRules::watch(at("limits.toml"), bindings);
        rules.expect_err("it is wrong").to_string()
    };
    // A service with a wrong list does not start, and says where the document names it.
    let missing = error(Bindings::new().secret(&secret));
    says(
        &missing,
        "limits.toml:4:20: \"lists/revoked.txt\": the list cannot be read",
    );
    replace(&at("lists/revoked.txt"), "acme-key-7\n");
    let wrong = error(Bindings::new().secret(&secret));
    says(
        &wrong,
        "\"lists/revoked.txt\": list \"revoked\", line 1: this is no network and not the hash",
    );
    replace(&at("lists/revoked.txt"), &entry);
    let without_secret = error(Bindings::new());
    says(&without_secret, "Bindings::secret");
    let twice = error(
        Bindings::new()
            .secret(&secret)
            .list(&KeyList::new("partners")),
    );
    says(&twice, "there is a list \"partners\" already");

    let bindings = Bindings::new().secret(&secret);
    let live = LiveRules::watch(at("limits.toml"), bindings.clone()).expect("it is right");
    let seen = |key: &str| counts(&live.document(), key);
    assert_eq!(
        ["acme-key-1", "acme-key-7", "other"].map(seen),
        [vec![false; 2], vec![true; 2], vec![true, false]]
    );
    replace(&at("partners.txt"), "acme-key-2\n");
    until("it is in force", || seen("acme-key-2") == [false; 2]).await;
    assert_eq!(seen("acme-key-1"), [true, false]);
    // A mistake leaves the entries in force, also where the document changes, and is in the status.
    replace(&at("partners.txt"), "192.0.2.0/99\n");
    until("it is known", || !live.status().wrong_lists.is_empty()).await;
    replace(&at("limits.toml"), &rules("10/s"));
    until("it is in force", || live.status().revision == 2).await;
    assert_eq!(seen("acme-key-2"), [false; 2]);
    let wrong = &live.status().wrong_lists[0];
    says(wrong, "partners.txt: list \"partners\", line 1");
    replace(&at("partners.txt"), "acme-key-3\n");
    until("it is right again", || live.status().wrong_lists.is_empty()).await;
    assert_eq!(seen("acme-key-3"), [false; 2]);

    // Processes that follow Redis do not have the files. This is said before it is asked.
    let text = RuleText::read_path(at("limits.toml")).expect("a file");
    assert_eq!(
        counts(&text.parse(&bindings).expect("read once"), "acme-key-3"),
        [false; 2]
    );
    let redis = RedisRules::new("redis://127.0.0.1:1", "shop", &secret).expect("an address");
    let refused = redis
        .push(text, &bindings, &tollgate_rules::Author::new("alice"))
        .await;
    let refused = refused.expect_err("it names files").to_string();
    says(
        &refused,
        "limits.toml:3:17: rules in Redis cannot name a file",
    );
}
