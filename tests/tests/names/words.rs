//! Pages say what the field says. Each of these phrases has a usual word, or hides who does what.

use crate::page::{Page, pages, repository};

/// Phrases, each with what to write instead. Code is left out; words that are right elsewhere are left to reviews.
const PHRASES: &[(&str, &str)] = &[
    ("a lot", "a lease"),
    ("all the same", "still, anyway"),
    ("beside", "next to, in addition to, with"),
    ("borrow", "lease, hold in advance"),
    ("by turns", "alternating, in the order of the queue"),
    ("counted alone", "local usage"),
    ("debt", "overdraft"),
    ("in line", "in the queue"),
    ("is told of", "receives, gets, learns"),
    ("learned bound", "cached denial"),
    ("lend", "grant"),
    ("nobody", "no client, no process; or say who does"),
    ("of which", "a sentence of its own"),
    ("parked", "leased"),
    ("parking", "leasing"),
    ("so long", "that long; the time itself"),
    ("so many", "that many; the number itself"),
    ("told of", "receives, gets, learns"),
    ("unless told otherwise", "default:"),
    ("whoever", "a client that, a process that"),
];

/// Whether a text has a phrase as whole words, and not in `a lot of` or `one of which`.
fn has(text: &str, phrase: &str) -> bool {
    let text = text.to_lowercase().replace("a lot of", "");
    let text = text
        .replace("one of which", "")
        .replace("either of which", "");
    let words = text.split(|letter: char| !letter.is_alphanumeric() && !"-`".contains(letter));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let phrase: Vec<&str> = phrase.split(' ').collect();
    words.windows(phrase.len()).any(|window| window == phrase)
}

#[test]
fn no_page_has_a_phrase_that_has_a_usual_word() {
    let mut wrong = Vec::new();
    for path in pages() {
        let shown = path.strip_prefix(repository()).unwrap_or(&path).display();
        for text in Page::read(&path).prose {
            for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| has(&text, phrase)) {
                let start: String = text.chars().take(60).collect();
                wrong.push(format!("{shown}: {phrase:?}, take: {instead}: {start}…"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_phrase_is_whole_words_in_any_case() {
    assert!(has("Nobody knows", "nobody") && has("rules, of which one", "of which"));
    assert!(!has("besides, a calendar", "beside") && !has("a calendar", "lend"));
    assert!(!has("a lot of keys", "a lot") && !has("none of which moves", "of which"));
}
