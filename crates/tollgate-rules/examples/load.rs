//! How long a large document takes to load: 10 000 rules with 100 000 overrides.
//!
//! `cargo run --release -p tollgate-rules --example load [rules] [overrides] [once]`

#![expect(clippy::print_stdout, reason = "an example prints to the terminal")]

use std::{env, fmt::Write, time::Instant};

use tollgate_rules::{Bindings, Format, RuleDocument};

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
        let _ = write!(
            toml,
            "[[rules]]\nname = \"rule-{n}\"\nlimit = \"{}/min burst 50\"\nby = \"header:x-api-key\"\nwhen = {{ path = \"/r{n}\" }}\n",
            100 + n
        );
        let comma = if n > 0 { "," } else { "" };
        let _ = write!(
            json,
            "{comma}{{\"name\": \"rule-{n}\", \"limit\": \"{}/min burst 50\", \"by\": \"header:x-api-key\", \"when\": {{\"path\": \"/r{n}\"}}}}\n",
            100 + n
        );
    }
    json.push_str("], \"overrides\": [");
    for n in 0..overrides {
        let (rule, limit) = (n % rules, 200 + n % 10);
        let _ = write!(
            toml,
            "[[overrides]]\nrule = \"rule-{rule}\"\nkey = \"customer-{n}\"\nlimit = \"{limit}/min\"\nreason = \"ticket {n}\"\n"
        );
        let comma = if n > 0 { "," } else { "" };
        let _ = write!(
            json,
            "{comma}{{\"rule\": \"rule-{rule}\", \"key\": \"customer-{n}\", \"limit\": \"{limit}/min\", \"reason\": \"ticket {n}\"}}\n"
        );
    }
    json.push_str("]}");
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
