//! Tests of what users write.

use super::*;
use crate::error::SetupError;

fn tcp(host: &str, port: u16) -> Place {
    Place::Tcp(host.into(), port)
}

fn parse(url: &str) -> Result<Address, SetupError> {
    url.parse()
}

fn refused(url: &str) -> String {
    parse(url).unwrap_err().to_string()
}

#[test]
fn a_port_without_its_colon_is_refused_and_not_left_out() {
    for url in [
        "redis://[::1]6380",
        "redis-cluster://one,[::1]6380",
        "redis-sentinel://[::1]x/m",
    ] {
        let error = refused(url);
        assert!(error.contains("`]`") && error.contains("`:`"), "{error}");
    }
    for usual in ["redis://[::1]", "redis://[::1]:"] {
        let address = parse(usual).unwrap();
        assert_eq!(address.places, [tcp("::1", 6379)]);
    }
}

#[test]
fn a_proxy_may_be_spared_hello() {
    let without_hello = |url: &str| parse(url).unwrap().without_hello;
    assert!(!without_hello("redis://host"));
    assert!(!without_hello("redis://host?protocol=resp3"));
    assert!(without_hello("redis://host/1?protocol=resp2"));
    assert!(without_hello("redis-cluster://a,b?protocol=2"));
    assert!(without_hello("unix:///socket?db=1&protocol=2"));
    let address = parse("redis-sentinel://a,b/m?protocol=2").unwrap();
    assert!(address.sentinel_access().without_hello);
    assert!(refused("redis://host?protocol=4").contains("resp2 and resp3"));
}

#[test]
fn encryption_without_certificates_is_refused_with_the_remedy() {
    if cfg!(feature = "tls") {
        let error = refused("rediss://:sesame@host/#insecure");
        assert!(error.contains("RedisStoreBuilder::tls"), "{error}");
        assert!(!error.contains("sesame"), "{error}");
    }
}

#[test]
fn sentinels_are_a_list_with_the_name_of_a_master() {
    let url = "redis-sentinel://rl:secret@one:26380,two/mymaster/4?sentinel_password=other";
    let address = parse(url).unwrap();
    assert_eq!(address.places, [tcp("one", 26380), tcp("two", 26379)]);
    assert_eq!(address.master.as_deref(), Some("mymaster"));
    let of_sentinels = address.sentinel_access();
    assert_eq!(of_sentinels.login.parts(), Some(("default", "other")));
    assert_eq!(of_sentinels.database, 0);
    assert_eq!(address.login.parts(), Some(("rl", "secret")));
    assert_eq!(address.database, 4);
    let same = |text: &str| format!("{:?}", parse(text).unwrap());
    assert_eq!(same(&url.replace("redis-", "redis+")), same(url));
    assert_eq!(same(&url.replace("redis-", "valkey-")), same(url));
}

#[test]
fn a_cluster_is_a_list_of_servers_with_one_login() {
    let address = parse("redis-cluster://rl:secret@one:7000,[::1],two/0").unwrap();
    let servers = vec![tcp("one", 7000), tcp("::1", 6379), tcp("two", 6379)];
    assert!(address.is_cluster && address.places == servers);
    let node = address.of_node(tcp("three", 7001));
    assert!(!node.is_cluster && node.places == [tcp("three", 7001)]);
    assert_eq!(node.login.parts(), Some(("rl", "secret")));
}

#[test]
fn an_error_names_the_part_and_what_would_be_right() {
    assert!(refused("localhost:6379").contains("redis://host:6379"));
    assert!(refused("http://localhost").contains("\"http\""));
    assert!(refused("redis://").contains("host"));
    assert!(refused("redis://host:0").contains("1 to 65535"));
    assert!(refused("redis://host/first").contains("\"first\""));
    assert!(refused("redis://host/1/2").contains("database"));
    assert!(refused("redis://host?retries=3").contains("\"retries\""));
    assert!(refused("redis://one,two").contains("redis-sentinel://"));
    assert!(refused("redis://[::1").contains(']'));
    assert!(refused("unix://run/redis.sock").contains("unix:///"));
    assert!(refused("unix:///").contains("unix:///path"));
    assert!(refused("redis-sentinel://one,two").contains("name of the master"));
    assert!(refused("redis-sentinel://one,,two/m").contains("host"));
    assert!(refused("valkeyx://host").contains("\"redisx\""));
    assert!(refused("redis-cluster://host/1").contains("database 0"));
    assert!(refused("redis-cluster://one,,two").contains("host"));
    for url in [
        "redis-cluster://one",
        "redis-sentinel://one/m",
        "unix:///socket",
    ] {
        let error = refused(&format!("{url}?retries=3"));
        assert!(error.contains("\"retries\""), "{url}: {error}");
    }
}

#[test]
fn a_second_s_stands_for_encryption() {
    let encrypted = |url: &str| parse(url).unwrap().is_encrypted;
    assert!(!encrypted("redis://host"));
    if cfg!(feature = "tls") {
        assert!(encrypted("rediss://host"));
        assert!(encrypted("valkeys://host"));
        assert!(encrypted("rediss-sentinel://host/master"));
        assert!(encrypted("rediss-cluster://host"));
    } else {
        assert!(refused("rediss://host").contains("feature `tls`"));
    }
}

#[test]
fn no_error_and_no_debug_output_shows_a_password() {
    for url in [
        "redis://:sesame",
        "redis://:sesame@host:port",
        "redis://:x/sesame@host",
        "redis://:x#sesame@host",
        "redis://:sesame%zz@host",
        "redis://:sesame@host/db",
        "redis-sentinel://user:sesame@one,two",
        "redis-sentinel://one/m?sentinel_password=sesame%zz",
        "redis-cluster://:sesame@host/1",
        "rediss://:sesame@host:x",
        "unix://:sesame@run/x",
        ":sesame@host",
    ] {
        let error = parse(url).unwrap_err();
        assert!(!error.to_string().contains("sesame"), "{url}: {error}");
        assert!(!format!("{error:?}").contains("sesame"), "{url}");
    }
    let address = parse("redis-sentinel://u:sesame@h/m?sentinel_password=sesame");
    assert!(!format!("{address:?}").contains("sesame"));
}
