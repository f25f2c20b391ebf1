//! Operating: what to watch, what to expect, and how to change a limit.
//!
//! # Metrics
//!
//! With the feature `metrics`, through the [`metrics`](https://docs.rs/metrics) facade. A [`Limiter`](crate::Limiter) reports
//! its decisions, whoever calls it: a layer, a worker, a client. Install the recorder before the first request: a rule that
//! was used before has no metrics for as long as its layer lives. Under load, threads
//! count for themselves, and the metrics are up to 50 ms behind: call [`flush_metrics`](crate::observe::flush_metrics) before you
//! render them if they have to be exact.
//!
//! | name | type | labels | watch it for |
//! | --- | --- | --- | --- |
//! | `tollgate_requests_total` | counter | `rule`, `algorithm`, `subject_type`, `plan`, `decision`, `reason`, `source` | the share of `denied`; any `reason="store_failed"` |
//! | `tollgate_cost_units_total` | counter | `rule`, `algorithm`, `plan`, `decision`: `allowed`, `denied` | the load in units, where costs differ |
//! | `tollgate_near_limit_total` | counter | `rule` | clients that will soon be denied: allowed requests that left a fifth of the limit or less |
//! | `tollgate_burst_exhausted_total` | counter | `rule` | allowed requests that left nothing: the next is denied |
//! | `tollgate_remaining_ratio` | histogram | `rule` | the share of the limit that a request left: how far clients are from their limit |
//! | `tollgate_hot_keys_total` | counter | `rule` | keys that made up a fifth of their rule's requests: see [top keys](#top-keys) |
//! | `tollgate_shadow_differences_total` | counter | `rule`, `enforced`: `allowed`, `denied` | what a limit on trial would change |
//! | `tollgate_retry_after_seconds` | histogram | `rule` | how long denied clients have to wait |
//! | `tollgate_waiting` | gauge | `rule` | requests and messages that [wait](crate::guide::delay) now, against [`max_waiting`](crate::RateLimitLayer::max_waiting) |
//! | `tollgate_wait_seconds` | histogram | `rule` | how long requests have waited that were admitted then, all of them: what the limiter adds to your latency |
//! | `tollgate_waits_total` | counter | `rule`, `outcome` | requests that have waited or found no place; a rising share of `abandoned`: clients give up before their turn |
//! | `tollgate_wait_units_lapsed_total` | counter | `rule` | units that were lost because their requests gave up with others behind them; through Redis, those of this process |
//! | `tollgate_check_duration_seconds` | histogram | | what the limiter adds to a request: the time from the head to the decision, look-ups included, without your service |
//! | `tollgate_tracked_keys` | gauge | `rule` | growth: keys with a state |
//! | `tollgate_tracked_bytes` | gauge | `rule` | the same against the bound, default: 64 MiB |
//! | `tollgate_new_keys_total` | counter | `rule` | keys that came of which nothing was kept, in memory; far more than new clients: somebody invents keys |
//! | `tollgate_evicted_live_total` | counter | `rule` | **alert on any increase**: the bound is too small, or a flood is under way |
//! | `tollgate_misconfigured_total` | counter | `rule` | **alert on any increase**: the key cannot be found the way the service is set up |
//! | `tollgate_keyless_requests_total` | counter | `rule` | requests without a key, whatever the rule does with them; as many as there are requests: the layer stands outside of the authentication, or a name is misspelt |
//! | `tollgate_look_up_failures_total` | counter | `rule` | **alert on any increase**: keys that were not [looked up in time](crate::RateLimitLayer::look_up_deadline) |
//! | `tollgate_refunded_requests_total` | counter | `rule` | requests that were let through and not served, and were [given back](crate::guide::choosing#load-shedding); and those whose response [does not count](crate::guide::count_failures) |
//! | `tollgate_store_failures_total` | counter | `rule` | **alert on any increase**: checks that the store could not decide, whatever was answered then |
//! | `tollgate_fallback_decisions_total` | counter | `rule`, `answer`, `policy` | what the rules answered in place of their store |
//! | `tollgate_units_admitted_in_fallback_total` | counter | `rule` | units let through while the store failed, of which it never learns: what an outage has cost |
//! | `tollgate_preflights_total` | counter | | preflights that passed uncounted; a sudden rise |
//!
//! The values of `decision`:
//!
//! | value | a request that |
//! | --- | --- |
//! | `allowed` | passed |
//! | `denied` | was denied by this rule, for a `reason` |
//! | `withheld` | fitted, but another rule denied it; nothing was taken |
//! | `skipped` | did not count: exempt, an unlimited plan, no key with [`Missing::Skip`](crate::Missing::Skip) or under a shadow, a key that was not looked up under a rule that [allows](crate::OnStoreError::Allow) then |
//! | `degraded` | passed because the store failed |
//! | `shadow_allowed`, `shadow_denied` | a shadow or a threshold would have let through, or not |
//!
//! | `reason` | why |
//! | --- | --- |
//! | `quota` | over the limit |
//! | `never` | its cost is above what ever fits |
//! | `store_failed` | the store failed, or the look-up of its key |
//! | `no_key` | it has no key |
//! | `slots` | too many requests run at once |
//! | `queue_full` | as many wait already as may |
//! | `wait_expired` | its time to wait was over |
//! | `none` | it was not denied |
//!
//! `source` is who answered: `store`, `deny_cache`, `lease`, `local`, `fallback`, or `none` where nobody was asked. `plan` is
//! the plan's name, `none` for the rule's own quota, `computed` for quotas of requests, and `other` for plans beyond the 63rd.
//! `subject_type` is what the rule counts by: `ip`, `header`, `extension`, `header+route`, or what
//! [`Rule::subject_type`](crate::Rule::subject_type) says.
//! `policy` is the rule's [`on_store_error`](crate::guide::choosing#when-the-store-fails): `local_share`, `cap`, `allow`, `deny`,
//! `degraded`.
//!
//! The values of `outcome`: `admitted` and `denied` at the end of the wait; `wait_expired`, it waited in vain; `queue_full`, as many
//! waited already; `abandoned`, the client has gone. A request counts under each rule that lets it [wait](crate::Rule::wait); where
//! a caller waits by itself ([`acquire_within`](crate::Limiter::acquire_within)), under each of its rules.
//!
//! The values of `answer`: `allowed` and `denied` by a local share or a cap; `passed` because the rule lets everything pass
//! then; `refused` because it denies then, or because the cost is above the share and not above the quota.
//!
//! Labels are names of rules and plans and these words, so their number is fixed by the code. No label holds a key or an
//! address.
//!
//! The gauges, `tollgate_evicted_live_total` and `tollgate_new_keys_total` are brought up to date once a second at most, by a
//! request. Without requests they stand still. Histograms hold samples, the first and each sixteenth of a thread: their
//! `_count` is no number of requests.
//!
//! An exporter for Prometheus turns a histogram into a summary unless it is given buckets:
//! [`BUCKETS`](crate::observe::BUCKETS) has those of all histograms of tollgate, to paste into the set-up of the exporter.
//!
//! # Top keys
//!
//! A rule that is told so keeps the keys that come most often, in fixed memory: about 15 KB for each processor. Their requests,
//! denials and units of the last two and a half to five minutes are in [`Limiter::top_keys`](crate::Limiter::top_keys), which
//! [`RateLimitLayer::limiter`](crate::RateLimitLayer::limiter) has. A key is shown by the first letters of what stands for it in
//! the store, the same as in the log; on Redis, the same in all processes with one secret. A [label](crate::Rule::label) shows who it
//! is, where you want that:
//!
//! ```
//! use tollgate::{KeyBuf, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
//!
//! let account = |key: &KeyBuf| match key.parts().next() {
//!     // "acme.k1": the account, without its secret.
//!     Some((_, api_key)) => String::from_utf8_lossy(api_key).split('.').next().unwrap_or("").to_owned(),
//!     None => String::new(),
//! };
//! let rule = Rule::new("per-key", Quota::gcra(600, MINUTE)).label(account);
//! let limits = RateLimitLayer::new(MemoryStore::new(), [rule.by(header("x-api-key"))])?;
//! for key in limits.limiter().top_keys("per-key", 10)? {
//!     println!("{} {:?}: {} requests, {} denied", key.key, key.label, key.at_least, key.denials);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A key's requests are between `at_least` and `at_most`. The table has 32 sets of eight keys: a key with more than an eighth of
//! the requests of its set is never missing, and so none with more than an eighth of all. A key with at least a fifth of the
//! requests that a thread sees of a rule, and a thousand of its own, is a *hot key*: there is
//! one event (warn), and `tollgate_hot_keys_total` counts it.
//!
//! # What callers have left
//!
//! A [`LimitsEndpoint`](crate::LimitsEndpoint) is a route that tells a caller what it has left under each rule, as JSON like that of
//! GitHub's `/rate_limit`. It counts nothing, and each caller may ask once a second.
//!
//! # Dashboards and alerts
//!
//! The folder `ops` of the repository has two dashboards for Grafana, with a row for each failure of this guide, and alerts for
//! Prometheus, each with its meaning, its remedy and a link to here.
//!
//! # Events
//!
//! With the feature `tracing`, all with the target `tollgate`:
//!
//! | level | what | fields |
//! | --- | --- | --- |
//! | debug | a request was denied; one event for each rule that denied | `rule`, `reason`, `source`, `retry_after_ms`, `algorithm`, `plan`, `limit`, `remaining`, `cost`, `key`, `at_ms`, `route`, `one_in` |
//! | debug | a request was rejected because it has no key, or its key was not looked up | `rule`, `one_in` |
//! | warn | a [hot key](#top-keys); once for each in two and a half minutes | `rule`, `key`, `label`, `percent` |
//! | warn | the store failed, and the rule's own answer applied; once for each outage | `rule`, `allowed` |
//! | info | the store responds again to a limiter, and has not failed for two seconds | `rules`, those of the limiter |
//! | warn | none of the first hundred requests of a rule had a key; once for each rule | |
//! | warn | a key was not looked up in time; once for each rule | |
//! | warn | a request names a plan that its rule does not have, or has a computed cost that never fits; once for each rule | |
//! | warn | one layer is applied to a request twice, which is counted twice; once for each layer, when it is noticed | |
//! | warn | a peer sends the header of a proxy and is not trusted; once for each extractor | |
//! | error | a rule finds no key the way the service is set up; once for each rule | |
//! | error | a handler asked for a rule that there is not | |
//!
//! Of a denial, `key` is the first letters of what stands for the client's key in the store, `at_ms` the time of the decision by
//! the store's clock, in ms since the Unix epoch, and `route` the pattern of the route, as axum has it. Denials are at debug level
//! because under attack they are many, and then one of many is logged: of each rule and thread the first ten in a second, then
//! one in ten, in a hundred, and so on. `one_in` is how many denials the line stands for; its sum is the number of denials. What is told once goes to the
//! standard error where nobody listens to events: without the feature, or without a subscriber. The rest goes nowhere then. No
//! event holds a key; the one about a peer that is not trusted holds its address.
//!
//! With [`attach`](crate::RateLimitLayer::attach_decision) the layer's denial carries its [`Decision`](crate::Decision) in the
//! response's extensions, for an access log in a layer outside.
//! Log the client by [`ClientIp::resolve`](crate::key::ClientIp::resolve), so that the log and the limit mean the same
//! address.
//!
//! # When the store fails
//!
//! What each rule does then is chosen by [`on_store_error`](crate::guide::choosing#when-the-store-fails). A store in memory
//! never fails. Of one that can:
//!
//! - `tollgate_store_failures_total` says that it fails, `tollgate_fallback_decisions_total` what came of that.
//! - A [local share](crate::OnStoreError::LocalShare) begins with its part of the last state that this instance saw of a key,
//!   and is cut for as many instances as the store knew of, at least for [as many](crate::RateLimitLayer::instances) as you
//!   said. Say so: an instance that starts during the outage knows of nobody else.
//! - If only a part of the instances cannot reach the store, they add their shares to the whole quota that the others still
//!   get from it: with C of N cut off, `(1 + C/N)` times the rate for as long as that lasts.
//! - When the store answers again it counts on from its own state. What passed meanwhile is neither taken from it nor given
//!   back: `tollgate_units_admitted_in_fallback_total`, and [`Limiter::admitted_in_fallback`](crate::Limiter::admitted_in_fallback) in code.
//!
//! A handler sees it in its [`Admission`](crate::Admission), after [`attach`](crate::RateLimitLayer::attach_decision). An access log
//! in a layer outside finds the decision on the response of a denied request; for one that passed, the handler puts it there:
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::{
//!     Admission, Decision, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, Source, key::constant,
//! };
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! /// For the access log: who has decided.
//! fn decided_by(decision: &Decision) -> &'static str {
//!     let alone = |source| source == Source::Fallback;
//!     if decision.is_degraded() {
//!         "nobody: the store failed"
//!     } else if decision.verdicts().iter().any(|verdict| alone(verdict.source())) {
//!         "this instance alone: the store failed"
//!     } else {
//!         "the store"
//!     }
//! }
//!
//! async fn handle(request: Request<String>) -> Result<Response<String>, std::convert::Infallible> {
//!     let mut response = Response::new(String::from("hello"));
//!     if let Some(admission) = request.extensions().get::<Admission>() {
//!         // Where `is_degraded`, it could save effort as well.
//!         response.extensions_mut().insert(admission.decision().clone());
//!     }
//!     Ok(response)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rule = Rule::new("all", Quota::gcra(1, MINUTE)).by(constant("all"));
//! let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?.attach_decision();
//! let service = ServiceBuilder::new().layer(limits).service_fn(handle);
//! for status in [200, 429] {
//!     let response = service.clone().oneshot(Request::new(String::new())).await?;
//!     assert_eq!(response.status(), status);
//!     let decision = response.extensions().get::<Decision>().expect("allowed or denied, it is there");
//!     assert_eq!(decided_by(decision), "the store");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Memory and evictions
//!
//! The states of one rule take at most the bytes that the [store](crate::MemoryStoreBuilder::bytes_per_rule) was given,
//! whatever clients send. Expired entries, whose state equals a fresh one, are removed a few at a time while new keys come
//! and while the gauges are updated; nothing runs in the background. After a flood the memory is given back in the same
//! way, within minutes. `tollgate_tracked_keys` counts live keys only. A table of more than some thousand keys estimates
//! it from a sample while it holds expired entries.
//!
//! Expired entries are evicted first, then the least-used ones of a sample; entries that deny at present go last, whatever
//! the algorithm. Each eviction of a live entry increments `tollgate_evicted_live_total`: that client starts anew. A flood on
//! one rule evicts states of that rule only, and a client that is locked out stays locked out. Raise the bound, or count by
//! something that is harder to make up.
//!
//! On a [`Limiter`](crate::Limiter), at most 1 024 wait for the same rules and keys, and 16 384 in all, of whom 8 192 stand
//! behind others: clients with a few keys cannot take the places of all. State is not kept over a restart: everybody starts anew.
//!
//! # Everybody is one client
//!
//! The most common mistake: behind a proxy, a rule by [`client_ip()`](crate::key::client_ip()) that was not told so counts
//! all clients as one. You see it as
//!
//! - `tollgate_tracked_keys` of that rule at 1, or at the number of your proxies;
//! - a warning, "172.17.0.1 sends x-forwarded-for and is not trusted", where proxies are named and this one is not;
//! - denials that begin when the *whole* traffic passes the limit of one client;
//! - [`ClientIp::resolve`](crate::key::ClientIp::resolve) in the log, always the same.
//!
//! The cure is in the [table of proxies](crate::key#the-clients-address). The contrary, an address that the client can
//! choose, shows as far more keys than there are clients.
//!
//! A server that does not hand the peer's address on shows as `tollgate_misconfigured_total` and an error that names the
//! call to add. All its requests share one bucket until then, also with [`Missing::Skip`](crate::Missing::Skip).
//!
//! A rule by an identity makes one client of everybody as well where nobody has put the identity there: the layer stands
//! outside of the authentication, or the name of a header is misspelt. `tollgate_keyless_requests_total` then rises with each
//! request, and after the first hundred a warning says so.
//!
//! # Preflights are not counted
//!
//! A CORS preflight (OPTIONS with `Origin` and `Access-Control-Request-Method`, no body and no `Content-Type`) passes
//! uncounted, because a browser reports the request that follows as failed when it is refused. Anyone can send one, as often as
//! he likes. That is harmless where a CORS layer outside answers OPTIONS, or no route does. Where OPTIONS reaches expensive work,
//! call [`count_preflight`](crate::RateLimitLayer::count_preflight): for axum's `any(..)`, fallbacks and proxies, whose handlers
//! run for every method; in front of tonic, where [handlers that take streams](crate::guide::grpc) are expensive to begin.
//! `tollgate_preflights_total` shows how many passed.
//!
//! Where browsers are refused their preflights, something between gives them a body, or hides that they have none: a proxy
//! that sends an empty body in chunks, or a layer that wraps bodies. Put CORS outside.
//!
//! # When the clock jumps
//!
//! The memory store reads the wall clock once, when it is made, and a monotonic clock from then on. A step of the system's
//! time, back or ahead, changes no decision. What it changes is where windows begin: those of
//! [`fixed_window`](crate::Quota::fixed_window) stay aligned to the clock as it was at the start. Restart the process after a
//! large correction if the contract names the hour.
//!
//! A clock of your own ([`Clock::custom`](crate::Clock::custom)) may go back. That never gives a unit back, and nothing
//! panics. A jump ahead is time that has passed: everything refills.
//!
//! While a machine sleeps, its monotonic clock may stand still; then so do the limits.
//!
//! # Changing a quota
//!
//! State belongs to the rule's name: one name on one store is one budget. So a name has one quota at a time. Two layers or
//! limiters may share it, with the same quota and the same plans; a second quota under a name that is in use is refused
//! when it is set up, because the looser one would let through what the stricter one has refused.
//!
//! To change the rules while the service runs, replace them through the layer's [handle](crate::RateLimitLayer::handle). The
//! new rules are in force at once, in all services of the layer. A request in flight ends by the rules that it began with. No
//! request waits or fails, and **used units stay used**:
//!
//! ```
//! use tollgate::{MemoryStore, RateLimitLayer, Rule, key::header};
//!
//! let per_key = |limit: &str| -> Result<_, Box<dyn std::error::Error>> {
//!     Ok(Rule::new("per-key", limit.parse()?).by(header("x-api-key")))
//! };
//! let layer = RateLimitLayer::new(MemoryStore::new(), [per_key("60/min")?])?;
//! let handle = layer.handle(); // for an admin route, a signal, a task that watches a file
//!
//! for change in handle.replace([per_key("90/min burst 30")?])? {
//!     println!("{change}"); // per-key: gcra 60/min → gcra 90/min burst 30, used units are kept
//! }
//! // What is wrong changes nothing, and says why.
//! let error = per_key("90/mni").map(|_| ()).unwrap_err();
//! assert!(error.to_string().ends_with("did you mean \"min\"?"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`MessageLimitLayer::handle`](crate::MessageLimitLayer::handle) does the same for limits on messages; a call that has begun
//! keeps its rules. A [`LiveLimiter`](crate::LiveLimiter) does it in a worker. Layers that share a rule name change it
//! [in one step](crate::RulesHandle::replace_all).
//!
//! A rule says what becomes of used units when its quota changes: [`OnChange::Keep`](crate::OnChange::Keep) is the default,
//! `Scale` scales them with the limit, and `Reset` lets everybody begin anew.
//!
//! To put a new limiter or layer in the place of an old one, say which it replaces:
//!
//! ```
//! use tollgate::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
//!
//! let store = MemoryStore::new();
//! let rule = |limit| [Rule::new("api", Quota::fixed_window(limit, 60 * MINUTE))];
//! let key = Key::of(["account-7"]);
//! let first = Limiter::new(store.clone(), rule(10))?;
//! let check = first.check("api", &key)?;
//! assert!(first.acquire(&[check.with_cost(6)]).ready().unwrap().is_allowed());
//!
//! // By mistake, somewhere else in the service:
//! let conflict = Limiter::new(store.clone(), rule(20)).unwrap_err();
//! assert!(conflict.to_string().contains("another name, or the same quota"));
//!
//! // Raised: 6 of 20 are used, and nobody is locked out until an old time.
//! let raised = Limiter::replacing(&[&first], store.clone(), rule(20))?;
//! assert_eq!(raised.try_acquire("api", &key)?.verdicts()[0].remaining(), 20 - 7);
//!
//! // Lowered: 7 of 5 are used, and the next one waits for the next window.
//! let lowered = Limiter::replacing(&[&raised], store, rule(5))?;
//! assert!(!lowered.try_acquire("api", &key)?.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`RateLimitLayer::replacing`](crate::RateLimitLayer::replacing) does the same for a layer, and
//! [`MessageLimitLayer::replacing`](crate::MessageLimitLayer::replacing) for the layer of messages. Name all
//! layers that use the name; make those that stay anew, with the new quota. Without `replacing`, a name is free for another
//! quota when the last limiter, layer and service with it is dropped; tickets and requests on their way do not hold it.
//!
//! Make the new layer before you drop the old one. A store in memory keeps the states of a name that nothing uses until
//! they equal fresh ones, so that the other order loses nothing either, but all such names together have the bound of one
//! rule: see [`memory`](crate::memory).
//!
//! Each state knows the quota that wrote it. The first request that takes units under another one converts it; nothing is
//! walked through at the change, unless units are scaled or reset, or the algorithm is another one in memory. Old and new may run side by side while a service is reloaded: requests that still reach the
//! replaced layer are decided by its rules on the same state.
//!
//! | change | what happens |
//! | --- | --- |
//! | limit, burst, rate, window | used units carry over |
//! | token bucket, GCRA and leaky bucket into each other | the same: they share their state |
//! | another algorithm otherwise | in memory used units carry over, and count as if they had just been taken; in Redis everybody starts anew |
//! | the name | everybody starts anew |
//! | a plan | used units carry over, as between two quotas |
//!
//! While two sizes of one name are in force, buckets admit together no more than the
//! [larger burst and the faster rate](crate::algorithm::gcra#two-limits-on-one-state), as plans of one rule do.
//!
//! Three limits of this:
//!
//! - Under another algorithm in memory, units that requests in flight take by the old one while the rules are replaced do not
//!   carry over, nor does what comes back of tickets.
//! - What is used beyond a smaller burst comes back at the old rate, until units are taken under the new one.
//! - Units that come back under the old quota, of a ticket or a lease, are converted as the state was. Under windows of the same
//!   length all of them come back. Under windows of another length, those that may already be forgotten come back when the
//!   new window ends. A bucket gives back less by at most what the two rates differ by in the time between, and by what a
//!   smaller burst may have forgotten.
//!
//! The new layer keeps the leases and cached denials of rules that have not changed. Leases of other rules go back to Redis at
//! once, and their local usage is reported. Tickets of the replaced layer still settle.
