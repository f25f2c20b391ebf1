//! `tollgate size`, compared with a server that is filled for real.

use serde_json::json;
use tollgate::{DAY, Key, Limiter, Quota, Rule};
use tollgate_redis::{Keys, RedisStore, Secret};

use crate::support::{Program, RedisServer, SECRET};

fn rules(limit: &str, name: &str) -> String {
    format!("version = 1\n[[rules]]\nname = \"{name}\"\nlimit = \"{limit}\"\nby = \"client_ip\"\n")
}

#[test]
fn the_memory_of_redis_is_what_a_server_takes() {
    const CLIENTS: u64 = 12_000;
    let server = RedisServer::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for (name, quota, limit) in [
        ("a", Quota::gcra(60, DAY), "60/d"),
        (
            "search-per-key-and-address-of-the-client",
            Quota::sliding_log(9, DAY),
            "sliding_log 9/d",
        ),
    ] {
        let program = Program::new().file("limits.toml", &rules(limit, name));
        let (_, json) = program.json(&[
            "size",
            "--rules",
            "limits.toml",
            "--subjects",
            &CLIENTS.to_string(),
        ]);
        let computed = json["rules"][0]["redis_bytes"].as_u64().expect("bytes");
        let used = || {
            let info: String = server.ask(&["INFO", "memory"]);
            let (_, rest) = info.split_once("used_memory:").expect("its memory");
            rest.lines()
                .next()
                .and_then(|bytes| bytes.trim().parse::<u64>().ok())
                .expect("a number")
        };
        let _: String = server.ask(&["FLUSHALL"]);
        let measured = runtime.block_on(async {
            let keys = Keys::hashed(Secret::from_text(SECRET).expect("a secret"));
            let store = RedisStore::builder(&*server.url(), "shop", keys)
                .without_heartbeats()
                .deadline(std::time::Duration::from_secs(30))
                .connect()
                .expect("a valid address");
            store.connected().await;
            let limiter = Limiter::new(store, [Rule::new(name, quota)]).expect("a valid rule");
            let take = async |client: u64| {
                let check = limiter
                    .check(name, &Key::of(client.to_string()))
                    .expect("it is there");
                assert!(limiter.acquire(&[check]).await.is_allowed());
            };
            take(0).await;
            let before = used();
            for first in (1..=CLIENTS).step_by(100) {
                let steps: Vec<_> = (first..first + 100)
                    .map(|client| {
                        let check = limiter
                            .check(name, &Key::of(client.to_string()))
                            .expect("it is there");
                        limiter.acquire(&[check])
                    })
                    .collect();
                for step in steps {
                    assert!(step.await.is_allowed());
                }
            }
            used() - before
        });
        let off = computed.abs_diff(measured) * 100 / measured;
        assert!(
            off <= 10,
            "{name}: {computed} computed, {measured} measured, {off} % off"
        );
    }
}

#[test]
fn a_process_and_calls_are_sized_as_well() {
    let program = Program::new().file("limits.toml", &rules("60/min", "api"));
    let size = ["size", "--rules", "limits.toml", "--subjects"];
    let (code, million) = program.json(&[&size[..], &["1048576", "--requests", "1000"]].concat());
    let (_, few) = program.json(&[&size[..], &["65536"]].concat());
    assert_eq!(code, 0);
    let bytes = |json: &serde_json::Value| json["process_bytes"].as_u64().expect("bytes");
    // Measured twice, and nearly the same for each client: a shard more or less may have grown, as the hashes have it.
    let (million_bytes, sixteen_times) = (bytes(&million), bytes(&few) * 16);
    assert!(
        million_bytes.abs_diff(sixteen_times) * 10 <= sixteen_times,
        "{million_bytes} and {sixteen_times}"
    );
    let each = bytes(&few) / 65_536;
    assert!((16..=128).contains(&each), "{each} bytes a client");
    let share = million["redis_core_share"].as_f64().expect("a share");
    assert!((0.003..0.01).contains(&share), "{share}");
    program
        .run(&[&size[..], &["10000000", "--requests", "200000"]].concat())
        .assert(
            0,
            &["bytes_per_rule", "too many for one server", "maxmemory "],
        );
    program
        .run(&["size", "--rules", "limits.toml"])
        .assert(2, &["--subjects"]);
}

#[test]
fn a_rule_for_everybody_has_one_client_and_leases_are_fewer_calls() {
    let text = "\
version = 1
rules = [
  { name = \"internal\", limit = \"unlimited\", by = \"client_ip\" },
  { name = \"everybody\", limit = \"60/min\", by = \"constant\" },
  { name = \"leased\", limit = \"60/min\", by = \"client_ip\", consistency = { leased = \"10%\" } },
  { name = \"reported\", limit = \"60/min\", by = \"client_ip\", consistency = { eventual = { interval = \"50ms\", max_unreported = 1 } } },
]
";
    let program = Program::new().file("limits.toml", text);
    let size = ["size", "--rules", "limits.toml", "--subjects", "7"];
    let (_, json) = program.json(&size);
    let clients: Vec<_> = (0..3).map(|rule| &json["rules"][rule]["clients"]).collect();
    assert_eq!(clients, [&json!(1), &json!(7), &json!(7)]);
    assert_eq!(json["rules"].as_array().map(Vec::len), Some(3), "{json}");
    program
        .run(&size)
        .assert(
            0,
            &[
                "leased: fewer calls, a client's units are leased",
                "reported: fewer calls, each process reports a client at most every 50 ms",
            ],
        )
        .lacks(&["everybody: fewer calls", "internal", "slots, of"]);
    let requests = [&size[..], &["--requests", "10"]].concat();
    program
        .run(&requests)
        .assert(0, &["10 requests a second are"])
        .lacks(&["too many for one server"]);
}
