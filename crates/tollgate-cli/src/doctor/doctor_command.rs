//! The command: all checks of an address, server by server.

use std::time::Duration;

use clap::Args;
use redis::{Value, from_redis_value_ref};
use serde_json::json;
use tollgate::clock::Clock;
use tollgate_core::Tick;
use tollgate_redis::{Address, Keys, Partition, Place, RedisStore, Secret};
use tollgate_rules::redis::Certificates;

use crate::{
    args::RedisArgs,
    doctor::{
        access::{Server, access, words},
        finding::{Findings, Level},
        namespace::instances,
        server_info::ServerInfo,
    },
    report::{self, Failure, Report},
    rule_args::RuleArgs,
};

const EXAMPLES: &str = "\
Examples:
  tollgate doctor --redis redis://tollgate:sesame@cache.internal --namespace shop
  tollgate doctor --redis redis-cluster://one,two,three --namespace shop --rules limits.toml
  tollgate doctor --redis redis://admin:sesame@cache.internal --namespace shop --json

Run it as the user of the service, to learn what that user may do, and as an administrator, who may read more. It
writes one key of its own, which it removes. Exit code 1: there is an error or a warning.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    redis: RedisArgs,

    // For what a restart would cost.
    #[command(flatten)]
    rules: RuleArgs,
}

const SLOTS: u32 = 16_384;
/// How often a server is asked for the time: the quickest answer is taken.
const ROUNDS: usize = 10;
/// A clock that is off by more microseconds is noted.
const OFF: Tick = 100_000;

/// What is known before anything is asked.
struct Patient<'a> {
    args: &'a RedisArgs,
    address: Address,
    trusted: Option<Certificates>,
    secret: Option<Secret>,
    /// The longest window or refill of the rules.
    longest: Option<Duration>,
}

pub(crate) async fn run(args: &DoctorArgs) -> Result<Report, Failure> {
    let mut patient = Patient {
        args: &args.redis,
        address: args.redis.address()?,
        trusted: args.redis.certificates()?,
        secret: args.redis.secret.find()?,
        longest: None,
    };
    let store = RedisStore::builder(
        patient.address.clone(),
        &args.redis.namespace,
        Keys::plain(),
    );
    let checked = store.partition(Partition::One).check();
    checked.map_err(|wrong| Failure::usage(format!("--namespace: {wrong}")))?;
    if args.rules.rules.is_some() {
        let rules = args.rules.document(&args.redis.secret)?.limiter_rules();
        patient.longest = rules.iter().map(|rule| rule.quota().window()).max();
    }
    let mut found = Findings::default();
    if patient.address.is_cluster {
        patient.examine_cluster(&mut found).await?;
    } else {
        let mut server = patient.connect(None).await?;
        patient.examine_server(&mut server, &mut found).await;
    }
    let is_well = found.all.iter().all(|it| it.level < Level::Warning);
    let json = json!({ "ok": is_well, "findings": found.json() });
    Ok(Report::new(found.text(), json, is_well))
}

impl Patient<'_> {
    async fn connect(&self, place: Option<&Place>) -> Result<Server, Failure> {
        Server::connect(&self.address, self.trusted.as_ref(), place).await
    }

    async fn examine_cluster(&self, found: &mut Findings) -> Result<(), Failure> {
        let (mut silent, mut answers) = (Vec::new(), None);
        let mut seeds = self.address.places.iter();
        while let (None, Some(seed)) = (&answers, seeds.next()) {
            match self.connect(Some(seed)).await {
                Ok(server) => answers = Some(server),
                Err(failure) => silent.push(failure.message),
            }
        }
        let mut seed = answers.ok_or_else(|| Failure::failed(silent.join("\n")))?;
        let primaries = primaries(&mut seed, found).await;
        for says in silent {
            found.warning(
                "connection",
                says + "\nstart it, or take it out of the address",
            );
        }
        let coverage = "cluster-require-full-coverage";
        let covers = seed.setting(coverage).await;
        if covers.as_deref() == Some("yes") && !primaries.is_empty() {
            let says = format!("{coverage} is yes: one shard that is gone stops all others");
            let remedy = format!("CONFIG SET {coverage} no, on every server");
            found.warning("cluster", format!("{says}\n{remedy}"));
        }
        for primary in primaries {
            found.server = primary.to_string();
            match self.connect(Some(&primary)).await {
                Ok(mut server) => self.examine_server(&mut server, found).await,
                Err(Failure { message, .. }) => found.error("connection", format!(
                    "{message}\nif the service reaches servers by other names than they announce, it needs an address_map"
                )),
            }
        }
        Ok(())
    }

    async fn examine_server(&self, server: &mut Server, found: &mut Findings) {
        let (address, namespace) = (&self.address, &self.args.namespace);
        match server.ask::<String>(&["INFO"]).await {
            Ok(text) => {
                let info = ServerInfo {
                    text,
                    min_replicas_to_write: server.setting("min-replicas-to-write").await,
                    save: server.setting("save").await,
                };
                info.judge(address.is_cluster, self.longest, found);
            }
            Err(wrong) => {
                let why = words(&wrong);
                found.note("info", format!(
                    "role, memory, eviction and disks may not be read: {why}\n\
                     that is as it should be for the user of a service; run this as an administrator too, or add +info +config|get"
                ));
            }
        }
        access(server, namespace, address, found).await;
        clock(server, found).await;
        instances(server, namespace, self.secret.as_ref(), found).await;
    }
}

/// The primaries that have slots, as one server of the cluster knows them. Whether each slot has one is a finding.
async fn primaries(server: &mut Server, found: &mut Findings) -> Vec<Place> {
    let ranges: Vec<Vec<Value>> = match server.ask(&["CLUSTER", "SLOTS"]).await {
        Ok(ranges) => ranges,
        Err(wrong) => {
            let said = words(&wrong);
            let remedy = match said.contains("cluster support disabled") {
                true => "it is a single server: name it with redis://",
                false => "+cluster|slots for the user; without it the store finds no server either",
            };
            let says = format!("who has which slot may not be read: {said}");
            found.error("cluster", format!("{says}\n{remedy}"));
            return Vec::new();
        }
    };
    let (mut primaries, mut served) = (Vec::new(), 0);
    let place_of = |range: &Vec<Value>| range_of(range, &server.name);
    for (slots, place) in ranges.iter().filter_map(place_of) {
        served += slots;
        if !primaries.contains(&place) {
            primaries.push(place);
        }
    }
    let says = format!(
        "{} shards, {served} of {SLOTS} slots served",
        primaries.len()
    );
    match served {
        SLOTS => found.fine("cluster", says),
        _ => found.error(
            "cluster",
            format!(
                "{says}: requests whose keys lie elsewhere are not decided\n\
             redis-cli --cluster check says which are missing, redis-cli --cluster fix assigns them"
            ),
        ),
    }
    primaries
}

/// How many slots a line of `CLUSTER SLOTS` has, and the place of their primary.
fn range_of(range: &[Value], asked: &str) -> Option<(u32, Place)> {
    let [first, last, Value::Array(primary), ..] = range else {
        return None;
    };
    let number = |value| from_redis_value_ref::<u32>(value).ok();
    let mut host: String = from_redis_value_ref(primary.first()?).ok()?;
    // A server that does not know its own address leaves it out.
    if host.is_empty() {
        let (own, _) = asked.rsplit_once(':')?;
        host = own.trim_matches(['[', ']']).to_owned();
    }
    let port = u16::try_from(number(primary.get(1)?)?).ok()?;
    Some((number(last)? - number(first)? + 1, Place::Tcp(host, port)))
}

/// Asks for the time. A server that does not say it has no finding here: each right is looked at already.
async fn clock(server: &mut Server, found: &mut Findings) {
    let (clock, mut rounds) = (Clock::system(), Vec::new());
    while rounds.len() < ROUNDS {
        let before = clock.now();
        // Not asked again: it may be one that is silent.
        let Ok((seconds, micros)) = server.ask::<(u64, u64)>(&["TIME"]).await else {
            break;
        };
        let took = clock.now() - before;
        let there = seconds.saturating_mul(1_000_000).saturating_add(micros);
        rounds.push((took, before + took / 2, there));
    }
    if let Some((took, here, there)) = rounds.into_iter().min() {
        compare(here, there, took / 2, found);
    }
}

/// Compares the two clocks at one moment, which is known up to `uncertain`.
fn compare(here: Tick, there: Tick, uncertain: Tick, found: &mut Findings) {
    let (offset, way) = match there >= here {
        true => (there - here, "ahead of"),
        false => (here - there, "behind"),
    };
    let [off, may_be] =
        [offset, uncertain].map(|micros| report::duration(Duration::from_micros(micros)));
    let says = format!("the server is {off} {way} this machine, give or take {may_be}");
    let remedy = "keep both on NTP without steps (chronyc tracking): a step of the server's clock locks clients out or lets them in, and \
                  `until` of overrides is by the clocks of the services";
    match offset > OFF + uncertain {
        true => found.warning("clock", format!("{says}\n{remedy}")),
        false => found.fine("clock", says),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_by_more_than_is_uncertain() {
        let here = 10_000_000;
        for (offset, uncertain, level) in [
            (100_000, 1_000, Level::Fine),
            (102_000, 1_000, Level::Warning),
            (150_000, 60_000, Level::Fine),
        ] {
            for there in [here + offset, here - offset] {
                let mut found = Findings::default();
                compare(here, there, uncertain, &mut found);
                assert_eq!(found.all[0].level, level);
            }
        }
    }
}
