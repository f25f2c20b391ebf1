//! Text from elsewhere, so that no terminal obeys it and no line breaks.

use unicode_width::UnicodeWidthChar as _;

/// On one line, at most `columns` wide. Characters that a terminal would obey, or that change the order of the text around them, are
/// escaped.
pub(crate) fn line(text: &str, columns: usize) -> String {
    let (mut pieces, mut width) = (Vec::new(), 0);
    for c in text.chars() {
        let piece = match c {
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            c if is_harmless(c) => c.to_string(),
            c => c.escape_unicode().to_string(),
        };
        width += columns_of(&piece);
        pieces.push(piece);
        // The rest of a long text is not looked at.
        if width > columns {
            break;
        }
    }
    if width <= columns {
        return pieces.concat();
    }
    while width >= columns {
        let Some(last) = pieces.pop() else { break };
        width -= columns_of(&last);
    }
    pieces.concat() + "…"
}

/// Text of several lines, such as a message with a marker: each character keeps its column.
pub(crate) fn lines(text: &str) -> String {
    let keep = |c: char| c == '\n' || is_harmless(c);
    text.chars()
        .map(|c| if keep(c) { c } else { '\u{fffd}' })
        .collect()
}

/// How many columns a text takes that is shown.
pub(crate) fn columns_of(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Not a control character, nothing without a width (marks that pile up, joiners, directions, tags), and not written from right to
/// left, which would reverse the text next to it.
fn is_harmless(c: char) -> bool {
    let is_visible = c.width().is_some_and(|width| width > 0);
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    let is_private = matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..);
    is_visible && !is_separator && !is_private && !is_right_to_left(c)
}

/// The blocks of scripts that are written from right to left.
fn is_right_to_left(c: char) -> bool {
    matches!(
        c,
        '\u{590}'..='\u{8ff}'
            | '\u{200e}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{fb1d}'..='\u{fdff}'
            | '\u{fe70}'..='\u{feff}'
            | '\u{10800}'..='\u{10fff}'
            | '\u{1e800}'..='\u{1efff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client, or any writer of a store, may send.
    const HOSTILE: &[&str] = &[
        "\u{1b}[2J\u{1b}]0;owned\u{7}",
        "two\nlines\r\nand\rmore\tand\u{b}\u{c}",
        "\u{9b}31m\u{7f}\u{0}",
        "abc\u{202e}cba\u{2066}\u{200f}",
        "שלום مرحبا",
        "e\u{301}\u{301}\u{301}\u{200b}\u{feff}",
        "\u{2028}\u{2029}\u{85}",
        "\u{e0041}\u{e000}",
    ];

    #[test]
    fn no_text_breaks_a_line_or_is_obeyed() {
        for text in HOSTILE {
            let shown = line(text, 200);
            assert!(shown.chars().all(is_harmless), "{shown:?}");
            assert!(shown.contains('\\'), "{shown:?}");
            let shown = lines(text);
            assert!(
                shown.chars().all(|c| c == '\n' || is_harmless(c)),
                "{shown:?}"
            );
            let breaks = |text: &str| text.matches('\n').count();
            assert_eq!(breaks(&shown), breaks(text));
        }
    }

    #[test]
    fn what_is_harmless_stays_as_it_is() {
        for text in [
            "search-per-key",
            "größe → 5 µs",
            "日本語",
            "a \"b\" \\ c",
            "",
        ] {
            assert_eq!(line(text, 40), text);
            assert_eq!(lines(text), text);
        }
    }

    #[test]
    fn a_long_text_is_cut_and_one_that_just_fits_is_not() {
        assert_eq!(line("abcde", 5), "abcde");
        assert_eq!(line("abcdef", 5), "abcd…");
        assert_eq!(line("aaaaaa", 5), "aaaa…");
        let long = line(&"x".repeat(65_536), 64);
        assert_eq!((columns_of(&long), long.ends_with('…')), (64, true));
        for columns in 1..20 {
            for text in HOSTILE {
                assert!(
                    columns_of(&line(text, columns)) <= columns,
                    "{text:?} in {columns}"
                );
            }
        }
        // Two columns each.
        assert_eq!(line("日本語", 5), "日本…");
    }
}
