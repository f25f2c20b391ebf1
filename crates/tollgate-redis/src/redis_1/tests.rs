//! What of an address of redis-rs is taken over.

use proptest::prelude::*;
use redis::{IntoConnectionInfo, RedisConnectionInfo};

use super::*;

fn info(url: &str) -> ConnectionInfo {
    url.into_connection_info().expect("redis-rs takes it")
}

fn of(url: &str) -> Address {
    Address::try_from(&info(url)).expect("it can be used")
}

#[test]
fn everything_that_can_be_read_is_taken_over() {
    let settings = RedisConnectionInfo::default()
        .set_username("limits")
        .set_password("sesame")
        .set_db(3)
        .set_protocol(ProtocolVersion::RESP3);
    let info = info("redis://example:6380").set_redis_settings(settings);
    let address = Address::try_from(&info).expect("it can be used");
    assert_eq!(address.places, [Place::Tcp("example".into(), 6380)]);
    assert!(!address.is_encrypted);
    let access = address.access(None);
    assert_eq!(access.login.parts(), Some(("limits", "sesame")));
    assert_eq!(access.database, 3);
    assert!(!access.without_hello);
    // Its default, whatever the server could do.
    let address = of("redis://localhost");
    assert!(address.without_hello);
}

#[test]
fn what_cannot_be_used_is_named_with_the_remedy() {
    let at = |host: &str, port| {
        let place = ConnectionAddr::Tcp(host.into(), port);
        place.into_connection_info().expect("a place")
    };
    for (info, words) in [
        (at("", 6379), "host is empty"),
        (at("localhost", 0), "6379 is usual"),
        (info("redis://localhost/-1"), "-1 is not a number from 0"),
    ] {
        let error = Address::try_from(&info).expect_err("it cannot be used");
        assert!(error.to_string().contains(words), "{error}");
    }
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
        let theirs = of(&url);
        let ours: Address = url.parse().expect("so do we");
        prop_assert_eq!(format!("{theirs:?}"), format!("{ours:?}"));
        let password = |address: &Address| address.login.password.clone();
        prop_assert_eq!(password(&theirs), password(&ours));
    }
}
