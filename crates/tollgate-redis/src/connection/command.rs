//! What a call asks, as it is sent; and how several go out as one.
//!
//! A call of the script that decides carries checks, and each check names its key by number. So the keys of several calls can
//! stand in one command, one behind the other, with the numbers in the checks moved.

use std::{ops::Range, sync::Arc, time::Duration};

use sha1_smol::Sha1;

/// A script with its keys and arguments, or a command.
#[derive(Clone)]
pub(crate) struct Command {
    /// `None`: its arguments are a command.
    pub(super) script: Option<Arc<Script>>,
    keys: usize,
    args: usize,
    /// The keys, then the arguments, each as it is sent.
    bytes: Vec<u8>,
    args_at: usize,
    checks: Option<Checks>,
    /// A bit for each rule that it is about. Two rules may share one.
    pub(crate) rules: u64,
}

/// The arguments behind the first one, if they are checks.
#[derive(Clone, Copy)]
struct Checks {
    count: usize,
    /// How many answers come to them.
    answers: usize,
    at: usize,
    hash_slot: u16,
    /// For how long they keep the server, as it is estimated.
    time: Duration,
    /// Whether it is one check that may repeat for the next key.
    repeats: bool,
}

/// Where a check says which algorithm it is for, and the sliding log there, which takes a server longer than others.
const ALGORITHM: usize = 13;
const LOG: u8 = 20;
/// And a fixed window of a durable rule: it has the number of one more key, which `calendar.lua` reads at the same place.
const DURABLE: u8 = 24;

/// Where a check says the limit of its quota.
const LIMIT: Range<usize> = 22..30;

/// For how long checks keep a server: usual ones, logs, and logs for each unit of their limits. 32 logs of 1 000 units took one 5 ms.
const CHECK_TIME: Duration = Duration::from_micros(4);
const LOG_TIME: Duration = Duration::from_micros(8);
const LOG_UNIT_TIME: Duration = Duration::from_nanos(150);
/// Logs of more units are refused.
const MOST_UNITS: f64 = 1e6;

/// Where a check keeps the number of its key, counted from 1, little endian.
const KEY: Range<usize> = 3..5;

/// Where a check says the role of its rule, and the role with which it has two more numbers of keys behind all others.
const ROLE: usize = 1;
const WITH_BALANCE: u8 = 3;

/// In the first byte of a check: it has three more numbers of keys, at its end.
const FURTHER_KEYS: u8 = 8;

/// The flag of a check of a rule that blocks keys.
const BLOCKS: u8 = 64;

/// A check of the operation 0 or 1, without flags, has this many bytes. It may repeat.
const REPEATABLE: usize = 34;
const MOST_REPEATABLE: u8 = 1;

/// Where a durable check with an id, and a durable charge, say since when the server has its states; others say it where these end.
const SINCE_BEHIND_ID: usize = REPEATABLE + 17;
const SINCE_OF_CHARGE: usize = REPEATABLE + 24;

impl Command {
    /// Any script.
    pub(crate) fn new(
        script: &Arc<Script>,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
    ) -> Self {
        let mut command = Self::empty(Some(script), 128 * (keys.len() + args.len()));
        for key in keys {
            command.push_key(key.as_ref());
        }
        for arg in args {
            command.push_arg(arg.as_ref());
        }
        command
    }

    /// A command that is about the connection.
    pub(super) fn of_words(words: &[&str]) -> Self {
        let mut command = Self::empty(None, 0);
        for word in words {
            command.push_arg(word.as_bytes());
        }
        command
    }

    /// The script that decides: its first argument is what all the checks behind it have in common. Requests of one hash slot
    /// may travel together; outside of a cluster that is hash slot 0.
    pub(crate) fn checks<'a>(
        script: &Arc<Script>,
        hash_slot: u16,
        keys: impl Iterator<Item = &'a [u8]>,
        mut args: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Self {
        // A usual key and a usual check, so that one allocation is enough as a rule.
        let mut command = Self::empty(Some(script), 128 * args.len());
        for key in keys {
            command.push_key(key);
        }
        if let Some(common) = args.next() {
            command.push_arg(common);
        }
        let (count, at) = (args.len(), command.bytes.len());
        let mut answers = count;
        let mut time = Duration::ZERO;
        let mut repeats = command.keys == 1 && count == 1;
        for check in args {
            // The answer says more to a rule that blocks keys.
            answers += usize::from(check.len() > REPEATABLE && check[0] & BLOCKS != 0);
            repeats &= check.len() == REPEATABLE && check[0] <= MOST_REPEATABLE;
            time = time.saturating_add(time_of(check));
            command.push_arg(check);
        }
        command.checks = Some(Checks {
            count,
            answers,
            at,
            hash_slot,
            time,
            repeats,
        });
        command
    }

    fn empty(script: Option<&Arc<Script>>, room: usize) -> Self {
        Self {
            script: script.map(Arc::clone),
            keys: 0,
            args: 0,
            bytes: Vec::with_capacity(room),
            args_at: 0,
            checks: None,
            rules: 0,
        }
    }

    fn push_key(&mut self, key: &[u8]) {
        push_argument(&mut self.bytes, key);
        self.keys += 1;
        self.args_at = self.bytes.len();
    }

    fn push_arg(&mut self, arg: &[u8]) {
        push_argument(&mut self.bytes, arg);
        self.args += 1;
    }

    /// How many checks it carries; `None` if its arguments are something else.
    pub(super) fn count(&self) -> Option<usize> {
        self.checks.map(|checks| checks.count)
    }

    /// How many answers to checks come; `None` as for [`count`](Self::count).
    pub(super) fn answers(&self) -> Option<usize> {
        self.checks.map(|checks| checks.answers)
    }

    /// For how long it keeps a server, as it is estimated.
    pub(super) fn server_time(&self) -> Duration {
        self.checks.map_or(CHECK_TIME, |checks| checks.time)
    }

    /// The hash slot of its keys. What has none may go anywhere.
    pub(super) fn hash_slot(&self) -> u16 {
        self.checks.map_or(0, |checks| checks.hash_slot)
    }

    /// Whether one command can carry both: the same script, at the same time, on keys of the same hash slot.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        let (Some(mine), Some(theirs)) = (self.checks, other.checks) else {
            return false;
        };
        let scripts = self.script.as_ref().zip(other.script.as_ref());
        mine.hash_slot == theirs.hash_slot
            && scripts.is_some_and(|(mine, theirs)| Arc::ptr_eq(mine, theirs))
            && self.bytes[self.args_at..mine.at] == other.bytes[other.args_at..theirs.at]
    }

    /// Whether this is the same check as another, of another key.
    fn repeats(&self, other: &Self) -> bool {
        let (Some(mine), Some(theirs)) = (self.checks, other.checks) else {
            return false;
        };
        mine.repeats && theirs.repeats && self.bytes[mine.at..] == other.bytes[theirs.at..]
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
        let Some(script) = &first.script else {
            push_count(out, first.args);
            out.extend_from_slice(&first.bytes);
            return;
        };
        let keys = commands.clone().map(|command| command.keys).sum();
        // What they have in common is there once.
        let args = runs(commands.clone()).map(|(command, repeats)| match command.checks {
            Some(checks) => checks.count + usize::from(repeats > 0),
            None => command.args,
        });
        let common = usize::from(first.checks.is_some()).min(first.args);
        push_count(out, 3 + keys + common + args.sum::<usize>());
        if with_body {
            push_argument(out, b"EVAL");
            push_argument(out, script.body.as_bytes());
        } else {
            push_argument(out, b"EVALSHA");
            push_argument(out, &script.sha);
        }
        push_number(out, keys);
        for command in commands.clone() {
            out.extend_from_slice(&command.bytes[..command.args_at]);
        }
        let Some(checks) = first.checks else {
            out.extend_from_slice(&first.bytes[first.args_at..]);
            return;
        };
        out.extend_from_slice(&first.bytes[first.args_at..checks.at]);
        let mut before = 0;
        for (command, repeats) in runs(commands) {
            let at = command
                .checks
                .map_or(command.bytes.len(), |checks| checks.at);
            let start = out.len();
            out.extend_from_slice(&command.bytes[at..]);
            if before > 0 {
                move_keys(&mut out[start..], before);
            }
            before += command.keys + usize::from(repeats);
            if repeats > 0 {
                push_argument(out, &repeats.to_le_bytes());
            }
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

/// Adds `by` to the number of the key in each of these checks, as they are sent.
fn move_keys(mut checks: &mut [u8], by: usize) {
    // `$`, the length, CR LF; then the check and CR LF.
    while let Some(end) = checks.iter().position(|byte| *byte == b'\r') {
        let digits = checks[1..end].iter();
        let length = digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
        let (check, rest) = std::mem::take(&mut checks)[end + 2..].split_at_mut(length + 2);
        let further = check.first().is_some_and(|what| what & FURTHER_KEYS != 0);
        if let Some(key) = check.get_mut(KEY) {
            move_key(key, by);
        }
        if check.get(ALGORITHM) == Some(&DURABLE) {
            let place = match check[0] % FURTHER_KEYS {
                0 if check[2] > 1 => SINCE_BEHIND_ID,
                0 => REPEATABLE,
                _ => SINCE_OF_CHARGE,
            };
            if let Some(key) = check.get_mut(place..place + 2) {
                move_key(key, by);
            }
        }
        let has_balance = check.get(ROLE) == Some(&WITH_BALANCE);
        // Two bytes for each of three, and for each name of a balance; then CR LF.
        let keys = if further { 6 } else { 0 } + if has_balance { 4 } else { 0 };
        if let Some(start) = length.checked_sub(keys) {
            for key in check[start..length].chunks_exact_mut(2) {
                // 0 is none.
                if key != [0, 0] {
                    move_key(key, by);
                }
            }
        }
        checks = rest;
    }
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

fn move_key(key: &mut [u8], by: usize) {
    // As many keys as that do not travel together.
    let number = u16::from_le_bytes([key[0], key[1]]).wrapping_add(by as u16);
    key.copy_from_slice(&number.to_le_bytes());
}

// A script and its hash.

/// The text of a script, and the SHA-1 by which servers know it.
///
/// The hash names an entry of the server's cache and protects nothing.
pub(crate) struct Script {
    pub(crate) body: &'static str,
    /// Forty hexadecimal digits.
    pub(crate) sha: [u8; 40],
}

impl Script {
    pub(crate) fn new(body: &'static str) -> Self {
        let mut sha = [0; 40];
        for (digits, byte) in sha
            .chunks_exact_mut(2)
            .zip(Sha1::from(body).digest().bytes())
        {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            digits.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        Self { body, sha }
    }
}

// Writing commands.

/// Appends `*count` of a command.
pub(super) fn push_count(out: &mut Vec<u8>, count: usize) {
    push_length(out, b'*', count);
}

/// Appends one argument of a command.
pub(super) fn push_argument(out: &mut Vec<u8>, argument: &[u8]) {
    push_length(out, b'$', argument.len());
    out.extend_from_slice(argument);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number as one argument of a command.
pub(super) fn push_number(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    push_argument(out, decimal(number, &mut digits));
}

fn push_length(out: &mut Vec<u8>, mark: u8, length: usize) {
    let mut digits = [0; 20];
    out.push(mark);
    out.extend_from_slice(decimal(length, &mut digits));
    out.extend_from_slice(b"\r\n");
}

fn decimal(number: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut rest = number;
    let mut at = digits.len();
    loop {
        at -= 1;
        // A remainder of ten is one digit.
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::resp::{Decoder, Value};

    fn script() -> Arc<Script> {
        Arc::new(Script::new("return 1"))
    }

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

    fn command(script: &Arc<Script>, keys: &[&str], checks: &[Vec<u8>]) -> Command {
        let mut args = vec![&b"now"[..]];
        args.extend(checks.iter().map(Vec::as_slice));
        let keys = keys.iter().map(|key| key.as_bytes());
        Command::checks(script, 0, keys, args.into_iter())
    }

    /// The arguments behind the hash, of requests that go out as one.
    fn written(commands: &[Command]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        Command::write_all(commands.iter(), false, &mut out);
        let mut decoder = Decoder::default();
        let command = match decoder.decode(&out) {
            Ok(Some((command, length))) if length == out.len() => command.into_value(),
            other => panic!("{other:?}"),
        };
        let Some(Value::List(words)) = command else {
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
        let script = script();
        let one = |key, operation| command(&script, &[key], &[check(operation, 1)]);
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
        let script = script();
        let one = command(&script, &["a"], &[check(0, 1)]);
        let two = command(&script, &["b", "c"], &[check(0, 1)]);
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
    fn all_keys_of_a_check_are_moved_and_none_stays_none() {
        let script = script();
        let with_keys = |first: u16, further: [u16; 3]| {
            let mut check = check(FURTHER_KEYS, first);
            check.extend(further.map(u16::to_le_bytes).concat());
            check
        };
        let before = [&["k"; 300][..], &["l"]].concat();
        let before = command(&script, &before, &[check(2, 1)]);
        let behind = command(&script, &["m", "n"], &[with_keys(1, [2, 0, 1])]);
        let words = written(&[before, behind]);
        assert_eq!(words[words.len() - 1], with_keys(302, [303, 0, 302]));
        // Without the flag there are no keys at the end.
        let mut plain = with_keys(1, [2, 0, 1]);
        plain[0] = 0;
        let commands = [(); 2].map(|()| command(&script, &["m"], &[plain.clone()]));
        let words = written(&commands);
        move_key(&mut plain[KEY], 1);
        assert_eq!(words[words.len() - 1], plain);
    }

    #[test]
    fn the_key_that_says_since_when_states_are_there_is_moved() {
        let script = script();
        for (operation, has_id, at) in [(0, 0, 34), (0, 2, 51), (3, 0, 58)] {
            let durable = |key, since: u16| {
                let mut check = check(operation, key);
                (check[2], check[ALGORITHM]) = (has_id, DURABLE);
                check.resize(at, 0);
                check.extend(since.to_le_bytes());
                check.extend([0; 8]);
                check
            };
            let before = command(&script, &["k", "l", "m"], &[check(2, 1)]);
            let behind = command(&script, &["n", "o"], &[durable(1, 2)]);
            let words = written(&[before, behind]);
            assert_eq!(
                words[words.len() - 1],
                durable(4, 5),
                "{operation} {has_id}"
            );
        }
    }

    #[test]
    fn the_time_of_a_request_is_that_of_its_checks_and_grows_with_the_limits_of_logs() {
        let script = script();
        let micros = Duration::from_micros;
        let logs = command(&script, &["a"], &[log(100.0), check(0, 1), log(0.0)]);
        assert_eq!(logs.server_time(), micros(23 + 4 + 8));
        for limit in [1e6, 1e18] {
            let largest = command(&script, &["a"], &[log(limit)]);
            assert_eq!(largest.server_time(), micros(150_008));
        }
    }
}
