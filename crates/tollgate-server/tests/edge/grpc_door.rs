//! Envoy's protocol by a client of its own: what Envoy does not send, or not on purpose.

use prost::Message as _;
use tollgate::{MemoryStore, RateLimitLayer};
use tollgate_rules::{Bindings, Format, RuleDocument};
use tollgate_server::{
    answer_to,
    proto::{
        RateLimitDescriptor, RateLimitRequest,
        rate_limit_descriptor::{Entry, RateLimitOverride},
        rate_limit_response::Code,
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tonic::{
    Code as Grpc, Status,
    transport::{Channel, Endpoint},
};

use crate::support::server::Server;

async fn client(server: &Server) -> RateLimitServiceClient<Channel> {
    let address = format!("http://{}", server.addresses[0]);
    let endpoint = Endpoint::from_shared(address).expect("it is one");
    RateLimitServiceClient::new(endpoint.connect().await.expect("it listens"))
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |&(key, value): &(&str, &str)| Entry {
        key: key.to_owned(),
        value: value.to_owned().into(),
    };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors,
        hits_addend: 0,
    }
}

const RULES: &str = "version = 1\n[[rules]]\nname = 'user'\nlimit = 'fixed_window 9/h'\nby = 'descriptor:user'\nat = 'edge'\n";

#[tokio::test]
async fn a_message_beyond_its_bounds_is_invalid_before_anything_is_counted() {
    let server = Server::grpc(RULES);
    let mut client = client(&server).await;
    let user = || descriptor(&[("user", "a")]);
    let mut many_hits = user();
    many_hits.hits_addend = Some(u64::MAX);
    let long = "/".repeat(5_000_000);
    for (wrong, says) in [
        (request(vec![user(); 33]), "33 descriptors"),
        (
            request(vec![descriptor(&[("user", "a"); 17])]),
            "17 entries",
        ),
        (
            request(vec![descriptor(&[(&long[..2_000], "a")])]),
            "a key of 2000 bytes",
        ),
        (
            request(vec![user(), descriptor(&[("remote_address", "nowhere")])]),
            "\"remote_address\"",
        ),
        (
            request(vec![user(), descriptor(&[("header:no name", "a")])]),
            "\"header:no name\"",
        ),
        (request(vec![user(), many_hits]), "hits"),
        (
            request(vec![descriptor(&[("user", &long)])]),
            "4194304 bytes",
        ),
    ] {
        let refused: Status = client
            .should_rate_limit(wrong)
            .await
            .expect_err("it is refused");
        assert_eq!(refused.code(), Grpc::InvalidArgument, "{refused}");
        assert!(refused.message().contains(says), "{refused}");
    }
    // A client sends the longest field, and each descriptor has it.
    let mut descriptors = vec![descriptor(&[("path", &long[..100_000])]); 31];
    // A limit of Envoy's own is none here, which is said.
    let limit = Some(RateLimitOverride {});
    descriptors.push(RateLimitDescriptor { limit, ..user() });
    let answer = client.should_rate_limit(request(descriptors)).await;
    let answer = answer.expect("it is answered").into_inner();
    assert_eq!(
        (answer.overall_code(), answer.statuses[31].limit_remaining),
        (Code::Ok, 8)
    );
    let metrics = server.metrics().await;
    assert!(
        metrics.contains("code=\"invalid\"} 6")
            && metrics.contains("tollgate_invalid_messages_total 1")
            && metrics.contains("tollgate_limit_overrides_total 1"),
        "{metrics}"
    );
}

/// Two million of either would take more than a hundred megabytes.
#[tokio::test]
async fn a_message_of_very_many_parts_is_refused_before_it_is_decoded() {
    let document = RuleDocument::parse(RULES, Format::Toml, &Bindings::new().at_edge());
    let rules = document.expect("it is right").rules();
    let layer = RateLimitLayer::new(MemoryStore::new(), rules).expect("it is right");
    let descriptors = [0x12, 0].repeat(2_000_000);
    // A descriptor that ends early, which is not decoded so far.
    let mut entries = vec![0x12, 0xff, 0xff, 0x7f];
    entries.extend([0x0a, 0].repeat(0x1f_ffff / 2));
    entries.extend([0x0a, 0xff]);
    // What is no message behind them does not hide them.
    let hidden = [&descriptors[..], &[0xff; 11]].concat();
    for (message, says) in [
        (&descriptors, "2000000 descriptors are more than 32"),
        (&hidden, "2000000 descriptors are more than 32"),
        (&entries, "1048575 entries are more than 16"),
    ] {
        let refused = answer_to(&layer, message).await.expect_err("it is refused");
        assert_eq!(refused, says);
    }
}

#[tokio::test]
async fn health_is_asked_for_by_its_own_service() {
    use tonic_health::pb::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    };
    let server = Server::grpc(RULES);
    let endpoint =
        Endpoint::from_shared(format!("http://{}", server.addresses[0])).expect("it is one");
    let mut client = HealthClient::new(endpoint.connect().await.expect("it listens"));
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
        let asked = HealthCheckRequest {
            service: service.to_owned(),
        };
        let health = client
            .check(asked)
            .await
            .expect("it is answered")
            .into_inner();
        assert_eq!(health.status(), ServingStatus::Serving);
    }
}

/// The same of more: `TOLLGATE_MESSAGES=1000000`, and the fuzz target `rls`.
#[tokio::test]
async fn to_a_random_message_there_is_an_answer_or_an_error() {
    let bindings = Bindings::new().at_edge();
    let document = RuleDocument::parse(RULES, Format::Toml, &bindings).expect("it is right");
    let layer = RateLimitLayer::new(MemoryStore::new(), document.rules()).expect("it is right");
    let messages = std::env::var("TOLLGATE_MESSAGES");
    let messages = messages.map_or(50_000, |it| it.parse().expect("a number"));
    let mut random = fastrand::Rng::with_seed(7);
    let texts = [
        "path",
        "method",
        "host",
        "remote_address",
        "header:x-api-key",
        "header:",
        "user",
        "",
        "/a/../b?c",
        "GET",
        "::1",
        "\u{0}\u{fc} ",
    ];
    let mut answered = 0;
    for _ in 0..messages {
        let text = |random: &mut fastrand::Rng| texts[random.usize(..texts.len())].to_owned();
        let entry = |random: &mut fastrand::Rng| Entry {
            key: text(random),
            value: text(random).into(),
        };
        let descriptors = (0..random.usize(..4)).map(|_| RateLimitDescriptor {
            entries: (0..random.usize(..5)).map(|_| entry(&mut random)).collect(),
            hits_addend: random.bool().then(|| random.u64(..4)),
            is_negative_hits: random.u8(..9) == 0,
            limit: random.bool().then_some(RateLimitOverride {}),
        });
        let descriptors: Vec<_> = descriptors.collect();
        let mut bytes = RateLimitRequest {
            domain: String::new(),
            descriptors,
            hits_addend: random.u32(..),
        }
        .encode_to_vec();
        for _ in 0..random.usize(..3) {
            if !bytes.is_empty() {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
        answered += u32::from(answer_to(&layer, &bytes).await.is_ok());
    }
    assert!(answered > messages / 10, "{answered}");
}
