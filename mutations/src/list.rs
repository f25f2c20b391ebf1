//! The mutations, as the lists have them.

use std::{error::Error, fs, path::Path};

use serde::Deserialize;

/// One place to break, and the test that has to see it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutation {
    /// A sentence: what is broken then.
    pub(crate) name: String,
    /// The file, from the root of the repository.
    pub(crate) file: String,
    /// A text that is in the file once.
    pub(crate) find: String,
    /// What takes its place.
    pub(crate) replace: String,
    /// The arguments of `cargo test`. Those behind ` -- ` are for the test program: a name.
    pub(crate) test: String,
    /// How many seconds the test may run. It takes longer under a mutation that makes it wait.
    #[serde(default = "usual_limit")]
    pub(crate) limit_s: u64,
    /// Why no test can see it.
    pub(crate) equivalent: Option<String>,
    /// The file of the list, from the root of the repository.
    #[serde(skip)]
    pub(crate) list: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutation: Vec<Mutation>,
}

fn usual_limit() -> u64 {
    180
}

impl Mutation {
    /// Whether it contains one of these texts. Of no text: all do.
    pub(crate) fn is_chosen(&self, texts: &[String]) -> bool {
        let contains = |text: &String| {
            [&self.name, &self.file, &self.test, &self.list]
                .into_iter()
                .any(|field| field.contains(&**text))
        };
        texts.is_empty() || texts.iter().any(contains)
    }

    /// The text of the file with the mutation.
    pub(crate) fn applied(&self, text: &str) -> Result<String, String> {
        match text.matches(&*self.find).count() {
            1 => Ok(text.replacen(&*self.find, &self.replace, 1)),
            times => Err(format!(
                "{}: {}: the text to find is there {times} times, not once:\n{}",
                self.file, self.name, self.find
            )),
        }
    }
}

/// All mutations, in the order of the lists' names.
pub(crate) fn mutations(root: &Path) -> Result<Vec<Mutation>, Box<dyn Error>> {
    let mut lists: Vec<_> = fs::read_dir(root.join("mutations/list"))?
        .map(|file| file.map(|file| file.path()))
        .collect::<Result<_, _>>()?;
    lists.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    lists.sort();
    let mut all = Vec::new();
    for path in lists {
        let text = fs::read_to_string(&path)?;
        let list: List =
            toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = path.strip_prefix(root)?.display().to_string();
        all.extend(list.mutation.into_iter().map(|mutation| Mutation {
            list: file.clone(),
            ..mutation
        }));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::repository;

    use super::*;

    #[test]
    fn every_mutation_changes_one_place_of_its_file() {
        let mut wrong = Vec::new();
        for mutation in mutations(repository()).expect("the lists") {
            let Ok(text) = fs::read_to_string(repository().join(&mutation.file)) else {
                wrong.push(format!("{}: there is no {}", mutation.name, mutation.file));
                continue;
            };
            match mutation.applied(&text) {
                Ok(changed) if changed == text => {
                    wrong.push(format!("{}: it changes nothing", mutation.name));
                }
                Ok(_) => {}
                Err(error) => wrong.push(error),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn no_two_mutations_have_one_name() {
        let all = mutations(repository()).expect("the lists");
        let mut names = BTreeSet::new();
        for mutation in &all {
            assert!(
                names.insert(&mutation.name),
                "{} is there twice",
                mutation.name
            );
        }
    }

    #[test]
    fn every_mutation_names_one_package_and_a_test() {
        for mutation in mutations(repository()).expect("the lists") {
            let (cargo, name) = mutation.test.split_once(" -- ").unwrap_or_default();
            assert!(
                cargo.starts_with("-p ") && !name.is_empty(),
                "{}: {:?} is not of the form `-p package .. -- test`",
                mutation.name,
                mutation.test
            );
        }
    }

    #[test]
    fn there_are_a_hundred_mutations_at_least() {
        let all = mutations(repository()).expect("the lists");
        assert!(all.len() >= 100, "there are {}", all.len());
    }

    #[test]
    fn a_list_is_chosen_by_its_file_without_those_whose_names_begin_alike() {
        let chosen = |text: &str| -> BTreeSet<_> {
            let all = mutations(repository()).expect("the lists").into_iter();
            all.filter(|mutation| mutation.is_chosen(&[text.to_owned()]))
                .map(|mutation| mutation.list)
                .collect()
        };
        assert!(chosen("list/slots").len() > 1);
        let one = BTreeSet::from(["mutations/list/slots.toml".to_owned()]);
        assert_eq!(chosen("list/slots.toml"), one);
    }

    #[test]
    fn a_text_that_is_there_twice_is_refused() {
        let mutation = Mutation {
            name: "a is b".to_owned(),
            file: "file".to_owned(),
            find: "a".to_owned(),
            replace: "b".to_owned(),
            test: "-p package -- test".to_owned(),
            limit_s: 1,
            equivalent: None,
            list: "list".to_owned(),
        };
        assert_eq!(mutation.applied("1 a 2"), Ok("1 b 2".to_owned()));
        for text in ["", "a a"] {
            assert!(mutation.applied(text).is_err(), "{text:?}");
        }
    }
}
