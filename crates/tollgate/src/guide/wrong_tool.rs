//! When a rate limiter is the wrong tool.
//!
//! A rate limiter answers one question: how much may *this client* ask for in *this time*? It looks at the head of a request
//! and at what the client has used. It does not know how busy the service is.
//!
//! | you want | take | why not this |
//! | --- | --- | --- |
//! | at most N requests *at the same time* | a concurrency limit (`tower::limit::ConcurrencyLimitLayer`) | 10 requests a second that take a minute each are 600 at once |
//! | to stay up when everything is too much | load shedding (`tower::load_shed`), bounded queues, timeouts | the sum of all clients within their limits can still be too much |
//! | to survive a flood of packets or connections | your network: the provider, a CDN, a firewall | what arrives here has cost you a connection and a parsed request already |
//! | to bill by use | a ledger that is written durably | a limiter forgets: at a restart, in an eviction, once a window is over |
//! | a quota for a calendar month that must survive a restart | the same ledger | memory is gone with the process, and windows are aligned to UTC |
//! | to find bots, fraud or stolen credentials | detection, with this as one of its means | an attacker who stays below the limit is within the limit |
//! | everybody to get a fair turn | a queue per client, with weights | a limiter denies; it does not reorder. `Limiter::acquire_within` waits in the order of arrival, no more |
//! | work to go out at an even pace | a queue with a worker that asks the limiter | [`Quota::leaky_bucket`](crate::Quota::leaky_bucket) denies what overflows, it delays nothing |
//! | to keep a broken dependency from being called | a circuit breaker | a limit does not look at answers |
//!
//! They go well together. A usual stack has a limit per client outside, a concurrency limit inside, and load shedding between
//! them: see the [order of layers](crate::guide::choosing#order-of-layers).
