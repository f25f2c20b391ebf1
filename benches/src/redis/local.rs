//! Checks that a process answers alone, in front of Redis.

use std::{
    error::Error,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};
use tollgate::{
    Check, Consistency, Decision, Limiter, Quota, Rule, SECOND, decision::Pending,
    store::LeaseShare,
};
use tollgate_core::{Step, StoreError};
use tollgate_redis::{Keys, RedisStore, Secret};

use crate::{
    check::{TIGHT, key_of},
    redis::{server::Server, store::PATIENCE},
    workload::{Namer, each},
};

/// What a process knows that lets it answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knows {
    /// Nothing: Redis decides each.
    Nothing,
    /// It holds a lease of units.
    Lease,
    /// It counts alone, and reports once a second.
    Eventual,
    /// It was denied not long ago.
    Bound,
}

/// A limiter of one rule in Redis, whose checks are answered here as far as they can be.
#[derive(Debug)]
pub struct Local {
    limiter: Limiter,
    knows: Knows,
    runtime: Runtime,
    sent: AtomicU64,
}

/// A quota whose leases are larger than what a bench takes during the life of a lease.
const VAST: Quota = Quota::gcra(1_000_000, SECOND).burst(4_000_000_000_000);

/// The cost of the request that queries a lease. The size of the lease follows from the demand before.
const WANTED: u64 = 1_000_000_000;

/// Queries that are under way at the same time before a bench begins.
const TOGETHER: usize = 256;

impl Knows {
    fn rule(self) -> Rule {
        let rule = |quota| Rule::new("api", quota);
        match self {
            Self::Nothing => rule(VAST),
            Self::Lease => rule(VAST).consistency(Consistency::Leased {
                share: LeaseShare::percent(50),
            }),
            Self::Eventual => rule(VAST).consistency(Consistency::Eventual {
                interval: Duration::from_secs(1),
                max_unreported: VAST.limit(),
            }),
            Self::Bound => rule(TIGHT),
        }
    }

    /// What the requests cost after which it knows.
    fn lessons(self) -> &'static [u64] {
        match self {
            Self::Nothing => &[],
            // The first request of a key leaves nothing in the table. At the end come the keys again whose older lease was on
            // its way back.
            Self::Lease => &[1, 1, 1, WANTED, 1],
            Self::Eventual => &[1, 1, 1],
            Self::Bound => &[1, 1],
        }
    }
}

impl Local {
    /// Connects. It is for threads that have no runtime.
    ///
    /// # Errors
    ///
    /// The rule cannot be used.
    pub fn connect(server: &Server, knows: Knows) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let keys = Keys::hashed(Secret::from_bytes([7; 32])?);
        let store = RedisStore::builder(server.address(), "local", keys).deadline(PATIENCE);
        let store = store.connect()?;
        runtime.block_on(store.connected());
        let limiter = Limiter::new(store, [knows.rule()])?;
        drop(entered);
        Ok(Self {
            limiter,
            knows,
            runtime,
            sent: AtomicU64::new(0),
        })
    }

    /// Learns of so many clients what it takes to answer alone.
    pub fn learn(&self, clients: u32) {
        let clients: Vec<_> = each(clients).collect();
        let mut namer = Namer::new();
        for cost in self.knows.lessons() {
            for clients in clients.chunks(TOGETHER) {
                let mut waiting = Vec::new();
                for client in clients {
                    let check = self.check(namer.name(*client)).with_cost(*cost);
                    if let Step::Wait(answer) = self.limiter.acquire(&[check]) {
                        waiting.push(answer);
                    }
                }
                self.all(waiting);
            }
        }
        self.sent.store(0, Ordering::Relaxed);
    }

    /// Forgets everything of so many clients.
    ///
    /// # Errors
    ///
    /// Redis does not answer.
    pub fn forget(&self, clients: u32) -> Result<(), StoreError> {
        let clients: Vec<_> = each(clients).collect();
        let mut namer = Namer::new();
        for clients in clients.chunks(TOGETHER) {
            let mut waiting = Vec::new();
            for client in clients {
                let check = self.check(namer.name(*client));
                if let Step::Wait(done) = self.limiter.rule_store().reset(&[check.with_cost(1)]) {
                    waiting.push(done);
                }
            }
            self.all(waiting)
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?;
        }
        Ok(())
    }

    /// Runs the background task for this long. At other times it rests, unless Redis is called.
    pub fn background(&self, span: Duration) {
        // A sleep is made where the runtime is.
        self.runtime
            .block_on(async { tokio::time::sleep(span).await });
    }

    /// A check of one unit of this client. Its key is hashed once; for its name in Redis it would be once more.
    #[inline]
    pub fn check(&self, name: &str) -> Check {
        self.limiter.check_at(0, &key_of(name), 1)
    }

    /// Whether a check passes.
    #[inline]
    pub fn acquire(&self, check: Check) -> bool {
        self.answer(self.limiter.acquire(&[check]))
    }

    /// The same of the store alone, without what a limiter adds for one that may fail.
    #[inline]
    pub fn acquire_of_store(&self, check: Check) -> bool {
        self.answer(self.limiter.rule_store().acquire(&[check]))
    }

    /// How many checks were sent to Redis since [`learn`](Self::learn).
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    #[inline]
    fn answer(&self, answer: Step<Decision>) -> bool {
        match answer {
            Step::Ready(decision) => decision.is_allowed(),
            Step::Wait(answer) => self.wait(answer),
        }
    }

    #[cold]
    fn wait(&self, answer: Pending<Decision>) -> bool {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.runtime.block_on(answer).is_allowed()
    }

    fn all<T>(&self, waiting: Vec<Pending<T>>) -> Vec<T> {
        self.runtime.block_on(async {
            let mut answers = Vec::new();
            for answer in waiting {
                answers.push(answer.await);
            }
            answers
        })
    }
}
