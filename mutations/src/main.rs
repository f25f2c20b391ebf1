//! Breaks the code on purpose, one place at a time, and expects a test to fail each time.
//!
//! ```text
//! cargo run --release -p tollgate-mutations [--no-baseline] [--list] [text…]
//! ```
//!
//! The lists are in `mutations/list/`. With texts, only mutations run whose name, file, list or test contains one of them.
//! The code under test is a copy of the working tree in `target/mutations/`, so that nothing that you edit is touched; its
//! builds are kept there too. The first run builds everything, and takes long.
//!
//! First each test that a mutation names has to pass on the code as it is (`--no-baseline` leaves that out). Then, for each
//! mutation, its test has to fail. A mutation is an error of the list, and not caught, where it does not compile or where no
//! test has the name. A test that runs for longer than its limit counts as failed. A mutation with an `equivalent` is not
//! expected to be caught; if it is, its argument is wrong.
//!
//! The program ends with 1 if a mutation survived or the list has an error.

#![expect(clippy::print_stdout, reason = "a command-line program")]

mod list;
mod outcome;
mod run;
mod tree;

use std::{collections::BTreeSet, env, error::Error, path::Path, process::ExitCode};

use crate::{
    list::{Mutation, mutations},
    outcome::Outcome,
    run::run,
    tree::Tree,
};

fn main() -> ExitCode {
    match mutate(env::args().skip(1).collect()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every mutation had the end that its list says.
fn mutate(arguments: Vec<String>) -> Result<bool, Box<dyn Error>> {
    let (options, texts): (Vec<_>, Vec<_>) = arguments
        .into_iter()
        .partition(|text| text.starts_with("--"));
    if let Some(unknown) = options
        .iter()
        .find(|option| !["--no-baseline", "--list"].contains(&&***option))
    {
        return Err(format!("{unknown} is no option; there are --no-baseline and --list").into());
    }
    let has = |option| options.iter().any(|given| given == option);
    let root = repository();
    let chosen: Vec<_> = mutations(root)?
        .into_iter()
        .filter(|mutation| mutation.is_chosen(&texts))
        .collect();
    if chosen.is_empty() {
        return Err(format!("no mutation contains one of {texts:?}").into());
    }
    if has("--list") {
        for mutation in &chosen {
            println!(
                "{}: {}\n    cargo test {}",
                mutation.file, mutation.name, mutation.test
            );
        }
        println!("{} mutations", chosen.len());
        return Ok(true);
    }
    let tree = Tree::copy(root)?;
    let broken = if has("--no-baseline") {
        Vec::new()
    } else {
        fail_unchanged(&tree, &chosen)?
    };
    let mut rows = Vec::new();
    for (number, mutation) in chosen.iter().enumerate() {
        let (outcome, seconds) = if broken.contains(&mutation.test) {
            (Outcome::FailsUnchanged, 0)
        } else {
            tree.with(mutation, || run(&tree, mutation))?
        };
        println!(
            "{:3}/{} {outcome:20} {seconds:4} s  {}: {}",
            number + 1,
            chosen.len(),
            mutation.file,
            mutation.name
        );
        rows.push((mutation, outcome));
    }
    Ok(concluded(&rows))
}

/// The tests that fail without any mutation: what they would catch says nothing.
fn fail_unchanged(tree: &Tree, chosen: &[Mutation]) -> Result<Vec<String>, Box<dyn Error>> {
    let mut seen = BTreeSet::new();
    let mut broken = Vec::new();
    for mutation in chosen {
        if !seen.insert(&mutation.test) {
            continue;
        }
        let (outcome, seconds) = run(tree, mutation)?;
        let passes = outcome == Outcome::Survived;
        println!(
            "unchanged: {} {seconds:4} s  cargo test {}",
            if passes {
                "passes".to_owned()
            } else {
                format!("{outcome:?}")
            },
            mutation.test
        );
        if !passes {
            broken.push(mutation.test.clone());
        }
    }
    Ok(broken)
}

fn concluded(rows: &[(&Mutation, Outcome)]) -> bool {
    let with = |mutation: &Mutation, outcome: Outcome| outcome.is_as_listed(mutation);
    let (good, bad): (Vec<_>, Vec<_>) = rows
        .iter()
        .partition(|(mutation, outcome)| with(mutation, *outcome));
    let caught = good
        .iter()
        .filter(|(_, outcome)| outcome.is_caught())
        .count();
    println!(
        "\n{} mutations: {caught} caught, {} equivalent, {} wrong",
        rows.len(),
        good.len() - caught,
        bad.len()
    );
    for (mutation, outcome) in &bad {
        println!(
            "\n{outcome}: {}: {}\n    cargo test {}\n    listed in {}",
            mutation.file, mutation.name, mutation.test, mutation.list
        );
        if let Some(argument) = &mutation.equivalent {
            println!("    said to be equivalent: {argument}");
        }
    }
    bad.is_empty()
}

/// The root of the repository that this program was built in.
fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}
