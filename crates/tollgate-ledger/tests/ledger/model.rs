//! Any order and repetition of what moves an account, against a model.

use std::{collections::BTreeMap, time::Duration};

use tollgate_core::{Key, Limiter, MAX_PERIOD, MemoryStore, Quota, Rule, Source, Store};
use tollgate_ledger::{Adjustment, Ledger};
use tollgate_test_servers::{postgres_server::PostgresServer, redis_server::RedisServer};

use crate::common::{file, limiter_of, redis, take, usage};

const HOUR: Duration = Duration::from_secs(3_600);
/// Less than what is used.
const LIMIT: u64 = 600;

/// What the ledger has to have of an account: what its windows and its balance have paid, and what was granted and not taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    used: i64,
    granted: i64,
}

fn limiter_on(ledger: &Ledger, store: impl Store) -> Limiter {
    let quota = Quota::fixed_window(LIMIT, MAX_PERIOD);
    let rule = Rule::new("units", quota).credits().debt(4_200);
    let limiter = limiter_of(store, rule);
    ledger.attach(&limiter).expect("it has none");
    limiter
}

async fn balance(limiter: &Limiter, account: &str) -> i64 {
    let told = limiter.balance("units", &Key::of(account));
    told.expect("valid").await.expect("it answers").units as i64
}

#[tokio::test]
async fn any_order_and_repetition_of_what_moves_an_account_gives_the_sums_of_a_model() {
    let (_folder, url) = file();
    let (_another, other_file) = file();
    let (server, in_redis) = (PostgresServer::start().await, RedisServer::start(&[]).await);
    for (seed, steps, url) in [(7, 600, url), (8, 600, server.url()), (9, 300, other_file)] {
        let is_redis = seed == 9;
        let new_limiter = async |ledger: &Ledger| match is_redis {
            true => limiter_on(ledger, redis(&in_redis).await),
            false => limiter_on(ledger, MemoryStore::new()),
        };
        let mut rng = fastrand::Rng::with_seed(seed);
        let ledger = Ledger::builder(&url).write_every(Duration::from_millis(50));
        let ledger = ledger.open().await.expect("it opens");
        let limiter = new_limiter(&ledger).await;
        let mut model: BTreeMap<String, Sums> = BTreeMap::new();
        let (mut tickets, mut reservations, mut ids) = (Vec::new(), Vec::new(), BTreeMap::new());
        for _ in 0..steps {
            let name = format!("account-{}", rng.u8(0..5));
            let key = Key::of(&*name);
            let sums = model.entry(name.clone()).or_default();
            match rng.u8(0..16) {
                0..5 => {
                    let units = rng.u64(1..50);
                    let decision = take(&limiter, &name, units).await;
                    if decision.is_allowed() {
                        let check = limiter.check("units", &key).expect("the rule");
                        let ticket = limiter.ticket(&[check.with_cost(units)], &decision);
                        let is_on_credits = decision.verdicts()[0].source() == Source::Credits;
                        sums.used += units as i64;
                        tickets.push((name, units, is_on_credits, ticket));
                    }
                }
                5..10 if !tickets.is_empty() => {
                    let of = rng.usize(0..tickets.len());
                    let (name, units, is_on_credits, ticket) = tickets.swap_remove(of);
                    let sums = model.entry(name.clone()).or_default();
                    let cost = rng.u64(0..100);
                    match rng.u8(0..4) {
                        0 => {
                            sums.used += cost as i64 - units as i64;
                            ticket.settle(cost);
                        }
                        // Nobody settles it. What a balance has paid stays paid.
                        1 => {
                            let term = Duration::from_millis(1);
                            ticket.into_reservation(term).await.expect("there is room");
                            sums.used -= if is_on_credits { 0 } else { units as i64 };
                        }
                        _ => {
                            let reservation = ticket.into_reservation(HOUR).await;
                            let reservation = reservation.expect("there is room");
                            reservations.push((name, units, reservation, true));
                        }
                    }
                }
                10..12 if !reservations.is_empty() => {
                    let of = rng.usize(0..reservations.len());
                    let (name, units, reservation, is_open) = &mut reservations[of];
                    let cost = rng.u64(0..100);
                    // One that was settled before is gone: memory says so at once.
                    let is_settled = match limiter.redeem(reservation) {
                        Ok(ticket) => {
                            if rng.bool() {
                                assert_eq!(ticket.extend(HOUR).await.is_ok(), *is_open);
                            }
                            let settled = ticket.settle(cost).await;
                            assert!(ticket.cancel().await.is_err(), "it was settled");
                            settled.is_ok()
                        }
                        Err(_) => false,
                    };
                    assert_eq!(is_settled, *is_open);
                    if std::mem::take(is_open) {
                        model.entry(name.clone()).or_default().used += cost as i64 - *units as i64;
                    }
                }
                12 => {
                    let id = format!("grant-{}", rng.u8(0..9));
                    let units = 10 + id.len() as u64;
                    let granted = limiter.grant("units", &key, units, crate::now() + HOUR, &id);
                    sums.granted += granted.expect("valid").await.expect("written").changed as i64;
                }
                13 => {
                    let revoked = limiter.revoke("units", &key, &format!("grant-{}", rng.u8(0..9)));
                    sums.granted -= revoked.expect("valid").await.expect("written").changed as i64;
                }
                14 => {
                    let id = format!("id-{}", rng.u8(0..20));
                    ledger.flush().await.expect("it writes");
                    let adjusted = ids.entry(id.clone());
                    let (account, units) = adjusted.or_insert_with(|| (name, rng.i64(-9..0)));
                    let adjustment = Adjustment {
                        account,
                        rule: "units",
                        units: *units,
                        id: &id,
                        actor: "ann",
                        reason: "the outage",
                        at: None,
                    };
                    if ledger
                        .adjust(&adjustment, Some(&limiter))
                        .await
                        .expect("valid")
                    {
                        model.entry(account.clone()).or_default().used += *units;
                    }
                }
                _ => ledger.flush().await.expect("it writes"),
            }
        }
        let expected: Vec<i64> = model.values().map(|sums| sums.used).collect();
        let mut paid = BTreeMap::new();
        let mut written = Vec::new();
        // Until those that nobody has settled are released, and Redis has said what balances have paid.
        let mut is_told = false;
        while written != expected || !is_told {
            tokio::time::sleep(Duration::from_millis(20)).await;
            ledger.flush().await.expect("it writes");
            let usage = usage(&ledger).await.into_iter();
            let all = usage.map(|it| (it.account, it.credits, it.units + it.corrections));
            written.clear();
            for (account, credits, units) in all {
                paid.insert(account, credits);
                written.push(units + credits);
            }
            is_told = true;
            for (account, sums) in &model {
                let left = sums.granted - paid.get(account).unwrap_or(&0);
                is_told &= balance(&limiter, account).await == left;
            }
            assert!(is_told || is_redis, "memory says it at once");
        }
        // A store that is new has the same balances, and what was used.
        in_redis.command(&["FLUSHALL"]).await;
        let again = new_limiter(&ledger).await;
        for (account, sums) in &model {
            let left = sums.granted - paid[account];
            assert_eq!(balance(&again, account).await, left, "{account}");
            let check = again
                .check("units", &Key::of(&**account))
                .expect("the rule");
            let _ = again.acquire(&[check]).await;
            let decision = again.peek(&[check.with_cost(0)]).await;
            let verdict = &decision.verdicts()[0];
            let counted = (LIMIT - verdict.remaining() + verdict.debt()) as i64;
            let used = (sums.used - paid[account]).max(0);
            assert!(
                (used..=used + 1).contains(&counted),
                "{account}: {counted}, not {used}"
            );
        }
    }
}
