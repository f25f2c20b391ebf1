//! A run of the engine in two processes in front of one store, message by message.

use tollgate_core::{Quota, SECOND, Tick, algorithm::Retry};
use tollgate_prefilter::{Grant, GrantReply, LeaseQuery};

use crate::{
    consistency::{Consistency, Terms},
    engine::{Content, Local, Message, Step},
    server::Server,
    workload::Scene,
};

/// The store's clock at the start.
const EPOCH: Tick = 1_700_000_000_000_000;

/// How long a message takes in each direction, in µs.
const WAY: Tick = 250;

/// Something that happened, at a time in µs since the start.
#[derive(Clone, Debug)]
pub(super) struct Happening {
    pub(super) at: Tick,
    pub(super) process: usize,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// A request was decided in its process.
    Here { is_allowed: bool },
    /// The process called the store.
    Call(Call),
}

/// A query, and the store's reply.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Whether a request waits for it.
    pub(super) has_request: bool,
    pub(super) wants: LeaseQuery,
    pub(super) is_allowed: bool,
    pub(super) grant: Option<Grant>,
    pub(super) retry: Option<Retry>,
}

/// When requests of one unit reach a process: every so often between two times, all in µs.
pub(super) struct Traffic {
    pub(super) process: usize,
    pub(super) from: Tick,
    pub(super) to: Tick,
    pub(super) every: Tick,
}

/// The quota of the run: 100 units a second, a bucket of 1 000.
pub(super) fn quota() -> Quota {
    Quota::token_bucket(1_000).refill(100, SECOND)
}

/// A tenth of the burst may be on lease.
pub(super) const LEASED: Consistency = Consistency::Leased(100);

/// Everything that happens, in the order of time.
pub(super) fn run(consistency: Consistency, traffic: &[Traffic], until: Tick) -> Vec<Happening> {
    let scene = Scene::new(quota(), 2);
    let terms = Terms::new(&scene, consistency).expect("a bucket is simulated");
    let mut server = Server::new(&terms).expect("a bucket is simulated");
    let processes =
        [(); 2].map(|()| Local::new(consistency, &terms).expect("it is one of the engine's"));
    let mut happened = Vec::new();
    for (at, process, is_request) in due(traffic, &processes, until) {
        let local = &processes[process];
        if !is_request {
            for message in local.maintain(at) {
                exchange(&mut server, (at, process), message, false, &mut happened);
            }
            continue;
        }
        match local.begin(at, 0, 1, false) {
            Step::Decided(decision) => {
                let is_allowed = decision.is_allowed();
                let what = What::Here { is_allowed };
                happened.push(Happening { at, process, what });
            }
            Step::Query(message) => {
                exchange(&mut server, (at, process), *message, true, &mut happened);
            }
        }
    }
    happened
}

/// Requests, and what is due without one.
fn due(traffic: &[Traffic], processes: &[Local], until: Tick) -> Vec<(Tick, usize, bool)> {
    let mut due = Vec::new();
    for one in traffic {
        let times = (one.from..one.to).step_by(one.every as usize);
        due.extend(times.map(|at| (at, one.process, true)));
    }
    for (process, local) in processes.iter().enumerate() {
        // Without leases nothing is due.
        let Some(pause) = local.pause() else { continue };
        let times = (pause..until).step_by(pause as usize);
        due.extend(times.map(|at| (at, process, false)));
    }
    due.sort_unstable();
    due
}

/// Carries a message to the store and its reply back. Nothing else is under way meanwhile.
fn exchange(
    server: &mut Server,
    (at, process): (Tick, usize),
    mut message: Message,
    has_request: bool,
    happened: &mut Vec<Happening>,
) {
    message.reply = server.carry_out(EPOCH + at + WAY, &message.content);
    if let (Content::Query { leases, .. }, Some(reply)) = (&message.content, &message.reply) {
        let verdict = reply.decision.verdicts().first();
        let grant = reply.leases().iter().find_map(|lease| match lease.grant {
            GrantReply::Granted(grant) => Some(grant),
            _ => None,
        });
        let call = Call {
            has_request,
            wants: leases.first().map(|lease| lease.query).unwrap_or_default(),
            is_allowed: reply.decision.is_allowed(),
            retry: verdict.map(|verdict| verdict.retry()),
            grant,
        };
        let what = What::Call(call);
        happened.push(Happening { at, process, what });
    }
    let back = at + 2 * WAY;
    for message in message.finish(true, back) {
        exchange(server, (back, process), message, false, happened);
    }
}
