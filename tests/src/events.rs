//! A subscriber that records events.

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
pub struct Recorded {
    /// The level.
    pub level: Level,
    /// The message and all other fields.
    pub fields: String,
}

/// The events of this thread, for as long as it lives.
#[derive(Debug)]
pub struct Events {
    recorded: Arc<Mutex<Vec<Recorded>>>,
}

thread_local! {
    static RECORDING: RefCell<Option<Arc<Mutex<Vec<Recorded>>>>> = const { RefCell::new(None) };
}

impl Events {
    /// Starts recording the events of this thread; an earlier recorder of the thread stops.
    ///
    /// # Panics
    ///
    /// If the process has another subscriber.
    #[must_use]
    pub fn listen() -> Self {
        // One subscriber for the whole process. With one per thread, tracing may ask a thread without a subscriber, and then
        // disables the event.
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            tracing::subscriber::set_global_default(Listener).expect("the only subscriber");
            tracing::callsite::rebuild_interest_cache();
        });
        let recorded = Arc::default();
        RECORDING.set(Some(Arc::clone(&recorded)));
        Self { recorded }
    }

    /// The events so far.
    ///
    /// # Panics
    ///
    /// If a listener has panicked.
    #[must_use]
    pub fn recorded(&self) -> Vec<Recorded> {
        self.recorded.lock().unwrap().clone()
    }

    /// What was recorded so far at this level.
    #[must_use]
    pub fn at(&self, level: Level) -> Vec<String> {
        let recorded = self.recorded().into_iter();
        let recorded = recorded.filter(|recorded| recorded.level == level);
        recorded.map(|recorded| recorded.fields).collect()
    }

    /// Asserts that one event was recorded at this level, and that it has these words.
    ///
    /// # Panics
    ///
    /// If there are more, or none, or if a word is missing.
    #[track_caller]
    pub fn one(&self, level: Level, words: &[&str]) {
        let recorded = self.at(level);
        assert_eq!(recorded.len(), 1, "{recorded:?}");
        for word in words {
            assert!(recorded[0].contains(word), "{recorded:?} lacks {word}");
        }
    }

    /// Asserts that nothing was recorded.
    ///
    /// # Panics
    ///
    /// If an event was.
    #[track_caller]
    pub fn none(&self) {
        let recorded = self.recorded();
        assert!(recorded.is_empty(), "{recorded:?}");
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let mine = |recorded: &Arc<_>| Arc::ptr_eq(recorded, &self.recorded);
        RECORDING.with_borrow_mut(|listening| {
            listening.take_if(|recorded| mine(recorded));
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
        RECORDING.with_borrow(|listening| {
            let Some(recorded) = listening else { return };
            let mut line = Line(String::new());
            event.record(&mut line);
            recorded.lock().unwrap().push(Recorded {
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
