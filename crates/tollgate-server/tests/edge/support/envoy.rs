//! Envoy, in front of a service.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;
use tollgate_test_servers::eventually::eventually;

/// The versions that are driven.
pub(crate) const VERSIONS: [&str; 2] = ["1.40.0", "1.36.4"];

/// Where the programs of `tests/install.sh` are.
pub(crate) fn program(version: &str) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../target/servers/envoy-{version}"));
    assert!(
        program.exists(),
        "there is no {}; run tests/install.sh",
        program.display()
    );
    program
}

/// How an Envoy asks, as parts of its configuration in one line.
pub(crate) struct Asks<'a> {
    /// `rate_limits` of the routes.
    pub(crate) rate_limits: &'a str,
    /// Fields of the filter.
    pub(crate) filter: &'a str,
    /// The servers that it asks.
    pub(crate) servers: &'a [String],
    /// How long it waits. Its default is that of nobody else here: a machine may be busy.
    pub(crate) timeout: &'a str,
    /// Fields of the cluster of servers.
    pub(crate) cluster: &'a str,
}

/// The descriptor that is a request, as the guide recommends it.
pub(crate) const HEAD: &str = r#"[ { actions: [
  { request_headers: { header_name: ":path", descriptor_key: path } },
  { request_headers: { header_name: ":method", descriptor_key: method } },
  { request_headers: { header_name: ":authority", descriptor_key: host } },
  { remote_address: {} },
  { request_headers: { header_name: x-api-key, descriptor_key: "header:x-api-key", skip_if_absent: true } },
  { request_headers: { header_name: content-type, descriptor_key: "header:content-type", skip_if_absent: true } } ] } ]"#;

impl<'a> Asks<'a> {
    pub(crate) fn head(servers: &'a [String]) -> Self {
        Self {
            rate_limits: HEAD,
            filter: "",
            timeout: "5s",
            servers,
            cluster: "",
        }
    }
}

/// An Envoy that runs until this is dropped.
pub(crate) struct Envoy {
    process: Child,
    _folder: TempDir,
    admin: String,
    /// Where its clients ask.
    pub(crate) url: String,
}

impl Envoy {
    pub(crate) async fn start(version: &str, upstream: SocketAddr, asks: Asks<'_>) -> Self {
        let folder = TempDir::new().expect("a folder");
        let endpoint = |address: &str| match address.strip_prefix("unix:") {
            Some(path) => {
                format!("{{ endpoint: {{ address: {{ pipe: {{ path: '{path}' }} }} }} }}")
            }
            None => {
                let (host, port) = address.rsplit_once(':').expect("host and port");
                format!(
                    "{{ endpoint: {{ address: {{ socket_address: {{ address: '{host}', port_value: {port} }} }} }} }}"
                )
            }
        };
        let servers: Vec<String> = asks.servers.iter().map(|it| endpoint(it)).collect();
        let config = include_str!("envoy.yaml")
            .replace("RATE_LIMITS", &asks.rate_limits.replace('\n', " "))
            .replace("FILTER", asks.filter)
            .replace("TIMEOUT", asks.timeout)
            .replace("CLUSTER", asks.cluster)
            .replace("UPSTREAM", &endpoint(&upstream.to_string()))
            .replace("SERVERS", &servers.join(", "));
        let (file, address) = (
            folder.path().join("envoy.yaml"),
            folder.path().join("admin"),
        );
        fs::write(&file, config).expect("it is written");
        let process = Command::new(program(version))
            .arg("--config-path")
            .arg(&file)
            .arg("--admin-address-path")
            .arg(&address)
            .args([
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "--log-level",
                "error",
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("Envoy runs");
        let admin = eventually("Envoy is there", || async {
            fs::read_to_string(&address)
                .ok()
                .filter(|it| !it.is_empty())
        })
        .await;
        let listeners = eventually("Envoy listens", || async {
            let ready = reqwest::get(format!("http://{admin}/ready")).await.ok()?;
            ready.status().is_success().then_some(())?;
            let listeners = reqwest::get(format!("http://{admin}/listeners?format=json"))
                .await
                .ok()?;
            serde_json::from_str::<Value>(&listeners.text().await.ok()?).ok()
        })
        .await;
        let port =
            &listeners["listener_statuses"][0]["local_address"]["socket_address"]["port_value"];
        Self {
            process,
            _folder: folder,
            admin,
            url: format!("http://127.0.0.1:{port}"),
        }
    }

    /// A counter of its filter.
    pub(crate) async fn counter(&self, name: &str) -> u64 {
        let url = format!(
            "http://{}/stats?format=json&filter=ratelimit.{name}$",
            self.admin
        );
        let stats = reqwest::get(url)
            .await
            .expect("it answers")
            .text()
            .await
            .expect("it is text");
        let stats: Value = serde_json::from_str(&stats).expect("it is JSON");
        let all = stats["stats"].as_array().into_iter().flatten();
        all.filter_map(|stat| stat["value"].as_u64()).sum()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
