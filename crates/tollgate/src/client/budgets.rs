//! What is known of a server's budgets: told the time, it says who may go.

use std::{collections::BTreeMap, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::client::{advice::Told, hold::Hold};

/// How many budgets of a server are kept for a scope.
pub(super) const MOST: usize = 8;

/// How long an empty budget that may be whole again waits for the answer to the one request that tries it.
pub(super) const TRIAL: Duration = Duration::from_secs(1);

/// A server has counted a request by then, also where its answer takes longer: a long poll, say.
pub(super) const COUNTED: Duration = Duration::from_secs(5);

/// The budgets of a scope, and the requests that may not be counted in them yet.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    /// When those were sent that are not answered, by their numbers.
    in_flight: BTreeMap<u64, Instant>,
    /// Those in flight that the server may not have counted: all but those below `counted`. A number, because each request
    /// asks for it, however many there are.
    uncounted: u64,
    /// The server has counted the requests with numbers below this one.
    counted: u64,
    /// All that were ever sent: the number of the next.
    sent: u64,
    budgets: SmallVec<[Budget; 2]>,
}

/// What is known of one budget of the server.
#[derive(Debug)]
struct Budget {
    name: Name,
    /// At least this many requests pass.
    left: u64,
    /// When more may.
    until: Instant,
    /// The first request that has tried whether there are more.
    tried_by: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// What `Retry-After` says.
    Hold,
    Told(u64),
}

/// A request that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    number: u64,
    /// How many the server may not have counted when this one was sent.
    beside: u64,
}

impl Budgets {
    /// Takes one of each budget. An error is the instant before which the server wants no request.
    pub(super) fn take(&mut self, now: Instant) -> Result<Sent, Instant> {
        if let Some(until) = self.closed_until(now) {
            return Err(until);
        }
        let number = self.sent;
        for budget in &mut self.budgets {
            match budget.left.checked_sub(1) {
                Some(left) => budget.left = left,
                // Its time is over. Nobody knows by how much it has grown, so one request goes and asks.
                None => {
                    budget.until = now + TRIAL;
                    budget.tried_by.get_or_insert(number);
                }
            }
        }
        let beside = self.uncounted(now);
        self.in_flight.insert(number, now);
        self.uncounted += 1;
        self.sent += 1;
        Ok(Sent { number, beside })
    }

    /// The server has answered: what it says of its budgets, and for how long it wants no request at all.
    pub(super) fn answered(
        &mut self,
        request: &Sent,
        budgets: &[Told],
        hold: Option<Hold>,
        now: Instant,
    ) {
        self.ended(request);
        // What the server does not speak of any more once its time is over is not there any more.
        self.budgets.retain(|known| {
            let tried = known.tried_by.is_some_and(|first| first <= request.number);
            let over = known.left > 0 && known.until <= now;
            !(tried || over)
                || budgets
                    .iter()
                    .any(|told| known.name == Name::Told(told.name))
        });
        // The server may have counted these after this one: all that were on their way when it was sent, and since.
        let overlapping = request.beside + (self.sent - request.number - 1);
        let in_flight = self.uncounted(now);
        for told in budgets {
            let certain = told.left.saturating_sub(overlapping);
            let likely = told.left.saturating_sub(in_flight);
            let left = self.find(Name::Told(told.name)).map(|known| known.left);
            self.set(Budget {
                name: Name::Told(told.name),
                // What was counted down since the last answer is exact where nobody else uses the budget.
                left: left.map_or(certain, |left| left.min(likely).max(certain)),
                until: now + told.reset,
                tried_by: None,
            });
        }
        if let Some(hold) = hold {
            let before = self.find(Name::Hold).map(|known| known.until);
            let asked = now + hold.asked;
            self.set(Budget {
                name: Name::Hold,
                left: 0,
                // What is long enough stays as it is: of many refusals at once, the latest of many chances would be no
                // chance.
                until: before
                    .filter(|before| *before >= asked)
                    .unwrap_or(asked + hold.spread),
                tried_by: None,
            });
        }
    }

    /// The request is not on its way any more.
    pub(super) fn ended(&mut self, request: &Sent) {
        let was_in_flight = self.in_flight.remove(&request.number).is_some();
        if was_in_flight && request.number >= self.counted {
            self.uncounted -= 1;
        }
    }

    /// Until when the server wants no request, if that is in the future.
    pub(super) fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.budgets
            .iter()
            .filter(|budget| budget.left == 0 && budget.until > now)
            .map(|budget| budget.until)
            .max()
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.budgets.len()
    }

    /// How many are on their way that the server may not have counted yet.
    fn uncounted(&mut self, now: Instant) -> u64 {
        // Each request comes by here once.
        while let Some((number, sent)) = self.in_flight.range(self.counted..).next()
            && now.duration_since(*sent) >= COUNTED
        {
            self.counted = number + 1;
            self.uncounted -= 1;
        }
        self.uncounted
    }

    fn find(&self, name: Name) -> Option<&Budget> {
        self.budgets.iter().find(|budget| budget.name == name)
    }

    /// Replaces a budget, or adds it in place of the one that stops nobody for the longest.
    fn set(&mut self, budget: Budget) {
        if let Some(known) = self
            .budgets
            .iter_mut()
            .find(|known| known.name == budget.name)
        {
            *known = budget;
            return;
        }
        if self.budgets.len() >= MOST {
            let least = self
                .budgets
                .iter()
                .enumerate()
                .min_by_key(|(_, known)| (known.left == 0, known.until))
                .map(|(place, _)| place);
            if let Some(place) = least {
                self.budgets.swap_remove(place);
            }
        }
        self.budgets.push(budget);
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn what_may_not_be_counted_is_known_without_looking_at_each_request(
            steps in vec((any::<bool>(), any::<prop::sample::Index>(), 0_u64..3_000), 1..200),
        ) {
            let mut budgets = Budgets::default();
            let mut sent: Vec<(Sent, Instant)> = Vec::new();
            let mut now = Instant::now();
            for (ends, which, millis) in steps {
                now += Duration::from_millis(millis);
                if ends && !sent.is_empty() {
                    let (request, _) = sent.swap_remove(which.index(sent.len()));
                    budgets.ended(&request);
                    // An answer ends it, and the place that is given back once more.
                    budgets.ended(&request);
                } else {
                    sent.push((budgets.take(now).expect("it is open"), now));
                }
                let fresh = sent.iter().filter(|(_, sent)| now - *sent < COUNTED);
                prop_assert_eq!(budgets.uncounted(now), fresh.count() as u64);
            }
        }
    }
}
