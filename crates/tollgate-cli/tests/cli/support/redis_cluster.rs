//! A cluster of the test's own: three primaries without replicas.

use tollgate_test_servers::blocking_server::free_port;

use super::redis_server::{RedisServer, until};

const RANGES: [(u16, u16); 3] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];

#[derive(Debug)]
pub(crate) struct RedisCluster {
    servers: Vec<RedisServer>,
}

impl RedisCluster {
    pub(crate) fn start() -> Self {
        let mut buses = Vec::new();
        let mut servers = Vec::new();
        for (index, (first, last)) in RANGES.iter().enumerate() {
            let bus = free_port().to_string();
            let server = RedisServer::start(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
            let epoch = (index + 1).to_string();
            let _: String = server.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            let (first, last) = (first.to_string(), last.to_string());
            let _: String = server.ask(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            buses.push(bus);
            servers.push(server);
        }
        for other in 1..3 {
            let port = servers[other].port().to_string();
            let _: String = servers[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &buses[other]]);
        }
        for server in &servers {
            until(server, &["CLUSTER", "INFO"], "cluster_known_nodes:3");
            until(server, &["CLUSTER", "INFO"], "cluster_slots_ok:16384");
            until(server, &["CLUSTER", "INFO"], "cluster_state:ok");
        }
        Self { servers }
    }

    pub(crate) fn url(&self) -> String {
        let places = self
            .servers
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port()));
        format!("redis-cluster://{}", places.collect::<Vec<_>>().join(","))
    }

    pub(crate) fn server(&self, index: usize) -> &RedisServer {
        &self.servers[index]
    }
}
