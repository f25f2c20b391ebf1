//! What each partition costs on a cluster of three primaries, as the guide's page on servers shows it:
//! `cargo run --release -p tollgate-benches --bin partitions --features servers`. It starts the servers itself.
//!
//! Each of 64 callers asks for one request after the other. A request has two rules, by address and by account, or only the
//! first one. What is counted is what the servers say: commands, and processor time.

#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::time::Duration;

use tokio::{task::JoinSet, time::Instant};
use tollgate_core::{Key, Limiter, MINUTE, Quota, Rule, Source};
use tollgate_redis::{Keys, Partition, RedisStore};
use tollgate_test_servers::{redis_cluster::RedisCluster, redis_server::RedisServer};

const CALLERS: usize = 64;
const REQUESTS: usize = 1_000;
const ADDRESSES: u64 = 10_000;
const ACCOUNTS: u64 = 1_000;

/// What three primaries have done so far.
#[derive(Clone, Copy)]
struct Done {
    commands: [f64; 3],
    cpu: [f64; 3],
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let cluster = RedisCluster::start().await;
    println!(
        "| rules | partition | commands a request | CPU a request, of all shards | of the busiest shard | median wait |"
    );
    for rules in [1, 2] {
        for (name, partition) in [
            ("One", Partition::One),
            ("Key", Partition::Key),
            ("ByRule", Partition::ByRule("account".into())),
        ] {
            if rules == 1 && name == "ByRule" {
                continue;
            }
            // The first round warms everything up.
            let namespace = format!("{name}-{rules}");
            for is_measured in [false, true] {
                let limiter = limiter(&cluster, &namespace, partition.clone(), rules).await;
                let before = done(&cluster).await;
                let mut waits = load(&limiter, rules).await;
                let after = done(&cluster).await;
                if is_measured {
                    print(rules, name, before, after, &mut waits);
                }
            }
        }
    }
}

async fn limiter(
    cluster: &RedisCluster,
    namespace: &str,
    partition: Partition,
    rules: usize,
) -> Limiter {
    let store = RedisStore::builder(cluster.url(), namespace, Keys::plain())
        .partition(partition)
        .deadline(Duration::from_secs(5))
        .without_heartbeats()
        .connect()
        .expect("a valid address");
    store.connected().await;
    let quota = Quota::gcra(1_000_000, MINUTE);
    let all = [Rule::new("address", quota), Rule::new("account", quota)];
    Limiter::new(store, all.into_iter().take(rules)).expect("valid rules")
}

/// How long each request has waited.
async fn load(limiter: &Limiter, rules: usize) -> Vec<Duration> {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS as u64 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let mut random = fastrand::Rng::with_seed(caller);
            let mut waits = Vec::with_capacity(REQUESTS);
            for _ in 0..REQUESTS {
                let address = Key::of(random.u64(..ADDRESSES).to_string());
                let account = Key::of(random.u64(..ACCOUNTS).to_string());
                let mut checks = vec![limiter.check("address", &address).expect("a rule")];
                if rules > 1 {
                    checks.push(limiter.check("account", &account).expect("a rule"));
                }
                let began = Instant::now();
                let decision = limiter.acquire(&checks).await;
                waits.push(began.elapsed());
                assert_eq!(decision.verdicts()[0].source(), Source::Store);
            }
            waits
        });
    }
    let waits = callers.join_all().await;
    waits.into_iter().flatten().collect()
}

async fn done(cluster: &RedisCluster) -> Done {
    let mut done = Done {
        commands: [0.0; 3],
        cpu: [0.0; 3],
    };
    for number in 0..3 {
        let server = cluster.server(number);
        done.commands[number] = number_of(server, "commandstats", "cmdstat_evalsha:calls=").await;
        for mode in ["used_cpu_user:", "used_cpu_sys:"] {
            done.cpu[number] += number_of(server, "cpu", mode).await;
        }
    }
    done
}

async fn number_of(server: &RedisServer, section: &str, name: &str) -> f64 {
    let text = server.command(&["INFO", section]).await;
    let rest = text.split_once(name).map_or("", |(_, rest)| rest);
    let end = rest.find(|digit: char| !digit.is_ascii_digit() && digit != '.');
    rest[..end.unwrap_or(0)].parse().unwrap_or(0.0)
}

fn print(rules: usize, name: &str, before: Done, after: Done, waits: &mut [Duration]) {
    let requests = waits.len() as f64;
    let each = |after: [f64; 3], before: [f64; 3]| {
        [0, 1, 2].map(|server| (after[server] - before[server]) / requests)
    };
    let commands = each(after.commands, before.commands);
    let cpu = each(after.cpu, before.cpu).map(|seconds| 1e6 * seconds);
    let busiest = cpu.into_iter().fold(0.0, f64::max);
    waits.sort_unstable();
    println!(
        "| {rules} | `{name}` | {:.2} | {:.1} µs | {busiest:.1} µs | {:.1?} |",
        commands.iter().sum::<f64>(),
        cpu.iter().sum::<f64>(),
        waits[waits.len() / 2],
    );
}
