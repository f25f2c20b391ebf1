//! What a call asks, as it is sent; and how several go out as one.
//!
//! A call of the script that decides carries checks, and each check names its keys by their numbers. So the keys of several calls can
//! stand in one command, one behind the other, with the numbers in the checks moved.

use std::{ops::Range, ptr, sync::OnceLock, time::Duration};

use sha1_smol::Sha1;
use smallvec::SmallVec;

/// A script with its keys and arguments, or a command.
#[derive(Clone, Default)]
pub(crate) struct Command {
    /// `None`: its arguments are a command.
    pub(crate) script: Option<&'static Script>,
    pub(crate) keys: Packed,
    pub(crate) args: Packed,
    /// Where in the bytes of the arguments numbers of keys stand, in order. `None`: the arguments are no checks.
    pub(crate) key_places: Option<SmallVec<[usize; 4]>>,
    /// How many answers come to the checks.
    pub(crate) answers: usize,
    /// Requests of one hash slot may travel together. Outside of a cluster all are in hash slot 0.
    pub(super) hash_slot: u16,
    /// A bit for each rule that it is about. Two rules may share one.
    pub(crate) rules: u64,
}

/// Where a check says which algorithm it is for, and the sliding log there, which takes a server longer than others.
const ALGORITHM: usize = 13;
const LOG: u8 = 20;

/// Where a check says the limit of its quota.
const LIMIT: Range<usize> = 22..30;

/// For how long checks keep a server: usual ones, logs, and logs for each unit of their limits. 32 logs of 1 000 units took one 5 ms.
const CHECK_TIME: Duration = Duration::from_micros(4);
const LOG_TIME: Duration = Duration::from_micros(8);
const LOG_UNIT_TIME: Duration = Duration::from_nanos(150);
/// Logs of more units are refused.
const MOST_UNITS: f64 = 1e6;

/// A check of the operation 0 or 1, without flags, has this many bytes. It may repeat. That its rule may owe units adds none.
const REPEATABLE: usize = 34;
const MOST_REPEATABLE: u8 = 1;

impl Command {
    /// Any script.
    pub(crate) fn new(
        script: &'static Script,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
    ) -> Self {
        let mut command = Self {
            script: Some(script),
            ..Self::default()
        };
        keys.iter().for_each(|key| command.keys.push(key.as_ref()));
        args.iter().for_each(|arg| command.args.push(arg.as_ref()));
        command
    }

    /// A command that is about the connection.
    pub(super) fn of_words(words: &[&str]) -> Self {
        let mut command = Self::default();
        words.iter().for_each(|it| command.args.push(it.as_bytes()));
        command
    }

    /// The script that decides, without a check so far. Its first argument is what all the checks behind it have in common.
    pub(crate) fn checks(script: &'static Script, common: &[u8]) -> Self {
        let mut command = Self::new(script, &[""; 0], &[common]);
        command.key_places = Some(SmallVec::new());
        command
    }

    /// How many checks it carries.
    pub(super) fn count(&self) -> usize {
        self.key_places.as_ref().map_or(0, |_| self.args.len() - 1)
    }

    /// For how long its checks keep a server, as it is estimated.
    pub(super) fn server_time(&self) -> Duration {
        self.args.iter().skip(1).map(time_of).sum()
    }

    /// Whether one command can carry both: the same script, at the same time, on keys of the same hash slot.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        let scripts = self.script.zip(other.script);
        self.key_places.is_some()
            && other.key_places.is_some()
            && self.hash_slot == other.hash_slot
            && scripts.is_some_and(|(mine, theirs)| ptr::eq(mine, theirs))
            && self.args.iter().next() == other.args.iter().next()
    }

    /// Whether this is the same check as another, of another key.
    fn repeats(&self, other: &Self) -> bool {
        let is_repeatable = |it: &[u8]| it.len() == REPEATABLE && it[0] % 128 <= MOST_REPEATABLE;
        (self.keys.len(), other.keys.len(), self.count()) == (1, 1, 1)
            && self.args.iter().nth(1).is_some_and(is_repeatable)
            && self.args == other.args
    }

    /// Appends requests that go with one another as one command: with the text of the script, or with its hash.
    ///
    /// Equal checks of one key each, one behind the other, are written once, with how often the check repeats.
    pub(super) fn write_all<'a>(
        commands: impl Iterator<Item = &'a Self> + Clone,
        with_body: bool,
        out: &mut Vec<u8>,
    ) {
        let Some(first) = commands.clone().next() else {
            return;
        };
        let Some(script) = first.script else {
            push_count(out, first.args.len());
            return first.push_args(0, 0, out);
        };
        let keys: usize = commands.clone().map(|command| command.keys.len()).sum();
        // What the checks have in common is there once.
        let common = usize::from(first.key_places.is_some());
        let args = runs(commands.clone())
            .map(|(command, repeats)| command.args.len() - common + usize::from(repeats > 0));
        push_count(out, 3 + keys + common + args.sum::<usize>());
        if with_body {
            push_argument(out, b"EVAL");
            push_argument(out, script.body.as_bytes());
        } else {
            push_argument(out, b"EVALSHA");
            push_argument(out, script.sha().as_bytes());
        }
        push_argument(out, itoa::Buffer::new().format(keys).as_bytes());
        for command in commands.clone() {
            command.keys.iter().for_each(|key| push_argument(out, key));
        }
        let once = first.args.iter().take(common);
        once.for_each(|arg| push_argument(out, arg));
        let mut before = 0;
        for (command, repeats) in runs(commands) {
            command.push_args(common, before, out);
            before += command.keys.len() + usize::from(repeats);
            if repeats > 0 {
                push_argument(out, &repeats.to_le_bytes());
            }
        }
    }

    /// Appends the arguments behind the first ones. So many keys stand before its own.
    fn push_args(&self, skipped: usize, keys_before: usize, out: &mut Vec<u8>) {
        let mut places = self.key_places.iter().flatten().peekable();
        let mut start = self.args.iter().take(skipped).map(<[u8]>::len).sum();
        for arg in self.args.iter().skip(skipped) {
            push_argument(out, arg);
            let (begins, end) = (out.len() - arg.len() - END_OF_LINE.len(), start + arg.len());
            while let Some(place) = places.next_if(|place| **place < end) {
                if let Some(key) = out[begins + place - start..].first_chunk_mut() {
                    // As many keys as that do not travel together.
                    let moved = u16::from_le_bytes(*key).wrapping_add(keys_before as u16);
                    *key = moved.to_le_bytes();
                }
            }
            start = end;
        }
    }
}

/// Each request, with the number of those behind it that repeat its check.
fn runs<'a>(
    commands: impl Iterator<Item = &'a Command>,
) -> impl Iterator<Item = (&'a Command, u16)> {
    let mut commands = commands.peekable();
    std::iter::from_fn(move || {
        let first = commands.next()?;
        let mut repeats = 0;
        while repeats < u16::MAX && (commands.next_if(|command| command.repeats(first))).is_some() {
            repeats += 1;
        }
        Some((first, repeats))
    })
}

/// Appends what lets the next command at a hash slot that the server is about to receive.
pub(super) fn push_asking(out: &mut Vec<u8>) {
    push_count(out, 1);
    push_argument(out, b"ASKING");
}

fn time_of(check: &[u8]) -> Duration {
    if check.get(ALGORITHM) != Some(&LOG) {
        return CHECK_TIME;
    }
    let limit =
        (check.get(LIMIT).and_then(|limit| limit.try_into().ok())).map_or(0.0, f64::from_le_bytes);
    // A limit is a whole number, and so is what it is cut to.
    LOG_TIME + LOG_UNIT_TIME * limit.clamp(0.0, MOST_UNITS) as u32
}

// Many byte strings in one piece of memory.

/// Byte strings, one behind the other.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    /// Those of a usual key, or of a usual check, without an allocation.
    pub(crate) bytes: SmallVec<[u8; 96]>,
    ends: SmallVec<[usize; 4]>,
}

impl Packed {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    pub(crate) fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    /// The string at a place that has one.
    pub(crate) fn get(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[place]]
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|place| self.get(place))
    }
}

// A script and its hash.

/// The text of a script, and the SHA-1 by which servers know it.
///
/// The hash names an entry of the server's cache and protects nothing.
pub(crate) struct Script {
    pub(crate) body: &'static str,
    /// Forty hexadecimal digits, once they are needed.
    sha: OnceLock<String>,
}

impl Script {
    pub(crate) const fn new(body: &'static str) -> Self {
        let sha = OnceLock::new();
        Self { body, sha }
    }

    pub(crate) fn sha(&self) -> &str {
        (self.sha).get_or_init(|| Sha1::from(self.body).digest().to_string())
    }
}

// Writing commands.

const END_OF_LINE: &[u8] = b"\r\n";

/// Appends `*count` of a command.
pub(super) fn push_count(out: &mut Vec<u8>, count: usize) {
    push_length(out, b'*', count);
}

/// Appends one argument of a command.
pub(super) fn push_argument(out: &mut Vec<u8>, argument: &[u8]) {
    push_length(out, b'$', argument.len());
    out.extend_from_slice(argument);
    out.extend_from_slice(END_OF_LINE);
}

fn push_length(out: &mut Vec<u8>, mark: u8, length: usize) {
    out.push(mark);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(END_OF_LINE);
}

#[cfg(test)]
impl Command {
    /// Checks that are made by hand: in each of them the number of its key stands at these places.
    pub(crate) fn by_hand(
        script: &'static Script,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
        places: &[usize],
    ) -> Self {
        let mut command = Self::new(script, keys, &args[..1]);
        let mut key_places = SmallVec::new();
        for check in args[1..].iter().map(AsRef::as_ref) {
            let start = command.args.bytes.len();
            key_places.extend(places.iter().map(|place| start + place));
            command.args.push(check);
        }
        command.key_places = Some(key_places);
        command.answers = args.len() - 1;
        command
    }

    /// Commands that go out as one.
    pub(crate) fn written(commands: &[Self]) -> Vec<u8> {
        let mut out = Vec::new();
        Self::write_all(commands.iter(), false, &mut out);
        out
    }

    pub(crate) fn in_hash_slot(mut self, hash_slot: u16) -> Self {
        self.hash_slot = hash_slot;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::resp::{Value, decode};

    static SCRIPT: Script = Script::new("return 1");

    /// Where a check keeps the number of its key.
    const KEY: Range<usize> = 3..5;

    /// A check that may repeat if its operation may, about the key with this number.
    fn check(operation: u8, key: u16) -> Vec<u8> {
        let mut check = vec![0; REPEATABLE];
        check[0] = operation;
        check[KEY].copy_from_slice(&key.to_le_bytes());
        check
    }

    /// The same of a sliding log with this limit.
    fn log(limit: f64) -> Vec<u8> {
        let mut check = check(0, 1);
        check[ALGORITHM] = LOG;
        check[LIMIT].copy_from_slice(&limit.to_le_bytes());
        check
    }

    fn command(keys: &[&str], checks: &[Vec<u8>]) -> Command {
        let args = [&[b"now".to_vec()], checks].concat();
        Command::by_hand(&SCRIPT, keys, &args, &[KEY.start])
    }

    /// The arguments behind the hash, of requests that go out as one.
    fn written(commands: &[Command]) -> Vec<Vec<u8>> {
        let out = Command::written(commands);
        let command = match decode(&out) {
            Ok(Some((command, length))) if length == out.len() => command,
            other => panic!("{other:?}"),
        };
        let Value::List(words) = command else {
            panic!("{command:?}");
        };
        let words = words.into_iter().skip(2).map(|word| match word {
            Value::Text(word) => word,
            other => panic!("{other:?}"),
        });
        words.collect()
    }

    fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn equal_checks_in_a_row_are_written_once_with_how_often_they_repeat() {
        let one = |key, operation| command(&[key], &[check(operation, 1)]);
        let commands = [
            one("a", 0),
            one("b", 0),
            one("c", 0),
            one("d", 1),
            one("e", 1),
        ];
        let checks = [check(0, 1), vec![2, 0], check(1, 4), vec![1, 0]];
        let expected = [texts(&["5", "a", "b", "c", "d", "e", "now"]), checks.into()];
        assert_eq!(written(&commands), expected.concat());
        // Another one in between.
        let commands = [one("a", 0), one("b", 1), one("c", 0)];
        let checks = [check(0, 1), check(1, 2), check(0, 3)];
        let expected = [texts(&["3", "a", "b", "c", "now"]), checks.into()];
        assert_eq!(written(&commands), expected.concat());
    }

    #[test]
    fn a_check_does_not_repeat_for_a_request_of_two_keys() {
        let one = command(&["a"], &[check(0, 1)]);
        let two = command(&["b", "c"], &[check(0, 1)]);
        let head = texts(&["3", "a", "b", "c", "now"]);
        let checks = vec![check(0, 1), check(0, 2)];
        assert_eq!(
            written(&[one.clone(), two.clone()]),
            [head, checks].concat()
        );
        let head = texts(&["3", "b", "c", "a", "now"]);
        let checks = vec![check(0, 1), check(0, 3)];
        assert_eq!(written(&[two, one]), [head, checks].concat());
    }

    #[test]
    fn all_keys_of_a_check_are_moved_by_those_before() {
        let with_keys = |keys: [u16; 2]| keys.map(u16::to_le_bytes).concat();
        let before = [&["k"; 300][..], &["l"]].concat();
        let before = command(&before, &[check(2, 1)]);
        let args = [b"now".to_vec(), with_keys([1, 2]), with_keys([2, 1])];
        let behind = Command::by_hand(&SCRIPT, &["m", "n"], &args, &[0, 2]);
        let words = written(&[before, behind]);
        let moved = [with_keys([302, 303]), with_keys([303, 302])];
        assert_eq!(words[words.len() - 2..], moved);
    }

    #[test]
    fn the_time_of_a_request_is_that_of_its_checks_and_grows_with_the_limits_of_logs() {
        let micros = Duration::from_micros;
        let logs = command(&["a"], &[log(100.0), check(0, 1), log(0.0)]);
        assert_eq!(logs.server_time(), micros(23 + 4 + 8));
        for limit in [1e6, 1e18] {
            let largest = command(&["a"], &[log(limit)]);
            assert_eq!(largest.server_time(), micros(150_008));
        }
    }
}
