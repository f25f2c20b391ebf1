//! What the compiler says of the mistakes that its users make.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

/// What the compiler says of a program in which `tollgate` is everything of it.
fn output(program: &str) -> String {
    let tests = env::current_exe().expect("this program has a path");
    let builds = tests.parent().expect("it is in a folder");
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("program.rs");
    fs::write(&source, program).expect("a file in it");

    let mut newest = String::new();
    for library in libraries(builds) {
        let output = Command::new("rustc")
            .args([
                "--edition",
                "2024",
                "--crate-type",
                "lib",
                "--emit",
                "metadata",
            ])
            .arg("--out-dir")
            .arg(folder.path())
            .arg("-L")
            .arg(builds)
            .arg("--extern")
            .arg(format!("tollgate={}", library.display()))
            .arg(&source)
            .output()
            .expect("rustc runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        // A library of an earlier build does not fit the ones that it stands on.
        if !text.contains("E0460") && !text.contains("E0463") {
            assert!(!output.status.success(), "it compiles:\n{program}");
            return text;
        }
        newest = text;
    }
    panic!(
        "there is no library that fits in {}: {newest}",
        builds.display()
    );
}

/// The builds of `tollgate`, the newest first.
fn libraries(builds: &Path) -> Vec<PathBuf> {
    let changed = |path: &PathBuf| {
        let file = fs::metadata(path).and_then(|file| file.modified());
        file.unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let files = fs::read_dir(builds).expect("the folder of this program");
    let mut libraries: Vec<_> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("libtollgate-") && name.ends_with(".rlib"))
        })
        .collect();
    libraries.sort_by_key(|library| std::cmp::Reverse(changed(library)));
    libraries
}

#[track_caller]
fn says(program: &str, sentences: &[&str]) {
    let text = output(program);
    for sentence in sentences {
        assert!(text.contains(sentence), "{sentence:?} is not in:\n{text}");
    }
}

#[test]
fn a_rule_without_by_is_a_compile_error_with_the_remedy() {
    says(
        "use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule};
         pub fn limits() {
             let rule = Rule::new(\"per-ip\", Quota::gcra(60, MINUTE));
             let _ = RateLimitLayer::new(MemoryStore::new(), [rule]);
         }",
        &[
            "`Rule` has no key",
            "`.by(..)` is missing",
            "add `.by(client_ip())`",
            "`.by_handler()`",
        ],
    );
}

#[test]
fn a_type_that_is_no_extractor_is_a_compile_error_with_the_remedy() {
    says(
        "use tollgate::{MINUTE, Quota, Rule};
         pub fn limits() {
             let _ = Rule::new(\"per-key\", Quota::gcra(60, MINUTE)).by(\"x-api-key\");
         }",
        &[
            "`&str` does not say whom a rule counts",
            "header(..), client_ip()",
        ],
    );
}

#[test]
fn a_type_that_is_no_key_part_is_a_compile_error_with_the_remedy() {
    says(
        "pub struct Account(pub f64);
         pub fn key(account: Account) -> tollgate::Key {
             tollgate::Key::of(account)
         }",
        &[
            "`Account` cannot be a part of a key",
            "IP addresses",
            "impl KeyPart for Account { fn add_to(",
        ],
    );
}
