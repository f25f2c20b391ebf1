//! The event loop: processes, messages under way, and the store.

use std::collections::HashMap;

use tollgate_core::{Decision, Tick};

use crate::{
    clock::ProcessClock,
    consistency::{Consistency, Terms},
    engine::{self, Message, fingerprint},
    figures::Figures,
    network::Network,
    oracle::Exact,
    process::{Process, Sender, find},
    schedule::Schedule,
    server::Server,
    workload::{Request, Scene},
};

/// The store's clock at the start of a run.
const EPOCH: Tick = 1_700_000_000_000_000;

/// For how long processes go on when the last request has come, in µs: longer than any lease that is tracked.
const AFTER: Tick = 21_000_000;

/// Runs a scene under a consistency. The same seed gives the same figures.
///
/// `None` if the consistency is not simulated for the quota of the scene: of windows exact and leased are.
#[must_use]
pub fn run(
    scene: &Scene,
    consistency: Consistency,
    network: Network,
    seed: u64,
) -> Option<Figures> {
    let terms = Terms::new(scene, consistency)?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let processes = (0..scene.processes)
        .map(|_| Process::new(ProcessClock::random(&mut rng), consistency, &terms))
        .collect::<Option<_>>()?;
    let mut world = World {
        server: Server::new(&terms)?,
        loss: scene.loss,
        terms,
        consistency,
        network,
        rng,
        schedule: Schedule::new(),
        processes,
        in_flight: HashMap::new(),
        sent: 0,
        ends: scene.requests.last().map_or(0, |last| last.at) + AFTER,
        admitted: HashMap::new(),
        ideal: HashMap::new(),
        figures: Figures::default(),
    };
    for (at, process) in &scene.deaths {
        world.schedule.plan(*at, Event::Death { process: *process });
    }
    for process in 0..scene.processes {
        world.plan_maintenance(0, process);
    }
    for request in &scene.requests {
        world.until(request.at);
        world.arrive(*request);
    }
    world.until(Tick::MAX);
    world.figures.finish();
    Some(world.figures)
}

struct World {
    terms: Terms,
    consistency: Consistency,
    network: Network,
    loss: u32,
    rng: fastrand::Rng,
    schedule: Schedule<Event>,
    server: Server,
    processes: Vec<Process>,
    /// What is under way, by its number.
    in_flight: HashMap<u64, InFlight>,
    sent: u64,
    /// When processes end.
    ends: Tick,
    /// What was really admitted, at the time it was.
    admitted: HashMap<u32, Exact>,
    /// What an exact limiter would admit.
    ideal: HashMap<u32, Exact>,
    figures: Figures,
}

struct InFlight {
    sender: Sender,
    message: Message,
    /// In the world's time.
    at: Tick,
    /// The cost of the request that waits for it; 0: none does.
    waits: u64,
    is_denied: bool,
}

#[derive(Clone, Copy)]
enum Event {
    Arrived { sent: u64, will_reply: bool },
    Answered { sent: u64 },
    Lost { sent: u64 },
    Maintain { process: u16, life: u32 },
    Death { process: u16 },
}

impl World {
    /// Lets everything happen that is due at `end` or before.
    fn until(&mut self, end: Tick) {
        while let Some((now, event)) = self.schedule.next_until(end) {
            self.happen(now, event);
        }
    }

    fn happen(&mut self, now: Tick, event: Event) {
        match event {
            Event::Arrived { sent, will_reply } => self.at_server(now, sent, will_reply),
            Event::Answered { sent } => self.on_reply(now, sent, true),
            Event::Lost { sent } => self.on_reply(now, sent, false),
            Event::Maintain { process, life } => {
                let sender = Sender {
                    process,
                    life,
                    key: 0,
                };
                if let Some(it) = find(&mut self.processes, sender) {
                    let messages = it.local.maintain(it.clock.shows(now));
                    self.send_all(now, sender, messages);
                    self.plan_maintenance(now, process);
                }
            }
            Event::Death { process } => {
                if let Some(it) = self.processes.get_mut(usize::from(process)) {
                    it.die(self.consistency, &self.terms);
                    self.plan_maintenance(now, process);
                }
            }
        }
    }

    fn plan_maintenance(&mut self, now: Tick, process: u16) {
        let it = &self.processes[usize::from(process)];
        if let Some(pause) = it.local.pause()
            && now + pause <= self.ends
        {
            let life = it.life;
            let maintain = Event::Maintain { process, life };
            self.schedule.plan(now + pause, maintain);
        }
    }

    /// A reply has come, or is not waited for any longer.
    fn on_reply(&mut self, now: Tick, sent: u64, is_answered: bool) {
        let Some(sent) = self.in_flight.remove(&sent) else {
            return;
        };
        let process = find(&mut self.processes, sent.sender);
        if sent.waits > 0 && (!is_answered || process.is_none()) {
            self.figures.failed += 1;
        }
        let Some(process) = process else {
            return;
        };
        let shows = process.clock.shows(now);
        if sent.waits > 0 {
            self.figures.waited(now - sent.at);
        }
        let messages = sent.message.finish(is_answered, shows);
        self.send_all(now, sent.sender, messages);
    }

    fn arrive(&mut self, request: Request) {
        let (now, cost) = (request.at, u64::from(request.cost));
        self.figures.requests += 1;
        if !request.is_denied {
            self.figures.requested_of(request.process, cost);
            let ideal = self.ideal.entry(request.key).or_default();
            if ideal.has_room(&self.terms.quota, EPOCH + now, cost) {
                ideal.count(&self.terms.quota, EPOCH + now, cost);
                self.figures.ideal += cost;
            }
        }
        let Some(process) = self.processes.get_mut(usize::from(request.process)) else {
            return;
        };
        let sender = Sender {
            process: request.process,
            life: process.life,
            key: request.key,
        };
        let clock = process.clock.shows(now);
        let is_denied = request.is_denied;
        match process.local.begin(clock, request.key, cost, is_denied) {
            engine::Step::Decided(decision) => self.decided(now, sender, cost, &decision),
            engine::Step::Query(message) => self.send(now, sender, *message, cost, is_denied),
        }
    }

    /// The engine has decided a request by itself. One that the other rule denies it can only deny.
    fn decided(&mut self, now: Tick, sender: Sender, cost: u64, decision: &Decision) {
        let is_of_limit = decision.verdicts().len() == 1;
        if is_of_limit && decision.is_allowed() {
            self.admit(now, sender, cost);
        } else if is_of_limit {
            self.refuse(now, sender.key, cost);
        }
        self.figures.alone += 1;
        self.figures.waited(0);
    }

    fn send_all(&mut self, now: Tick, sender: Sender, messages: Vec<Message>) {
        for message in messages {
            self.send(now, sender, message, 0, false);
        }
    }

    fn send(&mut self, now: Tick, sender: Sender, message: Message, waits: u64, is_denied: bool) {
        self.figures.calls += message.calls();
        if find(&mut self.processes, sender).is_none() {
            return;
        }
        let loss = self.loss;
        let lost = |rng: &mut fastrand::Rng| rng.u32(0..1_000) < loss;
        let is_cut = self.network.is_cut(sender.process, now);
        let there = !lost(&mut self.rng) && !is_cut;
        let back = !lost(&mut self.rng);
        self.sent += 1;
        let sent = self.sent;
        let in_flight = InFlight {
            sender,
            message,
            at: now,
            waits,
            is_denied,
        };
        self.in_flight.insert(sent, in_flight);
        if there {
            let at = now + self.network.way(sender.process, &mut self.rng);
            self.schedule.plan(
                at,
                Event::Arrived {
                    sent,
                    will_reply: back,
                },
            );
        }
        if !(there && back) {
            let deadline = now + self.network.deadline(sender.process);
            self.schedule.plan(deadline, Event::Lost { sent });
        }
    }

    fn at_server(&mut self, now: Tick, sent: u64, will_reply: bool) {
        // It may have been given up.
        let Some(in_flight) = self.in_flight.get_mut(&sent) else {
            return;
        };
        let (sender, waits) = (in_flight.sender, in_flight.waits);
        let is_denied = in_flight.is_denied;
        let message = &mut in_flight.message;
        message.reply = self.server.carry_out(EPOCH + now, &message.content);
        let decision = message.reply.as_ref().map(|reply| &reply.decision);
        let fits = decision.is_some_and(Decision::is_allowed);
        // Whether a request that the store has granted was let through is not looked at: counting it can only show more.
        if is_denied || waits == 0 {
            // Neither was it let through, nor did this rule refuse it.
        } else if fits {
            self.admit(now, sender, waits);
        } else {
            self.refuse(now, sender.key, waits);
        }
        if will_reply {
            let at = now + self.network.way(sender.process, &mut self.rng);
            self.schedule.plan(at, Event::Answered { sent });
        }
    }

    fn admit(&mut self, now: Tick, sender: Sender, cost: u64) {
        let admitted = self.admitted.entry(sender.key).or_default();
        let over = admitted.count(&self.terms.quota, EPOCH + now, cost);
        self.figures.over = self.figures.over.max(over);
        self.figures.admitted_by(sender.process, cost);
    }

    fn refuse(&mut self, now: Tick, key: u32, cost: u64) {
        let admitted = self.admitted.entry(key).or_default();
        if !admitted.has_room(&self.terms.quota, EPOCH + now, cost) {
            return;
        }
        self.figures.falsely_refused += 1;
        let room = admitted.room(&self.terms.quota, EPOCH + now);
        self.figures.room_then = self.figures.room_then.max(room);
        let on_lease = self.server.on_lease(fingerprint(key));
        let part = on_lease as f64 / self.terms.quota.limit() as f64;
        self.figures.tracked_then = self.figures.tracked_then.max(part);
    }
}
