//! What a command has to say: text, tables and times for people, JSON for programs; or why it has nothing to say; and an exit code.

use std::{
    error::Error,
    fmt::Display,
    io::{self, Write as _},
    iter,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use serde_json::Value;
use tollgate_rules::{
    DocumentError,
    redis::{PushError, PushErrorKind},
};
use unicode_width::UnicodeWidthChar as _;

/// What the program's exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// Done, and the answer is yes.
    Yes = 0,
    /// Done, and the answer is no.
    No = 1,
    /// The command line is wrong.
    Usage = 2,
    /// It could not be done.
    Failed = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What a command has to say, to people and to programs.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) exit: Exit,
    /// Whether the text is this program's own, and is printed as it is.
    is_verbatim: bool,
}

impl Report {
    /// `yes`: whether the answer is yes, for the exit code.
    pub(crate) fn new(text: impl Into<String>, json: Value, yes: bool) -> Self {
        Self {
            text: text.into(),
            json,
            exit: if yes { Exit::Yes } else { Exit::No },
            is_verbatim: false,
        }
    }

    /// A text of this program's own, which another program reads.
    pub(crate) fn verbatim(text: impl Into<String>, json: Value) -> Self {
        Self {
            is_verbatim: true,
            ..Self::new(text, json, true)
        }
    }

    /// As it is printed, with a line feed at the end.
    pub(crate) fn printed(&self, as_json: bool) -> String {
        if as_json && !self.json.is_null() {
            return json_text(&self.json);
        }
        if self.is_verbatim {
            return self.text.clone();
        }
        let text = lines(&self.text);
        match text.ends_with('\n') || text.is_empty() {
            true => text,
            false => text + "\n",
        }
    }
}

/// JSON of ASCII only, whatever is in it: what a terminal would obey is escaped.
pub(crate) fn json_text(value: &Value) -> String {
    // The only error is that of a writer, and a string has none.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    ascii(&text) + "\n"
}

/// Escapes what is not ASCII, of a text that is JSON.
pub(crate) fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
            continue;
        }
        // Such characters are part of strings only.
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    out
}

/// The most columns of one cell.
const WIDEST: usize = 72;

/// A table: a row of titles, and rows of cells, which may be any text.
#[derive(Debug)]
pub(crate) struct Table {
    /// By column, whether it has numbers: they stand at the right.
    numbers: Vec<bool>,
    /// The titles, and then the others.
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Titles with bars between them. Those that begin with `#` are of numbers.
    pub(crate) fn new(titles: &str) -> Self {
        let titles = titles.split(" | ");
        let names = titles.clone().map(|title| title.trim_start_matches('#'));
        Self {
            numbers: titles.map(|title| title.starts_with('#')).collect(),
            rows: vec![names.map(str::to_owned).collect()],
        }
    }

    /// A row of as many cells as there are titles.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let cells = cells.map(|cell| line(&cell, WIDEST));
        self.rows.push(cells.into());
    }

    /// A list of objects, whose names are the titles.
    pub(crate) fn json(&self) -> Value {
        let object = |row: &Vec<String>| {
            let cells = row.iter().zip(&self.rows[0]).map(|(cell, title)| {
                let number = cell.parse::<u64>().map(Value::from);
                let cell = number.unwrap_or_else(|_| cell.as_str().into());
                (title.replace(' ', "_"), cell)
            });
            Value::Object(cells.collect())
        };
        self.rows.iter().skip(1).map(object).collect()
    }

    /// A line for each row.
    pub(crate) fn text(&self) -> String {
        let mut widths = vec![0; self.numbers.len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = columns_of(cell).max(*width);
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let fill = " ".repeat(widths[column] - columns_of(cell));
                line += &match self.numbers[column] {
                    true => format!("{fill}{cell}  "),
                    false => format!("{cell}{fill}  "),
                };
            }
            text += &format!("{}\n", line.trim_end());
        }
        text
    }
}

/// `1.5 s`, `3 min 20 s`: two units at most.
pub(crate) fn duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    let seconds = duration.as_secs();
    match seconds {
        _ if micros < 1_000 => format!("{micros} µs"),
        0 => format!("{} ms", decimal(micros, 1_000)),
        1..60 => format!("{} s", decimal(micros, 1_000_000)),
        60..3_600 => two(seconds, (60, "min"), (1, "s")),
        3_600..86_400 => two(seconds, (3_600, "h"), (60, "min")),
        _ => two(seconds, (86_400, "d"), (3_600, "h")),
    }
}

/// With one digit behind the point, if it is not 0.
fn decimal(micros: u128, unit: u128) -> String {
    let tenths = micros * 10 / unit;
    match tenths % 10 {
        0 => format!("{}", tenths / 10),
        digit => format!("{}.{digit}", tenths / 10),
    }
}

fn two(seconds: u64, (large, name): (u64, &str), (small, small_name): (u64, &str)) -> String {
    match seconds % large / small {
        0 => format!("{} {name}", seconds / large),
        rest => format!("{} {name} {rest} {small_name}", seconds / large),
    }
}

/// How long from a time in microseconds since the Unix epoch on, and the time of day then, in UTC: with the date from a day on.
pub(crate) fn from(at: u64, after: Duration) -> String {
    let then = Timestamp::try_from(then(at, after)).unwrap_or(Timestamp::UNIX_EPOCH);
    let of_day = match after.as_secs() {
        ..86_400 => "%H:%M:%SZ",
        _ => "%Y-%m-%dT%H:%MZ",
    };
    format!("{}, {}", duration(after), then.strftime(of_day))
}

/// The time that long after one in microseconds since the Unix epoch.
pub(crate) fn then(at: u64, after: Duration) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(at).saturating_add(after)
}

/// In UTC, to the second.
pub(crate) fn time(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.0}")
}

/// On one line, at most `columns` wide. Characters that a terminal would obey, or that change the order of the text around them, are
/// escaped.
pub(crate) fn line(text: &str, columns: usize) -> String {
    // Up to where the text and the sign of a cut fit.
    let (mut out, mut width, mut cut) = (String::new(), 0, 0);
    for c in text.chars() {
        let start = out.len();
        match is_harmless(c) {
            true => out.push(c),
            false => out.extend(c.escape_default()),
        }
        width += columns_of(&out[start..]);
        if width > columns {
            out.truncate(cut);
            return out + "…";
        }
        if width < columns {
            cut = out.len();
        }
    }
    out
}

/// Text of several lines, such as a message with a marker: each character keeps its column.
pub(crate) fn lines(text: &str) -> String {
    let keep = |c: char| c == '\n' || is_harmless(c);
    text.chars()
        .map(|c| if keep(c) { c } else { '\u{fffd}' })
        .collect()
}

/// Says what went wrong beside what was asked for, to the standard error: a script that asks for JSON has to see it as well.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "warning: {}", lines(text));
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
    // The blocks of scripts.
    let is_right_to_left = matches!(
        c,
        '\u{590}'..='\u{8ff}'
            | '\u{fb1d}'..='\u{fdff}'
            | '\u{fe70}'..='\u{feff}'
            | '\u{10800}'..='\u{10fff}'
            | '\u{1e800}'..='\u{1efff}'
    );
    is_visible && !is_separator && !is_private && !is_right_to_left
}

/// The text about exit codes at the end of each help page.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done, and the answer is yes: no mistake, no difference, allowed, nothing found
  1  done, and the answer is no: mistakes, differences, denied, something found
  2  the command line is wrong
  3  it could not be done: rules that cannot be read, a server that does not answer, a right that is missing";

/// Why a command has no report, with what would help.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    fn new(exit: Exit, message: impl Display) -> Self {
        let message = message.to_string();
        Self { exit, message }
    }

    /// The command line is wrong in a way that its grammar does not see.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The value of an option is wrong.
    pub(crate) fn argument(option: &str, value: &str, why: impl Display) -> Self {
        let value = line(value, 200);
        Self::usage(format!("--{option} {value}: {why}"))
    }

    /// It could not be done.
    pub(crate) fn failed(message: impl Display) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// It was left undone, because the user said no, or the answer is no.
    pub(crate) fn refused(message: impl Display) -> Self {
        Self::new(Exit::No, message)
    }

    /// Wrong rules are an answer, where the question is whether they are right.
    pub(crate) fn mistakes(wrong: DocumentError) -> Self {
        Self::refused(Self::from(wrong).message)
    }
}

/// An error with its causes.
pub(crate) fn causes(wrong: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(wrong), |&wrong| wrong.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

/// Rules that a command needs, and that cannot be read.
impl From<DocumentError> for Failure {
    fn from(wrong: DocumentError) -> Self {
        Self::failed(format!("{wrong}\n{}", hints(&wrong)).trim_end())
    }
}

/// What Redis, or another who pushes, has against a document.
impl From<PushError> for Failure {
    fn from(wrong: PushError) -> Self {
        let exit = match wrong.kind() {
            PushErrorKind::Setting => Exit::Usage,
            PushErrorKind::Unavailable => {
                let hint = match is_refusal(&wrong.to_string()) {
                    true => {
                        "rules in Redis need rights of their own: those of their row in the guide on Redis, \"A user of its own\"; \
                             `tollgate doctor` says the command"
                    }
                    false => "`tollgate doctor` says what is wrong with a Redis",
                };
                return Self::failed(format!("{wrong}\n{hint}"));
            }
            _ => Exit::Failed,
        };
        Self::new(exit, wrong)
    }
}

/// The words of servers for a right that the user lacks.
const REFUSALS: &[&str] = &[
    "noperm",
    "no permissions",
    "acl failure",
    "can't run this command",
];

/// Whether a server has said that the user lacks a right.
pub(crate) fn is_refusal(said: &str) -> bool {
    let said = said.to_lowercase();
    REFUSALS.iter().any(|words| said.contains(words))
}

/// What messages call a name that is not bound, and the kind that binds it.
const BOUND: &[(&str, &str)] = &[
    ("key", "key"),
    ("bound cost", "cost"),
    ("bound plan", "plan"),
    ("bound quota", "quota"),
    ("bound condition", "condition"),
    ("bound list", "list"),
    ("condition on the response", "response-condition"),
    ("cost by the response", "response-cost"),
];

/// What the library cannot know about a mistake: how it is mended on this command line, a line for each option that would help.
pub(crate) fn hints(wrong: &DocumentError) -> String {
    let has = |words: &str| {
        let mut mistakes = wrong.mistakes().iter();
        mistakes.any(|mistake| mistake.message.contains(words))
    };
    let mut hints = String::new();
    for (what, kind) in BOUND {
        if has(&format!("unknown {what} ")) {
            hints +=
                &format!("hint: if your code binds this {kind}, name it with --bind {kind}:NAME\n");
        }
    }
    if has("Bindings::secret") {
        hints += "hint: the secret is in the environment variable TOLLGATE_SECRET, or see --secret-file\n";
    }
    hints
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_ascii_and_means_the_same() {
        let value = json!({ "n\u{202e}": "\u{1b}[2J\u{7f}\u{9b}é😀\n\u{2028}" });
        let text = json_text(&value);
        assert!(
            text.bytes()
                .all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)),
            "{text}"
        );
        let read: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(read, value);
    }

    #[test]
    fn columns_stand_under_each_other_whatever_is_in_them() {
        let mut table = Table::new("rule | #left | why");
        table.row(["api".into(), "12".into(), "quota".into()]);
        table.row(["日本\n".into(), "5".into(), String::new()]);
        assert_eq!(
            table.text(),
            "rule    left  why\napi       12  quota\n日本\\n     5\n"
        );
    }

    #[test]
    fn a_time_of_day_has_its_date_from_a_day_on() {
        let (at, day) = (1_000_000_000_000_000, Duration::from_secs(86_400));
        let just_below = day - Duration::from_secs(1);
        assert_eq!(from(at, just_below), "23 h 59 min, 01:46:39Z");
        assert_eq!(from(at, day), "1 d, 2001-09-10T01:46Z");
    }

    #[test]
    fn a_duration_has_at_most_two_units() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_000, "1 ms"),
            (1_550, "1.5 ms"),
            (999_999, "999.9 ms"),
            (1_500_000, "1.5 s"),
            (60_000_000, "1 min"),
            (200_000_000, "3 min 20 s"),
            (3_599_000_000, "59 min 59 s"),
            (3_660_000_000, "1 h 1 min"),
            (7_198_000_000, "1 h 59 min"),
            (86_399_000_000, "23 h 59 min"),
            (90_000_000_000, "1 d 1 h"),
            (172_798_000_000, "1 d 23 h"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), text);
        }
    }

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
