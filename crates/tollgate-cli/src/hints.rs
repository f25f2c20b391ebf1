//! What the library cannot know about a mistake: how it is mended on this command line.

use tollgate_rules::DocumentError;

const HINTS: &[(&str, &str)] = &[
    (
        "unknown key ",
        "if your code binds this key, name it with --bind-key NAME",
    ),
    (
        "unknown bound cost",
        "if your code binds this cost, name it with --bind-cost NAME",
    ),
    (
        "unknown bound plan",
        "if your code binds this plan, name it with --bind-plan NAME",
    ),
    (
        "unknown bound quota",
        "if your code binds this quota, name it with --bind-quota NAME",
    ),
    (
        "unknown bound condition",
        "if your code binds this condition, name it with --bind-condition NAME",
    ),
    (
        "unknown condition on the response",
        "if your code binds this condition on the response, name it with --bind-response-condition NAME",
    ),
    (
        "unknown cost by the response",
        "if your code binds this cost by the response, name it with --bind-response-cost NAME",
    ),
    (
        "Bindings::secret",
        "the secret is in the environment variable TOLLGATE_SECRET, or see --secret-file",
    ),
];

/// A line for each option of this program that would help.
pub(crate) fn hints(wrong: &DocumentError) -> String {
    let has = |words: &str| {
        let mut mistakes = wrong.mistakes().iter();
        mistakes.any(|mistake| mistake.message().contains(words))
    };
    let hints = HINTS.iter().filter(|(words, _)| has(words));
    hints.map(|(_, hint)| format!("hint: {hint}\n")).collect()
}
