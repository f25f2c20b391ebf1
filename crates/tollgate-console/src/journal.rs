//! What was done on the page, by whom and why.

use std::collections::VecDeque;

use serde_json::{Value, json};

/// How many actions the page shows.
const MOST: usize = 100;

/// Who uses the console, as the layer of the application knows: an extension of the request. It is the actor in the audit.
///
/// ```
/// use tollgate_console::Operator;
///
/// let mut request = http::Request::get("/tollgate/overview").body(())?;
/// // In a layer around the router, after a log-in.
/// request.extensions_mut().insert(Operator::new("alice"));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Operator(pub(crate) String);

impl Operator {
    /// A person, by the name that the audit shows.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

/// The latest actions, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Journal(VecDeque<Value>);

impl Journal {
    /// Notes an action.
    pub(crate) fn note(&mut self, now: u64, who: &str, what: &str, because: &str) {
        self.0
            .push_front(json!({ "at": now / 1_000, "who": who, "what": what, "because": because }));
        self.0.truncate(MOST);
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Value> {
        self.0.iter()
    }
}
