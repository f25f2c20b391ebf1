//! A server, four processes on it, and a meter of what they admit.

use std::fs;

use redis::Value;
use tempfile::NamedTempFile;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{
    blocking_server::RedisServer, process::Process, redis_client::RedisClient,
};
use tollgate_test_services::child::{self, Load, patient_store};

const PROCESSES: usize = 4;

/// Tasks of each process.
pub(crate) const TASKS: u64 = 64;

pub(crate) struct Fleet {
    server: RedisServer,
    meter: NamedTempFile,
    pub(crate) processes: Vec<Process>,
}

impl Fleet {
    pub(crate) fn start() -> Self {
        let server = RedisServer::start(&[]);
        let meter = NamedTempFile::new().expect("a file for the meter");
        let address = format!("redis://{}", server.address());
        let start = |_| child::start(&address, meter.path());
        Self {
            processes: (0..PROCESSES).map(start).collect(),
            server,
            meter,
        }
    }

    /// A store in this process, to look.
    pub(crate) async fn store(&self) -> RedisStore {
        patient_store(&format!("redis://{}", self.server.address())).await
    }

    /// Gives all processes one job at a time, and waits until it is done. Returns what they say was admitted.
    pub(crate) fn run(&mut self, load: &Load) -> u64 {
        for process in &mut self.processes {
            process.begin(load);
        }
        let finish = |process: &mut Process| process.finish::<u64>().expect("the process lives");
        self.processes.iter_mut().map(finish).sum()
    }

    /// What was admitted, also by processes that have died since.
    pub(crate) fn metered(&self) -> u64 {
        fs::metadata(self.meter.path())
            .expect("the meter is there")
            .len()
    }

    /// Every state with its value; no keys of heartbeats, which change at any time.
    pub(crate) fn dump(&self) -> Vec<(Vec<u8>, Value)> {
        let mut connection = RedisClient::connect(self.server.address());
        let Value::Array(keys) = connection.say("KEYS {processes}:*") else {
            panic!("KEYS answers a list");
        };
        let mut dump: Vec<_> = keys
            .into_iter()
            .map(|key| match key {
                Value::BulkString(key) => {
                    let value = connection.command([&b"DUMP"[..], &key]);
                    (key, value)
                }
                other => panic!("{other:?} is not a key"),
            })
            .filter(|(key, _)| !key.ends_with(b":instances") && !key.ends_with(b":quotas"))
            .collect();
        dump.sort_by(|one, other| one.0.cmp(&other.0));
        dump
    }
}
