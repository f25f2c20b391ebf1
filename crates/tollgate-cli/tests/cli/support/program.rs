//! The program `tollgate`, in a folder of the test's own.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use super::RedisServer;

/// A secret that no service has.
pub(crate) const SECRET: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// The variables that the program reads.
const VARIABLES: &[&str] = &[
    "DATABASE_URL",
    "REDIS_URL",
    "TOLLGATE_NAMESPACE",
    "TOLLGATE_RULES",
    "TOLLGATE_SECRET",
];

/// The program with its environment.
#[derive(Debug)]
pub(crate) struct Program {
    folder: TempDir,
    environment: Vec<(String, String)>,
}

/// What a run has printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Program {
    /// In an empty folder.
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            environment: Vec::new(),
        }
    }

    /// With these rules in `limits.toml`, and a server.
    pub(crate) fn on(server: &RedisServer, rules: &str) -> Self {
        Self::on_stored(server)
            .file("limits.toml", rules)
            .set("TOLLGATE_RULES", "limits.toml")
    }

    /// With a server, which may have rules.
    pub(crate) fn on_stored(server: &RedisServer) -> Self {
        Self::new()
            .set("REDIS_URL", &server.url())
            .set("TOLLGATE_NAMESPACE", "shop")
            .set("TOLLGATE_SECRET", SECRET)
    }

    /// With this file in its folder.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
        self
    }

    /// With this variable in its environment.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs it.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(args);
        self.output(command)
    }

    /// Runs it; what it prints goes there.
    pub(crate) fn run_into(&self, args: &[&str], out: impl Into<Stdio>) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(args).stdout(out);
        self.output(command)
    }

    /// Runs it with `--json`, and reads what it prints.
    pub(crate) fn json(&self, args: &[&str]) -> (i32, Value) {
        let ran = self.run(&[args, &["--json"]].concat());
        let json = serde_json::from_str(&ran.out);
        (
            ran.code,
            json.unwrap_or_else(|wrong| panic!("{wrong}: {ran:?}")),
        )
    }

    /// Runs a line of a shell, in which the program is on the path.
    pub(crate) fn shell(&self, line: &str) -> Ran {
        let program = Path::new(env!("CARGO_BIN_EXE_tollgate"));
        let folder = program.parent().expect("it is in a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .env("PATH", format!("{folder}:{path}"));
        self.output(command)
    }

    fn output(&self, mut command: Command) -> Ran {
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        let output = command
            .current_dir(self.folder())
            .env("USER", "alice")
            .envs(environment)
            .output();
        let Output {
            status,
            stdout,
            stderr,
        } = output.expect("it runs");
        Ran {
            code: status.code().expect("it was not killed"),
            out: String::from_utf8(stdout).expect("it prints text"),
            err: String::from_utf8(stderr).expect("it prints text"),
        }
    }
}

impl Ran {
    /// With this exit code, and these words in what it has printed.
    pub(crate) fn assert(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        for word in words {
            let has = self.out.contains(word) || self.err.contains(word);
            assert!(has, "{word:?} is not in:\n{}{}", self.out, self.err);
        }
        self
    }

    /// With none of these words.
    pub(crate) fn lacks(&self, words: &[&str]) -> &Self {
        for word in words {
            let has = self.out.contains(word) || self.err.contains(word);
            assert!(!has, "{word:?} is in:\n{}{}", self.out, self.err);
        }
        self
    }
}

/// Nothing in it is obeyed by a terminal, turns a line round, or is wider than any screen.
pub(crate) fn assert_harmless(ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        for c in text.chars().filter(|c| *c != '\n') {
            let is_harmful = c.is_control()
                || matches!(c, '\u{590}'..='\u{8ff}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
            assert!(!is_harmful, "{c:?} is in {text:?}");
        }
        let longest = text
            .lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0);
        assert!(longest < 2_000, "a line of {longest}");
    }
}

/// The words of a command line, in which quotes keep spaces.
pub(crate) fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.collect()
}
