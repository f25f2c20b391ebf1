//! Documents in JSON.

use std::ops::Range;

use crate::{
    node::{Name, Node, Value},
    problems::Problems,
};

/// How deep tables and lists may lie in each other.
const DEPTH: usize = 32;

/// The tree of a document. An empty table where it cannot be read.
pub(crate) fn parse(text: &str, problems: &Problems) -> Node {
    let nothing = Node {
        span: 0..text.len(),
        value: Value::Table(Vec::new()),
    };
    if text.trim().is_empty() {
        return nothing;
    }
    match Parser::new(text).document() {
        Ok(node) => node,
        Err((span, message)) => {
            problems.add(span, format!("this is not JSON: {message}"));
            nothing
        }
    }
}

type Wrong = (Range<usize>, &'static str);

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        // Windows begins texts with it.
        let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
        Self { text, at, depth: 0 }
    }

    fn document(mut self) -> Result<Node, Wrong> {
        let node = self.value()?;
        match self.peek() {
            None => Ok(node),
            Some(_) => Err(self.wrong("there is more behind the document; keep one table")),
        }
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let spaces = rest.iter().take_while(|byte| b" \t\r\n".contains(byte));
        self.at += spaces.count();
        self.text.as_bytes().get(self.at).copied()
    }

    /// An error at the character here.
    fn wrong(&self, message: &'static str) -> Wrong {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.chars().next().map_or(0, char::len_utf8);
        (self.at..self.at + len, message)
    }

    fn value(&mut self) -> Result<Node, Wrong> {
        let first = self.peek();
        let begin = self.at;
        let value = match first {
            Some(b'{') => {
                let mut fields = Vec::new();
                self.members(b'}', "a comma or } is missing", |parser| {
                    fields.push(parser.field()?);
                    Ok(())
                })?;
                Value::Table(fields)
            }
            Some(b'[') => {
                let mut nodes = Vec::new();
                self.members(b']', "a comma or ] is missing", |parser| {
                    nodes.push(parser.value()?);
                    Ok(())
                })?;
                Value::List(nodes)
            }
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'a'..=b'z') => self.word()?,
            Some(b'\'') => return Err(self.wrong("a text stands in double quotes")),
            Some(b'/' | b'#') => {
                return Err(self.wrong("JSON has no comments; remove it, or write YAML or TOML"));
            }
            Some(_) => return Err(self.wrong("a value is missing")),
            None => return Err(self.wrong("it ends where a value is missing")),
        };
        let span = begin..self.at;
        Ok(Node { span, value })
    }

    /// What stands between commas, up to the closing bracket.
    fn members(
        &mut self,
        close: u8,
        missing: &'static str,
        mut read: impl FnMut(&mut Self) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        if self.depth == DEPTH {
            return Err(self.wrong("tables and lists lie more than 32 deep in each other"));
        }
        self.depth += 1;
        self.at += 1;
        let mut is_first = true;
        while self.peek() != Some(close) || !is_first {
            if self.peek() == Some(close) {
                return Err(self.wrong("a comma has nothing behind it; remove it"));
            }
            read(self)?;
            is_first = false;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == close => break,
                _ => return Err(self.wrong(missing)),
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    fn field(&mut self) -> Result<(Name, Node), Wrong> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong("the name of a field stands in double quotes"));
        }
        let begin = self.at;
        let text = self.string()?;
        let span = begin..self.at;
        if self.peek() != Some(b':') {
            return Err(self.wrong("a colon is missing behind the name"));
        }
        self.at += 1;
        Ok((Name { span, text }, self.value()?))
    }

    fn word(&mut self) -> Result<Value, Wrong> {
        for (word, value) in [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
        ] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong("a text stands in double quotes"))
    }

    fn number(&mut self) -> Result<Value, Wrong> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| b"+-.0123456789eE".contains(byte);
        let len = rest.bytes().take_while(|byte| is_part(byte)).count();
        let number = &rest[..len];
        if !is_number(number) {
            return Err((self.at..self.at + len, "this is not a number"));
        }
        self.at += len;
        let integer = number.parse().map(Value::Integer);
        Ok(integer.unwrap_or_else(|_| Value::Float(number.to_owned())))
    }

    fn string(&mut self) -> Result<String, Wrong> {
        let begin = self.at;
        self.at += 1;
        let mut string = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .bytes()
                .position(|byte| byte == b'"' || byte == b'\\' || byte < b' ');
            let Some(plain) = plain else {
                return Err((
                    begin..begin + 1,
                    "this text has no end; a double quote is missing",
                ));
            };
            string.push_str(&rest[..plain]);
            self.at += plain;
            match rest.as_bytes()[plain] {
                b'"' => {
                    self.at += 1;
                    return Ok(string);
                }
                b'\\' => string.push(self.escaped()?),
                b'\n' | b'\r' => {
                    return Err((
                        begin..self.at,
                        "a text ends in its line; a double quote is missing",
                    ));
                }
                _ => return Err(self.wrong("a control character is written as \\u0009")),
            }
        }
    }

    /// The character of an escape.
    fn escaped(&mut self) -> Result<char, Wrong> {
        let begin = self.at;
        let kind = self.text.as_bytes().get(begin + 1).copied();
        self.at += 2;
        Ok(match kind {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let wrong = "an escape has four hexadecimal digits, as \\u00e4";
                let first = self.unit().ok_or((begin..begin + 2, wrong))?;
                let mut units = vec![first];
                if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    units.extend(self.unit());
                }
                let mut chars = char::decode_utf16(units);
                match (chars.next(), chars.next()) {
                    (Some(Ok(char)), None) => char,
                    _ => return Err((begin..self.at, "these are not the halves of a character")),
                }
            }
            _ => {
                return Err((
                    begin..begin + 1,
                    "there is no such escape; a backslash is \\\\",
                ));
            }
        })
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let unit = u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
        self.at += 4;
        Some(unit)
    }
}

/// Whether a text is a number of JSON (RFC 8259 §6), which has no leading zeros, and digits around its point.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let whole = whole.strip_prefix('-').unwrap_or(whole);
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Number};

    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        let problems = Problems::default();
        let node = parse(text, &problems);
        match problems.into_sorted().pop() {
            None => Ok(node.value),
            Some(problem) => Err(format!("{:?} {}", problem.span, problem.message)),
        }
    }

    fn plain(value: &Value) -> serde_json::Value {
        match value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(boolean) => (*boolean).into(),
            Value::Integer(number) => Number::from_i128(*number).expect("a number").into(),
            // Exactly: serde_json is one bit off where its feature `float_roundtrip` is not on.
            Value::Float(text) => text.parse::<f64>().expect("a number").into(),
            Value::Time(_) => unreachable!("JSON has no times"),
            Value::Text(text) => text.clone().into(),
            Value::List(nodes) => nodes.iter().map(|node| plain(&node.value)).collect(),
            Value::Table(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, node)| (name.text.clone(), plain(&node.value)));
                serde_json::Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    #[test]
    fn each_escape_is_its_character() {
        for (text, value) in [
            (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r#""\u00e4\uD83D\uDE00""#, "\u{e4}\u{1f600}"),
            // The last character before the halves, and the first one behind them.
            (r#""\ud7ff\u0041\ue000""#, "\u{d7ff}A\u{e000}"),
            // Windows begins texts with a mark of three bytes.
            ("\u{feff}\"a\"", "a"),
        ] {
            assert_eq!(read(text), Ok(Value::Text(value.to_owned())), "{text}");
        }
        for half in [r#""\ude00""#, r#""\ud83d\u0041""#] {
            assert!(read(half).is_err(), "{half}");
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            (-1e6..1e6_f64).prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..8);
            let table = prop::collection::btree_map(any::<String>(), inner, 0..8);
            prop_oneof![
                list.prop_map(Into::into),
                table.prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_is_read_as_it_was(value in any_json(), is_pretty: bool) {
            let text = match is_pretty {
                true => serde_json::to_string_pretty(&value),
                false => serde_json::to_string(&value),
            };
            let read = read(&text.expect("JSON")).expect("it is JSON");
            prop_assert_eq!(plain(&read), value);
        }

        #[test]
        fn a_text_is_json_where_serde_json_says_so(text in "[\\[\\]{}:,\"\\\\u019.eE+ \\-atrfnl]{0,24}") {
            prop_assume!(!text.trim().is_empty());
            let other = serde_json::from_str::<serde_json::Value>(&text);
            // It refuses numbers that are too large for it.
            let is_large = other.as_ref().is_err_and(|error| error.to_string().contains("out of range"));
            prop_assume!(!is_large);
            prop_assert_eq!(read(&text).is_ok(), other.is_ok(), "{:?}", read(&text));
        }
    }
}
