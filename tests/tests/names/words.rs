//! Pages, documentation and messages say what the field says. Each of these phrases has a usual word, or hides who does what.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    page::{Page, pages, repository},
    source::passages,
};

/// Phrases, each with what to write instead. Code is left out; words that are right elsewhere are left to reviews.
const PHRASES: &[(&str, &str)] = &[
    // Names that were given up for the word of the field.
    ("a lot", "a lease"),
    ("lots", "leases"),
    ("parking lot", "tracked lease"),
    ("borrow", "lease, hold in advance"),
    ("lend", "grant"),
    ("debt", "overdraft"),
    ("in line", "in the queue"),
    ("by turns", "alternating, in the order of the queue"),
    ("take turns at", "alternate"),
    ("learned bound", "cached denial"),
    ("denials from loads", "deny cache"),
    ("learner", "topology refresh"),
    ("survey", "topology refresh, usage"),
    ("wire", "driver of a connection"),
    ("dialogue", "handshake"),
    (
        "ledger",
        "in-flight table, reference; a ledger is a durable record",
    ),
    ("guests", "unlisted servers"),
    ("unsure", "within the tolerance"),
    ("judge", "audit, decide"),
    ("judges", "audits, decides"),
    ("judged", "audited, decided"),
    ("leaves_to", "the reason of the downgrade"),
    ("counted alone", "local usage"),
    ("admitted alone", "admitted in fallback"),
    ("given up", "lost, dropped, abandoned"),
    ("told", "reported, shown, set; or name the call"),
    (
        "attach",
        "put the decision into the extensions; the call is `attach_decision`",
    ),
    // Phrases that hide who does what.
    ("all the same", "still, anyway"),
    ("beside", "next to, in addition to, with"),
    ("nobody", "no client, no process; or say who does"),
    ("of which", "a sentence of its own"),
    ("of whose", "a sentence of its own"),
    ("parked", "leased"),
    ("parking", "leasing"),
    ("so long", "that long; the time itself"),
    ("so many", "that many; the number itself"),
    ("unless told otherwise", "default:"),
    ("who asks", "a client, a process"),
    ("whoever", "a client that, a process that"),
    // Sentences that were worth a rewrite, by what nobody may write again.
    (
        "what is forgotten first",
        "expired entries are evicted first",
    ),
    ("out on lease", "on lease"),
    ("lie idle", "sit unused"),
    ("takes along", "carries, reports in the same call"),
    ("yet to get", "capacity that will be refilled"),
    ("nothing is to be kept", "are not cached"),
    ("as may wait", "too many pending calls (limit N)"),
    ("already as may", "the queue is full"),
    (
        "in trouble",
        "unavailable, fails; the circuit breaker is open",
    ),
    ("is not asked at present", "the circuit breaker is open"),
    ("believes to be", "knows, cannot see"),
];

/// Where such a phrase is plain English, or the usual word of another field; with the reason.
const USUAL: &[(&str, &str)] = &[
    ("a lot of", "many"),
    ("one of which", "a part of what was just named"),
    ("either of which", "a part of what was just named"),
    ("none of which", "a part of what was just named"),
    ("some of which", "a part of what was just named"),
    ("outside of which", "a place"),
    ("futures borrow", "Rust's word for a reference"),
    (
        "thread which is parked",
        "the standard library's word for a thread that waits",
    ),
    ("on the wire", "protocols: the bytes as they are sent"),
    ("over the wire", "protocols: the bytes as they are sent"),
    (
        "client has given up",
        "a client that no longer waits for its response",
    ),
    ("a ledger that is written durably", "a durable record"),
    ("the same ledger", "a durable record"),
    ("with a ledger", "a durable record"),
    (
        "told when to start",
        "requests that know their time already",
    ),
];

fn words(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let words = text.split(|letter: char| !letter.is_alphanumeric() && !"-_`".contains(letter));
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

fn find(words: &[String], phrase: &str) -> Option<usize> {
    let begins = |at: &usize| {
        let mut rest = words[*at..].iter();
        phrase
            .split(' ')
            .all(|word| rest.next().is_some_and(|it| it == word))
    };
    (0..words.len()).find(begins)
}

/// The words of a text, without those of phrases where they are usual.
fn words_to_check(text: &str) -> Vec<String> {
    let mut words = words(text);
    for (usual, _) in USUAL {
        while let Some(at) = find(&words, usual) {
            words.splice(at..at + usual.split(' ').count(), ["…".to_owned()]);
        }
    }
    words
}

/// Whether a text has a phrase as whole words, in another place than where it is usual.
fn has(text: &str, phrase: &str) -> bool {
    find(&words_to_check(text), phrase).is_some()
}

/// A sentence that begins with what it is not about: "Of a bucket that is empty nothing can be leased". A few words may: "Of slots."
fn inverted(text: &str) -> Option<&str> {
    let mut sentences = text.split_inclusive(['.', '?', '!']).map(str::trim_start);
    sentences.find(|sentence| {
        let is_long = sentence.split_whitespace().count() > 6;
        sentence.starts_with("Of ") && !sentence.starts_with("Of course") && is_long
    })
}

/// The files in a folder whose names end so.
fn files(folder: &Path, ending: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let is_one = |name: &str| ending.iter().any(|ending| name.ends_with(ending));
        match name {
            _ if path.is_dir() => files(&path, ending, found),
            Some(name) if is_one(name) => found.push(path),
            _ => {}
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What is wrong in the texts of a file, which begin at a line of it.
fn wrong<'a>(path: &Path, texts: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<String> {
    let root = repository();
    let shown = path.strip_prefix(&root).unwrap_or(path).display();
    let mut wrong = Vec::new();
    for (line, text) in texts {
        let lower = text.to_lowercase();
        let may_be_in = |phrase: &str| phrase.split(' ').all(|word| lower.contains(word));
        let candidates = PHRASES.iter().filter(|(phrase, _)| may_be_in(phrase));
        for (phrase, instead) in candidates.filter(|(phrase, _)| has(text, phrase)) {
            let start: String = text.chars().take(60).collect();
            wrong.push(format!(
                "{shown}:{line}: {phrase:?}, take: {instead}: {start}…"
            ));
        }
        if let Some(sentence) = inverted(text) {
            wrong.push(format!(
                "{shown}:{line}: begin with the subject: {sentence}"
            ));
        }
    }
    wrong
}

#[test]
fn no_page_has_a_phrase_that_has_a_usual_word() {
    let mut all = Vec::new();
    for path in pages() {
        let prose = Page::read(&path).prose;
        all.extend(wrong(&path, prose.iter().map(|text| (1, text.as_str()))));
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn no_documentation_and_no_message_has_a_phrase_that_has_a_usual_word() {
    let mut sources = Vec::new();
    for entry in fs::read_dir(repository().join("crates")).expect("the crates") {
        let source = entry.expect("an entry").path().join("src");
        files(&source, &[".rs"], &mut sources);
    }
    assert!(sources.len() > 300, "{}", sources.len());
    let mut all = Vec::new();
    for path in sources {
        for passage in passages(&read(&path)) {
            let texts = passage
                .prose
                .iter()
                .map(|text| (passage.line, text.as_str()));
            all.extend(wrong(&path, texts));
        }
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn no_dashboard_and_no_alert_has_a_phrase_that_has_a_usual_word() {
    let mut found = Vec::new();
    files(&repository().join("ops"), &[".yml", ".json"], &mut found);
    assert!(found.len() > 3, "{found:?}");
    let mut all = Vec::new();
    for path in found {
        let text = read(&path);
        let lines = text.lines().enumerate();
        all.extend(wrong(&path, lines.map(|(index, line)| (index + 1, line))));
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn a_phrase_is_whole_words_in_any_case_and_is_allowed_where_it_is_usual() {
    assert!(has("Nobody knows", "nobody") && has("rules, of which one", "of which"));
    assert!(!has("besides, a calendar", "beside") && !has("a calendar", "lend"));
    assert!(!has("a lot of keys", "a lot") && !has("none of which moves", "of which"));
    assert!(has("it is told, on the wire", "told") && !has("on the wire", "wire"));
}

#[test]
fn a_sentence_begins_with_its_subject() {
    assert!(inverted("It is empty. Of a bucket that is empty nothing can be leased.").is_some());
    assert!(inverted("Of slots on lease. Of course it is; a lease of 5 units is one.").is_none());
}
