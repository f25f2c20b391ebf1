//! Conditions whose routes are known, with two for documents.

use std::{any::Any, sync::Arc};

use tollgate_core::sync::{Mutex, lock};

use crate::{
    head::Head,
    path_pattern::PathPattern,
    routes::{PathShape, Routes, ShapeOf, Words},
};

/// The methods of HTTP itself.
pub const STANDARD_METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE",
];

/// A condition on a request: a closure, or one of the [module](crate::condition).
#[must_use = "a condition does nothing until a rule has it"]
pub trait Condition: Fn(&Head<'_>) -> bool + Send + Sync + 'static {}

impl<F: Fn(&Head<'_>) -> bool + Send + Sync + 'static> Condition for F {}

/// A condition, and the routes outside of which it is false.
///
/// Users see conditions as closures, so that [`when`](crate::RequestRule::when) takes theirs as well. One of ours
/// [becomes](Self::into_fn) a closure of a type that only this file has, and by that [`of`](Self::of) finds it again.
#[derive(Clone)]
#[must_use]
pub struct KnownCondition {
    pub(crate) routes: Routes,
    pub(crate) holds: Arc<dyn Condition>,
    /// Why it can never hold: an error of the layer whose rule has it.
    pub(crate) mistake: Option<Arc<str>>,
}

/// The closure of a condition of ours. It puts the condition into a [`Probe`] in a head.
type KnownFn = Box<dyn Known>;

/// In place of [`Condition`], which users may box as well.
trait Known: Condition {
    fn boxed(&self) -> KnownFn;
}

impl<F: Condition + Clone> Known for F {
    fn boxed(&self) -> KnownFn {
        Box::new(self.clone())
    }
}

impl Clone for KnownFn {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// Stands in the extensions of a head to get the condition of a closure.
#[derive(Clone, Default)]
struct Probe(Arc<Mutex<Option<KnownCondition>>>);

impl KnownCondition {
    pub(crate) fn new(
        routes: Routes,
        mistake: Option<impl Into<Arc<str>>>,
        holds: impl Condition,
    ) -> Self {
        Self {
            routes,
            holds: Arc::new(holds),
            mistake: mistake.map(Into::into),
        }
    }

    /// The condition of a closure: of one of ours, what is known; any other may be true anywhere.
    pub fn of(condition: impl Condition) -> Self {
        let probe = Probe::default();
        if let Some(known) = (&condition as &dyn Any).downcast_ref::<KnownFn>() {
            let (mut head, ()) = http::Request::new(()).into_parts();
            head.extensions.insert(probe.clone());
            known(&Head::from(&head));
        }
        let found = lock(&probe.0).take();
        found.unwrap_or_else(|| Self::new(Routes::default(), None::<String>, condition))
    }

    /// Whether it is true of a request.
    #[must_use]
    pub fn holds(&self, head: &Head<'_>) -> bool {
        (self.holds)(head)
    }

    /// The condition as a closure.
    pub fn into_fn(self) -> impl Condition + Clone {
        let known: KnownFn = Box::new(move |head: &Head<'_>| match head.extensions.get() {
            None => (self.holds)(head),
            Some(Probe(found)) => {
                *lock(found) = Some(self.clone());
                false
            }
        });
        known
    }
}

tollgate_core::debug_fields!(KnownCondition, it => routes: it.routes);

/// The request is described by exactly these [words](Words); `None` is any word. In a layer of many rules, the index finds those of a
/// request by its words, too.
pub fn words_are(words: impl IntoIterator<Item = Option<String>>) -> impl Condition + Clone {
    let words: Box<[_]> = (words.into_iter())
        .map(|word| word.map(String::into_boxed_str))
        .collect();
    let routes = Routes::of_path(PathShape {
        of: ShapeOf::Words,
        segments: words.clone(),
        is_open: false,
    });
    let holds = move |head: &Head<'_>| {
        head.extensions.get().is_some_and(|of_head: &Words| {
            let mut both = words.iter().zip(of_head.iter());
            of_head.iter().count() == words.len()
                && both.all(|(word, of_head)| word.as_deref().is_none_or(|word| word == of_head))
        })
    };
    KnownCondition::new(routes, None::<String>, holds).into_fn()
}

/// The path matches this pattern: as [`path`](crate::condition::path()), of a pattern that was made before.
pub fn path_matches(pattern: PathPattern) -> impl Condition + Clone {
    let routes = Routes::of_path(pattern.shape());
    let holds = move |head: &Head<'_>| pattern.matches(head);
    KnownCondition::new(routes, None::<String>, holds).into_fn()
}
