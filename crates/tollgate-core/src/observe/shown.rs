//! Text from outside, as people and programs may see it.

/// The most characters.
const MOST: usize = 64;

/// Text of an application or a client for a label, a log or a table: at most 64 characters, none of which breaks a line, moves
/// the cursor or changes the direction of what follows. Each other one is a `\u{fffd}`.
#[must_use]
pub fn shown(text: &str) -> String {
    let is_harmless = |c: char| matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1;
    let mut shown: String = text
        .chars()
        .take(MOST)
        .map(|c| if is_harmless(c) { c } else { '\u{fffd}' })
        .collect();
    if text.chars().nth(MOST).is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_a_line_or_turns_the_text_around_is_replaced() {
        assert_eq!(shown("acme \"gold\" ü 日"), "acme \"gold\" ü 日");
        assert_eq!(
            shown("a\nb\r\tc\u{1b}[2J"),
            "a\u{fffd}b\u{fffd}\u{fffd}c\u{fffd}[2J"
        );
        assert_eq!(
            shown("\u{202e}evil\u{2066}\u{200f}\0"),
            "\u{fffd}evil\u{fffd}\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn it_is_short() {
        let long = "x".repeat(65_536);
        assert_eq!(shown(&long).chars().count(), MOST);
        assert!(shown(&long).ends_with('…'));
        assert_eq!(shown(&long[..MOST]), long[..MOST]);
    }
}
