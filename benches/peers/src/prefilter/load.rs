//! Checks through one Redis by the rule's consistency, with keys that are asked for all the time and with keys that are
//! seen once.

use std::{error::Error, io, pin::Pin, sync::Arc, time::Duration};

use tokio::runtime::{Builder, Runtime};
use tollgate::{Consistency, Quota, Rule, SECOND, store::LeaseShare};
use tollgate_benches::redis::{
    load::{Clients, Measured, run},
    server::Server,
    store::Shared,
};

use crate::{harness::Compared, prefilter::hybrid::Hybrid, table::Row};

/// How long one turn of a side takes. It has two in a lap.
const SPAN: Duration = Duration::from_millis(50);

/// The laps of a round.
const LAPS: usize = 2;

/// How often a process starts whose clients are many, for how long it learns, and how long it is then measured.
const STARTS: usize = 3;
const LEARNING: Duration = Duration::from_secs(2);
const STEADY: Duration = Duration::from_secs(1);

/// No caller is denied.
const QUOTA: Quota = Quota::gcra(1_000_000, SECOND).burst(4_000_000_000);

/// The sides: each consistency, exact a second time, and the hybrid provider.
const CONSISTENCIES: [Consistency; 4] = [
    Consistency::Exact,
    Consistency::Leased {
        share: LeaseShare::percent(10),
    },
    Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 1_000_000,
    },
    Consistency::Exact,
];
const EXACT: usize = 0;
const LEASED: usize = 1;
const EVENTUAL: usize = 2;
const AGAIN: usize = 3;
const HYBRID: usize = 4;

type Answer = Pin<Box<dyn Future<Output = ()>>>;

/// Somebody who is asked to take units, with a Redis and a runtime of its own: what one side does in the background is
/// done in its own time.
struct Side {
    send: Arc<dyn Fn(u64) -> Answer>,
    runtime: Runtime,
    server: Server,
}

pub(crate) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) -> Result<(), Box<dyn Error>> {
    for (keys, clients) in [("hot", Clients::Hot), ("cold", Clients::Cold)] {
        for callers in [64, 512] {
            let sides = [
                Side::ours(CONSISTENCIES[EXACT])?,
                Side::ours(CONSISTENCIES[LEASED])?,
                Side::ours(CONSISTENCIES[EVENTUAL])?,
                Side::ours(CONSISTENCIES[AGAIN])?,
                Side::theirs()?,
            ];
            // The first round warms up.
            let measured: Vec<_> = (0..=rounds)
                .map(|turn| round(&sides, turn, callers, clients))
                .skip(1)
                .collect();
            let compared = |ours: usize,
                            theirs: &dyn Fn(&[Measured]) -> Measured,
                            figure: fn(&Measured) -> f64| {
                let rounds = measured
                    .iter()
                    .map(|sides| (figure(&sides[ours]), figure(&theirs(sides))));
                Compared::of(&rounds.collect::<Vec<_>>())
            };
            // Times, so that less is better here as elsewhere.
            let each = |side: &Measured| 1e6 / side.per_second;
            let of = |name, what: &str| format!("{keys} keys, {name}, {callers} callers, {what}");
            for (side, name) in [(EXACT, "exact"), (LEASED, "leased"), (EVENTUAL, "eventual")] {
                let mut versus_hybrid = |what: &str, unit, figure| {
                    let compared = compared(side, &|sides| sides[HYBRID], figure);
                    let what = of(name, what);
                    print(Row::compared(what, unit, "trypema hybrid", compared));
                };
                versus_hybrid("each", "µs", each);
                versus_hybrid("scripts", "", |side| side.scripts);
                versus_hybrid("callers' CPU", "µs", |side| side.callers);
                versus_hybrid("server CPU", "µs", |side| side.server);
            }
            let both_exact = |sides: &[Measured]| Measured::mean(&[sides[EXACT], sides[AGAIN]]);
            for (side, name) in [(LEASED, "leased"), (EVENTUAL, "eventual")] {
                let versus_exact = |what, figure| {
                    let compared = compared(side, &both_exact, figure);
                    Row::compared(of(name, what), "µs", "exact", compared)
                };
                let row = versus_exact("each", each);
                print(if clients == Clients::Cold {
                    row.gate(1.05).direction(1.0)
                } else {
                    row
                });
                print(versus_exact("callers' CPU", |side| side.callers));
            }
            // As far from 1 as these are, the other ratios may be as well.
            let figures: [(_, fn(&Measured) -> f64); 2] =
                [("each", each), ("callers' CPU", |side| side.callers)];
            for (what, figure) in figures {
                let compared = compared(AGAIN, &|sides| sides[EXACT], figure);
                print(Row::compared(
                    of("exact again", what),
                    "µs",
                    "exact",
                    compared,
                ));
            }
        }
    }
    print(steady(rounds.min(STARTS))?);
    Ok(())
}

/// 100 000 clients of a process that has just started, after the time in which it learns who they are.
fn steady(starts: usize) -> Result<Row, Box<dyn Error>> {
    const CALLERS: usize = 512;
    let each = |side: Side| {
        side.turn(CALLERS, Clients::Crowd, LEARNING);
        1e6 / side.turn(CALLERS, Clients::Crowd, STEADY).per_second
    };
    let mut measured = Vec::new();
    for _ in 0..starts {
        let (ours, theirs) = (Side::ours(CONSISTENCIES[LEASED])?, Side::theirs()?);
        measured.push((each(ours), each(theirs)));
    }
    let what = "100 000 keys, leased, 512 callers, each";
    let compared = Compared::of(&measured);
    Ok(Row::compared(what, "µs", "trypema hybrid", compared).gate_on_ours(1.0))
}

/// Laps of a turn of each side, and one more the other way round: what gets slower or faster meanwhile hits all of them alike.
/// Each lap begins with another side, because two turns of the last follow on each other.
fn round<const SIDES: usize>(
    sides: &[Side; SIDES],
    round: usize,
    callers: usize,
    clients: Clients,
) -> [Measured; SIDES] {
    let mut turns = [const { Vec::new() }; SIDES];
    for lap in round * LAPS..(round + 1) * LAPS {
        let order = (0..SIDES).map(|place| (place + lap) % SIDES);
        for side in order.clone().chain(order.rev()) {
            turns[side].push(sides[side].turn(callers, clients, SPAN));
        }
    }
    turns.map(|turns| Measured::mean(&turns))
}

impl Side {
    fn ours(consistency: Consistency) -> Result<Self, Box<dyn Error>> {
        let (server, runtime) = (Server::start()?, runtime()?);
        let rule = Rule::new("api", QUOTA).consistency(consistency);
        let shared = runtime.block_on(Shared::of_rule(&server, rule, None))?;
        Ok(Self {
            send: Arc::new(move |client| Box::pin(shared.clone().take(client))),
            runtime,
            server,
        })
    }

    fn theirs() -> Result<Self, Box<dyn Error>> {
        let (server, runtime) = (Server::start()?, runtime()?);
        let hybrid = runtime.block_on(Hybrid::connect(&server, 1e9))?;
        Ok(Self {
            send: Arc::new(move |client| {
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

    fn turn(&self, callers: usize, clients: Clients, span: Duration) -> Measured {
        let send = Arc::clone(&self.send);
        let who = (callers, clients);
        self.runtime
            .block_on(run(&self.server, who, span, move |client| send(client)))
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
