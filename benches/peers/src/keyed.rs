//! A keyed check, without HTTP.

use std::{hint::black_box, num::NonZeroU32, sync::Arc};

use governor::DefaultKeyedRateLimiter;
use tollgate_benches::{
    check::{Checker, LASTING, TIGHT, WIDE},
    workload::{Namer, each, hot, uniform, zipf},
};
use trypema::{
    BucketSize, RateLimit, RateLimiterBuilder, WindowSize, local::LocalRateLimiterProvider,
};

use crate::{
    harness::{Compared, Course},
    numbers::{LASTING_NUMBERS, Numbers, TIGHT_NUMBERS, WIDE_NUMBERS},
    reference::LossyTable,
    table::Row,
};

const CLIENTS: u32 = 1_000_000;
const FEWER: u32 = 100_000;

/// These quotas as governor takes them.
fn wide() -> governor::Quota {
    with(WIDE_NUMBERS)
}

fn tight() -> governor::Quota {
    with(TIGHT_NUMBERS)
}

pub(crate) fn lasting() -> governor::Quota {
    with(LASTING_NUMBERS)
}

fn with((interval, burst): Numbers) -> governor::Quota {
    governor::Quota::with_period(interval)
        .expect("not zero")
        .allow_burst(NonZeroU32::new(burst).expect("not zero"))
}

pub(crate) type Governor = DefaultKeyedRateLimiter<String>;

/// The rows.
pub(crate) struct Keyed {
    rounds: usize,
}

impl Keyed {
    pub(crate) fn new(rounds: usize) -> Self {
        Self { rounds }
    }

    fn ours(&self, quota: tollgate::Quota, clients: u32) -> Checker {
        let checker = Checker::new(quota, 1).expect("a valid rule");
        let mut namer = Namer::new();
        for client in each(clients) {
            let name = namer.name(client);
            black_box(checker.one(name));
        }
        checker
    }

    fn governor(&self, quota: governor::Quota, clients: u32) -> Governor {
        let limiter = Governor::keyed(quota);
        let mut namer = Namer::new();
        for client in each(clients) {
            let name = namer.name(client);
            black_box(limiter.check_key(name).is_ok());
        }
        limiter
    }

    fn against_governor(
        &self,
        ours: (tollgate::Quota, governor::Quota),
        clients: u32,
        course: Course<'_>,
    ) -> Compared {
        let (checker, limiter) = (self.ours(ours.0, clients), self.governor(ours.1, clients));
        course.compare(
            self.rounds,
            |name| {
                black_box(checker.one(name));
            },
            |name| {
                black_box(limiter.check_key(name).is_ok());
            },
        )
    }

    fn row(
        &self,
        what: &str,
        quotas: (tollgate::Quota, governor::Quota),
        clients: u32,
        course: Course<'_>,
    ) -> Row {
        let compared = self.against_governor(quotas, clients, course);
        Row::compared(named(what, course), "ns", "governor", compared)
    }

    /// Ours beside a table that keeps no promise.
    fn next_to_reference(
        &self,
        what: &str,
        (quota, numbers): (tollgate::Quota, Numbers),
        clients: u32,
        course: Course<'_>,
    ) -> Row {
        let checker = self.ours(quota, clients);
        let table = LossyTable::new(numbers);
        let compared = course.compare(
            self.rounds,
            |name| {
                black_box(checker.one(name));
            },
            |name| {
                black_box(table.check(name));
            },
        );
        Row::compared(named(what, course), "ns", "reference", compared)
    }

    pub(crate) fn hot_allowed(&self, print: &mut dyn FnMut(Row)) {
        let clients = hot();
        for (threads, gate) in [(1, 0.75), (2, 0.6)] {
            let course = Course {
                clients: &clients,
                threads,
            };
            let what = "one key, allowed";
            print(self.row(what, (WIDE, wide()), 8, course).gate(gate));
            print(self.next_to_reference(what, (WIDE, WIDE_NUMBERS), 8, course));
        }
    }

    pub(crate) fn hot_denied(&self, print: &mut dyn FnMut(Row)) {
        let clients = hot();
        for threads in [1, 2] {
            let course = Course {
                clients: &clients,
                threads,
            };
            let what = "one key, denied";
            let row = self.row(what, (TIGHT, tight()), 8, course);
            print(if threads == 2 { row.gate(0.3) } else { row });
            print(self.next_to_reference(what, (TIGHT, TIGHT_NUMBERS), 8, course));
        }
    }

    pub(crate) fn uniform(&self, print: &mut dyn FnMut(Row)) {
        let clients = uniform(FEWER);
        for (threads, gate) in [(1, 0.45), (2, 0.6)] {
            let course = Course {
                clients: &clients,
                threads,
            };
            let what = "100 000 keys, uniform";
            let row = self.row(what, (LASTING, lasting()), FEWER, course);
            print(row.gate(gate));
            print(self.next_to_reference(what, (LASTING, LASTING_NUMBERS), FEWER, course));
        }
    }

    pub(crate) fn zipf(&self, print: &mut dyn FnMut(Row)) {
        let clients = zipf(CLIENTS);
        for (threads, gate) in [(1, 0.35), (2, 0.5)] {
            let course = Course {
                clients: &clients,
                threads,
            };
            let what = "1 000 000 keys, zipf";
            let row = self.row(what, (LASTING, lasting()), CLIENTS, course);
            print(row.gate(gate));
            print(self.next_to_reference(what, (LASTING, LASTING_NUMBERS), CLIENTS, course));
        }
        for threads in [1, 2] {
            let course = Course {
                clients: &clients,
                threads,
            };
            let compared = self.against_trypema(course);
            print(Row::compared(
                named("1 000 000 keys, zipf", course),
                "ns",
                "trypema",
                compared,
            ));
        }
    }

    fn against_trypema(&self, course: Course<'_>) -> Compared {
        let checker = self.ours(LASTING, CLIENTS);
        let provider: Arc<LocalRateLimiterProvider> = LocalRateLimiterProvider::builder()
            .window_size(WindowSize::minutes_or_panic(1))
            .bucket_size(BucketSize::seconds_or_panic(1))
            .disable_cleanup()
            .build()
            .expect("valid windows");
        let rate = RateLimit::per_second_or_panic(1e9);
        let mut namer = Namer::new();
        for client in each(CLIENTS) {
            let name = namer.name(client);
            black_box(provider.absolute().inc(name, &rate, 1));
        }
        course.compare(
            self.rounds,
            |name| {
                black_box(checker.one(name));
            },
            |name| {
                black_box(provider.absolute().inc(name, &rate, 1));
            },
        )
    }

    pub(crate) fn two_rules(&self, print: &mut dyn FnMut(Row)) {
        let clients = hot();
        for threads in [1, 2] {
            let course = Course {
                clients: &clients,
                threads,
            };
            let checker = Checker::new(WIDE, 2).expect("valid rules");
            let limiters = [self.governor(wide(), 8), self.governor(wide(), 8)];
            let compared = course.compare(
                self.rounds,
                |name| {
                    black_box(checker.two(name));
                },
                |name| {
                    for limiter in &limiters {
                        black_box(limiter.check_key(name).is_ok());
                    }
                },
            );
            let row = Row::compared(
                named("two rules, one key", course),
                "ns",
                "governor",
                compared,
            );
            print(row.gate(1.2).direction(0.8));
        }
    }
}

pub(crate) fn named(what: &str, course: Course<'_>) -> String {
    match course.threads {
        1 => format!("{what}, 1 thread"),
        threads => format!("{what}, {threads} threads"),
    }
}
