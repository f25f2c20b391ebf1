//! A slot of a cluster on its way from one server to another.

use crate::redis_cluster::RedisCluster;

/// A slot that two servers share until [`finish`](Self::finish).
#[derive(Debug)]
pub struct MovingSlot<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: usize,
    to: usize,
}

impl<'a> MovingSlot<'a> {
    /// From now on the old server serves what it has, and sends for what is new to the other one.
    pub async fn begin(cluster: &'a RedisCluster, slot: u16, from: usize, to: usize) -> Self {
        assert_ne!(from, to);
        let (slot, old, new) = (
            slot.to_string(),
            cluster.id(from).await,
            cluster.id(to).await,
        );
        for (server, what, id) in [(to, "IMPORTING", old), (from, "MIGRATING", new)] {
            let command = ["CLUSTER", "SETSLOT", &slot, what, &id];
            cluster.say(server, &command).await;
        }
        Self {
            cluster,
            slot,
            from,
            to,
        }
    }

    /// Carries the keys over for which `is_wanted` says so.
    pub async fn carry(&self, is_wanted: impl Fn(&str) -> bool) {
        let old = self.cluster.server(self.from);
        let keys = old
            .command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "10000"])
            .await;
        let port = self.cluster.server(self.to).port().to_string();
        let keys = keys.split("\r\n").filter(|line| line.contains('{'));
        for key in keys.filter(|key| is_wanted(key)) {
            let command = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
            self.cluster.say(self.from, &command).await;
        }
    }

    /// Carries over what is left, and gives the slot away.
    pub async fn finish(self) {
        self.carry(|_| true).await;
        let id = self.cluster.id(self.to).await;
        for server in [self.to, self.from] {
            let command = ["CLUSTER", "SETSLOT", &self.slot, "NODE", &id];
            self.cluster.say(server, &command).await;
        }
    }
}
