//! A Redis Cluster of the test's own: three primaries, and a replica for each.

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    bus_proxy::{BusProxy, Cut},
    redis_server::{PATIENCE, RedisServer, free_port},
};

/// Servers 0 to 2 begin as primaries of a third of the slots each, and server 3 + n as the replica of server n.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
    buses: Vec<BusProxy>,
    cut: watch::Sender<Cut>,
}

const RANGES: [(u16, u16); 3] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];

impl RedisCluster {
    /// Starts six servers and waits until each of them sees a whole cluster.
    pub async fn start() -> Self {
        let mut cluster = Self {
            servers: Vec::new(),
            buses: Vec::new(),
            cut: watch::Sender::default(),
        };
        for _ in 0..6 {
            cluster.add().await;
        }
        for (primary, (first, last)) in RANGES.iter().enumerate() {
            let (first, last) = (first.to_string(), last.to_string());
            let epoch = (primary + 1).to_string();
            cluster
                .say(primary, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch])
                .await;
            cluster
                .say(primary, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])
                .await;
        }
        for other in 1..6 {
            cluster.meet(other).await;
        }
        cluster.until_all_know("cluster_known_nodes:6").await;
        for primary in 0..3 {
            let id = cluster.id(primary).await;
            cluster
                .say(primary + 3, &["CLUSTER", "REPLICATE", &id])
                .await;
        }
        cluster.is_whole().await;
        cluster
    }

    /// The same for tests in which no server fails: on a machine that stands still for seconds, none is taken to have failed.
    pub async fn start_patient() -> Self {
        let cluster = Self::start().await;
        for server in 0..cluster.servers.len() {
            let patience = ["CONFIG", "SET", "cluster-node-timeout", "60000"];
            cluster.say(server, &patience).await;
        }
        cluster
    }

    /// Starts one more server, which the others do not know yet, and gives its number.
    pub async fn add(&mut self) -> usize {
        let bus_port = free_port();
        let bus = BusProxy::start(bus_port, self.servers.len(), self.cut.subscribe()).await;
        let server = RedisServer::start(&[
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus_port.to_string(),
            "--cluster-announce-bus-port",
            &bus.port().to_string(),
            "--cluster-node-timeout",
            "2000",
            // Slots without a server must not affect the others.
            "--cluster-require-full-coverage",
            "no",
            "--cluster-allow-replica-migration",
            "no",
            "--repl-diskless-sync-delay",
            "0",
            // A replica that never received data is not in the table.
            "--repl-ping-replica-period",
            "1",
        ])
        .await;
        self.servers.push(server);
        self.buses.push(bus);
        self.servers.len() - 1
    }

    /// The others do not see this server any more, nor does it see them. Clients see all of them.
    pub async fn cut_off(&self, server: usize) {
        let name = self.id(server).await;
        self.cut.send_replace(Some((server, name)));
    }

    /// All see each other again.
    pub fn join(&self) {
        self.cut.send_replace(None);
    }

    /// Introduces a server to server 0.
    pub async fn meet(&self, other: usize) {
        let port = self.servers[other].port().to_string();
        let bus_port = self.buses[other].port().to_string();
        self.say(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port])
            .await;
    }

    /// Waits until all six see a cluster that works, in which each primary has a replica that follows.
    pub async fn is_whole(&self) {
        self.until_all_know("cluster_state:ok").await;
        for server in &self.servers {
            until("each server is in the table", || async {
                let slots = server.command(&["CLUSTER", "SLOTS"]).await;
                let mut servers = self.servers.iter();
                let all = servers.all(|other| slots.contains(&format!(":{}\r\n", other.port())));
                let role = server.command(&["INFO", "replication"]).await;
                let follows =
                    role.contains("state=online") || role.contains("master_link_status:up");
                all && follows
            })
            .await;
        }
    }

    /// Waits until each server's `CLUSTER INFO` has this.
    pub async fn until_all_know(&self, what: &str) {
        for server in &self.servers {
            until(what, || async {
                server.command(&["CLUSTER", "INFO"]).await.contains(what)
            })
            .await;
        }
    }

    /// Says to a server what it has to agree to.
    pub async fn say(&self, server: usize, command: &[&str]) -> String {
        let answer = self.servers[server].command(command).await;
        assert!(!answer.starts_with('-'), "{command:?}: {answer}");
        answer
    }

    /// The name by which the others know it.
    pub async fn id(&self, server: usize) -> String {
        let answer = self.say(server, &["CLUSTER", "MYID"]).await;
        answer.lines().nth(1).unwrap_or_default().to_owned()
    }

    /// The server with this number.
    #[must_use]
    pub fn server(&self, number: usize) -> &RedisServer {
        &self.servers[number]
    }

    /// The server with this number, to stop or restart it.
    pub fn server_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.servers[number]
    }

    /// All servers.
    pub fn servers_mut(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// The slot of a key, and which of the first three had it in the beginning.
    pub async fn slot(&self, key: &str) -> (u16, usize) {
        let answer = self.say(0, &["CLUSTER", "KEYSLOT", key]).await;
        let slot = answer.trim_start_matches(':').trim_end().parse();
        let slot = slot.expect("a slot is a number");
        (slot, Self::first_owner(slot))
    }

    /// Which of the first three had the slot in the beginning.
    #[must_use]
    pub fn first_owner(slot: u16) -> usize {
        RANGES.iter().take_while(|(_, last)| *last < slot).count()
    }

    /// An address that names all of them.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(0..self.servers.len())
    }

    /// An address that names only some of them.
    pub fn url_of(&self, servers: impl IntoIterator<Item = usize>) -> String {
        let places: Vec<_> = servers
            .into_iter()
            .map(|number| format!("127.0.0.1:{}", self.servers[number].port()))
            .collect();
        format!("redis-cluster://{}", places.join(","))
    }

    /// Waits until the replica of a primary has everything that the primary has answered.
    pub async fn is_replicated(&self, primary: usize) {
        let replication = || self.servers[primary].command(&["INFO", "replication"]);
        let answered = offset(&replication().await, "master_repl_offset:");
        assert!(answered.is_some());
        until("the replica has everything", || async {
            offset(&replication().await, ",offset=") >= answered
        })
        .await;
    }
}

/// The number that comes after `name`.
fn offset(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    let number = rest.split(|digit: char| !digit.is_ascii_digit()).next()?;
    number.parse().ok()
}

async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(
            Instant::now() < end,
            "the cluster never came to this: {what}"
        );
        sleep(std::time::Duration::from_millis(20)).await;
    }
}
