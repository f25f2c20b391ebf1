//! Heartbeats: how many instances share the store, for their shares while it fails.

use std::{
    sync::{Arc, LazyLock, Weak},
    time::Duration,
};

use tokio::{task::AbortHandle, time::sleep};

use crate::{
    connection::{script::Script, value::Value},
    store::shared::Shared,
};

static SCRIPT: LazyLock<Arc<Script>> =
    LazyLock::new(|| Arc::new(Script::new(include_str!("../../lua/instances.lua"))));

/// How often an instance is heard, give or take a fifth.
const INTERVAL: Duration = Duration::from_secs(5);

/// Until there was an answer it is tried more often: a service that has just started does not know how many it is one of.
const FIRST: Duration = Duration::from_millis(250);

/// After three of them an instance is gone.
const GONE_AFTER_MS: &str = "15000";

/// The task that is heard. Dropping this ends it.
#[derive(Debug)]
pub(super) struct Heartbeat(AbortHandle);

impl Heartbeat {
    /// Begins. Needs a tokio runtime.
    pub(super) fn start(shared: &Arc<Shared>, instance: String) -> Self {
        // It must not keep the store alive that ends it.
        Self(tokio::spawn(beat(Arc::downgrade(shared), instance)).abort_handle())
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn beat(shared: Weak<Shared>, instance: String) {
    let mut pause = FIRST;
    loop {
        sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let key = shared.keyspace.instances();
        let call = shared
            .backend
            .run(&SCRIPT, &key, &[&instance, GONE_AFTER_MS]);
        // What was last known stays known while Redis fails: that is when it is needed.
        match call.await {
            Ok(Value::Integer(count)) => {
                if let Ok(count) = u32::try_from(count) {
                    shared.instances.set(count);
                    shared.observer.instances(count);
                    pause = INTERVAL;
                }
            }
            Ok(_) => {}
            Err(error) => shared.observer.heartbeat_failed(&error),
        }
    }
}
