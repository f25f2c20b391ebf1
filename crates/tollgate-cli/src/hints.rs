//! What the library cannot know about a mistake: how it is mended on this command line.

use tollgate_rules::DocumentError;

/// What is said of a name that is not bound, what it is the name of, and the option that binds it.
const BOUND: &[(&str, &str, &str)] = &[
    ("unknown key ", "key", "key"),
    ("unknown bound cost", "cost", "cost"),
    ("unknown bound plan", "plan", "plan"),
    ("unknown bound quota", "quota", "quota"),
    ("unknown bound condition", "condition", "condition"),
    ("unknown bound list", "list", "list"),
    (
        "unknown condition on the response",
        "condition on the response",
        "response-condition",
    ),
    (
        "unknown cost by the response",
        "cost by the response",
        "response-cost",
    ),
];

/// A line for each option of this program that would help.
pub(crate) fn hints(wrong: &DocumentError) -> String {
    let has = |words: &str| {
        let mut mistakes = wrong.mistakes().iter();
        mistakes.any(|mistake| mistake.message.contains(words))
    };
    let mut hints = String::new();
    for (_, what, option) in BOUND.iter().filter(|(words, ..)| has(words)) {
        hints.push_str(&format!(
            "hint: if your code binds this {what}, name it with --bind-{option} NAME\n"
        ));
    }
    if has("Bindings::secret") {
        hints.push_str(
            "hint: the secret is in the environment variable TOLLGATE_SECRET, or see --secret-file\n",
        );
    }
    hints
}
