//! One set of rules, tried on the requests of a log: the layer itself, on a clock that shows the log's time.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    pin::{Pin, pin},
    sync::{Arc, mpsc::Receiver},
    task::{Context, Poll, Waker},
};

use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::Empty;
use hyper::body::Bytes;
use tollgate::{Key, Limiter, RateLimitLayer, RequestRule, RuleError, siblings::end_lists_by};
use tollgate_core::{
    ManualClock, MemoryStore, Tick,
    sync::{Mutex, lock},
};
use tollgate_rules::RuleDocument;
use tower::{Layer as _, Service as _, service_fn};

use crate::replay::reading::{Logged, Place};

/// The memory of one rule's states: as good as none is forgotten.
const BYTES_PER_RULE: usize = 4 << 30;

/// A client that a rule has denied.
#[derive(Clone, Debug)]
pub(crate) struct DeniedClient {
    pub(crate) times: u64,
    pub(crate) first: Place,
    /// Of its key, with the secret of the service.
    pub(crate) hash: Option<u128>,
}

/// What became of the requests under a rule.
#[derive(Clone, Debug)]
pub(crate) struct RuleResult {
    pub(crate) rule: String,
    pub(crate) limit: String,
    /// `enforced` or `shadow`.
    pub(crate) mode: &'static str,
    pub(crate) requests: u64,
    /// By a shadow, those that it would have denied.
    pub(crate) denied: u64,
}

/// What became of all requests.
#[derive(Debug, Default)]
pub(crate) struct TrialResult {
    pub(crate) rules: Vec<RuleResult>,
    /// By rule and key.
    pub(crate) clients: HashMap<(String, Key), DeniedClient>,
    pub(crate) requests: u64,
    /// All that did not reach the service.
    pub(crate) denied: u64,
}

impl TrialResult {
    /// Takes over what the rules have counted up to now. Those that have ended before stay behind them, if they counted anything.
    fn count(&mut self, limiter: &Limiter) {
        let counts = limiter.counts();
        let rules = limiter.rules().given().iter().map(|rule| {
            let counts = counts.iter().filter(|counts| counts.rule == rule.name());
            let (mut requests, mut denied) = (0, 0);
            for counts in counts {
                let counted = counts.requests.iter().filter(|it| it.decision != "skipped");
                requests += counted.map(|count| count.requests).sum::<u64>();
                denied += counts.decided("denied") + counts.decided("shadow_denied");
            }
            RuleResult {
                rule: rule.name().to_owned(),
                limit: rule.quota().to_string(),
                mode: ["shadow", "enforced"][usize::from(rule.is_enforced())],
                requests,
                denied,
            }
        });
        let ended = std::mem::replace(&mut self.rules, rules.collect());
        for rule in ended.into_iter().filter(|rule| rule.requests > 0) {
            if self.rules.iter().all(|it| it.rule != rule.rule) {
                self.rules.push(rule);
            }
        }
    }
}

/// Requests, which all trials share.
pub(crate) type Requests = Arc<Vec<(Logged, Parts)>>;

/// A request that the service answers later.
type OnItsWay<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What rules say of denials, and of which request.
#[derive(Default)]
struct Heard {
    place: Place,
    clients: HashMap<(String, Key), DeniedClient>,
}

/// A set of rules to try.
pub(crate) struct Trial {
    /// Where they are from.
    pub(crate) origin: String,
    pub(crate) document: Arc<RuleDocument>,
    /// The rules that do not count, and why.
    pub(crate) left_out: BTreeMap<String, String>,
}

impl Trial {
    /// Tries them on lines, which come in the order of their times.
    pub(crate) fn run(&self, requests: &Receiver<Requests>) -> Result<TrialResult, RuleError> {
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let clock = ManualClock::new(0);
        let store = MemoryStore::builder()
            .clock(&clock)
            .bytes_per_rule(BYTES_PER_RULE);
        // Where a request would wait, there is no place: it is denied.
        let layer = RateLimitLayer::new(store.build(), self.rules(0, &heard))?.max_waiting(0, 0);
        // No answer takes its time.
        layer.end_slow_denials();
        let (reached, answer) = (Cell::new(false), Cell::new((StatusCode::OK, 0)));
        let inner = service_fn(|_: Request<Empty<Bytes>>| {
            reached.set(true);
            let ((status, end), clock) = (answer.get(), clock.clone());
            std::future::poll_fn(move |_| match clock.now() < end {
                true => Poll::Pending,
                false => {
                    let mut response = Response::new(Empty::<Bytes>::new());
                    *response.status_mut() = status;
                    Poll::Ready(Ok::<_, Infallible>(response))
                }
            })
        });
        let mut service = layer.layer(inner);
        let mut context = Context::from_waker(Waker::noop());
        // By their end: a response settles its request and gives slots back.
        let mut on_their_way: BTreeMap<(Tick, u64), OnItsWay<'_>> = BTreeMap::new();
        let (mut result, mut expires) = (TrialResult::default(), 0);
        while let Ok(batch) = requests.recv() {
            for (logged, head) in &*batch {
                let place = logged.place;
                while let Some(ended) = on_their_way
                    .first_entry()
                    .filter(|it| it.key().0 <= place.at)
                {
                    let ((at, _), mut response) = ended.remove_entry();
                    clock.set(at);
                    // Its end has come, so that it is ready.
                    let _ = response.as_mut().poll(&mut context);
                }
                clock.set(place.at);
                end_lists_by(place.at);
                if expires <= place.at {
                    result.count(&layer.limiter());
                    layer.handle().replace(self.rules(place.at, &heard))?;
                    expires = self.document.expires_after(place.at).unwrap_or(Tick::MAX);
                }
                lock(&heard).place = place;
                reached.set(false);
                answer.set((
                    logged.answered.status,
                    place.at.saturating_add(logged.answered.took),
                ));
                // The service behind it is always ready.
                let _ = service.poll_ready(&mut context);
                let response = service.call(Request::from_parts(head.clone(), Empty::new()));
                if logged.answered.took == 0 {
                    let _ = pin!(response).poll(&mut context);
                } else {
                    let mut response: OnItsWay<'_> = Box::pin(async { drop(response.await) });
                    if response.as_mut().poll(&mut context).is_pending() {
                        on_their_way.insert((answer.get().1, result.requests), response);
                    }
                }
                result.requests += 1;
                result.denied += u64::from(!reached.get());
            }
        }
        result.count(&layer.limiter());
        result.clients = std::mem::take(&mut lock(&heard).clients);
        Ok(result)
    }

    /// The rules at a time, with what hears of their denials.
    fn rules(&self, at: Tick, heard: &Arc<Mutex<Heard>>) -> Vec<RequestRule> {
        let all = self.document.named_rules_at(at);
        let kept = all.filter(|(of_document, _)| !self.left_out.contains_key(*of_document));
        let rules = kept.map(|(of_document, rule)| {
            let (heard, document) = (Arc::clone(heard), Arc::clone(&self.document));
            let names = [of_document, rule.numbers().name()].map(str::to_owned);
            rule.on_denied(move |head, key, _| {
                let mut heard = lock(&heard);
                let first = heard.place;
                let [of_document, name] = &names;
                let client = heard
                    .clients
                    .entry((name.clone(), key.clone()))
                    .or_insert_with(|| {
                        let mut explained = document.explain(head).into_iter();
                        let hash = explained.find(|it| it.rule == *of_document);
                        DeniedClient {
                            times: 0,
                            first,
                            hash: hash.and_then(|it| it.key_hash),
                        }
                    });
                client.times += 1;
            })
        });
        rules.collect()
    }
}
