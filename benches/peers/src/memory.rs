//! Memory and allocations.

use http::Request;
use tollgate::header::HeaderStyle;
use tollgate_benches::{
    check::{Checker, LASTING, WIDE},
    layer::{Bare, layer, request, send},
    workload::{Namer, each},
};
use tower::{Layer, Service};

use crate::{
    counting::count,
    harness::Compared,
    keyed::{Governor, lasting},
    table::Row,
};

const KEYS: u32 = 1_000_000;
const REQUESTS: u64 = 1_000;

/// Bytes for each key, all of them live.
pub(crate) fn per_key(print: &mut dyn FnMut(Row)) {
    let mut namer = Namer::new();
    let (checker, ours) = count(|| {
        let checker = Checker::new(LASTING, 1).expect("a valid rule");
        let allowed = each(KEYS).all(|client| checker.one(namer.name(client)));
        assert!(allowed, "nobody is denied");
        checker
    });
    let usage = checker
        .limiter()
        .rule_store()
        .usage(0)
        .expect("it is in memory");
    assert_eq!((usage.keys, usage.evicted_live), (u64::from(KEYS), 0));
    drop(checker);
    let (limiter, theirs) = count(|| {
        let limiter = Governor::keyed(lasting());
        let allowed = each(KEYS).all(|client| limiter.check_key(namer.name(client)).is_ok());
        assert!(allowed, "nobody is denied");
        limiter
    });
    assert_eq!(limiter.len(), KEYS as usize);
    let (ours, theirs) = (ours.held as f64, theirs.held as f64);
    let keys = f64::from(KEYS);
    let compared = Compared {
        ours: ours / keys,
        theirs: theirs / keys,
        ratio: ours / theirs,
    };
    let what = "memory for each of 1 000 000 string keys";
    print(Row::compared(what, "B", "governor", compared).gate_on_ours(75.0));
}

/// Allocations that our layer adds to each allowed request of a service without a body.
pub(crate) fn per_request(print: &mut dyn FnMut(Row)) {
    let bare = allocations(Bare::<String>::new());
    for (rules, headers, what) in [
        (
            1,
            HeaderStyle::NONE,
            "allocations: layer, 1 rule, no headers",
        ),
        (
            4,
            HeaderStyle::NONE,
            "allocations: layer, 4 rules, no headers",
        ),
        (
            1,
            HeaderStyle::DRAFT_11,
            "allocations: layer, 1 rule, two headers",
        ),
    ] {
        let layer = layer(WIDE, rules, headers).expect("valid rules");
        let added = allocations(layer.layer(Bare::<String>::new())) - bare;
        let row = Row::alone(what, "", added);
        print(if headers == HeaderStyle::NONE {
            row.gate_on_ours(0.0)
        } else {
            row
        });
    }
}

fn allocations(mut service: impl Service<Request<String>>) -> f64 {
    let mut requests = |number| {
        for _ in 0..number {
            let answer = send(&mut service, request());
            assert!(answer.is_ok(), "the service does not fail");
        }
    };
    // The first request of a key makes its state.
    requests(10);
    let ((), counted) = count(|| requests(REQUESTS));
    counted.allocations as f64 / REQUESTS as f64
}
