//! The budgets of a server as the client knows them, and its cooldown.

use std::{collections::BTreeMap, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::advice::AdvisedBudget;

/// The number of budgets kept per partition.
pub(crate) const MOST: usize = 8;

/// How long to wait for the response to a probe of an empty budget before sending another.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// A server has counted a request after this time, even if the response takes longer, as for a long poll.
pub(crate) const COUNTED_AFTER: Duration = Duration::from_secs(5);

/// The budgets of a partition, and the requests that the server may not have counted yet.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    /// When the requests in flight that the server may not have counted were sent, by number.
    uncounted: BTreeMap<u64, Instant>,
    /// The number of the next request.
    sent: u64,
    budgets: SmallVec<[Budget; 2]>,
    /// The good responses since the last cooldown ended.
    good: u64,
    /// Those since the one before it ended: at about so many the server rejects.
    good_before: u64,
}

/// One budget of the server.
#[derive(Debug)]
struct Budget {
    /// `None`: the cooldown that the server asks for.
    name: Option<u64>,
    /// At least this many requests may be sent.
    left: u64,
    /// When the budget is reset.
    until: Instant,
    /// The first request sent as a probe after the reset.
    first_probe: Option<u64>,
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    number: u64,
    /// How many other requests the server may not have counted when this one was sent.
    others: u64,
}

impl Budgets {
    /// Takes one request of each budget. The error is the instant at which the server opens.
    pub(crate) fn take(&mut self, now: Instant) -> Result<InFlight, Instant> {
        if let Some(until) = self.closed_until(now) {
            return Err(until);
        }
        let number = self.sent;
        for budget in &mut self.budgets {
            if budget.left == 0 {
                // The reset has passed, and the new budget is unknown: send one probe.
                budget.first_probe.get_or_insert(number);
            }
            budget.left = budget.left.saturating_sub(1);
            if budget.left == 0 && budget.first_probe.is_some() {
                budget.until = now + PROBE_INTERVAL;
            }
        }
        let others = self.uncounted(now);
        self.uncounted.insert(number, now);
        self.sent += 1;
        Ok(InFlight { number, others })
    }

    /// Applies the budgets and the cooldown of a response.
    pub(crate) fn on_response(
        &mut self,
        request: &InFlight,
        budgets: &[AdvisedBudget],
        cooldown: Option<Cooldown>,
        now: Instant,
    ) {
        self.on_end(request);
        let (sent, good, before) = (self.sent, &mut self.good, self.good_before);
        // Forget a budget whose reset has passed if the response does not mention it.
        self.budgets.retain(|known| {
            let probe = known.first_probe.filter(|first| *first <= request.number);
            let over = known.left > 0 && known.until <= now;
            if let (Some(first), None, None, []) = (probe, known.name, cooldown, budgets) {
                // After a cooldown the server has a limit that it does not report: each good response lets two more go, up to
                // where it rejected last time, and from there it begins anew. It is over once there was room for a while.
                *good += 1;
                let doubled = 1 + 2 * *good;
                let most = match *good < before {
                    true => doubled.min(before),
                    false => doubled - before,
                };
                if known.left == 0 {
                    known.until = now + PROBE_INTERVAL;
                }
                known.left = most.saturating_sub(sent - first);
                return !over;
            }
            !(probe.is_some() || over)
                || budgets.iter().any(|budget| known.name == Some(budget.name))
        });
        // The server may have counted these after this one: those in flight when it was sent, and those sent since.
        let overlapping = request.others + (self.sent - request.number - 1);
        let in_flight = self.uncounted(now);
        for budget in budgets {
            let certain = budget.left.saturating_sub(overlapping);
            let likely = budget.left.saturating_sub(in_flight);
            let left = self.find(Some(budget.name)).map(|known| known.left);
            self.set(Budget {
                name: Some(budget.name),
                // Counting down from the last response is exact if no other client uses the budget.
                left: left.map_or(certain, |left| left.min(likely).max(certain)),
                until: now + budget.reset,
                first_probe: None,
            });
        }
        if let Some(cooldown) = cooldown {
            if self.good > 0 {
                self.good_before = std::mem::take(&mut self.good);
            }
            let before = self.find(None).map(|known| known.until);
            let asked = now + cooldown.asked;
            self.set(Budget {
                name: None,
                left: 0,
                // Keep a cooldown that is long enough: the maximum over many rejections would always be the full jitter.
                until: before
                    .filter(|before| *before >= asked)
                    .unwrap_or(asked + cooldown.jitter),
                first_probe: None,
            });
        }
    }

    /// The request has ended.
    pub(crate) fn on_end(&mut self, request: &InFlight) {
        self.uncounted.remove(&request.number);
    }

    /// When the server opens again, if it is closed now.
    pub(crate) fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.budgets
            .iter()
            .filter(|budget| budget.left == 0 && budget.until > now)
            .map(|budget| budget.until)
            .max()
    }

    /// Whether those that are empty until after the deadline may be refilled by the response to a probe.
    pub(crate) fn is_probed(&self, deadline: Instant) -> bool {
        self.budgets
            .iter()
            .filter(|budget| budget.left == 0 && budget.until > deadline)
            .all(|budget| budget.first_probe.is_some())
    }

    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.uncounted.len()
    }

    /// The number of requests in flight that the server may not have counted yet.
    fn uncounted(&mut self, now: Instant) -> u64 {
        while let Some(earliest) = self.uncounted.first_entry()
            && now.duration_since(*earliest.get()) >= COUNTED_AFTER
        {
            earliest.remove();
        }
        self.uncounted.len() as u64
    }

    fn find(&self, name: Option<u64>) -> Option<&Budget> {
        self.budgets.iter().find(|budget| budget.name == name)
    }

    /// Replaces a budget or adds it, evicting the one that matters least.
    fn set(&mut self, budget: Budget) {
        self.budgets.retain(|known| known.name != budget.name);
        if self.budgets.len() >= MOST {
            let known = self.budgets.iter().enumerate();
            let least = known.min_by_key(|(_, known)| (known.left == 0, known.until));
            if let Some((place, _)) = least {
                self.budgets.swap_remove(place);
            }
        }
        self.budgets.push(budget);
    }
}

/// The wait that a server asks for, and the jitter on top, so that its clients do not all return at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cooldown {
    pub(crate) asked: Duration,
    pub(crate) jitter: Duration,
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn of_more_than_eight_budgets_those_with_room_for_the_shortest_time_are_forgotten() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        let request = budgets.take(now).expect("it is open");
        // Two are empty, for the shortest time of all.
        let advised = (0..12).map(|name| AdvisedBudget {
            name,
            left: if name < 2 { 0 } else { 100 },
            reset: Duration::from_secs(10 + name),
        });
        budgets.on_response(&request, &advised.collect::<Vec<_>>(), None, now);
        let known = [0, 1, 6, 7, 8, 9, 10, 11].map(Some);
        assert_eq!(budgets.budgets.len(), known.len());
        assert!(known.iter().all(|name| budgets.find(*name).is_some()));
    }

    proptest! {
        #[test]
        fn the_number_of_uncounted_requests_is_exact(
            steps in vec((any::<bool>(), any::<prop::sample::Index>(), 0_u64..3_000), 1..200),
        ) {
            let mut budgets = Budgets::default();
            let mut sent: Vec<(InFlight, Instant)> = Vec::new();
            let mut now = Instant::now();
            for (ends, which, millis) in steps {
                now += Duration::from_millis(millis);
                if ends && !sent.is_empty() {
                    let (request, _) = sent.swap_remove(which.index(sent.len()));
                    budgets.on_end(&request);
                    // Both the response and the drop end it.
                    budgets.on_end(&request);
                } else {
                    sent.push((budgets.take(now).expect("it is open"), now));
                }
                let fresh = sent.iter().filter(|(_, sent)| now - *sent < Duration::from_secs(5));
                prop_assert_eq!(budgets.uncounted(now), fresh.count() as u64);
            }
        }
    }
}
