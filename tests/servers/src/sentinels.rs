//! A master that sentinels watch.

use std::{fs, path::Path};

use tempfile::TempDir;

use crate::{eventually::eventually, redis_server::RedisServer};

/// Longer than a test, in milliseconds.
const PATIENT: &str = "600000";

/// A master, its replicas, and three sentinels that watch them.
#[derive(Debug)]
pub struct Group {
    /// The server that they watch, in the beginning the master.
    pub master: RedisServer,
    /// The one that the sentinels promote.
    pub replica: RedisServer,
    /// Replicas that are never promoted.
    pub others: Vec<RedisServer>,
    /// The three of them.
    pub sentinels: Vec<RedisServer>,
    _settings: TempDir,
}

impl Group {
    /// A master, one replica, and three sentinels that know each other.
    pub async fn start() -> Self {
        Self::start_with(0, &[]).await
    }

    /// With this many replicas besides the one that is promoted, and these arguments for all servers.
    pub async fn start_with(others: usize, args: &[&str]) -> Self {
        let master = RedisServer::start(args).await;
        let of_master = format!("127.0.0.1 {}", master.port());
        let follower = |never: &'static [&str]| {
            let args = [args, &["--replicaof", &of_master], never].concat();
            async move { RedisServer::start(&args).await }
        };
        let replica = follower(&[]).await;
        let mut never_promoted = Vec::new();
        for _ in 0..others {
            never_promoted.push(follower(&["--replica-priority", "0"]).await);
        }
        let settings = TempDir::new().expect("a folder for the sentinels");
        let mut sentinels = Vec::new();
        for number in 0..3 {
            let file = settings.path().join(format!("{number}.conf"));
            sentinels.push(sentinel(&file, master.port()).await);
        }
        for sentinel in &sentinels {
            eventually("the sentinels know each other and all replicas", || async {
                let known = sentinel
                    .command(&["SENTINEL", "CKQUORUM", "mymaster"])
                    .await;
                let replicas = sentinel
                    .command(&["SENTINEL", "REPLICAS", "mymaster"])
                    .await;
                let all = replicas.matches("slave-priority").count();
                let ready = known.contains("OK 3 usable") && all > others;
                ready.then_some(())
            })
            .await;
        }
        Self {
            master,
            replica,
            others: never_promoted,
            sentinels,
            _settings: settings,
        }
    }

    /// Waits until the sentinels have made the replica the master, and all of them name it. Before and after that they take no server
    /// to have failed: on a busy machine one stands still for longer than half a second now and then.
    pub async fn is_promoted(&self) {
        self.believe_dead_after("500").await;
        eventually("the replica is the master", || async {
            let promoted = self.replica.is_in_role("master").await;
            promoted.then_some(())
        })
        .await;
        let query = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
        let port = self.replica.port().to_string();
        for sentinel in &self.sentinels {
            eventually("the sentinels name it", || async {
                let named = sentinel.command(&query).await.contains(&port);
                named.then_some(())
            })
            .await;
        }
        self.believe_dead_after(PATIENT).await;
    }

    async fn believe_dead_after(&self, millis: &str) {
        let set = [
            "SENTINEL",
            "SET",
            "mymaster",
            "down-after-milliseconds",
            millis,
        ];
        for sentinel in &self.sentinels {
            assert_eq!(sentinel.command(&set).await, "+OK\r\n");
        }
    }

    /// Waits until the replica has everything that the master has answered.
    pub async fn is_replicated(&self) {
        let answered = offset(&self.master).await;
        assert!(answered.is_some());
        eventually("the replica has everything", || async {
            (offset(&self.replica).await >= answered).then_some(())
        })
        .await;
    }

    /// The replicas are sent away, and may not come back.
    pub async fn cut_replicas(&self) {
        let commands: [&[&str]; 2] = [
            &["ACL", "SETUSER", "default", "-psync", "-sync"],
            &["CLIENT", "KILL", "TYPE", "replica"],
        ];
        let answers = self.master.commands(&commands).await;
        assert!(answers.starts_with("+OK\r\n:"), "{answers}");
    }

    /// An address that names all sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        let places: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis-sentinel://{}/mymaster", places.join(","))
    }
}

/// The replication offset of a server.
async fn offset(server: &RedisServer) -> Option<u64> {
    let text = server.command(&["INFO", "replication"]).await;
    let (_, rest) = text.split_once("master_repl_offset:")?;
    rest.lines().next()?.parse().ok()
}

async fn sentinel(file: &Path, master: u16) -> RedisServer {
    let settings = format!(
        "sentinel monitor mymaster 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds mymaster {PATIENT}\n\
         sentinel failover-timeout mymaster 3000\n"
    );
    fs::write(file, settings).expect("the settings are written");
    let file = file
        .to_str()
        .expect("the temporary folder has a plain name");
    RedisServer::start(&[file, "--sentinel"]).await
}
