//! What lies in one slot.

use std::collections::HashSet;

use crate::{
    Keys,
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder},
};
use tollgate_core::{
    Check, Key, MINUTE, Quota, Rule, RuleSet,
    algorithm::Taken,
    store::{Fingerprint, Receipt, Settlement},
};

use crate::internal_tests::keys::secret;

fn rules() -> RuleSet {
    RuleSet::new([
        Rule::new("per-address", Quota::gcra(10, MINUTE)),
        Rule::new("per-tenant", Quota::gcra(100, MINUTE)),
        Rule::new("per-user", Quota::gcra(20, MINUTE)),
    ])
    .expect("valid rules")
}

fn encoder(partition: Partition) -> Encoder {
    let keyspace = Keyspace::new("shop", partition).expect("letters");
    Encoder::new(&rules(), keyspace.with_keys(Keys::hashed(secret(1)))).expect("few plans")
}

fn check(encoder: &Encoder, rule: u16, key: &str) -> Check {
    Check::new(rule, encoder.fingerprint(rule, &Key::of([key]).into()), 1)
}

/// What stands in braces in each name of a call.
fn tags(call: &Call) -> Vec<String> {
    let tags = call.keys().map(|name| {
        let name = str::from_utf8(name).expect("ASCII");
        let (_, rest) = name.split_once('{').expect("a tag");
        rest.split_once('}').expect("a tag").0.into()
    });
    tags.collect()
}

fn tags_of(encoder: &Encoder, checks: &[Check]) -> Vec<String> {
    let mut call = Call::new();
    assert!(call.acquire(encoder, checks).is_some());
    tags(&call)
}

#[test]
fn all_of_a_request_lies_with_the_client_of_the_rule_that_was_named() {
    let encoder = encoder(Partition::ByRule("per-tenant".into()));
    let [address, tenant, user, other] = [
        check(&encoder, 0, "192.0.2.1"),
        check(&encoder, 1, "acme"),
        check(&encoder, 2, "ada"),
        check(&encoder, 1, "globex"),
    ];
    let tags = tags_of(&encoder, &[address, tenant, user]);
    assert_eq!(tags.iter().collect::<HashSet<_>>().len(), 1);
    // The same address of another tenant is counted apart.
    let others = tags_of(&encoder, &[address, other]);
    assert_ne!(tags[0], others[0]);
    // Without that rule each lies alone.
    let alone = tags_of(&encoder, &[address, user]);
    assert_eq!(alone.iter().chain(&tags).collect::<HashSet<_>>().len(), 3);
}

#[test]
fn a_ticket_is_settled_and_a_reset_made_where_a_request_was_decided() {
    let encoder = encoder(Partition::ByRule("per-tenant".into()));
    let checks = [check(&encoder, 0, "192.0.2.1"), check(&encoder, 1, "acme")];
    let names = |call: &Call| -> Vec<Vec<u8>> { call.keys().map(<[u8]>::to_vec).collect() };
    let mut taken = Call::new();
    assert!(taken.acquire(&encoder, &checks).is_some());
    let at = Taken::new(1, 2);
    let holdings = checks.map(|check| Receipt::of_store(check, at));
    let mut settled = Call::new();
    let settled_all = settled.settle_all(&encoder, &holdings, Settlement::Cancel);
    assert!(settled_all.is_some());
    assert_eq!(names(&taken), names(&settled));
    // A reset finds them by the same checks, and leaves one of no cost as it is.
    let mut reset = Call::new();
    assert!(reset.reset_all(&encoder, &checks));
    assert_eq!(names(&reset), names(&taken));
    let mut reset = Call::new();
    assert!(reset.reset_all(&encoder, &[checks[0], checks[1].with_cost(0)]));
    assert_eq!(names(&reset), names(&taken)[..1]);
    // The client of that rule is found alone.
    assert!(encoder.is_found_alone(1) && !encoder.is_found_alone(0));
    let mut reset = Call::new();
    assert!(reset.reset(&encoder, 1, checks[1].key()));
    assert_eq!(names(&reset)[0], names(&taken)[1]);
}

#[test]
fn a_partition_by_a_rule_that_there_is_not_is_refused() {
    let rules = RuleSet::new([
        Rule::new("api", Quota::gcra(1, MINUTE)),
        Rule::new("trial", Quota::gcra(1, MINUTE)).shadow(),
    ]);
    let rules = rules.expect("valid rules");
    for name in ["tenant", "trial"] {
        let keyspace = Keyspace::new("shop", Partition::ByRule(name.into())).expect("letters");
        let error = Encoder::new(&rules, keyspace)
            .expect_err("not enforced")
            .to_string();
        assert!(
            error.contains(name) && error.contains("enforced rule of this name"),
            "{error}"
        );
    }
}

#[test]
fn what_a_cluster_cannot_do_in_one_step_is_refused() {
    let encoder = |partition: Partition, keys: Keys| {
        let keyspace = Keyspace::new("shop", partition).expect("letters");
        Encoder::new(&rules(), keyspace.with_keys(keys)).expect("few plans")
    };
    let hashed = || Keys::hashed(secret(1));
    let rotating = || hashed().next(secret(2)).expect("another");
    assert!(encoder(Partition::One, rotating()).fits_a_cluster().is_ok());
    assert!(encoder(Partition::Key, hashed()).fits_a_cluster().is_ok());
    let error = encoder(Partition::Key, rotating()).fits_a_cluster();
    let error = error.expect_err("several slots").to_string();
    assert!(error.contains("take `Partition::One`"), "{error}");
    // All names of a check are in one slot then.
    let both = encoder(Partition::One, rotating()).with_overflow("per-address");
    let both = both.expect("it is there");
    let mut call = Call::new();
    let check = Check::new(0, Fingerprint::from_bits(7), 1);
    assert!(
        call.acquire_within(&both, &[check], u64::MAX, |_| false)
            .is_some()
    );
    assert_eq!(tags(&call), ["shop"; 4]);
}
