//! The proxies of `examples/edge`, each started with its file as it is but for ports and timeouts, with curl as the client.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::{Router, body::Bytes};
use http::{Method, Uri};
use tempfile::TempDir;
use tokio::{process, sync::oneshot, task::JoinHandle, time};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_rules::{Bindings, Format, LiveRules, RuleDocument};
use tollgate_server::{Server, Settings};
use tollgate_test_servers::redis_server::{RedisServer, free_port};
use tollgate_tests::server::Server as App;

/// A wait that no test comes near: it turns a hang into a failure.
const HANGS: Duration = Duration::from_secs(60);
/// That of the services that share the Redis.
const SECRET: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A copy of the folder with free ports, an app, and a server.
struct Edge {
    folder: TempDir,
    ports: Vec<(u16, u16)>,
    _app: App,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Edge {
    /// `settings` are added to the server's, and `rules` are in the place of the folder's.
    async fn start(settings: &str, rules: Option<&str>) -> Self {
        let echo = async |method: Method, uri: Uri, body: Bytes| {
            let body = String::from_utf8_lossy(&body).into_owned();
            let limit = [("ratelimit", "app"), ("ratelimit-policy", "app")];
            (limit, format!("{method} {uri} {body}"))
        };
        let app = App::start(Router::new().fallback(echo)).await;
        let mut ports: Vec<_> = [8000, 8081, 8082, 8083, 8084, 9109]
            .map(|port| (port, free_port()))
            .into();
        ports.push((8080, app.address().port()));
        let by_host = format!(
            "[[rules]]\nname = 'host'\nlimit = 'gcra 1/h'\nby = 'constant'\n\
             when = {{ path = '/host', header = {{ name = 'host', equals = '127.0.0.1:{}' }} }}\n[[overrides]]",
            ports[0].1
        );
        let folder = tempfile::tempdir().expect("a folder");
        for file in fs::read_dir(repository().join("examples/edge")).expect("the folder") {
            let file = file.expect("an entry");
            let mut text = fs::read_to_string(file.path()).expect("a text");
            for (written, port) in &ports {
                text = text.replace(
                    &format!("127.0.0.1:{written}"),
                    &format!("127.0.0.1:{port}"),
                );
                text = text.replace(
                    &format!("port_value: {written} "),
                    &format!("port_value: {port} "),
                );
            }
            // A machine that runs all tests is busy. And there are requests that no rule counts.
            for (written, there) in [
                ("20ms", "20s"),
                ("0.02s", "20s"),
                ("timeout = 20 ", "timeout = 20000 "),
                ("# - request_headers", "- request_headers"),
                ("[[overrides]]", &by_host),
                (
                    "200\"\n",
                    "200\"\nwhen = { methods = [\"GET\", \"POST\", \"OPTIONS\"] }\n",
                ),
            ] {
                text = text.replace(written, there);
            }
            if file.file_name() == "server.toml" {
                text = format!("{text}\n{settings}");
            }
            fs::write(folder.path().join(file.file_name()), text).expect("written");
        }
        if let Some(rules) = rules {
            fs::write(folder.path().join("limits.toml"), rules).expect("written");
        }
        fs::write(folder.path().join("secret"), SECRET).expect("written");
        let mut edge = Self {
            folder,
            ports,
            _app: app,
            server: None,
        };
        edge.serve().await;
        edge
    }

    async fn serve(&mut self) {
        let settings = self.folder.path().join("server.toml");
        let settings = Settings::read(settings).unwrap_or_else(|wrong| panic!("{wrong}"));
        let server = Server::start(settings, None)
            .await
            .unwrap_or_else(|wrong| panic!("{wrong}"));
        let (end, ends) = oneshot::channel();
        let run = async move { server.run(async { drop(ends.await) }).await };
        self.server = Some((end, tokio::spawn(run)));
    }

    /// The server is gone at once.
    async fn stop_server(&mut self) {
        let (_, task) = self.server.take().expect("it runs");
        task.abort();
        let _ = task.await;
    }

    fn port(&self, written: u16) -> u16 {
        let found = self.ports.iter().find(|(known, _)| *known == written);
        found.expect("a port of the folder").1
    }

    /// Starts a program that `tests/install.sh` installs, and waits until it serves.
    async fn proxy(&self, program: &str, args: &[&str]) -> Proxy {
        let mut path = repository().join("target/servers").join(program);
        // Debian's nginx is taken without installing it, where there is none.
        if !path.exists() && program == "nginx" {
            path = program.into();
        }
        let folder = self.folder.path();
        let output = File::create(folder.join("output")).expect("a file");
        let child = Command::new(&path)
            .args(args)
            .current_dir(folder)
            .env(
                "LD_LIBRARY_PATH",
                path.parent().expect("a folder").join("lib"),
            )
            .env("XDG_CONFIG_HOME", folder)
            .env("XDG_DATA_HOME", folder)
            .env(
                "CADDY_ADMIN",
                format!("unix/{}", folder.join("admin").display()),
            )
            .stdout(output.try_clone().expect("a handle"))
            .stderr(output)
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|wrong| {
                panic!("{}: {wrong}; tests/install.sh installs it", path.display())
            });
        let proxy = Proxy {
            child,
            url: format!("http://127.0.0.1:{}", self.port(8000)),
            output: folder.join("output"),
        };
        let serves = async {
            while proxy.curl("/ready", &[]).await.status != 200 {
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        if time::timeout(HANGS, serves).await.is_err() {
            panic!("{program} does not serve: {}", proxy.output());
        }
        proxy
    }

    async fn envoy(&self, version: &str, file: &str) -> Proxy {
        let args = ["-c", file, "--concurrency", "1", "--disable-hot-restart"];
        self.proxy(&format!("envoy-{version}"), &args).await
    }

    async fn nginx(&self) -> Proxy {
        let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let folders = folders
            .map(|name| format!("{name}_temp_path tmp;"))
            .join(" ");
        let main = format!(
            "daemon off; master_process off; pid pid; error_log stderr; events {{}}\nhttp {{ access_log off; {folders} include nginx.conf; }}\n"
        );
        fs::write(self.folder.path().join("main.conf"), main).expect("written");
        self.proxy("nginx", &["-p", ".", "-e", "stderr", "-c", "main.conf"])
            .await
    }
}

/// A proxy, killed on drop.
struct Proxy {
    child: Child,
    url: String,
    output: PathBuf,
}

/// What curl got.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// In lower case, as lines.
    head: String,
    body: String,
}

impl Answer {
    fn field(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(field, _)| *field == name)
            .map(|(_, value)| value)
            .collect()
    }
}

impl Proxy {
    async fn curl(&self, path: &str, args: &[&str]) -> Answer {
        let output = process::Command::new("curl")
            .args(["--silent", "--include", "--path-as-is", "--max-time", "30"])
            .args(args)
            .arg(format!("{}{path}", self.url))
            .output()
            .await
            .expect("curl runs; tests/install.sh installs it");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Answer {
            status: status.unwrap_or_default(),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    fn output(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// What each of the files has to do. A client that is blocked gets this status. So many of one preflight count.
    async fn limits(&self, shows_fields: bool, blocked: u16, preflights: usize) {
        let key = |name: &str| format!("x-api-key: {name}");
        let acme = key("acme");
        for left in (0..3).rev() {
            // A client that repeats an id is no proxy that asks twice.
            let same = ["-H", "x-request-id: same", "-H", &acme, "-d", "text"];
            let answer = self.curl("/exports/2026?a=b", &same).await;
            assert_eq!(answer.status, 200, "{answer:?} {}", self.output());
            assert_eq!(answer.body, "POST /exports/2026?a=b text");
            let shown = answer.field("ratelimit").join(", ");
            let left = format!("\"exports-per-key\";r={left};");
            assert_eq!(shown.contains(&left), shows_fields, "{answer:?}");
        }
        let denied = self.curl("/exports/2026", &["-H", &acme]).await;
        assert_eq!(denied.status, 429, "{denied:?}");
        assert_eq!(denied.field("content-type"), ["application/problem+json"]);
        assert_eq!(denied.field("cache-control"), ["no-store"]);
        let retry: Vec<u64> = denied
            .field("retry-after")
            .iter()
            .flat_map(|text| text.parse())
            .collect();
        assert!(matches!(retry[..], [200..=300]), "{denied:?}");
        assert!(denied.body.contains("quota-exceeded"), "{denied:?}");
        let shown = denied.field("ratelimit").join(", ");
        assert!(shown.contains("\"exports-per-key\";r=0;"), "{denied:?}");
        // Whatever a client writes, it is asked about what it does.
        for field in [
            "x-forwarded-uri: /free",
            "x-forwarded-method: OPTIONS",
            "x-original-uri: /free",
            "x-forwarded-for: 6.6.6.6",
            "x-request-id: same",
            "x-request-id: same",
            "x-envoy-original-path: /free",
        ] {
            let answer = self
                .curl("/exports/2026", &["-H", &acme, "-H", field])
                .await;
            assert_eq!(answer.status, 429, "{field}: {answer:?}");
        }
        for path in ["/x/../exports/2026", "/exports/%32026", "//exports//2026"] {
            let answer = self.curl(path, &["-H", &acme]).await;
            assert_eq!(answer.status, 429, "{path}: {answer:?}");
        }
        assert_eq!(self.curl("/free", &["-H", &acme]).await.status, 200);
        // What no rule counts has the fields of the app alone, which other answers have too.
        let preflight = "-X OPTIONS -H origin:a -H access-control-request-method:GET";
        for (args, most) in [("-X PUT", 0), (preflight, preflights), ("-X GET", 1)] {
            let args: Vec<_> = args.split(' ').collect();
            let answer = self.curl("/free", &args).await;
            for name in ["ratelimit", "ratelimit-policy"] {
                let (of_app, shown): (Vec<_>, Vec<_>) =
                    answer.field(name).into_iter().partition(|it| *it == "app");
                let are_rules = shown.iter().all(|it| it.starts_with("\"per-address\";"));
                let is_right = of_app.len() == 1 && shown.len() <= most && are_rules;
                assert!(is_right, "{args:?} {answer:?}");
            }
        }
        assert_eq!(
            self.curl("/exports/2026", &["-H", &key("other")])
                .await
                .status,
            200
        );
        // A second key, a new one each time, is no way to a limit of one's own.
        let mut answers = Vec::new();
        for n in 0..8 {
            let mut keys = [key("real"), key(&format!("junk-{n}"))];
            keys.rotate_left(n % 2);
            let twice = ["-H", &keys[0], "-H", &keys[1]];
            answers.push(self.curl("/exports/2026", &twice).await.status);
        }
        assert!(
            matches!(answers[6..], [429 | 400, 429 | 400]),
            "{answers:?}"
        );
        let revoked = self.curl("/exports/2026", &["-H", &key("revoked")]).await;
        assert_eq!(revoked.status, blocked, "{revoked:?}");
        // A client has the address that the proxy sees.
        for (number, status) in [200, 200, 200, 429].into_iter().enumerate() {
            let field = format!("x-forwarded-for: 192.0.2.{number}");
            let answer = self.curl("/login", &["-d", "", "-H", &field]).await;
            assert_eq!(answer.status, status, "{answer:?}");
        }
        let other = self.curl("/login", &["-d", "", "--interface", "127.0.0.2"]);
        assert_eq!(other.await.status, 200);
        for status in [200, 429] {
            let answer = self.curl("/host", &[]).await;
            assert_eq!(answer.status, status, "{answer:?}");
        }
    }

    /// The server is gone.
    async fn without_server(&self, edge: &mut Edge, status: u16) {
        edge.stop_server().await;
        let answer = self
            .curl("/exports/2026", &["-H", "x-api-key: acme", "-d", "text"])
            .await;
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 200 {
            assert_eq!(answer.body, "POST /exports/2026 text");
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_asks_by_its_protocol() {
    for version in ["1.40.0", "1.36.4"] {
        let mut edge = Edge::start("", None).await;
        let envoy = edge.envoy(version, "envoy.yaml").await;
        envoy.limits(true, 429, 1).await;
        envoy.without_server(&mut edge, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_asks_by_ext_authz() {
    let mut edge = Edge::start("", None).await;
    let envoy = edge.envoy("1.40.0", "envoy-ext-authz.yaml").await;
    envoy.limits(true, 403, 0).await;
    envoy.without_server(&mut edge, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_asks_by_auth_request() {
    let mut edge = Edge::start("", None).await;
    let nginx = edge.nginx().await;
    nginx.limits(true, 429, 0).await;
    nginx.without_server(&mut edge, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_takes_the_fields_of_many_rules() {
    let rule = |n| {
        format!(
            "[[rules]]\nname = 'one-of-very-many-rules-{n}'\nlimit = 'gcra 1/h'\nby = 'client_ip'\nwhen = {{ path = '/many' }}\n"
        )
    };
    let rules: String = (0..60).map(rule).collect();
    let edge = Edge::start("", Some(&format!("version = 1\n{rules}"))).await;
    let nginx = edge.nginx().await;
    for status in [200, 429] {
        let answer = nginx.curl("/many", &[]).await;
        assert_eq!(answer.status, status, "{answer:?} {}", nginx.output());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caddy_asks_by_a_request_before() {
    let mut edge = Edge::start("", None).await;
    let caddy = edge
        .proxy("caddy-2.11.7", &["run", "--config", "Caddyfile"])
        .await;
    caddy.limits(true, 403, 0).await;
    caddy.without_server(&mut edge, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traefik_asks_by_forward_auth() {
    let mut edge = Edge::start("", None).await;
    let traefik = edge
        .proxy("traefik-3.7.15", &["--configFile=traefik.yml"])
        .await;
    traefik.limits(false, 403, 0).await;
    traefik.without_server(&mut edge, 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn haproxy_asks_by_lua() {
    let mut edge = Edge::start("", None).await;
    let haproxy = edge
        .proxy("haproxy-2.8.25/haproxy", &["-f", "haproxy.cfg"])
        .await;
    haproxy.limits(true, 403, 0).await;
    haproxy.without_server(&mut edge, 200).await;
}

/// How many of as many requests at once pass at this address.
async fn passing(url: String, requests: usize) -> usize {
    let output = process::Command::new("curl")
        .args([
            "--silent",
            "--parallel",
            "--parallel-max",
            "8",
            "--output",
            "/dev/null",
        ])
        .args(["--write-out", "%{http_code}\\n"])
        .arg(format!("{url}/shared?[1-{requests}]"))
        .output()
        .await
        .expect("curl runs; tests/install.sh installs it");
    let statuses = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(statuses.lines().count(), requests);
    statuses.lines().filter(|status| *status == "200").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_nginx_and_a_service_share_one_budget() {
    let rules = "version = 1\n[[rules]]\nname = 'shared'\nlimit = 'gcra 1/d burst 100'\nby = 'constant'\n\
        when = { path = '/shared' }\non_store_error = 'deny'\n";
    let redis = RedisServer::start(&[]).await;
    let settings = format!(
        "[redis]\naddress = {:?}\nnamespace = \"shop\"\nsecret_file = \"secret\"\n",
        redis.url()
    );
    let edge = Edge::start(&settings, Some(rules)).await;
    let envoy = edge.envoy("1.40.0", "envoy.yaml").await;
    // Another copy for the other proxy.
    let other = Edge::start(&settings, Some(rules)).await;
    let nginx = other.nginx().await;
    let secret = Secret::from_text(SECRET).expect("a secret");
    let store = RedisStore::builder(redis.url(), "shop", Keys::hashed(secret));
    let store = store.deadline(HANGS).connect().expect("valid");
    let live = LiveRules::watch(edge.folder.path().join("limits.toml"), Bindings::new());
    let limits = live.expect("right").layer(store).expect("valid");
    let service = App::start(Router::new().fallback(async || "").layer(limits)).await;
    let passed = tokio::join!(
        passing(envoy.url.clone(), 150),
        passing(nginx.url.clone(), 150),
        passing(format!("http://{}", service.address()), 150),
    );
    let all = passed.0 + passed.1 + passed.2;
    // A busy server may give up calls. What the service asks is all answered, and more than there is.
    assert!(all <= 100 && all > 0, "{passed:?}");
    assert_eq!(passing(envoy.url.clone(), 1).await, 0, "{passed:?}");
    assert_eq!(passing(nginx.url.clone(), 1).await, 0, "{passed:?}");
}

/// A text in a manifest, without its indentation.
fn indented(text: &str, name: &str) -> String {
    let (_, rest) = text
        .split_once(&format!("  {name}: |\n"))
        .expect("a text of this name");
    let lines = rest.lines().map_while(|line| match line.is_empty() {
        true => Some(""),
        false => line.strip_prefix("    "),
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn the_settings_for_kubernetes_and_those_of_the_guide_are_right() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).expect("a text");
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write("secret", SECRET);
    let manifests = read("ops/server/kubernetes.yaml");
    write("limits.toml", &indented(&manifests, "limits.toml"));
    let settings = indented(&manifests, "server.toml");
    write(
        "server.toml",
        &format!("{settings}secret_file = \"secret\"\n"),
    );
    let settings = Settings::read(folder.path().join("server.toml"));
    let settings = settings.unwrap_or_else(|wrong| panic!("{wrong}"));
    Server::check(&settings).unwrap_or_else(|wrong| panic!("{wrong}"));
    let page = read("docs/guide/edge.md");
    let blocks = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let mut rules = 0;
    for block in blocks {
        if block.contains("[[rules]]") {
            for bindings in [Bindings::new(), Bindings::new().at_edge()] {
                let text = format!("version = 1\n{block}");
                let document = RuleDocument::parse(&text, Format::Toml, &bindings);
                rules += document
                    .unwrap_or_else(|wrong| panic!("{wrong}"))
                    .names()
                    .count();
            }
        } else {
            write("server.toml", &format!("rules = \"limits.toml\"\n{block}"));
            let settings = Settings::read(folder.path().join("server.toml"));
            settings.unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }
    assert_eq!(rules, 6);
}

/// Nobody builds an image here: what it names is compared with what there is.
#[test]
fn the_dockerfile_names_the_compiler_the_program_and_the_ports_that_there_are() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).expect("a text");
    let (dockerfile, workspace) = (read("ops/server/Dockerfile"), read("Cargo.toml"));
    let rust = workspace
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .expect("a version");
    let program = read("crates/tollgate-server/Cargo.toml");
    let manifests = read("ops/server/kubernetes.yaml");
    let (_, user) = manifests.split_once("runAsUser: ").expect("a user");
    let user = user.split(',').next().and_then(|it| it.parse::<u32>().ok());
    let user = user.expect("a number, or the kubelet does not know that it is not root");
    assert!(program.contains("[[bin]]\nname = \"tollgate-server\"\n"));
    for line in [
        format!("FROM rust:{rust}-slim-bookworm AS build"),
        "RUN cargo build --release --locked --package tollgate-server".to_owned(),
        "COPY --from=build /src/target/release/tollgate-server /usr/local/bin/tollgate-server"
            .to_owned(),
        "ENTRYPOINT [\"/usr/local/bin/tollgate-server\"]".to_owned(),
        format!("USER {user}:{user}"),
    ] {
        assert!(dockerfile.lines().any(|it| it == line), "{line}");
    }
    let exposed = dockerfile.lines().find_map(|it| it.strip_prefix("EXPOSE "));
    let mut listens: Vec<_> = read("examples/edge/server.toml")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            Some(
                line.split_once("127.0.0.1:")?
                    .1
                    .split('"')
                    .next()?
                    .to_owned(),
            )
        })
        .collect();
    listens.sort();
    assert_eq!(exposed, Some(&*listens.join(" ")));
}
