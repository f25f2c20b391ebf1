//! The background tasks of a store.

use tokio::task::AbortHandle;

/// The tasks of a store, which end when this is dropped.
#[derive(Debug, Default)]
pub(super) struct StoreTasks(Vec<AbortHandle>);

impl StoreTasks {
    /// Starts one. Needs a tokio runtime.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(task).abort_handle());
    }
}

impl Drop for StoreTasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}
