//! How long a large document takes to load, 10 000 rules with 100 000 overrides, how long a change of one of its rules takes to be
//! in force, and what it holds in memory.
//!
//! `cargo run --release -p tollgate-rules --example load [rules] [overrides] [once]`

#![expect(clippy::print_stdout, reason = "an example prints to the terminal")]

use std::{env, error::Error, fmt::Write, fs, time::Instant};

use tollgate::{HOUR, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
use tollgate_rules::{Bindings, Format, LiveRules, RuleDocument};

fn main() {
    let mut numbers = env::args().skip(1).filter_map(|number| number.parse().ok());
    let rules: usize = numbers.next().unwrap_or(10_000);
    let overrides: usize = numbers.next().unwrap_or(100_000);
    let times = if env::args().any(|word| word == "once") {
        1
    } else {
        5
    };
    let mut toml = "version = 1\n".to_owned();
    let mut json = "{\"version\": 1, \"rules\": [".to_owned();
    for n in 0..rules {
        // Writing to a string does not fail.
        let _ = writeln!(
            toml,
            "[[rules]]\nname = \"rule-{n}\"\nlimit = \"{}/min burst 50\"\nby = \"header:x-api-key\"\nwhen = {{ path = \"/r{n}\" }}",
            100 + n
        );
        let comma = if n > 0 { "," } else { "" };
        let _ = writeln!(
            json,
            "{comma}{{\"name\": \"rule-{n}\", \"limit\": \"{}/min burst 50\", \"by\": \"header:x-api-key\", \"when\": {{\"path\": \"/r{n}\"}}}}",
            100 + n
        );
    }
    json.push_str("], \"overrides\": [");
    for n in 0..overrides {
        let (rule, limit) = (n % rules, 200 + n % 10);
        let _ = writeln!(
            toml,
            "[[overrides]]\nrule = \"rule-{rule}\"\nkey = \"customer-{n}\"\nlimit = \"{limit}/min\"\nreason = \"ticket {n}\""
        );
        let comma = if n > 0 { "," } else { "" };
        let _ = writeln!(
            json,
            "{comma}{{\"rule\": \"rule-{rule}\", \"key\": \"customer-{n}\", \"limit\": \"{limit}/min\", \"reason\": \"ticket {n}\"}}"
        );
    }
    json.push_str("]}");
    if let Err(wrong) = swaps(&toml, rules) {
        println!("{wrong}");
    }
    for (format, text) in [(Format::Toml, &toml), (Format::Json, &json)] {
        for _ in 0..times {
            #[expect(clippy::disallowed_methods, reason = "it measures")]
            let begin = Instant::now();
            let document = RuleDocument::parse(text, format, &Bindings::new());
            let document = match document {
                Ok(document) => document,
                Err(wrong) => return println!("{wrong}"),
            };
            let parsed = begin.elapsed();
            let made = document.rules().len();
            println!(
                "{format}, {} KB: parsed in {parsed:?}, {made} rules made in {:?}",
                text.len() / 1024,
                begin.elapsed() - parsed
            );
        }
    }
}

/// One rule of the document changes: in its text, and in the layer that has the rules.
fn swaps(toml: &str, rules: usize) -> Result<(), Box<dyn Error>> {
    let before = resident();
    let live = LiveRules::from_text(toml, Format::Toml, Bindings::new())?;
    let parsed = resident();
    let layer: RateLimitLayer = live.layer(MemoryStore::new())?;
    println!(
        "held: {} MB by the document, {} MB by its layer",
        parsed.saturating_sub(before) >> 20,
        resident().saturating_sub(parsed) >> 20
    );
    for limit in [40, 41, 42] {
        let changed = toml.replacen("100/min burst 50", &format!("100/min burst {limit}"), 1);
        #[expect(clippy::disallowed_methods, reason = "it measures")]
        let begin = Instant::now();
        let changes = live.set_text(&changed, Format::Toml)?;
        println!(
            "{} rule of the text changed, read and in force in {:?}",
            changes.len(),
            begin.elapsed()
        );
    }
    // The layer alone, as a source of your own has it: the rules that have not changed are kept.
    let handle = layer.handle();
    let mut list = live.document().rules();
    for limit in [40, 41, 42] {
        let place = rules / 2;
        let rule = Rule::new(format!("rule-{place}"), Quota::gcra(limit, HOUR));
        list[place] = rule.by(header("x-api-key"));
        let list = list.clone();
        #[expect(clippy::disallowed_methods, reason = "it measures")]
        let begin = Instant::now();
        let changes = handle.replace(list)?;
        println!(
            "{} rule of the layer replaced in {:?}",
            changes.len(),
            begin.elapsed()
        );
    }
    Ok(())
}

/// Bytes of memory that the process holds (Linux only; 0 elsewhere).
fn resident() -> u64 {
    let read = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = read.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * 4_096
}
