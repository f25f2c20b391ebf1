//! Sources of documents that users write, and the schema next to documents.

use std::{fs, time::Duration};

use tokio::{sync::mpsc, time::Instant};
use tollgate_rules::{Bindings, Format, LiveRules, RuleText, Source, SourceError};

use crate::{says, until};

fn document(name: &str, limit: &str) -> String {
    format!("version = 1\n\n[[rules]]\nname = \"{name}\"\nlimit = \"{limit}\"\nby = \"constant\"\n")
}

fn text(limit: &str) -> RuleText {
    RuleText::named("a test", document("api", limit), Format::Toml)
}

type Next = Result<RuleText, SourceError>;

/// Documents as a test sends them.
struct Sent(mpsc::UnboundedReceiver<Next>);

impl Source for Sent {
    async fn next(&mut self) -> Next {
        match self.0.recv().await {
            Some(next) => next,
            None => std::future::pending().await,
        }
    }
}

struct Sender(mpsc::UnboundedSender<Next>);

impl Sender {
    fn send(&self, text: RuleText) {
        self.0.send(Ok(text)).expect("it listens");
    }

    fn fail(&self) {
        let error = "the table is locked".into();
        self.0.send(Err(error)).expect("it listens");
    }
}

fn sent() -> (Sender, Sent) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Sender(sender), Sent(receiver))
}

async fn follow(first: RuleText) -> (Sender, LiveRules) {
    let (sender, source) = sent();
    sender.send(first);
    let rules = LiveRules::follow(source, Bindings::new()).await;
    (sender, rules.expect("valid"))
}

fn limit_of(rules: &LiveRules) -> u64 {
    rules.document().limiter_rules()[0].quota().limit()
}

#[tokio::test]
async fn a_document_of_a_source_is_in_force_with_its_number() {
    let (sender, rules) = follow(text("3/h").with_revision(7)).await;
    assert_eq!((rules.status().revision, limit_of(&rules)), (7, 3));
    sender.send(text("4/h").with_revision(12));
    until("the next one", || rules.status().revision == 12).await;
    assert_eq!(limit_of(&rules), 4);
    // The same rules under another number are no change, but for the number.
    sender.send(text("4/h").with_revision(13));
    until("its number", || rules.status().revision == 13).await;
    assert_eq!(rules.status().rejected, 0);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_gives_no_document_has_as_long_as_was_set() {
    let (_sender, source) = sent();
    let begin = Instant::now();
    let rules = LiveRules::builder(Bindings::new()).start_within(Duration::from_secs(90));
    let late = rules.follow(source).await.expect_err("it gives none");
    says(&late, "no document within 90s; give it longer");
    assert_eq!(begin.elapsed().as_secs(), 90);
}

#[tokio::test]
async fn a_process_never_goes_back_to_an_older_document() {
    let (sender, rules) = follow(text("5/h").with_revision(5)).await;
    let older = "revision 4 is older than revision 5, which is in force; to put it in force, push it again, or give it a number above 5";
    let same = "two different documents claim revision 5";
    for (revision, words, rejected) in [(4, older, 1), (5, same, 2)] {
        sender.send(text("9/h").with_revision(revision));
        until("it is rejected", || rules.status().rejected == rejected).await;
        let rejection = rules.status().last_rejection.expect("it is rejected");
        says(&rejection, words);
        assert_eq!((rules.status().revision, limit_of(&rules)), (5, 5));
    }
    // The one that is in force is still right.
    sender.send(text("5/h").with_revision(5));
    let is_right = || rules.status().last_rejection.is_none();
    until("it is right again", is_right).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_is_asked_again_and_the_last_rules_stay_in_force() {
    let (sender, rules) = follow(text("3/h")).await;
    for _ in 0..3 {
        sender.fail();
    }
    until("it has failed", || rules.status().source_error.is_some()).await;
    let error = rules.status().source_error.expect("it has failed");
    says(&error, "the table is locked");
    assert_eq!(limit_of(&rules), 3);
    sender.send(text("4/h"));
    until("it is there again", || rules.status().revision == 2).await;
    let status = rules.status();
    // No document was wrong.
    assert_eq!((status.rejected, status.source_error), (0, None));
    // One that is rejected is there as well.
    sender.fail();
    until("it has failed", || rules.status().source_error.is_some()).await;
    sender.send(text("4/mni"));
    until("it is rejected", || rules.status().rejected == 1).await;
    assert_eq!(rules.status().source_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_text_of_the_process_stays_until_the_source_has_another_document() {
    for revision in [None, Some(7)] {
        let numbered = |text: RuleText, more: u64| match revision {
            Some(revision) => text.with_revision(revision + more),
            None => text,
        };
        let (sender, rules) = follow(numbered(text("3/h"), 0)).await;
        let other = rules.set_text(&document("api", "9/h"), Format::Toml);
        other.expect("valid");
        // That the same document came is seen by the end of the error.
        sender.fail();
        until("it has failed", || rules.status().source_error.is_some()).await;
        sender.send(numbered(text("3/h"), 0));
        until("it is there", || rules.status().source_error.is_none()).await;
        let status = rules.status();
        assert_eq!((limit_of(&rules), status.rejected), (9, 0), "{status:?}");
        sender.send(numbered(text("4/h"), 9));
        until("the next one", || limit_of(&rules) == 4).await;
        // It is another one than the last.
        sender.send(numbered(text("3/h"), 10));
        until("the first one again", || limit_of(&rules) == 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_that_makes_code_of_the_service_panic_is_rejected_and_later_ones_are_in_force() {
    let (sender, source) = sent();
    let text = |limit: &str, key: &str| {
        let text = format!(
            "version = 1\n[[rules]]\nname = 'api'\nlimit = '{limit}'\nby = 'tenant'\n\
             [[overrides]]\nrule = 'api'\nkey = '{key}'\nlimit = '9/h'\n"
        );
        RuleText::named("a test", text, Format::Toml)
    };
    let bindings = Bindings::new().key_with_text("tenant", tollgate::key::constant("all"), |key| {
        assert_ne!(key, "secret-key", "it has no number");
        Some(tollgate::Key::of(key))
    });
    sender.send(text("3/h", "a"));
    let rules = LiveRules::follow(source, bindings).await.expect("valid");
    sender.send(text("4/h", "secret-key"));
    until("it is rejected", || rules.status().rejected == 1).await;
    let status = format!("{:?}", rules.status());
    says(&status, "panicked");
    assert!(!status.contains("secret-key"), "{status}");
    assert_eq!((rules.status().revision, limit_of(&rules)), (1, 3));
    sender.send(text("5/h", "b"));
    until("the next one", || rules.status().revision == 2).await;
    assert_eq!((rules.status().last_rejection, limit_of(&rules)), (None, 5));
}

#[tokio::test(start_paused = true)]
async fn a_service_without_a_first_document_starts_with_its_fallback_or_not_at_all() {
    let (_sender, source) = sent();
    let error = LiveRules::follow(source, Bindings::new()).await;
    let error = error.expect_err("there is none").to_string();
    says(&error, "gave no document within 10s");

    let (sender, source) = sent();
    let wrong = RuleText::new("version = 1\nrulez = []", Format::Toml);
    sender.send(wrong.with_revision(1));
    let rules = LiveRules::builder(Bindings::new()).fallback(text("2/h"));
    let rules = rules.follow(source).await.expect("the fallback is valid");
    let status = rules.status();
    assert_eq!((status.revision, status.rejected), (0, 1));
    assert_eq!(limit_of(&rules), 2);
    sender.send(text("3/h").with_revision(2));
    until("the document is in force", || rules.status().revision == 2).await;
    assert_eq!(limit_of(&rules), 3);
}

#[tokio::test]
async fn the_schema_may_lie_next_to_documents_that_name_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("written");
    };
    write("limits.schema.json", tollgate_rules::SCHEMA);
    let rules = || LiveRules::watch(folder.path(), Bindings::new());
    let error = rules().expect_err("a schema is no document").to_string();
    says(&error, "the folder has no document");
    let fallback = RuleText::new(document("fallback", "2/h"), Format::Toml);
    let begun = LiveRules::builder(Bindings::new()).fallback(fallback);
    let begun = begun.watch(folder.path()).expect("the fallback is valid");
    assert_eq!((begun.status().revision, limit_of(&begun)), (0, 2));
    let named = |name: &str| {
        format!(
            r#"{{ "$schema": "./limits.schema.json", "version": 1,
                "rules": [{{ "name": "{name}", "limit": "3/h", "by": "constant" }}] }}"#
        )
    };
    write("a.json", &named("a"));
    write(
        "b.toml",
        &("#:schema ./limits.schema.json\n".to_owned() + &document("b", "3/h")),
    );
    write(
        "c.toml",
        &("\"$schema\" = \"./limits.schema.json\"\n".to_owned() + &document("c", "3/h")),
    );
    let rules = rules().expect("three documents");
    let names: Vec<_> = rules.document().names().map(str::to_owned).collect();
    assert_eq!(names, ["a", "b", "c"]);
    until("its documents are in force", || limit_of(&begun) == 3).await;
}
