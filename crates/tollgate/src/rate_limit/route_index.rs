//! An index over the routes of rules.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::{
    head::Head,
    routes::{PathShape, Routes, ShapeOf, Words, whole_path},
};

/// Finds the rules whose conditions can be true for a request, by its path, so that a request does not cost a call of each condition.
#[derive(Debug, Default)]
pub(crate) struct RouteIndex {
    /// Rules for any path, in order.
    anywhere: Vec<u16>,
    /// The roots of paths, behind their first slash, and of words; only of what rules have.
    roots: Vec<(ShapeOf, usize)>,
    nodes: Vec<Node>,
}

/// Rules by the segments of their paths.
#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, usize>,
    any: Option<usize>,
    /// Rules for paths that end here.
    ends: Vec<u16>,
    /// Rules for paths that end here or below.
    open: Vec<u16>,
}

/// With fewer rules on paths, calling each condition costs no more.
const LEAST: usize = 8;

/// Rules whose condition can be true.
type Candidates = SmallVec<[u16; 16]>;

impl RouteIndex {
    /// The index of rules with these routes; `None`: so few have any that it is not worth it.
    pub(crate) fn new<'a>(routes: impl Iterator<Item = &'a Routes> + Clone) -> Option<Self> {
        let on_paths = routes.clone().filter(|routes| routes.0.is_some());
        if on_paths.count() < LEAST {
            return None;
        }
        let mut index = Self::default();
        for (rule, routes) in (0..).zip(routes) {
            match &routes.0 {
                None => index.anywhere.push(rule),
                Some(paths) => paths.iter().for_each(|path| index.add(path, rule)),
            }
        }
        Some(index)
    }

    fn add(&mut self, path: &PathShape, rule: u16) {
        let root = self.roots.iter().find(|(of, _)| *of == path.of);
        let mut node = root.map_or(self.nodes.len(), |(_, root)| *root);
        if node == self.nodes.len() {
            self.roots.push((path.of, node));
            self.nodes.push(Node::default());
        }
        for segment in &path.segments {
            let new = self.nodes.len();
            let next = match segment {
                None => *self.nodes[node].any.get_or_insert(new),
                Some(literal) => {
                    let literals = &mut self.nodes[node].literals;
                    *literals.entry(literal.clone()).or_insert(new)
                }
            };
            if next == new {
                self.nodes.push(Node::default());
            }
            node = next;
        }
        let node = &mut self.nodes[node];
        match path.is_open {
            true => node.open.push(rule),
            false => node.ends.push(rule),
        }
    }

    /// The rules whose condition can be true, in order.
    pub(crate) fn candidates(&self, head: &Head<'_>) -> Candidates {
        let mut found = Candidates::from_slice(&self.anywhere);
        for (of, root) in &self.roots {
            if *of == ShapeOf::Words {
                if let Some(words) = head.extensions.get::<Words>() {
                    self.find(*root, words.iter(), &mut found);
                }
            } else if let Some(path) = whole_path(head).strip_prefix('/') {
                self.find(*root, path.split('/'), &mut found);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Without recursion: a pattern in a document may be as deep as it is long.
    fn find<'p>(
        &self,
        root: usize,
        path: impl Iterator<Item = &'p str> + Clone,
        found: &mut Candidates,
    ) {
        let mut branches = SmallVec::<[_; 4]>::from_iter([(root, path)]);
        while let Some((node, mut rest)) = branches.pop() {
            let node: &Node = &self.nodes[node];
            found.extend_from_slice(&node.open);
            let Some(segment) = rest.next() else {
                found.extend_from_slice(&node.ends);
                continue;
            };
            let literal = node.literals.get(segment).copied();
            let next = literal.into_iter().chain(node.any);
            branches.extend(next.map(|next| (next, rest.clone())));
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
        request_rule::RequestRule,
        rule::Rule,
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
        let path = paths(&["a", "b", "", "{x}", "v{x}", "{{a}}"]);
        let pattern = (path, any::<bool>()).prop_map(|(path, is_open)| match is_open {
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
        ) {
            let rules = rules(&conditions);
            let Some(index) = RouteIndex::new(rules.iter().map(|rule| &rule.settings().routes)) else {
                return Ok(());
            };
            for (method, path) in requests {
                let head = head(method, &path);
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

    #[test]
    fn a_request_meets_only_the_rules_of_its_route() {
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
    }

    #[test]
    fn a_path_is_found_however_deep_it_is() {
        let deep = "/a".repeat(32_000);
        let conditions: Vec<_> = (0..LEAST)
            .map(|_| vec![Condition::Path(deep.clone())])
            .collect();
        let rules = rules(&conditions);
        let routes = rules.iter().map(|rule| &rule.settings().routes);
        let index = RouteIndex::new(routes).expect("there are enough");
        let head = head(Method::GET, &deep);
        assert_eq!(index.candidates(&Head::from(&head)).len(), LEAST);
    }
}
