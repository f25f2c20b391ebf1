//! A master that sentinels watch.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{eventually::eventually, redis_server::RedisServer};

/// A master, a replica, and three sentinels that watch them.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
    pub(crate) sentinels: Vec<RedisServer>,
    _settings: TempDir,
}

impl Group {
    pub(crate) async fn start() -> Self {
        let master = RedisServer::start(&[]).await;
        let port = master.port().to_string();
        let replica = RedisServer::start(&["--replicaof", &format!("127.0.0.1 {port}")]).await;
        let settings = TempDir::new().expect("a folder for the sentinels");
        let mut sentinels = Vec::new();
        for number in 0..3 {
            let file = settings.path().join(format!("{number}.conf"));
            sentinels.push(sentinel(&file, master.port()).await);
        }
        for sentinel in &sentinels {
            eventually("the sentinels know each other and the replica", || async {
                let known = sentinel.ask(&["SENTINEL", "CKQUORUM", "mymaster"]).await;
                let replicas = sentinel.ask(&["SENTINEL", "REPLICAS", "mymaster"]).await;
                let ready = known.contains("OK 3 usable") && replicas.contains("slave");
                ready.then_some(())
            })
            .await;
        }
        Self {
            master,
            replica,
            sentinels,
            _settings: settings,
        }
    }

    pub(crate) fn url(&self) -> String {
        let places: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis-sentinel://{}/mymaster", places.join(","))
    }
}

async fn sentinel(file: &Path, master: u16) -> RedisServer {
    let settings = format!(
        "sentinel monitor mymaster 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds mymaster 500\n\
         sentinel failover-timeout mymaster 3000\n"
    );
    fs::write(file, settings).expect("the settings are written");
    let file = file
        .to_str()
        .expect("the temporary folder has a plain name");
    RedisServer::start(&[file, "--sentinel"]).await
}
