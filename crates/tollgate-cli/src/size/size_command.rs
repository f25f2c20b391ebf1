//! The command.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tollgate::{Consistency, quota::AlgorithmKind, rules::Mode};

use crate::{
    bound_names::SecretArgs,
    byte_text::bytes_text,
    exit::Exit,
    failure::Failure,
    report::Report,
    rule_args::RuleArgs,
    size::{memory_size, redis_size},
    table::Table,
    time_text,
};

const EXAMPLES: &str = "\
Examples:
  tollgate size --rules limits.toml --subjects 1000000
  tollgate size --rules limits.toml --subjects 200000 --requests 5000 --namespace shop

Subjects are the clients that come within the life of a state: the time from empty to full of a bucket, or the window.
The memory of a process is measured by filling its store, that of Redis computed for Redis 7.0; Valkey 9 takes a third
less.";

/// What a decision costs a server, in microseconds of one core: for each command, and for each rule in it. Measured by
/// `cargo run --release -p tollgate-benches --bin partitions --features servers`, with up to 32 requests in one command.
const MICROS_PER_REQUEST: f64 = 1.4;
const MICROS_PER_RULE: f64 = 5.0;
/// The share of a core at which a server should be at most.
const BUSY: f64 = 0.6;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SizeArgs {
    #[command(flatten)]
    rules: RuleArgs,

    /// How many clients there are, under each rule.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    subjects: u64,

    /// Requests a second, of all processes together.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    requests: Option<u64>,

    /// The namespace in Redis, whose length counts.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "shop",
        env = "TOLLGATE_NAMESPACE"
    )]
    namespace: String,

    #[command(flatten)]
    secret: SecretArgs,
}

pub(crate) async fn run(args: &SizeArgs) -> Result<Report, Failure> {
    let document = args.rules.document(&args.secret).await?;
    let rules: Vec<_> = document
        .keyed_rules()
        .filter(|(rule, _)| *rule.mode() != Mode::Off)
        .collect();
    let mut table = Table::new([
        "rule",
        "limit",
        "#clients",
        "state lasts",
        "#in a process",
        "#in Redis",
        "#at most",
    ]);
    let (mut json, mut notes, mut total) = (Vec::new(), String::new(), Total::default());
    for (rule, by) in &rules {
        let clients = if *by == ["constant"] {
            1
        } else {
            args.subjects
        };
        let quota = rule.quota();
        if !quota.has_state() {
            continue;
        }
        let process = memory_size::bytes(rule, clients)?;
        let mut lasts = time_text::duration(quota.window());
        if quota.algorithm() == AlgorithmKind::Concurrent {
            lasts = "its requests".to_owned();
            notes.push_str(&format!(
                "\n{}: slots, of one process; \"at most\" is with as many processes as slots",
                rule.name()
            ));
        }
        let of_redis = |used| {
            let each = redis_size::bytes_per_client(&args.namespace, rule, used);
            each.saturating_mul(clients)
        };
        let (one, most) = (of_redis(1), of_redis(quota.limit()));
        table.row([
            rule.name().to_owned(),
            quota.to_string(),
            clients.to_string(),
            lasts,
            bytes_text(process),
            bytes_text(one),
            bytes_text(most),
        ]);
        if process > memory_size::DEFAULT_BOUND {
            notes.push_str(&format!(
                "\n{}: more than the {} that a rule has by default in memory; MemoryStore::builder().bytes_per_rule(..) gives it more",
                rule.name(),
                bytes_text(memory_size::DEFAULT_BOUND)
            ));
        }
        json.push(json!({
            "rule": rule.name(),
            "limit": quota.to_string(),
            "clients": clients,
            "state_seconds": quota.window().as_secs_f64(),
            "process_bytes": process,
            "redis_bytes": one,
            "redis_bytes_at_most": most,
        }));
        total.process = total.process.saturating_add(process);
        total.redis = total.redis.saturating_add(one);
        total.redis_most = total.redis_most.saturating_add(most);
    }
    let own: Vec<_> = rules.iter().map(|(rule, _)| rule).collect();
    let calls = calls(&own, args.requests);
    let text = format!(
        "{}\nprocess, limits in memory: {}\nRedis: {}, maxmemory {} (with room for tables that double, for connections and for the script)\n{}{notes}",
        table.text(),
        bytes_text(total.process),
        bytes_text(total.redis),
        bytes_text(total.maxmemory()),
        calls.text,
    );
    let json = json!({
        "rules": json,
        "process_bytes": total.process,
        "redis_bytes": total.redis,
        "redis_bytes_at_most": total.redis_most,
        "redis_maxmemory": total.maxmemory(),
        "redis_requests_per_second_of_a_core": calls.of_a_core.round(),
        "redis_core_share": calls.share,
    });
    Ok(Report::new(text, json, Exit::Yes))
}

#[derive(Default)]
struct Total {
    process: u64,
    redis: u64,
    redis_most: u64,
}

impl Total {
    /// As the guide on sizing says: half more while tables double, and 64 MiB for the rest.
    fn maxmemory(&self) -> u64 {
        let half = self.redis_most / 2;
        self.redis_most
            .saturating_add(half)
            .saturating_add(64 << 20)
    }
}

struct Calls {
    text: String,
    /// Requests a second that a server decides with one core.
    of_a_core: f64,
    share: Option<f64>,
}

fn calls(rules: &[&tollgate_core::Rule], requests: Option<u64>) -> Calls {
    let each = MICROS_PER_REQUEST + MICROS_PER_RULE * rules.len() as f64;
    let of_a_core = 1e6 / each;
    let mut text = format!(
        "a request that meets all {} rules is one call, and about {each:.0} µs of one core of Redis: at most {:.0} requests a second \
         and server",
        rules.len(),
        of_a_core
    );
    let share = requests.map(|requests| requests as f64 / of_a_core);
    if let (Some(requests), Some(share)) = (requests, share) {
        text.push_str(&format!(
            "\n{requests} requests a second are {requests} calls a second at most, and {:.0} % of a core",
            share * 100.0
        ));
        if share > BUSY {
            text.push_str(": too many for one server. Let rules be leased, or take a cluster with Partition::Key");
        }
    }
    let saving = |rule: &&&tollgate_core::Rule| rule.consistency_of() != Consistency::Exact;
    for rule in rules.iter().filter(saving) {
        let how = match rule.consistency_of() {
            Consistency::Eventual { interval, .. } => format!(
                "each process reports a client at most every {}",
                time_text::duration(interval.max(Duration::from_micros(1)))
            ),
            _ => "a client's units are leased to a process several at a time".to_owned(),
        };
        text.push_str(&format!("\n{}: fewer calls, {how}", rule.name()));
    }
    Calls {
        text,
        of_a_core,
        share,
    }
}
