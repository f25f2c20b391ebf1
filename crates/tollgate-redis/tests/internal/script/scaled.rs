//! Rules whose used units scale with the limit, while processes with the old and with the new quota count on one state.

use std::time::Duration;

use tollgate_core::{
    Check, Decision, Key, LiveLimiter, MINUTE, ManualClock, MemoryStore, OnChange, Quota, Rule,
    RuleSet, SECOND,
    algorithm::Retry,
    store::{Fingerprint, Receipt, Settlement},
};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};
use tollgate_test_servers::numbers::Numbers;

use crate::{
    internal_tests::keys::server::Server,
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder},
};

/// The start of an hour.
const NOW: u64 = 1_699_999_200_000_000;

/// A process with a rule that scales.
struct Process {
    rules: RuleSet,
    encoder: Encoder,
}

impl Process {
    fn new(quota: Quota) -> Self {
        Self::of(Rule::new("rule", quota))
    }

    fn of(rule: Rule) -> Self {
        let rules = RuleSet::new([rule.on_change(OnChange::Scale)]).expect("a valid rule");
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        Self {
            encoder: Encoder::new(&rules, keyspace).expect("no partition"),
            rules,
        }
    }

    /// What is decided about a check of this plan.
    fn ask(&self, server: &mut Server, now: u64, check: Check) -> Decision {
        let (mut call, checks) = (call(now), [check]);
        let layout = call.acquire(&self.encoder, &checks).expect("there is room");
        server.send(&call).decision(&layout, &checks, &self.rules)
    }

    fn take(&self, server: &mut Server, now: u64, cost: u64) -> bool {
        self.ask(server, now, one().with_cost(cost)).is_allowed()
    }

    fn left(&self, server: &mut Server, now: u64) -> u64 {
        let decision = self.ask(server, now, one().with_cost(0));
        decision.verdicts()[0].remaining()
    }
}

fn one() -> Check {
    Check::new(0, Fingerprint::from_bits(7), 1)
}

fn call(now: u64) -> Call {
    Call::at(now, Duration::from_secs(10_000_000_000))
}

fn every_algorithm(limit: u64) -> [Quota; 5] {
    [
        Quota::gcra(limit, MINUTE),
        Quota::fixed_window(limit, MINUTE),
        Quota::sliding_window(limit, MINUTE),
        Quota::sliding_log(limit, MINUTE),
        Quota::sliding_buckets(limit, MINUTE),
    ]
}

#[test]
fn the_same_part_of_the_limit_stays_used_as_in_memory() {
    let mut server = Server::start();
    for (from, to) in [(10, 20), (10, 5), (10, 7), (7, 10), (10, 1_000), (1_000, 3)] {
        for (before, after) in every_algorithm(from).into_iter().zip(every_algorithm(to)) {
            for used in [0, 1, 2, from / 2, from - 1, from] {
                server.forget_everything();
                let story = format!("{before} to {after}, {used} used");
                let rule = |quota| [Rule::new("rule", quota).on_change(OnChange::Scale)];
                let memory = MemoryStore::builder().clock(ManualClock::new(NOW)).build();
                let memory = LiveLimiter::new(memory, rule(before)).expect("valid");
                let left = |cost| {
                    let check = memory.check("rule", &Key::of("client")).expect("a rule");
                    let decision = memory.acquire(&[check.with_cost(cost)]).expect("a rule");
                    decision.ready().expect("at once").verdicts()[0].remaining()
                };
                let (old, new) = (Process::new(before), Process::new(after));
                assert_eq!(left(used), from - used, "{story}");
                assert!(old.take(&mut server, NOW, used), "{story}");
                memory.replace(rule(after)).expect("valid");
                let left = left(0);
                assert_eq!(left, to - (used * to).div_ceil(from), "{story}");
                assert_eq!(new.left(&mut server, NOW), left, "{story}");
                assert!(!new.take(&mut server, NOW, left + 1), "{story}");
                assert_eq!(new.left(&mut server, NOW), left, "{story}");
                assert!(new.take(&mut server, NOW, left), "{story}");
                assert_eq!(new.left(&mut server, NOW), 0, "{story}");
                // Less than a unit of the other.
                assert!(old.left(&mut server, NOW) * to <= from, "{story}");
            }
        }
    }
}

#[test]
fn units_of_a_window_keep_their_times() {
    for (quota, then) in [
        (Quota::sliding_log as fn(u64, Duration) -> Quota, MINUTE),
        // A sub-bucket holds its units for a second more.
        (Quota::sliding_buckets, MINUTE + SECOND),
    ] {
        let mut server = Server::start();
        let (old, new) = (
            Process::new(quota(10, MINUTE)),
            Process::new(quota(5, MINUTE)),
        );
        let at = |after: Duration| NOW + after.as_micros() as u64;
        for (second, units) in [(0, 1), (1, 1), (2, 1), (30, 3)] {
            assert!(old.take(&mut server, at(second * SECOND), units));
        }
        // Six of ten.
        assert_eq!(new.left(&mut server, at(31 * SECOND)), 2);
        let denied = new.ask(&mut server, at(31 * SECOND), one().with_cost(3));
        // The first of the three that are left to count for goes a second after the oldest of the six.
        let wait = then + SECOND - 31 * SECOND;
        assert_eq!(denied.verdicts()[0].retry(), Retry::After(wait));
        // Three of ten: rounded up once, not for each entry.
        assert_eq!(new.left(&mut server, at(then + 2 * SECOND)), 3);
        assert_eq!(new.left(&mut server, at(then + 30 * SECOND)), 5);
    }
    // Of the window before, half weighs. Both together are rounded up once.
    let mut server = Server::start();
    let process = |limit| Process::new(Quota::sliding_window(limit, MINUTE));
    let (old, new) = (process(100), process(10));
    let half = NOW + 90_000_000;
    assert!(old.take(&mut server, NOW, 61) && old.take(&mut server, half, 15));
    assert_eq!(old.left(&mut server, half), 100 - 31 - 15);
    assert_eq!(new.left(&mut server, half), 10 - 3 - 2);
}

#[test]
fn a_window_of_another_length_keeps_its_units_as_they_are() {
    for quota in [
        Quota::fixed_window,
        Quota::sliding_window,
        Quota::sliding_log,
        Quota::sliding_buckets as fn(u64, Duration) -> Quota,
    ] {
        let mut server = Server::start();
        let (old, new) = (
            Process::new(quota(10, MINUTE)),
            Process::new(quota(100, 2 * MINUTE)),
        );
        assert!(old.take(&mut server, NOW, 5));
        assert_eq!(new.left(&mut server, NOW), 95, "{}", quota(10, MINUTE));
    }
}

#[test]
fn units_of_a_bucket_come_back_no_sooner_than_before() {
    let mut server = Server::start();
    let at = |after: Duration| NOW + after.as_micros() as u64;
    let old = Process::new(Quota::gcra(10, MINUTE));
    let later = Process::new(Quota::gcra(20, 3 * MINUTE));
    assert!(old.take(&mut server, NOW, 5));
    assert_eq!(later.left(&mut server, NOW), 10, "half of it");
    let old = Process::new(Quota::gcra(10, 60 * MINUTE));
    let sooner = Process::new(Quota::gcra(20, MINUTE));
    server.forget_everything();
    assert!(old.take(&mut server, NOW, 5));
    for (after, left) in [
        (Duration::ZERO, 0),
        (29 * MINUTE, 0),
        (29 * MINUTE + 30 * SECOND, 10),
        (30 * MINUTE, 20),
    ] {
        assert_eq!(sooner.left(&mut server, at(after)), left, "after {after:?}");
    }
}

#[test]
fn nothing_above_the_larger_burst_and_the_faster_rate_is_admitted_while_both_quotas_are_in_use() {
    let mut numbers = Numbers(11);
    let buckets = [
        // The same time from empty to full, then another, then extremes.
        [Quota::gcra(10, SECOND), Quota::gcra(25, SECOND)],
        [
            Quota::gcra(10, SECOND).burst(20),
            Quota::gcra(17, SECOND).burst(50),
        ],
        [Quota::gcra(1_000, MINUTE), Quota::gcra(10, SECOND)],
        [Quota::gcra(7, SECOND), Quota::gcra(3, SECOND).burst(1_000)],
        [
            Quota::gcra(100_000, SECOND).burst(3),
            Quota::gcra(1, MINUTE).burst(40),
        ],
    ];
    for [one, two] in buckets {
        let mut server = Server::start();
        let processes = [Process::new(one), Process::new(two)];
        let burst = one.limit().max(two.limit());
        let micros = |quota: &Quota| quota.period().as_micros() as f64 / quota.rate() as f64;
        let unit = micros(&one).min(micros(&two));
        let fill = [one, two].map(|quota| quota.limit() as f64 * micros(&quota));
        let mut now = NOW;
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for _ in 0..500 {
            let process = &processes[numbers.below(2) as usize];
            let most = if numbers.one_in(3) { burst } else { 4 };
            let cost = 1 + numbers.below(most);
            if process.take(&mut server, now, cost) {
                taken.push((now, cost));
            }
            let pause = numbers.of(&fill) / [1.0, 2.0, 20.0, 300.0][numbers.below(4) as usize];
            now += if numbers.one_in(2) { 0 } else { pause as u64 };
        }
        assert!(taken.len() > 50, "{one} and {two}: {}", taken.len());
        for (place, (since, _)) in taken.iter().enumerate() {
            let mut units = 0;
            for (till, more) in &taken[place..] {
                units += more;
                let most = burst as f64 + (till - since) as f64 / unit;
                assert!(units as f64 <= most, "{one} and {two}: {units} of {most}");
            }
        }
    }
    for (one, two) in every_algorithm(10)
        .into_iter()
        .zip(every_algorithm(37))
        .skip(1)
    {
        let mut server = Server::start();
        let processes = [Process::new(one), Process::new(two)];
        let (mut now, mut taken) = (NOW, Vec::new());
        for _ in 0..500 {
            let process = &processes[numbers.below(2) as usize];
            let cost = 1 + numbers.below(3);
            if process.take(&mut server, now, cost) {
                taken.push((now, cost));
            }
            now += numbers.below(3_000_000);
        }
        let window = MINUTE.as_micros() as u64;
        let name = one.algorithm().name();
        for (since, _) in &taken {
            let is_aligned = ["fixed_window", "sliding_window"].contains(&name);
            let since = if is_aligned {
                since - since % window
            } else {
                *since
            };
            let within = taken
                .iter()
                .filter(|(at, _)| (since..since + window).contains(at));
            let units: u64 = within.map(|(_, units)| units).sum();
            assert!(units <= 37, "{name}: {units}");
        }
        // Nor is much lost to rounding: a client that alternates has more than the smaller quota gives.
        let units: u64 = taken.iter().map(|(_, units)| units).sum();
        let minutes = (now - NOW) / window;
        assert!(units > 10 * minutes, "{name}: {units} in {minutes} minutes");
    }
}

#[test]
fn a_denial_says_when_units_fit_whichever_quota_wrote_the_state() {
    let mut numbers = Numbers(5);
    let mut server = Server::start();
    let pairs = every_algorithm(10).into_iter().zip(every_algorithm(37));
    let buckets = [
        (
            Quota::gcra(10, SECOND).burst(20),
            Quota::gcra(17, SECOND).burst(50),
        ),
        (Quota::gcra(1_000, MINUTE), Quota::gcra(7, SECOND)),
    ];
    for (one, two) in pairs.chain(buckets) {
        for (before, after) in [(one, two), (two, one)] {
            let (old, new) = (Process::new(before), Process::new(after));
            for _ in 0..12 {
                let story = format!("{before} to {after}");
                server.forget_everything();
                let now = NOW + numbers.below(90_000_000);
                let used = 1 + numbers.below(before.limit());
                assert!(old.take(&mut server, now, used), "{story}");
                let now = now + numbers.below(3_000_000);
                let cost = 1 + numbers.below(after.limit());
                let decision = new.ask(&mut server, now, one_of(cost));
                let Some(Retry::After(wait)) = denied(&decision) else {
                    continue;
                };
                let then = now + wait.as_micros() as u64;
                let early = new.ask(&mut server, then - 1, one_of(cost));
                assert!(denied(&early).is_some(), "{story}, {used} used, {cost}");
                assert!(
                    new.take(&mut server, then, cost),
                    "{story}, {used} used, {cost}"
                );
            }
        }
    }
}

#[test]
fn plans_of_a_rule_keep_units_and_what_replaced_quotas_wrote_is_scaled() {
    let mut server = Server::start();
    let rule = |own, gold| {
        let rule = Rule::new("rule", Quota::fixed_window(own, MINUTE));
        let rule = rule.plan("gold", Quota::fixed_window(gold, MINUTE));
        Process::of(rule.threshold("warn", Quota::fixed_window(own / 2, MINUTE)))
    };
    let (old, new) = (rule(10, 100), rule(20, 400));
    let left = |process: &Process, server: &mut Server, check: Check| {
        let decision = process.ask(server, NOW, check.with_cost(0));
        decision.verdicts()[0].remaining()
    };
    let (gold, warn) = (one().with_plan(1), Check::new(1, one().key(), 1));
    assert!(old.take(&mut server, NOW, 4));
    assert_eq!(
        left(&old, &mut server, gold),
        96,
        "a change of plans keeps units"
    );
    // The threshold reads the state as its rule does.
    for (check, expected) in [(one(), 12), (gold, 400 - 160), (warn, 10 - 8)] {
        assert_eq!(left(&new, &mut server, check), expected, "{check:?}");
    }
    assert!(new.take(&mut server, NOW, 2));
    assert_eq!(left(&new, &mut server, gold), 390);
    assert_eq!(left(&new, &mut server, warn), 0);
    assert_eq!(left(&old, &mut server, one()), 5);
}

#[test]
fn units_that_were_taken_before_a_change_are_given_back_as_the_part_that_they_were() {
    let mut server = Server::start();
    for (from, to) in [(10, 100), (100, 10)] {
        for (before, after) in every_algorithm(from).into_iter().zip(every_algorithm(to)) {
            server.forget_everything();
            let story = format!("{before} to {after}");
            let (old, new) = (Process::new(before), Process::new(after));
            let decision = old.ask(&mut server, NOW, one_of(from / 2));
            let receipt = Receipt::new(one_of(from / 2), &decision.verdicts()[0], decision.at());
            assert!(new.take(&mut server, NOW, to / 10), "{story}");
            let mut call = call(NOW);
            assert!(call.settle(&old.encoder, &receipt, Settlement::Cancel));
            server.send(&call);
            assert_eq!(new.left(&mut server, NOW), to - to / 10, "{story}");
        }
    }
}

#[test]
fn what_is_on_lease_is_scaled_with_the_state_and_goes_back_as_the_part_that_it_was() {
    let mut server = Server::start();
    for (from, to) in [(100, 1_000), (1_000, 100)] {
        for (before, after) in every_algorithm(from)
            .into_iter()
            .zip(every_algorithm(to))
            .take(3)
        {
            server.forget_everything();
            let story = format!("{before} to {after}");
            let (old, new) = (Process::new(before), Process::new(after));
            let terms = LeaseTerms::new(&before, 500).expect("it is granted");
            let mut with_lease = call(NOW);
            let layout = with_lease.acquire(&old.encoder, &[one_of(from / 10)]);
            let query = LeaseQuery::default().with_tracked(from / 10);
            let place = with_lease.grant(&old.encoder, &one(), &query, &terms);
            assert!(layout.is_some());
            let grant = server
                .send(&with_lease)
                .grant(place.expect("there is room"));
            let Some(Some(Grant::Tracked {
                units, generation, ..
            })) = grant
            else {
                panic!("{grant:?} is no lease, {story}");
            };
            assert_eq!(units, from / 10, "{story}");
            assert_eq!(new.left(&mut server, NOW), to * 8 / 10, "{story}");
            assert!(new.take(&mut server, NOW, to / 10), "{story}");
            // A reset keeps what is on lease.
            let mut reset = call(NOW);
            assert!(reset.reset(&new.encoder, 0, one().key()));
            server.send(&reset);
            assert_eq!(new.left(&mut server, NOW), to * 9 / 10, "{story}");
            // Half of it was spent.
            for _ in 0..2 {
                let mut returned = call(NOW);
                let lease = ReturnedLease::new(units, units / 2, generation);
                assert!(returned.close(&old.encoder, &one(), lease).is_some());
                server.send(&returned);
                assert_eq!(new.left(&mut server, NOW), to * 19 / 20, "once, {story}");
            }
        }
    }
}

fn one_of(cost: u64) -> Check {
    one().with_cost(cost)
}

fn denied(decision: &Decision) -> Option<Retry> {
    (!decision.is_allowed()).then(|| decision.verdicts()[0].retry())
}
