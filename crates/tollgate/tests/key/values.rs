//! Keys that are one value of the request, or of code.

use std::{net::IpAddr, sync::Arc};

use tollgate::{
    Key,
    key::{
        KeyBuf, KeyExtractor, KeyPart, NoKey, PartKind, client_ip, computed, constant, cookie,
        extension, extension_with, grpc_method, grpc_service, header, look_up, metadata, method,
        path, query,
    },
};
use tollgate_core::Network;

use crate::support::{empty, from, key, parts, with_lines, with_uri};

#[derive(Clone)]
struct Tenant(&'static str);

impl KeyPart for Tenant {
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
        self.0.add_to(key, kind);
    }
}

#[test]
fn a_header_counts_by_name_and_value() {
    let head = with_lines("x-api-key", &["k-1"]);
    let expected = parts([(PartKind::HEADER, "x-api-key"), (PartKind::HEADER, "k-1")]);
    assert_eq!(key(&header("X-Api-Key"), &head), Ok(expected));
}

#[test]
fn a_repeated_header_is_ambiguous() {
    for lines in [&["k-1", "k-2"][..], &["k-1", "k-1"], &["", "k-1"]] {
        let head = with_lines("x-api-key", lines);
        assert_eq!(key(&header("x-api-key"), &head), Err(NoKey::Ambiguous));
    }
}

#[test]
fn an_empty_header_is_no_key() {
    for lines in [&[""][..], &[" "], &[]] {
        let head = with_lines("x-api-key", lines);
        assert_eq!(key(&header("x-api-key"), &head), Err(NoKey::Absent));
    }
}

#[test]
fn the_header_host_is_the_host_of_the_request_in_each_version_of_http_and_spelling() {
    let to = |target: &str, hosts: &[&str]| {
        let mut head = with_lines("host", hosts);
        head.uri = target.parse().expect("a target");
        key(&header("host"), &head)
    };
    let host = |host| {
        Ok(parts([
            (PartKind::HEADER, "host"),
            (PartKind::HEADER, host),
        ]))
    };
    for (target, hosts, expected) in [
        ("/", &["a.example"][..], host("a.example")),
        ("/", &["A.Example:80"], host("a.example")),
        ("/", &["a.example.:"], host("a.example")),
        ("http://a.example/x", &[], host("a.example")),
        (
            "https://me@A.example.:443/x",
            &["a.example"],
            host("a.example"),
        ),
        ("/", &["[2001:DB8::1]:80"], host("[2001:db8::1]")),
        ("/", &["[2001:db8::1]"], host("[2001:db8::1]")),
        ("http://a.example/", &["b.example"], Err(NoKey::Ambiguous)),
        ("/", &["a.example", "b.example"], Err(NoKey::Ambiguous)),
        ("/", &[], Err(NoKey::Absent)),
        ("/", &[":80"], Err(NoKey::Absent)),
    ] {
        assert_eq!(to(target, hosts), expected, "{target} {hosts:?}");
    }
}

#[test]
fn an_extension_counts_by_its_bytes() {
    let mut head = empty();
    assert_eq!(key(&extension::<Tenant>(), &head), Err(NoKey::Absent));
    head.extensions.insert(Tenant("acme"));
    let expected = parts([(PartKind::EXTENSION, "acme")]);
    assert_eq!(key(&extension::<Tenant>(), &head), Ok(expected.clone()));
    assert_eq!(
        key(&extension_with(|tenant: &Tenant| Some(tenant.0)), &head),
        Ok(expected)
    );
    let none = extension_with(|_: &Tenant| None::<&str>);
    assert_eq!(key(&none, &head), Err(NoKey::Absent));
}

#[test]
fn a_closure_borrows_from_the_head_and_from_its_extensions() {
    #[derive(Clone)]
    struct Claims {
        subject: String,
        account: u64,
        address: IpAddr,
    }

    let mut head = with_uri("/eu.example/items");
    head.extensions.insert(Claims {
        subject: "ada".to_owned(),
        account: 7,
        address: "192.0.2.1".parse().expect("an address"),
    });
    let region = computed(|head| Some(Key::of(head.uri.path().split_once('.')?.0)));
    assert_eq!(key(&region, &head).map(Key::from), Ok(Key::of("/eu")));

    let found = parts([(PartKind::EXTENSION, "ada")]);
    let subject = extension_with(|claims: &Claims| Some(&claims.subject));
    assert_eq!(key(&subject, &head), Ok(found.clone()));
    let subject = extension_with(|claims: &Claims| Some(claims.subject.as_str()));
    assert_eq!(key(&subject, &head), Ok(found));
    let account = extension_with(|claims: &Claims| Some(&claims.account));
    let found = parts([(PartKind::EXTENSION, "7")]);
    assert_eq!(key(&account, &head), Ok(found));
    let address = extension_with(|claims: &Claims| Some(&claims.address));
    let found = key(&client_ip(), &from("192.0.2.1", empty()));
    assert_eq!(key(&address, &head), found);
}

#[test]
fn a_computed_key_is_the_one_that_code_makes() {
    let by = computed(|head| {
        let user = head.headers.get("x-user")?.to_str().ok()?;
        Some(Key::of((user.to_ascii_lowercase(), 7, head.uri.path())))
    });
    let head = with_lines("x-user", &["Ada"]);
    let expected = Key::of(("ada", "7", "/"));
    assert_eq!(key(&by, &head).map(Key::from), Ok(expected.clone()));
    assert_eq!(key(&by, &empty()), Err(NoKey::Absent));
    // It adds to what an extractor in front has found.
    let mut after: KeyBuf = parts([(PartKind::CONSTANT, "all")]);
    after.append(expected.as_ref());
    assert_eq!(key(&(constant("all"), by), &head), Ok(after));
}

#[test]
fn an_address_from_code_is_the_key_of_the_clients_address() {
    for address in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1:2:3:4:5:6"] {
        let head = from(address, empty());
        let address: IpAddr = address.parse().expect("an address");
        let counted = |client| key(&client, &head).map(Key::from);
        assert_eq!(counted(client_ip()), Ok(Key::of(address)));
        assert_eq!(
            counted(client_ip().ipv4_prefix(24).ipv6_prefix(48)),
            Ok(Key::of(
                Network::of(address).ipv4_prefix(24).ipv6_prefix(48)
            ))
        );
    }
}

#[test]
fn method_and_path_are_taken_as_they_are() {
    let head = with_uri("/a/b?c=d");
    assert_eq!(
        key(&method(), &head),
        Ok(parts([(PartKind::METHOD, "GET")]))
    );
    assert_eq!(key(&path(), &head), Ok(parts([(PartKind::PATH, "/a/b")])));
}

#[test]
fn a_call_counts_by_its_service_or_its_method() {
    let call = with_uri("/weather.v1.Weather/Current");
    let service = parts([(PartKind::GRPC_SERVICE, "weather.v1.Weather")]);
    assert_eq!(key(&grpc_service(), &call), Ok(service));
    let method = parts([(PartKind::GRPC_METHOD, "weather.v1.Weather/Current")]);
    assert_eq!(key(&grpc_method(), &call), Ok(method));
    for no_call in ["/", "/weather", "/a/b/c"] {
        let no_call = with_uri(no_call);
        assert_eq!(key(&grpc_service(), &no_call), Err(NoKey::Absent));
        assert_eq!(key(&grpc_method(), &no_call), Err(NoKey::Absent));
    }
}

#[test]
fn a_binary_entry_of_the_metadata_has_one_key_however_it_is_spelled() {
    let by = metadata("Device-Bin");
    let of = |lines: &[&str]| key(&by, &with_lines("device-bin", lines));
    let mut expected = KeyBuf::new();
    expected.push(PartKind::METADATA, "device-bin");
    expected.push(PartKind::METADATA, [0xff]);
    for spelled in ["/w==", "/w", "/x", " /w\t"] {
        assert_eq!(of(&[spelled]), Ok(expected.clone()), "{spelled}");
    }
    for (lines, why) in [
        (&["/w,/w"][..], NoKey::Ambiguous),
        (&["/w", "/w"], NoKey::Ambiguous),
        (&["?"], NoKey::Absent),
        (&[""], NoKey::Absent),
        (&[], NoKey::Absent),
    ] {
        assert_eq!(of(lines), Err(why), "{lines:?}");
    }
    // One of text is taken as it is.
    let text = key(&metadata("tenant"), &with_lines("tenant", &["/w,/w"]));
    let expected = [
        (PartKind::METADATA, "tenant"),
        (PartKind::METADATA, "/w,/w"),
    ];
    assert_eq!(text, Ok(parts(expected)));
}

#[test]
fn an_extractor_says_what_it_counts_by() {
    let all: Vec<(Arc<dyn KeyExtractor>, &str)> = vec![
        (Arc::new(client_ip()), "ip"),
        (Arc::new(constant("all")), "constant"),
        (Arc::new(cookie("session")), "cookie"),
        (Arc::new(extension::<Tenant>()), "extension"),
        (
            Arc::new(extension_with(|tenant: &Tenant| Some(tenant.0))),
            "extension",
        ),
        (Arc::new(grpc_method()), "grpc_method"),
        (Arc::new(grpc_service()), "grpc_service"),
        (Arc::new(header("x-api-key")), "header"),
        (Arc::new(look_up(|_| async { Some("k-1") })), "look_up"),
        (Arc::new(metadata("x-api-key")), "metadata"),
        (Arc::new(method()), "method"),
        (Arc::new(path()), "path"),
        (Arc::new(query("token")), "query"),
        (Arc::new(Arc::new((method(), path()))), "method+path"),
        (Arc::new(method().or(path())), "method|path"),
        (Arc::new(computed(|_| None)), "custom"),
    ];
    for (extractor, subject) in all {
        assert_eq!(extractor.subject_type(), subject);
    }
}
