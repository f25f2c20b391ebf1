//! What of an address of redis-rs is taken over.

use std::time::Duration;

use proptest::prelude::*;
use redis::{IntoConnectionInfo, io::tcp::socket2::SockRef};
use socket2::TcpKeepalive;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::connection::stream::Stream;

fn info(url: &str) -> ConnectionInfo {
    url.into_connection_info().expect("redis-rs takes it")
}

fn refused(address: Result<Address, SetupError>) -> String {
    address.expect_err("it cannot be used").to_string()
}

fn encrypted(insecure: bool) -> ConnectionAddr {
    ConnectionAddr::TcpTls {
        host: "localhost".into(),
        port: 6379,
        insecure,
        tls_params: None,
    }
}

#[test]
fn everything_that_can_be_read_is_taken_over() {
    let settings = RedisConnectionInfo::default()
        .set_username("limits")
        .set_password("sesame")
        .set_db(3)
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("shop", "1.2");
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(77));
    let tcp = TcpSettings::default()
        .set_keepalive(keepalive)
        .set_user_timeout(Duration::from_secs(9));
    let info = info("redis://example:6380")
        .set_redis_settings(settings)
        .set_tcp_settings(tcp);
    let address = Address::try_from(&info).expect("it can be used");
    let server = Target::Server(Place::Tcp("example".into(), 6380));
    assert_eq!(address.target(), &server);
    assert!(!address.is_encrypted());
    let access = address.access();
    assert_eq!(access.login.parts(), Some(("limits", "sesame")));
    assert!(access.login.names_a_user());
    assert_eq!(access.database, 3);
    assert_eq!(access.protocol, Protocol::Newest);
    assert_eq!(access.library.parts(), Some(("shop", "1.2")));
    assert_eq!(access.tcp.user_timeout, Some(Duration::from_secs(9)));
    let keepalive = format!("{:?}", access.tcp.keepalive);
    assert!(keepalive.contains("77s"), "{keepalive}");
}

#[test]
fn what_redis_rs_does_by_itself_is_taken_over_too() {
    let address = server("redis://localhost").expect("it can be used");
    // Its default, whatever the server could do.
    assert_eq!(address.access().protocol, Protocol::Resp2);
    assert_eq!(address.access().library, Library::Own);
    let quiet = RedisConnectionInfo::default().set_skip_set_lib_name();
    let info = info("redis://localhost").set_redis_settings(quiet);
    let address = server(info).expect("it can be used");
    assert_eq!(address.access().library.parts(), None);
}

#[tokio::test]
async fn a_socket_is_tuned_as_the_address_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    for (reported, seconds, user_timeout) in [(false, 5, 3), (true, 77, 9)] {
        let mut settings = TcpSettings::default();
        if reported {
            let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(77));
            settings = settings
                .set_keepalive(keepalive)
                .set_user_timeout(Duration::from_secs(9));
        }
        let info = info(&format!("redis://127.0.0.1:{port}")).set_tcp_settings(settings);
        let address = server(info).expect("it can be used");
        let stream = TcpStream::connect(("127.0.0.1", port)).await;
        let stream = stream.expect("somebody listens");
        Stream::tune(&stream, &address.access().tcp).expect("a socket of TCP");
        assert!(stream.nodelay().expect("an option of every socket"));
        let socket = SockRef::from(&stream);
        assert_eq!(
            socket.tcp_keepalive_time().expect("it is kept alive"),
            Duration::from_secs(seconds)
        );
        assert_eq!(
            socket.tcp_user_timeout().expect("an option of Linux"),
            Some(Duration::from_secs(user_timeout))
        );
    }
}

#[test]
fn an_encrypted_address_is_refused_without_a_configuration_of_ours() {
    if !cfg!(feature = "tls") {
        assert!(refused(server(encrypted(false))).contains("feature `tls`"));
        return;
    }
    let with = |insecure| server(encrypted(insecure)).expect("it may be given TLS yet");
    assert_eq!(with(false).foreign_tls(), None);
    assert!(with(false).is_encrypted() && with(true).is_encrypted());
    assert_eq!(with(true).foreign_tls(), Some(ForeignTls::Insecure));
}

#[test]
fn what_cannot_be_used_is_named_with_the_remedy() {
    for (address, words) in [
        (server("http://localhost"), "redis-rs refuses it"),
        (server(("", 6379)), "host is empty"),
        (server(("localhost", 0)), "6379 is usual"),
        (server("redis://localhost/-1"), "-1 is not a number from 0"),
        (cluster(Vec::<String>::new()), "name one server"),
        (cluster(["redis://one/1"]), "database 0"),
        (cluster(["unix:///one"]), "hosts with ports"),
        (
            cluster(["redis://:a@one", "redis://:b@two"]),
            "different users or passwords",
        ),
        (
            cluster(["redis://one/0", "redis://two/1"]),
            "different databases",
        ),
        (
            cluster(["redis://one", "redis://two?protocol=resp3"]),
            "different protocols",
        ),
        (
            sentinel(["redis://one"], "", &RedisConnectionInfo::default()),
            "sentinel monitor",
        ),
        (
            sentinel(Vec::<String>::new(), "m", &RedisConnectionInfo::default()),
            "name one server",
        ),
    ] {
        let error = refused(address);
        assert!(error.contains(words), "{error:?} lacks {words:?}");
    }
    if cfg!(feature = "tls") {
        let mixed = [ConnectionAddr::Tcp("one".into(), 1), encrypted(false)];
        assert!(refused(cluster(mixed)).contains("different settings of TLS"));
        let mixed = [encrypted(false), encrypted(true)];
        assert!(refused(cluster(mixed)).contains("different settings of TLS"));
    }
}

#[test]
fn sentinels_and_servers_have_logins_of_their_own() {
    let servers = RedisConnectionInfo::default()
        .set_username("limits")
        .set_password("sesame")
        .set_db(2);
    let sentinels = ["redis://:secret@one:1", "redis://:secret@two:2"];
    let address = sentinel(sentinels, "mymaster", &servers).expect("it can be used");
    let Target::Sentinel(sentinels) = address.target() else {
        panic!("{address:?}");
    };
    let places = ["one:1", "two:2"];
    assert!(
        sentinels
            .places()
            .iter()
            .map(ToString::to_string)
            .eq(places)
    );
    assert_eq!(sentinels.master(), "mymaster");
    let access = address.sentinel_access(sentinels);
    assert_eq!(access.login.parts(), Some(("default", "secret")));
    assert_eq!(access.database, 0);
    assert_eq!(address.access().login.parts(), Some(("limits", "sesame")));
    assert_eq!(address.access().database, 2);
}

/// What stands in a URL as it is, and percent-encoded.
fn word() -> impl Strategy<Value = String> {
    "([a-zA-Z0-9_.~-]|%40|%2F|%3A|%25){1,8}"
}

fn url() -> impl Strategy<Value = String> {
    let login = prop::option::of((prop::option::of(word()), prop::option::of(word())));
    let login = login.prop_map(|login| match login {
        None => String::new(),
        Some((user, password)) => {
            let password = password.map(|password| format!(":{password}"));
            format!(
                "{}{}@",
                user.unwrap_or_default(),
                password.unwrap_or_default()
            )
        }
    });
    let host = prop_oneof![
        "[a-z]{1,8}(\\.[a-z]{1,3})?",
        Just("[::1]".to_owned()),
        Just("10.0.0.7".to_owned())
    ];
    let port = prop::option::of(1_u16..);
    let database = prop::option::of((0_u32..20, any::<bool>()));
    let protocol = prop::sample::select(vec!["2", "resp2", "3", "resp3"]);
    let scheme = prop::sample::select(vec!["redis", "valkey"]);
    let tcp = (scheme, login, host, port, database.clone(), protocol).prop_map(
        |(scheme, login, host, port, database, protocol)| {
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let path = database
                .map(|(number, slash)| format!("/{number}{}", if slash { "/" } else { "" }));
            let path = path.unwrap_or_default();
            format!("{scheme}://{login}{host}{port}{path}?protocol={protocol}")
        },
    );
    let scheme = prop::sample::select(vec!["unix", "redis+unix", "valkey+unix"]);
    let query = (
        prop::option::of(0_u32..20),
        prop::option::of(word()),
        prop::option::of(word()),
    );
    let unix = (scheme, "(/[a-z.]{1,8}){1,3}", query).prop_filter_map(
        "a path that is no path",
        |(scheme, path, (database, user, password))| {
            if path
                .split('/')
                .any(|part| part.chars().all(|letter| letter == '.') && !part.is_empty())
            {
                return None;
            }
            let part =
                |name: &str, value: Option<String>| value.map(|value| format!("&{name}={value}"));
            let query = [
                part("db", database.map(|number: u32| number.to_string())),
                part("user", user),
                part("pass", password),
            ];
            let query: String = query.into_iter().flatten().collect();
            Some(format!("{scheme}://{path}?protocol=2{query}"))
        },
    );
    prop_oneof![3 => tcp, 1 => unix]
}

proptest! {
    #[test]
    fn the_texts_that_redis_rs_reads_mean_the_same_here(url in url()) {
        let theirs = server(&*url).expect("redis-rs reads it");
        let ours: Address = url.parse().expect("so do we");
        prop_assert_eq!(format!("{theirs:?}"), format!("{ours:?}"));
        let password = |address: &Address| address.access().login.password.clone();
        prop_assert_eq!(password(&theirs), password(&ours));
    }
}
