//! All checks of an address, server by server.

use std::time::Duration;

use tollgate_redis::{Partition, Secret};

use crate::{
    doctor::{
        Access, Place, Places, Server,
        access::access,
        cluster::{self, Shard},
        finding::Finding,
        memory::memory,
        namespace::{instances, neighbours},
        pace::pace,
        persistence::persistence,
        replication::replication,
        server::words,
        version::version,
    },
    failure::Failure,
};

/// What is known before anything is asked.
#[derive(Debug)]
pub(crate) struct Patient<'a> {
    pub(crate) places: Places,
    pub(crate) namespace: &'a str,
    pub(crate) secret: Option<Secret>,
    pub(crate) partition: Option<Partition>,
    pub(crate) deadline: Duration,
    /// The longest window or refill of the rules.
    pub(crate) longest: Option<Duration>,
}

impl Patient<'_> {
    /// All findings.
    pub(crate) async fn examine(&self) -> Result<Vec<Finding>, Failure> {
        match &self.places {
            Places::Server(place) => self.one(place).await,
            Places::Sentinel {
                sentinels,
                master,
                access,
            } => {
                let (place, mut findings) = ask_sentinels(sentinels, master, access).await?;
                findings.extend(self.one(&place).await?);
                Ok(findings)
            }
            Places::Cluster { seeds, access } => self.cluster(seeds, access).await,
        }
    }

    async fn one(&self, place: &Place) -> Result<Vec<Finding>, Failure> {
        let mut server = Server::connect(place).await?;
        let mut findings = self.examine_server(&mut server, false).await;
        findings.extend(instances(&mut server, self.namespace, self.secret.as_ref()).await);
        findings.push(neighbours(&mut server, self.namespace).await);
        Ok(findings)
    }

    async fn cluster(&self, seeds: &[Place], access: &Access) -> Result<Vec<Finding>, Failure> {
        let (mut seed, mut findings) = first_that_answers(seeds).await?;
        let shards = match cluster::shards(&mut seed).await {
            Ok(shards) => shards,
            Err(finding) => return Ok(vec![finding]),
        };
        if shards.is_empty() {
            return Ok(vec![Finding::error(
                "cluster",
                format!("{} is no part of a cluster, or has no slots", seed.name),
                "give the address of one server, redis://host, or assign slots: redis-cli --cluster create",
            )]);
        }
        findings.extend(cluster::state(&mut seed, &shards).await);
        let partition = self.partition.as_ref();
        findings.extend(cluster::partition(&mut seed, &shards, self.namespace, partition).await);
        for shard in &shards {
            findings.extend(self.shard(shard, access).await);
        }
        Ok(findings)
    }

    async fn shard(&self, shard: &Shard, access: &Access) -> Vec<Finding> {
        let named = |mut finding: Finding| {
            finding.server.clone_from(&shard.primary);
            finding
        };
        let mut server = match Server::connect(&Place::tcp(access, &shard.primary)).await {
            Ok(server) => server,
            Err(failure) => {
                let finding = Finding::error(
                    "connection",
                    failure.message,
                    "if the service reaches servers by other names than they announce, it needs an address_map",
                );
                return vec![named(finding)];
            }
        };
        let mut findings = self.examine_server(&mut server, true).await;
        findings.extend(instances(&mut server, self.namespace, self.secret.as_ref()).await);
        findings.push(neighbours(&mut server, self.namespace).await);
        findings.into_iter().map(named).collect()
    }

    async fn examine_server(&self, server: &mut Server, is_cluster: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        match server.info().await {
            Ok(info) => {
                findings.push(version(&info));
                let least = server.setting("min-replicas-to-write").await;
                findings.push(replication(&info, least.as_deref()));
                if !is_cluster && info.get("redis_mode").is_some_and(|mode| mode == "cluster") {
                    findings.push(Finding::error(
                        "cluster",
                        "this is one server of a cluster: keys on the other servers cannot be decided",
                        "give the address of the cluster, redis-cluster://one,two,three",
                    ));
                }
                findings.extend(memory(&info));
                let save = server.setting("save").await;
                findings.push(persistence(&info, save.as_deref(), self.longest));
            }
            Err(wrong) => findings.push(Finding::note(
                "version",
                format!(
                    "version, role, memory, eviction and disks may not be read: {}",
                    words(&wrong)
                ),
                "that is as it should be for the user of a service; run this as an administrator too, or add +info +config|get",
            )),
        }
        let user = self.places.access().user();
        findings.extend(access(server, self.namespace, is_cluster, user).await);
        if !self.places.access().has_login() && !server.name.starts_with('/') {
            findings.push(Finding::note(
                "login",
                "the server asks for no password: anyone who reaches it can decide which clients pass",
                "bind it to a private network, and give the service a user of its own (ACL SETUSER)",
            ));
        }
        findings.extend(pace(server, self.namespace, self.deadline).await);
        findings
    }
}

/// The master, as the sentinels say, and what is wrong with them.
async fn ask_sentinels(
    sentinels: &[Place],
    master: &str,
    access: &Access,
) -> Result<(Place, Vec<Finding>), Failure> {
    const CHECK: &str = "sentinels";
    let (mut said, mut findings) = (Vec::new(), Vec::new());
    for place in sentinels {
        let answer = match Server::connect(place).await {
            Ok(mut server) => server
                .ask::<Option<(String, u16)>>(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master])
                .await
                .map_err(|wrong| words(&wrong)),
            Err(failure) => Err(failure.message),
        };
        match answer {
            Ok(Some((host, port))) if host.contains(':') => said.push(format!("[{host}]:{port}")),
            Ok(Some((host, port))) => said.push(format!("{host}:{port}")),
            Ok(None) => findings.push(Finding::warning(
                CHECK,
                format!("{} knows no master {master:?}", place.name()),
                "SENTINEL MASTERS there says which it knows",
            )),
            Err(why) => findings.push(Finding::warning(
                CHECK,
                format!("{} does not say who the master is: {why}", place.name()),
                "start it, or leave it out of the address; its user needs +sentinel|get-master-addr-by-name",
            )),
        }
    }
    let all = sentinels.len();
    let count = |host: &String| said.iter().filter(|other| *other == host).count();
    let Some(host) = said.iter().max_by_key(|host| count(host)) else {
        let whys: Vec<_> = findings.iter().map(|finding| &*finding.says).collect();
        return Err(Failure::failed(format!(
            "no sentinel says who the master {master:?} is: {}",
            whys.join("; ")
        )));
    };
    let (agreeing, answered) = (count(host), said.len());
    let says = format!("{agreeing} of {all} say that {host} is the master");
    findings.insert(0, match () {
        () if agreeing * 2 > all => Finding::fine(CHECK, says),
        () if agreeing * 2 > answered => Finding::warning(
            CHECK,
            format!("only {says}: the store believes them while the others do not answer"),
            "start those that are down: one that was cut off with an old master would not be outvoted",
        ),
        () => Finding::error(
            CHECK,
            format!("only {says}: the store does not connect while those that answer do not agree"),
            "name all sentinels in the address, and start those that are down",
        ),
    });
    Ok((Place::tcp(access, host), findings))
}

async fn first_that_answers(seeds: &[Place]) -> Result<(Server, Vec<Finding>), Failure> {
    let mut whys = Vec::new();
    for seed in seeds {
        match Server::connect(seed).await {
            Ok(server) => {
                let findings = whys.into_iter().map(|why| {
                    Finding::warning("connection", why, "start it, or take it out of the address")
                });
                return Ok((server, findings.collect()));
            }
            Err(failure) => whys.push(failure.message),
        }
    }
    Err(Failure::failed(whys.join("\n")))
}
