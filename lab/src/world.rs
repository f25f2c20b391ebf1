//! The event loop: processes, messages under way, and the store.

use std::collections::HashMap;

use tollgate_core::Tick;

use crate::{
    agent::{Agent, Answer, InFlightQuery, Step},
    clock::ProcessClock,
    consistency::{Consistency, Terms},
    figures::Figures,
    network::Network,
    oracle::Exact,
    process::{Process, Sender, Slot, find},
    schedule::Schedule,
    server::Server,
    workload::{Request, Scene},
};

/// The store's clock at the start of a run.
const EPOCH: Tick = 1_700_000_000_000_000;

/// When a query is given up, in µs.
const DEADLINE: Tick = 50_000;

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
        .map(|_| Process::new(ProcessClock::random(&mut rng)))
        .collect();
    let mut world = World {
        server: Server::new(&terms)?,
        loss: scene.loss,
        terms,
        consistency,
        network,
        rng,
        schedule: Schedule::new(),
        processes,
        admitted: HashMap::new(),
        ideal: HashMap::new(),
        figures: Figures::default(),
    };
    for (at, process) in &scene.deaths {
        world.schedule.plan(*at, Event::Death { process: *process });
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
    /// What was really admitted, at the time it was.
    admitted: HashMap<u32, Exact>,
    /// What an exact limiter would admit.
    ideal: HashMap<u32, Exact>,
    figures: Figures,
}

#[derive(Clone, Copy)]
struct Sent {
    sender: Sender,
    query: InFlightQuery,
    /// In the world's time.
    at: Tick,
    /// By the process's clock.
    clock: Tick,
}

#[derive(Clone, Copy)]
enum Event {
    Asked {
        sent: Sent,
        heard: bool,
    },
    Answered {
        sent: Sent,
        answer: Answer,
    },
    Lost {
        sent: Sent,
    },
    Look {
        sender: Sender,
    },
    /// Another rule has denied a request whose units were spent alone, at this time by the process's clock.
    Denied {
        sender: Sender,
        spent: Tick,
        window: Option<u64>,
        cost: u64,
    },
    Death {
        process: u16,
    },
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
            Event::Asked { sent, heard } => self.asked(now, sent, heard),
            Event::Answered { sent, answer } => self.heard(now, sent, Some(answer)),
            Event::Lost { sent } => self.heard(now, sent, None),
            Event::Look { sender } => {
                if let Some((slot, _)) = find(&mut self.processes, sender)
                    && slot.look == Some(now)
                {
                    slot.look = None;
                    self.look(now, sender);
                }
            }
            Event::Denied {
                sender,
                spent,
                window,
                cost,
            } => {
                if let Some((slot, clock)) = find(&mut self.processes, sender) {
                    let times = (clock.shows(now), spent);
                    let refund = slot.agent.give_back(times, window, cost);
                    if let Some(query) = refund {
                        self.send(now, sender, times.0, query);
                    }
                    self.look(now, sender);
                }
            }
            Event::Death { process } => {
                if let Some(process) = self.processes.get_mut(usize::from(process)) {
                    process.die();
                }
            }
        }
    }

    /// An answer has come, or is not waited for any longer.
    fn heard(&mut self, now: Tick, sent: Sent, answer: Option<Answer>) {
        let waits = sent.query.cost > 0;
        let found = find(&mut self.processes, sent.sender);
        if waits && (answer.is_none() || found.is_none()) {
            self.figures.failed += 1;
        }
        let Some((slot, clock)) = found else {
            return;
        };
        let shows = clock.shows(now);
        let next = match answer {
            Some(answer) => {
                let times = (sent.clock, shows);
                slot.agent
                    .on_reply(times, &sent.query, &answer, &self.terms)
            }
            None => {
                slot.agent.lost(&sent.query);
                None
            }
        };
        if waits {
            self.figures.waited(now - sent.at);
        }
        if let Some(query) = next {
            self.send(now, sent.sender, shows, query);
        }
        self.look(now, sent.sender);
    }

    fn arrive(&mut self, request: Request) {
        let (now, cost) = (request.at, u64::from(request.cost));
        self.figures.requests += 1;
        if !request.is_denied {
            self.figures.asked_of(request.process, cost);
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
        let slot = process.agents.entry(request.key).or_insert_with(|| Slot {
            agent: Agent::new(self.consistency, process.life > 0, &self.terms),
            look: None,
        });
        let clock = process.clock.shows(now);
        match slot.agent.arrive(clock, cost, &self.terms) {
            Step::Admit if request.is_denied => {
                let window = slot.agent.window();
                // The other rule is asked, and that takes a round trip.
                self.figures.calls += 1;
                let at = now + self.network.way(&mut self.rng) + self.network.way(&mut self.rng);
                let denied = Event::Denied {
                    sender,
                    spent: clock,
                    window,
                    cost,
                };
                self.schedule.plan(at, denied);
            }
            Step::Admit => {
                self.admit(now, sender, cost);
                self.alone();
            }
            Step::Refuse if request.is_denied => self.alone(),
            Step::Refuse => {
                self.refuse(now, request.key, cost);
                self.alone();
            }
            Step::LeaseQuery(mut query) => {
                query.is_denied = request.is_denied;
                self.send(now, sender, clock, query);
            }
        }
        self.look(now, sender);
    }

    fn alone(&mut self) {
        self.figures.alone += 1;
        self.figures.waited(0);
    }

    /// Hears what an agent has to say unasked, and plans when to look at it again.
    fn look(&mut self, now: Tick, sender: Sender) {
        let Some((slot, clock)) = find(&mut self.processes, sender) else {
            return;
        };
        let shows = clock.shows(now);
        let query = slot.agent.on_not_sent(shows, &self.terms);
        let due = slot.agent.due_at(&self.terms);
        let due = due.map(|due| clock.when(due, now).max(now + 1));
        let sooner = match (due, slot.look) {
            (Some(due), Some(look)) => due < look,
            (due, _) => due.is_some(),
        };
        if sooner {
            slot.look = due;
        }
        if let Some(query) = query {
            self.send(now, sender, shows, query);
        }
        if let (Some(due), true) = (due, sooner) {
            self.schedule.plan(due, Event::Look { sender });
        }
    }

    fn send(&mut self, now: Tick, sender: Sender, clock: Tick, query: InFlightQuery) {
        self.figures.calls += 1;
        let sent = Sent {
            sender,
            query,
            at: now,
            clock,
        };
        let lost = |rng: &mut fastrand::Rng| rng.u32(0..1_000) < self.loss;
        let there = !lost(&mut self.rng);
        let back = !lost(&mut self.rng);
        if there {
            let at = now + self.network.way(&mut self.rng);
            self.schedule.plan(at, Event::Asked { sent, heard: back });
        }
        if !(there && back) {
            self.schedule.plan(now + DEADLINE, Event::Lost { sent });
        }
    }

    fn asked(&mut self, now: Tick, sent: Sent, heard: bool) {
        let Sent { sender, query, .. } = sent;
        let answer = self
            .server
            .decide(sender.key, EPOCH + now, &query, &self.terms);
        // Whether a request that the store has granted was let through is not looked at: counting it can only show more.
        if query.is_denied {
            // Neither was it let through, nor did this rule refuse it.
        } else if query.cost > 0 && answer.assessment.fits {
            self.admit(now, sender, query.cost);
        } else if query.cost > 0 {
            self.refuse(now, sender.key, query.cost);
        }
        if heard {
            let at = now + self.network.way(&mut self.rng);
            self.schedule.plan(at, Event::Answered { sent, answer });
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
        let tracked: u64 = self
            .processes
            .iter()
            .filter_map(|process| {
                let slot = process.agents.get(&key)?;
                Some(slot.agent.held(process.clock.shows(now)))
            })
            .sum();
        let part = tracked as f64 / self.terms.quota.limit() as f64;
        self.figures.tracked_then = self.figures.tracked_then.max(part);
    }
}
