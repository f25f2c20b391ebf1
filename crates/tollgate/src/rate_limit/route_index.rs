//! An index over the routes of rules.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::routes::{Methods, PathOf, PathShape, Routes, Segment, Words};

use crate::head::Head;

/// Finds the rules whose conditions can be true for a request, by its method and path, so that a request does not cost a call
/// of each condition.
#[derive(Debug)]
pub(crate) struct RouteIndex {
    /// Rules for any path, in order.
    anywhere: Vec<Entry>,
    /// One for each path that is meant; only those that rules have.
    trees: Vec<(PathOf, PathTree)>,
}

/// A rule on a path, with its methods.
#[derive(Clone, Copy, Debug)]
struct Entry {
    rule: u16,
    methods: Methods,
}

/// Rules by the segments of their paths.
#[derive(Debug)]
struct PathTree(Vec<Node>);

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, usize>,
    any: Option<usize>,
    /// Rules for paths that end here.
    ends: Vec<Entry>,
    /// Rules for paths that end here or below.
    open: Vec<Entry>,
}

/// With fewer rules on paths, calling each condition costs no more.
const LEAST: usize = 8;

/// Rules whose condition can be true.
type Candidates = SmallVec<[u16; 16]>;

impl RouteIndex {
    /// The index of rules with these routes; `None`: so few have any that it is not worth it.
    pub(crate) fn new<'a>(routes: impl Iterator<Item = &'a Routes> + Clone) -> Option<Self> {
        let on_paths = routes.clone().filter(|routes| routes.paths.is_some());
        if on_paths.count() < LEAST {
            return None;
        }
        let mut index = Self {
            anywhere: Vec::new(),
            trees: Vec::new(),
        };
        for (rule, routes) in (0..).zip(routes) {
            let methods = routes.methods;
            let entry = Entry { rule, methods };
            match &routes.paths {
                None => index.anywhere.push(entry),
                Some(paths) => paths.iter().for_each(|path| index.add(path, entry)),
            }
        }
        Some(index)
    }

    fn add(&mut self, path: &PathShape, entry: Entry) {
        if let Some((_, tree)) = self.trees.iter_mut().find(|(of, _)| *of == path.of) {
            return tree.add(path, entry);
        }
        let mut tree = PathTree::default();
        tree.add(path, entry);
        self.trees.push((path.of, tree));
    }

    /// The rules whose condition can be true, in order.
    pub(crate) fn candidates(&self, head: &Head<'_>) -> Candidates {
        let method = Methods::of(head.method);
        let mut found = Candidates::new();
        for (of, tree) in &self.trees {
            if *of == PathOf::Words {
                if let Some(words) = head.extensions.get::<Words>() {
                    tree.find_below(0, words.iter(), method, &mut found);
                }
            } else if let Some(path) = of.path(head)
                && let Some(path) = path.strip_prefix('/')
            {
                tree.find_below(0, path.split('/'), method, &mut found);
            }
        }
        let anywhere = self
            .anywhere
            .iter()
            .filter(|entry| entry.methods.meet(method));
        found.extend(anywhere.map(|entry| entry.rule));
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Default for PathTree {
    /// With its root, behind the first slash.
    fn default() -> Self {
        Self(vec![Node::default()])
    }
}

impl PathTree {
    fn add(&mut self, path: &PathShape, entry: Entry) {
        let mut node = 0;
        for segment in &path.segments {
            let new = self.0.len();
            let next = match segment {
                Segment::Any => *self.0[node].any.get_or_insert(new),
                Segment::Literal(literal) => {
                    let literals = &mut self.0[node].literals;
                    *literals.entry(literal.clone()).or_insert(new)
                }
            };
            if next == new {
                self.0.push(Node::default());
            }
            node = next;
        }
        let node = &mut self.0[node];
        match path.is_open {
            true => node.open.push(entry),
            false => node.ends.push(entry),
        }
    }

    /// As deep as the tree: a path of a request does not make it deeper.
    fn find_below<'p>(
        &self,
        node: usize,
        mut rest: impl Iterator<Item = &'p str> + Clone,
        method: Methods,
        found: &mut Candidates,
    ) {
        let node = &self.0[node];
        let mut add = |entries: &[Entry]| {
            let entries = entries.iter().filter(|entry| entry.methods.meet(method));
            found.extend(entries.map(|entry| entry.rule));
        };
        add(&node.open);
        let Some(segment) = rest.next() else {
            add(&node.ends);
            return;
        };
        if node.literals.is_empty() && node.any.is_none() {
            return;
        }
        let literal = node.literals.get(segment).copied();
        for next in [literal, node.any].into_iter().flatten() {
            self.find_below(next, rest.clone(), method, found);
        }
    }
}

#[cfg(test)]
mod tests {

    use http::{Method, Request};
    use proptest::{collection::vec, prelude::*, sample::select};
    use tollgate_core::{MINUTE, Quota};

    use http::request::Parts;

    use super::*;
    use crate::{
        condition::{any_of, method_in, not, path, path_under},
        key::constant,
        known_condition::words_are,
        rule::{RequestRule, Rule},
    };

    /// What a rule's `when` is made of.
    #[derive(Clone, Debug)]
    enum Condition {
        Path(String),
        Under(String),
        Methods(Vec<Method>),
        Not(Box<Self>),
        Either(Box<Self>, Box<Self>),
        /// A closure of the user.
        LongPath,
    }

    type Predicate = Box<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

    impl Condition {
        /// The condition as users give it to a rule: with what is known of it.
        fn of(&self, rule: RequestRule) -> RequestRule {
            match self.clone() {
                Self::Path(pattern) => rule.when(path(&pattern).expect("a pattern")),
                Self::Under(prefix) => rule.when(path_under(prefix)),
                Self::Methods(methods) => rule.when(method_in(methods)),
                Self::Not(condition) => match *condition {
                    Self::Path(pattern) => rule.when(not(path(&pattern).expect("a pattern"))),
                    condition => rule.when(not(condition.predicate())),
                },
                Self::Either(one, two) => match (*one, *two) {
                    (Self::Path(one), Self::Under(two)) => {
                        rule.when(any_of(path(&one).expect("a pattern"), path_under(two)))
                    }
                    (Self::Methods(one), Self::Path(two)) => {
                        rule.when(any_of(method_in(one), path(&two).expect("a pattern")))
                    }
                    (one, two) => rule.when(any_of(one.predicate(), two.predicate())),
                },
                Self::LongPath => rule.when(|head| head.uri.path().len() > 4),
            }
        }

        /// The condition alone.
        fn predicate(&self) -> Predicate {
            match self.clone() {
                Self::Path(pattern) => Box::new(path(&pattern).expect("a pattern")),
                Self::Under(prefix) => Box::new(path_under(prefix)),
                Self::Methods(methods) => Box::new(method_in(methods)),
                Self::Not(condition) => {
                    let holds = condition.predicate();
                    Box::new(move |head| !holds(head))
                }
                Self::Either(one, two) => {
                    let (one, two) = (one.predicate(), two.predicate());
                    Box::new(move |head| one(head) || two(head))
                }
                Self::LongPath => Box::new(|head| head.uri.path().len() > 4),
            }
        }
    }

    fn methods() -> impl Strategy<Value = Method> {
        let other = Method::from_bytes(b"PURGE").expect("a method");
        select(vec![
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::DELETE,
            other,
        ])
    }

    fn joined(segments: &[&str]) -> String {
        segments
            .iter()
            .map(|segment| format!("/{segment}"))
            .collect()
    }

    fn paths(segments: &'static [&'static str]) -> impl Strategy<Value = String> {
        vec(select(segments), 1..4).prop_map(|segments| joined(&segments))
    }

    fn conditions() -> impl Strategy<Value = Condition> {
        let pattern = paths(&["a", "b", "", "{x}", "v{x}", "{{a}}"]);
        let pattern = (pattern, any::<bool>()).prop_map(|(path, is_open)| match is_open {
            true => path + "/{*rest}",
            false => path,
        });
        let single = prop_oneof![
            4 => pattern.prop_map(Condition::Path),
            2 => select(vec!["", "/", "/a", "/a/", "/a/b", "/v1", "a"])
                .prop_map(|prefix| Condition::Under(prefix.to_owned())),
            2 => vec(methods(), 0..3).prop_map(Condition::Methods),
            1 => Just(Condition::LongPath),
        ];
        single.prop_recursive(2, 4, 2, |inner| {
            let boxed = inner.prop_map(Box::new);
            prop_oneof![
                boxed.clone().prop_map(Condition::Not),
                (boxed.clone(), boxed).prop_map(|(one, two)| Condition::Either(one, two)),
            ]
        })
    }

    /// Rules with all of these conditions.
    fn rules(conditions: &[Vec<Condition>]) -> Vec<RequestRule> {
        let conditions = conditions.iter();
        conditions
            .map(|all| {
                let rule = Rule::new("rule", Quota::gcra(1, MINUTE)).by(constant("all"));
                all.iter().fold(rule, |rule, condition| condition.of(rule))
            })
            .collect()
    }

    fn head(method: Method, path: &str) -> Parts {
        let request = Request::builder().method(method).uri(path);
        request.body(()).expect("a request").into_parts().0
    }

    proptest! {
        #[test]
        fn the_index_finds_the_rules_that_apply_in_their_order(
            conditions in vec(vec(conditions(), 0..3), LEAST..24),
            requests in vec((methods(), paths(&["a", "b", "", "v1", "v", "{a}", "c"])), 1..20),
            is_nested in any::<bool>(),
        ) {
            let rules = rules(&conditions);
            let Some(index) = RouteIndex::new(rules.iter().map(|rule| &rule.settings().routes)) else {
                return Ok(());
            };
            for (method, path) in requests {
                let mut head = head(method, &path);
                if is_nested {
                    add_original(&mut head);
                }
                let applies = |rule: &u16| {
                    let all = conditions[usize::from(*rule)].iter();
                    all.map(Condition::predicate).all(|holds| holds(&Head::from(&head)))
                };
                let expected: Vec<u16> = (0..rules.len() as u16).filter(applies).collect();
                let candidates = index.candidates(&Head::from(&head));
                prop_assert!(candidates.windows(2).all(|pair| pair[0] < pair[1]));
                let holds = |rule: &u16| {
                    let rule = &rules[usize::from(*rule)];
                    let applies = rule.settings().applies.as_ref();
                    applies.is_none_or(|holds| holds(&Head::from(&head)))
                };
                let found: Vec<u16> = candidates.into_iter().filter(holds).collect();
                prop_assert_eq!(found, expected, "{:?}", head.uri);
            }
        }
    }

    /// A router has stripped the first segment.
    fn add_original(head: &mut Parts) {
        #[cfg(feature = "axum")]
        {
            let original = head.uri.clone();
            let path = original.path();
            let stripped = path[1..].find('/').map_or("/", |at| &path[1 + at..]);
            head.uri = stripped.parse().expect("a path");
            head.extensions.insert(axum::extract::OriginalUri(original));
        }
        #[cfg(not(feature = "axum"))]
        let _ = head;
    }

    #[test]
    fn a_request_meets_only_the_rules_of_its_route_and_method() {
        let route = |n: usize| match n % 4 {
            0 => Condition::Path(format!("/r{n}/{{id}}")),
            1 => Condition::Under(format!("/r{n}")),
            2 => Condition::Path(format!("/{{tenant}}/r{n}/{{*rest}}")),
            _ => Condition::Path(format!("/r{n}")),
        };
        let by_path: Vec<_> = (0..1_000).map(|n| vec![route(n)]).collect();
        let rules = rules(&by_path);
        let routes = rules.iter().map(|rule| &rule.settings().routes);
        let index = RouteIndex::new(routes).expect("there are many");
        for (path, expected) in [
            ("/r400/7", &[400][..]),
            ("/r401/7/8", &[401]),
            ("/acme/r402/7/8", &[402]),
            ("/r403", &[403]),
            ("/r401/r402/x", &[401, 402]),
            ("/r1000", &[]),
        ] {
            let found = index.candidates(&Head::from(&head(Method::GET, path)));
            assert_eq!(&found[..], expected, "{path}");
        }
        // By words, some of which may be any.
        let by_words = (0..1_000).map(|n| {
            let value = (n % 500 > 0).then(|| n.to_string());
            let words = words_are([None, Some("kind".to_owned()), value]);
            Rule::new("rule", Quota::gcra(1, MINUTE))
                .by(constant("all"))
                .when(words)
        });
        let rules: Vec<RequestRule> = by_words.collect();
        let routes = rules.iter().map(|rule| &rule.settings().routes);
        let index = RouteIndex::new(routes).expect("there are many");
        for (words, expected) in [
            (&["sms", "kind", "7"][..], &[0, 7, 500][..]),
            (&["sms", "kind"], &[]),
            (&["sms", "kind", "7", "to", "a"], &[]),
        ] {
            let mut head = head(Method::GET, "/");
            head.extensions
                .insert(Words::from_iter(words.iter().copied()));
            let found = index.candidates(&Head::from(&head));
            assert_eq!(&found[..], expected, "{words:?}");
            let holds = rules[7].settings().applies.as_ref().expect("a condition");
            assert_eq!(holds(&Head::from(&head)), found.len() == 3);
        }
        let method = |n: usize| match n % 2 {
            0 => Method::GET,
            _ => Method::POST,
        };
        let on_one_path = |n| {
            let path = Condition::Path("/a".into());
            vec![Condition::Methods(vec![method(n)]), path]
        };
        let mut conditions: Vec<_> = (0..10).map(on_one_path).collect();
        conditions.push(vec![Condition::Methods(vec![Method::POST])]);
        let rules = super::tests::rules(&conditions);
        let routes = rules.iter().map(|rule| &rule.settings().routes);
        let index = RouteIndex::new(routes).expect("there are many");
        let candidates = index.candidates(&Head::from(&head(Method::POST, "/a")));
        assert_eq!(candidates[..], [1, 3, 5, 7, 9, 10]);
    }
}
