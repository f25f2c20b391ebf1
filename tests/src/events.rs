//! A subscriber that keeps what it is told.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
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
    _guard: DefaultGuard,
}

impl Events {
    /// Begins to listen.
    #[must_use]
    pub fn listen() -> Self {
        let told = Arc::default();
        let listener = Listener(Arc::clone(&told));
        Self {
            told,
            _guard: tracing::subscriber::set_default(listener),
        }
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

struct Listener(Arc<Mutex<Vec<Told>>>);

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
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(Told {
            level: *event.metadata().level(),
            fields: line.0,
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
