//! The key that an instance probes a server with.

/// A key of the namespace, so that a user who may touch its states may touch it. No state has its name, which does not end in the
/// number of a format.
#[derive(Clone, Debug)]
pub(crate) struct ProbeKey {
    namespace: Box<str>,
    instance: Box<str>,
    /// What decides about its slot, where it has to be in one of a server's own.
    tag: Option<Box<str>>,
}

impl ProbeKey {
    pub(super) fn new(namespace: &str, instance: &str) -> Self {
        Self {
            namespace: namespace.into(),
            instance: instance.into(),
            tag: None,
        }
    }

    /// The same in the slot of this hash tag.
    #[must_use]
    pub(super) fn with_tag(self, tag: &str) -> Self {
        Self {
            tag: Some(tag.into()),
            ..self
        }
    }

    pub(super) fn name(&self) -> String {
        let (namespace, instance) = (&self.namespace, &self.instance);
        match &self.tag {
            None => format!("{{{namespace}}}:probe:{instance}"),
            Some(tag) => format!("{namespace}:{{{tag}}}:probe:{instance}"),
        }
    }
}
