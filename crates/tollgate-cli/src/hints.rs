//! What the library cannot know about a mistake: how it is mended on this command line.

use tollgate_rules::DocumentError;

const HINTS: &[(&str, &str)] = &[
    (
        "there is no key ",
        "a key that the code binds is named by --bind-key NAME",
    ),
    (
        "there is no bound cost",
        "a cost that the code binds is named by --bind-cost NAME",
    ),
    (
        "there is no bound plan",
        "a plan that the code binds is named by --bind-plan NAME",
    ),
    (
        "there is no bound quota",
        "a quota that the code binds is named by --bind-quota NAME",
    ),
    (
        "there is no bound condition",
        "a condition that the code binds is named by --bind-condition NAME",
    ),
    (
        "there is no condition on the response",
        "a condition on the response that the code binds is named by --bind-response-condition NAME",
    ),
    (
        "there is no cost by the response",
        "a cost by the response that the code binds is named by --bind-response-cost NAME",
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
