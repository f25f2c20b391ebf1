//! A subscriber that keeps what it is told.

use std::{
    cell::RefCell,
    fmt,
    sync::{Arc, Mutex, Once},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// An event, its fields in one line: `name=value name=value`.
#[derive(Clone, Debug)]
pub struct Told {
    /// The level.
    pub level: Level,
    /// The message and all other fields.
    pub fields: String,
}

/// The events of this thread, for as long as it lives.
#[derive(Debug)]
pub struct Events {
    told: Arc<Mutex<Vec<Told>>>,
}

thread_local! {
    static LISTENING: RefCell<Option<Arc<Mutex<Vec<Told>>>>> = const { RefCell::new(None) };
}

impl Events {
    /// Begins to listen; who has listened on this thread before does not any more.
    ///
    /// # Panics
    ///
    /// If the process has another subscriber.
    #[must_use]
    pub fn listen() -> Self {
        // One subscriber for the whole process. Of one for each thread, tracing may ask a thread that has none, and then
        // takes an event to be wanted by nobody.
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            tracing::subscriber::set_global_default(Listener).expect("the only subscriber");
            tracing::callsite::rebuild_interest_cache();
        });
        let told = Arc::default();
        LISTENING.set(Some(Arc::clone(&told)));
        Self { told }
    }

    /// What was told so far.
    ///
    /// # Panics
    ///
    /// If a listener has panicked.
    #[must_use]
    pub fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }

    /// What was told so far at this level.
    #[must_use]
    pub fn at(&self, level: Level) -> Vec<String> {
        let told = self.told().into_iter();
        let told = told.filter(|told| told.level == level);
        told.map(|told| told.fields).collect()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let mine = |told: &Arc<_>| Arc::ptr_eq(told, &self.told);
        LISTENING.with_borrow_mut(|listening| {
            listening.take_if(|told| mine(told));
        });
    }
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        LISTENING.with_borrow(|listening| {
            let Some(told) = listening else { return };
            let mut line = Line(String::new());
            event.record(&mut line);
            told.lock().unwrap().push(Told {
                level: *event.metadata().level(),
                fields: line.0,
            });
        });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0 += &format!("{}={value:?}", field.name());
    }
}
