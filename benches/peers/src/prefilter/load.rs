//! Checks through one Redis by the rule's consistency, with keys that are asked for all the time and with keys that are
//! seen once.

use std::{error::Error, io, pin::Pin, sync::Arc, time::Duration};

use tokio::runtime::{Builder, Runtime};
use tollgate::{Consistency, Quota, Rule, SECOND};
use tollgate_benches::redis::{
    load::{Clients, Measured, run},
    server::Server,
    store::Shared,
};

use crate::{harness::Compared, prefilter::hybrid::Hybrid, table::Row};

/// How long one side runs in one round.
const SPAN: Duration = Duration::from_millis(200);

/// No caller is denied.
const QUOTA: Quota = Quota::gcra(1_000_000, SECOND).burst(4_000_000_000);

const LEASED: Consistency = Consistency::Leased {
    reserve_permille: 100,
};

const EVENTUAL: Consistency = Consistency::Eventual {
    interval: Duration::from_millis(100),
    max_unreported: 1_000_000,
};

type Asked = Pin<Box<dyn Future<Output = ()>>>;

/// Somebody who is asked to take units, with a Redis and a runtime of its own: what one side does in the background is
/// done in its own time.
struct Side {
    ask: Arc<dyn Fn(u64) -> Asked>,
    runtime: Runtime,
    server: Server,
}

pub(super) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) -> Result<(), Box<dyn Error>> {
    for (keys, clients) in [("hot", Clients::Hot), ("cold", Clients::Cold)] {
        for callers in [64, 512] {
            let sides = [
                Side::ours(Consistency::Exact)?,
                Side::ours(LEASED)?,
                Side::ours(EVENTUAL)?,
                Side::theirs()?,
            ];
            // The first round warms up.
            let measured: Vec<_> = (0..=rounds)
                .map(|_| sides.each_ref().map(|side| side.turn(callers, clients)))
                .skip(1)
                .collect();
            let compared = |ours: usize, theirs: usize, figure: fn(&Measured) -> f64| {
                let rounds = measured
                    .iter()
                    .map(|sides| (figure(&sides[ours]), figure(&sides[theirs])));
                Compared::of(&rounds.collect::<Vec<_>>())
            };
            for (side, name) in ["exact", "leased", "eventual"].into_iter().enumerate() {
                let row = |what: &str, unit, figure| {
                    let what = format!("{keys} keys, {name}, {callers} callers, {what}");
                    Row::compared(what, unit, "trypema hybrid", compared(side, 3, figure))
                };
                // Times, so that less is better here as elsewhere.
                print(row("each", "µs", |side| 1e6 / side.per_second));
                print(row("scripts", "", |side| side.scripts));
                print(row("server CPU", "µs", |side| side.server));
                if side > 0 {
                    let what = format!("{keys} keys, {name}, {callers} callers, each");
                    let row = Row::compared(
                        what,
                        "µs",
                        "exact",
                        compared(side, 0, |side| 1e6 / side.per_second),
                    );
                    print(if clients == Clients::Cold {
                        row.gate(1.05).direction(1.0)
                    } else {
                        row
                    });
                }
            }
        }
    }
    Ok(())
}

impl Side {
    fn ours(consistency: Consistency) -> Result<Self, Box<dyn Error>> {
        let (server, runtime) = (Server::start()?, runtime()?);
        let rule = Rule::new("api", QUOTA).consistency(consistency);
        let shared = runtime.block_on(Shared::of_rule(&server, rule, None))?;
        Ok(Self {
            ask: Arc::new(move |client| Box::pin(shared.clone().take(client))),
            runtime,
            server,
        })
    }

    fn theirs() -> Result<Self, Box<dyn Error>> {
        let (server, runtime) = (Server::start()?, runtime()?);
        let hybrid = runtime.block_on(Hybrid::connect(&server, 1e9))?;
        Ok(Self {
            ask: Arc::new(move |client| {
                let hybrid = hybrid.clone();
                Box::pin(async move {
                    let key = Hybrid::key(&client.to_string());
                    assert!(hybrid.take_or_wait(&key).await);
                })
            }),
            runtime,
            server,
        })
    }

    fn turn(&self, callers: usize, clients: Clients) -> Measured {
        let ask = Arc::clone(&self.ask);
        let who = (callers, clients);
        self.runtime
            .block_on(run(&self.server, who, SPAN, move |client| ask(client)))
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
