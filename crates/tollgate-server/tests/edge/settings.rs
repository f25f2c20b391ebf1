//! Settings: what is wrong with them, rules that change, and who may ask.

use std::{
    fs,
    ops::ControlFlow,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use reqwest::Client;
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};
use tollgate_core::wall_clock;
use tollgate_ledger::{AccountUsage, DailyUsage, Ledger, Period};
use tollgate_server::proto::{RateLimitRequest, rate_limit_service_client::RateLimitServiceClient};
use tollgate_test_servers::eventually::eventually;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::support::server::{Server, folder, run, run_with};

const DAY: Duration = Duration::from_secs(86_400);
const RULES: &str =
    "version = 1\n[[rules]]\nname = 'per-ip'\nlimit = 'fixed_window 5/h'\nby = 'client_ip'\n";

#[test]
fn what_is_wrong_is_a_line_each_and_the_exit_code_2() {
    for (settings, rules, says) in [
        (
            "",
            RULES,
            &[
                "server.toml:1:1: nothing listens",
                "server.toml:1:1: there are no rules",
            ][..],
        ),
        (
            "rules = 'limits.toml'\ngrpc = { listen = '0.0.0.0:1', style = 'nginx' }\n[[http]]\nlisten = '127.0.0.1:1'\nallow = ['::/0']\n[redis]\nnamespace = 'a'\ndeadline_ms = 0\n",
            RULES,
            &[
                "server.toml:8:15: deadline_ms is 1 to 1000",
                "server.toml:2:19: whoever reaches 0.0.0.0:1 could use up the limits of clients; add allow",
                "server.toml:2:19: take style out",
                "server.toml:4:10: allow = [\"::/0\"] is everybody",
                "server.toml:4:10: say how the proxy describes a request",
            ],
        ),
        (
            "rules = 'limits.toml'\ngrpc = { listen = 'localhost' }\n",
            RULES,
            &["server.toml:2:19: \"localhost\" is no address to listen on"],
        ),
        (
            "rules = 'limits.toml'\nmetrics = '127.0.0.1:1'\ngrpc = { listen = '127.0.0.1:1' }\nhttp = [{ listen = '127.0.0.1:1', style = 'nginx' }]\n",
            RULES,
            &[
                "server.toml:2:11: 127.0.0.1:1 is there twice",
                "server.toml:4:20: 127.0.0.1:1 is there twice",
            ],
        ),
        (
            "rules = 'limits.toml'\nmetrics = 'unix:limits.toml'\ngrpc = { listen = 'unix:/nowhere/rls.sock' }\nledger = { url = 'sqlite:none/l.db' }\n",
            RULES,
            &[
                "unix:limits.toml: there is a file that is no socket",
                "unix:/nowhere/rls.sock: there is no folder /nowhere",
                "no folder none for the ledger",
            ],
        ),
        (
            "rules = 'limits.toml'\nconsole = '0.0.0.0:1'\ngrpc = { listen = '127.0.0.1:0' }\n",
            RULES,
            &["server.toml:2:11: the console is for this machine, and 0.0.0.0:1 is not"],
        ),
        (
            "rules = 'limits.toml'\ngrpc = { listen = '127.0.0.1:0' }\nledger = {}\n",
            RULES,
            &["[ledger] has no url; add url = \"sqlite:ledger.db\", or set DATABASE_URL"],
        ),
        (
            "rules = 'limits.toml'\ngrpc = { listen = '127.0.0.1:0' }\nledger = { url = 'postgres://u:secret@h:port/db' }\n",
            RULES,
            &["invalid port number"],
        ),
        (
            "rules = 'limits.toml'\ngrpc = { listen = '127.0.0.1:0' }\nledger = { url = 'mysql://a' }\n\
             redis = { address = 'redis://a', namespace = 'a b', plain_keys = true }\n",
            RULES,
            &[
                "\"a b\" is no namespace",
                "the address of a ledger begins with sqlite: or postgres:",
            ],
        ),
        (
            "grpc = { listen = '127.0.0.1:0' }\n\
             redis = { address = 'redis://a', namespace = 'a', plain_keys = true, rules = true, secret_file = 'gone' }\n",
            RULES,
            &["secret_file"],
        ),
        (
            "rules = 'limits.toml'\ngrpc = { listen = '127.0.0.1:0' }\n\
             redis = { address = 'redis-cluster://a', namespace = 'a' }\n",
            RULES,
            &["a cluster needs a `partition`"],
        ),
        (
            "rules = 'limits.toml'\ngprc = {}\n",
            RULES,
            &["server.toml:2:1: unknown field `gprc`"],
        ),
        (
            "rules = 'limits.toml'\n[[grpc]]\nlisten = '127.0.0.1:0'\n",
            RULES,
            &["server.toml:2:1: write [grpc], once"],
        ),
        (
            "rules = 'limits.toml'\n[http]\nlisten = '127.0.0.1:0'\nstyle = 'nginx'\n",
            RULES,
            &["server.toml:2:1: write [[http]]"],
        ),
        (
            "rules = 'limits.toml'\ndrain_seconds = 601\ngrpc = { listen = '127.0.0.1:0' }\n",
            RULES,
            &["server.toml:2:17: drain_seconds is at most 600"],
        ),
        (
            &format!(
                "rules = 'limits.toml'\n[grpc]\nlisten = 'unix:{}'\n",
                "a".repeat(108)
            ),
            RULES,
            &["the path is too long for a socket"],
        ),
        (
            "rules = 'limits.toml'\n[grpc]\nlisten = '127.0.0.1:0'\ntls = { cert = 'c.pem', key = 'k.pem' }\n[redis]\naddress = 'http://a'\nnamespace = 'a'\n",
            "version = 1\n[[rules]]\nname = 'running'\nlimit = 'concurrent 5'\nby = 'client_ip'\n[[rules]]\nname = 'late'\nlimit = '5/s'\nby = 'client_ip'\nwait = '1s'\n\
             [[rules]]\nname = 'here'\nlimit = 'concurrent 5'\nby = 'client_ip'\nat = 'service'\n",
            &[
                "limits.toml:4:9: slots are for services",
                "limits.toml:10:8: wait is for services",
                "the scheme \"http\"",
                "c.pem: ",
                "k.pem: ",
            ],
        ),
    ] {
        let folder = folder(settings, rules);
        let (code, said) = run(folder.path(), &["check", "server.toml"]);
        assert_eq!(code, 2, "{said}");
        for says in says {
            assert!(said.contains(says), "{says:?} is not in:\n{said}");
        }
        // As many, from wherever it is started.
        let file = folder.path().join("server.toml");
        let (_, elsewhere) = run(Path::new("/"), &["check", &file.to_string_lossy()]);
        assert_eq!(
            elsewhere.lines().count(),
            said.lines().count(),
            "{elsewhere}"
        );
        let (code, at_start) = run(folder.path(), &["server.toml"]);
        assert!(
            code == 2 && at_start.contains(said.lines().next().expect("a line")),
            "{at_start}"
        );
    }
    for san in ["[]", "['']", "['10.0.0.1']"] {
        let settings = format!(
            "grpc = {{ listen = '127.0.0.1:0', tls = {{ cert = 'c', key = 'k', san = {san} }} }}\n"
        );
        let (code, said) = run(folder(&settings, RULES).path(), &["check", "server.toml"]);
        let is_named = said.starts_with("server.toml:1:71: san is a list of names");
        assert!(code == 2 && is_named, "{said}");
    }
    // With the secret in a variable, for a list of hashes.
    let rules = format!("{RULES}[lists.leaked]\nfile = 'leaked'\nhashed = true\n");
    for redis in ["", "redis = { address = 'redis://a', namespace = 'a' }\n"] {
        let settings =
            format!("rules = 'limits.toml'\ngrpc = {{ listen = 'unix:rls.sock' }}\n{redis}");
        let right = folder(&settings, &rules);
        fs::write(right.path().join("leaked"), "").expect("it is written");
        let nothing = (0, String::new());
        assert_eq!(run(right.path(), &["check", "server.toml"]), nothing);
        assert_eq!(run(right.path(), &["--version"]), nothing);
        assert_eq!(run(right.path(), &["serve", "server.toml"]).0, 2);
    }
    // A wrong one is a mistake where it is needed, and not the only one.
    let redis = "redis = { address = 'redis://a', namespace = 'a' }\n";
    for (secret, redis, rules, says) in [
        ("", "", RULES, &[][..]),
        ("short", "", RULES, &[]),
        (
            "short",
            "",
            &rules,
            &["TOLLGATE_SECRET: ", "in TOLLGATE_SECRET"],
        ),
        (
            "",
            redis,
            "version = 2",
            &["TOLLGATE_SECRET: ", "limits.toml:1:11"],
        ),
    ] {
        let settings =
            format!("rules = 'limits.toml'\ngrpc = {{ listen = 'unix:rls.sock' }}\n{redis}");
        let (code, said) = run_with(
            secret,
            folder(&settings, rules).path(),
            &["check", "server.toml"],
        );
        let is_said = says.iter().all(|it| said.contains(it));
        assert!(
            code == if says.is_empty() { 0 } else { 2 } && is_said,
            "{said}"
        );
    }
}

#[tokio::test]
async fn rules_change_while_it_runs_and_a_wrong_file_leaves_the_last_ones_in_force() {
    let settings = "rules = 'limits.toml'\nmetrics = '127.0.0.1:0'\n[[http]]\nlisten = '127.0.0.1:0'\nstyle = 'envoy'\n";
    let server = Server::start(settings, RULES);
    let policy = async || {
        let url = format!("http://{}/check/", server.addresses[0]);
        let response = Client::new()
            .get(url)
            .header("x-forwarded-for", "192.0.2.1")
            .send()
            .await
            .expect("it is answered");
        response.headers()["ratelimit-policy"]
            .to_str()
            .expect("it is text")
            .to_owned()
    };
    assert_eq!(policy().await, "\"per-ip\";q=5;w=3600");
    let file = server.folder().join("limits.toml");
    fs::write(&file, RULES.replace("fixed_window 5/h", "concurrent 5")).expect("it is written");
    eventually("it is refused", || async {
        server
            .metrics()
            .await
            .contains("tollgate_rules_rejected_total 1")
            .then_some(())
    })
    .await;
    assert_eq!(policy().await, "\"per-ip\";q=5;w=3600");
    fs::write(&file, RULES.replace("5/h", "7/h")).expect("it is written");
    eventually("it is in force", || async {
        (policy().await == "\"per-ip\";q=7;w=3600").then_some(())
    })
    .await;
    server.signal("HUP");
    assert_eq!(policy().await, "\"per-ip\";q=7;w=3600");
    // How many changes this process has seen says nothing beside another's.
    let metrics = server.metrics().await;
    assert!(metrics.contains("tollgate_rules_revision NaN"), "{metrics}");
}

#[tokio::test]
async fn what_a_durable_rule_of_a_file_admits_is_in_the_ledger_when_the_server_has_ended() {
    let settings = "rules = 'limits.toml'\ndrain_seconds = 0\nledger = { url = 'sqlite:ledger.db' }\n[[http]]\nlisten = '127.0.0.1:0'\n\
                    style = 'envoy'\n";
    let rules = "version = 1\n[[rules]]\nname = 'per-tenant'\nlimit = 'fixed_window 5/24h'\nby = ['method', 'header:x-tenant']\n\
                 durable = 'header:x-tenant'\ndaily_usage = 'method'\n";
    let without = folder(&settings.replace("ledger =", "# ledger ="), rules);
    let (code, said) = run(without.path(), &["check", "server.toml"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("warning: what these rules use is not written"),
        "{said}"
    );
    assert!(said.contains(": per-tenant; add ledger = { url"), "{said}");
    // An absolute path with all slashes of a URL.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let file = elsewhere.path().join("ledger.db");
    let url = format!("sqlite:///{}", file.display());
    let mut server = Server::start(&settings.replace("sqlite:ledger.db", &url), rules);
    for status in [200, 200, 200, 200, 200, 429] {
        let url = format!("http://{}/check/", server.addresses[0]);
        let asked = Client::new().get(url).header("x-tenant", "acme");
        let response = asked.send().await.expect("it is answered");
        assert_eq!(response.status(), status);
    }
    server.signal("TERM");
    while server.ended().is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let ledger = Ledger::open(&format!("sqlite:{}", file.display())).await;
    let mut used = Vec::new();
    let each = |usage: &AccountUsage| {
        used.push((usage.account.clone(), usage.units));
        ControlFlow::Continue(())
    };
    let ledger = ledger.expect("it opens");
    let read = ledger.usage(None, Period::ALL, each).await;
    read.expect("it answers");
    assert_eq!(used, [("acme".to_owned(), 5)]);
    let mut by_day = (0, 0, 0);
    let each = |usage: &DailyUsage| {
        assert_eq!(&*usage.account, "GET");
        by_day.0 += usage.allowed;
        by_day.1 += usage.denied;
        by_day.2 += usage.units;
        ControlFlow::Continue(())
    };
    let read = ledger.daily_usage(None, Period::ALL, each).await;
    read.expect("it answers");
    assert_eq!(by_day, (5, 1, 5));
}

#[tokio::test]
async fn only_a_client_with_one_of_the_named_certificates_may_ask() {
    let mut authority = CertificateParams::new([]).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key"))
        .expect("it signs");
    let ends_in = |days: u32, name: SanType| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("no names");
        params.subject_alt_names = vec![name];
        let now = Duration::from_micros(wall_clock());
        params.not_after = (UNIX_EPOCH + now + DAY * days).into();
        params.not_before = (UNIX_EPOCH + now + DAY * days - DAY * 40).into();
        let certificate = params.signed_by(&key, &authority).expect("it signs");
        (certificate.pem(), key.serialize_pem())
    };
    let uri = |name: &str| ends_in(30, SanType::URI(name.try_into().expect("a name")));
    let dns = |days, name: &str| ends_in(days, SanType::DnsName(name.try_into().expect("a name")));
    let settings = "rules = 'limits.toml'\nmetrics = '127.0.0.1:0'\n[grpc]\nlisten = '127.0.0.1:0'\n\
                    tls = { cert = 'c.pem', key = 'k.pem', client_ca = 'ca.pem', san = ['spiffe://edge/envoy', 'Nginx.example'] }\n";
    let (cert, key) = dns(30, "localhost");
    let files = [
        ("c.pem", &*cert),
        ("k.pem", &*key),
        ("ca.pem", &*authority.pem()),
    ];
    let server = Server::start_with(settings, RULES, &files);
    let trusted = Certificate::from_pem(authority.pem());
    let call = async |identity: Option<(String, String)>| {
        let tls = ClientTlsConfig::new()
            .ca_certificate(trusted.clone())
            .domain_name("localhost");
        let tls = match identity {
            Some((cert, key)) => tls.identity(Identity::from_pem(cert, key)),
            None => tls,
        };
        let endpoint =
            Endpoint::from_shared(format!("https://{}", server.addresses[0])).expect("it is one");
        let channel = endpoint
            .tls_config(tls)
            .expect("it is right")
            .connect_lazy();
        RateLimitServiceClient::new(channel)
            .should_rate_limit(RateLimitRequest::default())
            .await
    };
    let envoy = || uri("spiffe://edge/envoy");
    for allowed in [envoy(), dns(30, "nginx.EXAMPLE")] {
        call(Some(allowed)).await.expect("it may");
    }
    for refused in [Some(uri("spiffe://edge/Envoy")), None] {
        call(refused).await.expect_err("it may not");
    }
    eventually("both are counted", || async {
        server
            .metrics()
            .await
            .contains("tollgate_refused_callers_total{door=\"grpc\"} 2")
            .then_some(())
    })
    .await;
    // Another certificate is in force as soon as the files are there: of another authority, which the client does not trust.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("it signs");
    fs::write(
        server.folder().join("k.pem"),
        other.signing_key.serialize_pem(),
    )
    .expect("it is written");
    fs::write(server.folder().join("c.pem"), other.cert.pem()).expect("it is written");
    eventually("the certificate has changed", || async {
        call(Some(envoy())).await.is_err().then_some(())
    })
    .await;
    for (days, code, says) in [
        (0, 2, "the certificate has ended, at"),
        (50, 0, "the certificate is valid from"),
        (9, 0, "the certificate ends in "),
    ] {
        let (cert, key) = dns(days, "localhost");
        fs::write(server.folder().join("c.pem"), cert).expect("it is written");
        fs::write(server.folder().join("k.pem"), key).expect("it is written");
        let (done, said) = run(server.folder(), &["check", "server.toml"]);
        assert!(done == code && said.contains(says), "{done} {said}");
    }
}

#[tokio::test]
async fn of_connections_to_a_page_the_oldest_ends_where_there_are_too_many() {
    let server = Server::grpc(RULES);
    let page = &server.addresses[1];
    let mut silent = Vec::new();
    for _ in 0..65 {
        silent.push(TcpStream::connect(page).await.expect("it listens"));
    }
    assert!(server.metrics().await.contains("tollgate"));
    let ended = timeout(Duration::from_secs(10), silent[0].read_u8()).await;
    ended.expect("in time").expect_err("it has ended");
    let last = timeout(Duration::from_millis(100), silent[64].read_u8()).await;
    last.expect_err("it is kept");
}

#[tokio::test]
async fn operators_of_this_machine_find_a_console() {
    let settings = "rules = 'limits.toml'\nconsole = '127.0.0.1:0'\nmetrics = '127.0.0.1:0'\n[[http]]\nlisten = '127.0.0.1:0'\nstyle = 'envoy'\n";
    let server = Server::start(settings, RULES);
    let console = &server.addresses[1];
    let page = reqwest::get(format!("http://{console}/"))
        .await
        .expect("it is answered");
    assert_eq!(page.url().path(), "/overview");
    let state = reqwest::get(format!("http://{console}/state"))
        .await
        .expect("it is answered");
    let state = state.text().await.expect("text");
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    assert_eq!(
        (&state["rules"][0]["name"], &state["scope"]),
        (&"per-ip".into(), &"process".into())
    );
    let elsewhere = Client::new()
        .get(format!("http://{console}/state"))
        .header("host", "evil.example");
    assert_eq!(
        elsewhere.send().await.expect("it is answered").status(),
        403
    );
    // What an operator gets wrong is no rejected document.
    let act = Client::new().post(format!("http://{console}/act"));
    let act = act
        .header("content-type", "application/json")
        .body(r#"{"action":"end","id":7,"is_local":true,"who":"ann","because":"over"}"#);
    assert_eq!(act.send().await.expect("it is answered").status(), 422);
    let metrics = server.metrics().await;
    assert!(
        !metrics.contains("tollgate_rules_rejected_total 1"),
        "{metrics}"
    );
}

#[test]
fn a_socket_that_was_left_is_taken_over_through_a_link_too() {
    let elsewhere = tempfile::tempdir().expect("a folder");
    let [left, link] = ["left.sock", "link.sock"].map(|name| elsewhere.path().join(name));
    drop(UnixListener::bind(&left).expect("it is bound"));
    symlink(&left, &link).expect("it is made");
    let listens = [left, link].map(|path| format!("unix:{}", path.display()));
    let [left, link] = &listens;
    let settings =
        format!("rules = 'limits.toml'\nmetrics = '{left}'\ngrpc = {{ listen = '{link}' }}\n");
    let server = Server::start(&settings, RULES);
    assert_eq!(server.addresses, [&**link, &**left]);
}
