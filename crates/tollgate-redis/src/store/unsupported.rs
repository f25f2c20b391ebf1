//! Rules that Redis cannot count as they are.

use tollgate_core::{Consistency, Mode, Quota, Rule, RuleError, RuleErrorKind, RuleSet};
use tollgate_prefilter::Places;

use crate::script::encoder::Encoder;

/// The most slots of a rule: counts of a process have 32 bits.
const MOST_SLOTS: u64 = 1_000_000_000;

/// Refuses rules that Redis cannot count.
///
/// # Errors
///
/// The first of them, and what would be right.
pub(super) fn refuse_unsupported(rules: &RuleSet, encoder: &Encoder) -> Result<(), RuleError> {
    for (index, rule) in (0..).zip(rules.given()) {
        // Whether there is a cap on new keys.
        let is_capped = encoder.rule(index).is_some_and(|it| it.overflow.is_some());
        let quotas = (0..rule.quotas()).map(|plan| rule.quota_of(plan));
        let limited = quotas.filter(|quota| !quota.is_unlimited());
        let most = limited.map(Quota::limit).max().unwrap_or(0);
        let has_too_many = rule.has_slots() && *rule.mode() != Mode::Off && most > MOST_SLOTS;
        let too_many = format!(
            "{most} slots are more than Redis counts; take at most {MOST_SLOTS}, or Quota::unlimited"
        );
        let refusals = [
            (has_too_many, &*too_many),
            (
                rule.has_slots() && is_capped,
                "slots of new clients cannot go to an overflow bucket, because each belongs to a request that runs; leave \
                 cap_new_keys out, and limit new clients by a rate in a rule of its own",
            ),
            (
                rule.is_durable() && is_capped,
                "clients in an overflow bucket have no accounts of their own; leave cap_new_keys out, or durable()",
            ),
            // A balance is found by its rule and key alone.
            (
                rule.has_credits() && !encoder.is_found_alone(index),
                "with `Partition::ByRule`, its keys are counted for each client of another rule apart, and have no balance of their own; \
                 give the credits to the rule that the partition names, or take `Partition::Key`",
            ),
        ];
        refuse_first(RuleErrorKind::Store, rule, &refusals)?;
    }
    refuse_waits(rules, encoder)?;
    if encoder.places.are_several && encoder.keyspace.keys.is_rotating() {
        return Err(RuleError::general(
            RuleErrorKind::Store,
            "a change of secrets moves states to other hash slots, which a cluster cannot do in one step; \
             take `Partition::One`, or change to the new secret alone and let all budgets begin anew",
        ));
    }
    Ok(())
}

/// Refuses a rule whose requests could not wait in the order of Redis.
fn refuse_waits(rules: &RuleSet, encoder: &Encoder) -> Result<(), RuleError> {
    let on = || {
        rules
            .given()
            .iter()
            .filter(|rule| *rule.mode() != Mode::Off)
    };
    let has_slots = on().any(Rule::has_slots);
    let all_wait = || on().all(|rule| rule.at_most_wait().is_some());
    // States in several hash slots are decided one after the other, and have no instant in common.
    let Places { are_several, with } = encoder.places;
    // What does not wait is decided at the start, when the others do not say any more where its states lie.
    let is_one_step = on().count() == 1 || !are_several && (with.is_none() || all_wait());
    for rule in on().filter(|rule| rule.at_most_wait().is_some() && !rule.has_slots()) {
        let refusals = [
            (
                has_slots,
                "requests cannot wait for units on Redis while a rule of the same decision is about slots; put the slots into a \
                 limiter or layer of their own, inside of this one",
            ),
            (
                !is_one_step,
                "with this partition, the rules of a request that waits are not decided in one step; take Partition::One, or put the \
                 rule into a limiter or layer of its own",
            ),
            (
                rule.consistency_of() != Consistency::Exact,
                "requests wait in the order of Redis, and a process that holds a lease would let its own start first; take \
                 Consistency::Exact, or leave wait() out",
            ),
        ];
        refuse_first(RuleErrorKind::Wait, rule, &refusals)?;
    }
    Ok(())
}

/// The first of these errors that applies to a rule.
fn refuse_first(
    kind: RuleErrorKind,
    rule: &Rule,
    refusals: &[(bool, &str)],
) -> Result<(), RuleError> {
    match refusals.iter().find(|(applies, _)| *applies) {
        Some((_, message)) => Err(RuleError::new(kind, rule.name(), *message)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{LeaseShare, MINUTE, SECOND};

    use super::*;
    use crate::{
        keys::keyspace::{Keyspace, Partition},
        script::encoder::SLOT_TERM,
    };

    fn refusal(
        rules: impl IntoIterator<Item = Rule>,
        partition: Partition,
        is_cluster: bool,
    ) -> Option<String> {
        let rules = RuleSet::new(rules).expect("valid rules");
        let keyspace = Keyspace::new("tg", partition).expect("letters");
        let encoder = Encoder::with_caps(&rules, keyspace, SLOT_TERM, is_cluster, |_| false);
        let refused = refuse_waits(&rules, &encoder.expect("few plans")).err()?;
        assert_eq!(refused.kind(), RuleErrorKind::Wait);
        assert_eq!(refused.rule(), Some("queue"));
        Some(refused.to_string())
    }

    fn queue() -> Rule {
        let quota = Quota::gcra(1, SECOND);
        Rule::new("queue", quota)
            .wait(SECOND)
            .threshold("long", quota.burst(9))
    }

    fn other() -> Rule {
        Rule::new("other", Quota::fixed_window(1, MINUTE))
    }

    #[test]
    fn slots_with_a_cap_on_new_keys_are_refused() {
        let slots = Rule::new("slots", Quota::concurrent(3)).plan("staff", Quota::unlimited());
        let rules = RuleSet::new([slots]).expect("a valid rule");
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        let refused = |is_capped: bool| {
            let keyspace = keyspace.clone();
            let encoder = Encoder::with_caps(&rules, keyspace, SLOT_TERM, false, |_| is_capped);
            refuse_unsupported(&rules, &encoder.expect("few plans"))
        };
        // What has no limit is not counted.
        assert!(refused(false).is_ok());
        let refused = refused(true).expect_err("they are capped").to_string();
        assert!(refused.contains("leave cap_new_keys out"), "{refused}");
    }

    #[test]
    fn a_leased_rule_that_waits_is_refused_with_what_would_work() {
        let leased = Consistency::Leased {
            share: LeaseShare::percent(10),
        };
        let rules = || [other(), queue().consistency(leased)];
        let refused = refusal(rules(), Partition::One, false).expect("it is leased");
        assert!(refused.contains("take Consistency::Exact"), "{refused}");
        // What is off waits for nothing, and another rule may be leased.
        assert_eq!(refusal(rules().map(Rule::off), Partition::One, false), None);
        let rules = [other().consistency(leased), queue()];
        assert_eq!(refusal(rules, Partition::One, false), None);
    }

    #[test]
    fn a_rule_that_waits_next_to_slots_is_refused() {
        let slots = || Rule::new("slots", Quota::concurrent(3));
        let refused = refusal([queue(), slots()], Partition::One, false).expect("there are slots");
        assert!(
            refused.contains("a limiter or layer of their own"),
            "{refused}"
        );
        assert_eq!(
            refusal([queue(), slots().off()], Partition::One, false),
            None
        );
        assert_eq!(
            refusal([other(), slots().wait(SECOND)], Partition::One, false),
            None
        );
    }

    #[test]
    fn a_rule_that_waits_next_to_others_needs_one_step() {
        let by_rule = || Partition::ByRule("queue".into());
        for partition in [Partition::Key, by_rule()] {
            let refused = refusal([queue(), other()], partition.clone(), true)
                .expect("they may be in two hash slots");
            assert!(refused.contains("take Partition::One"), "{refused}");
            assert_eq!(refusal([queue()], partition.clone(), true), None);
            assert_eq!(
                refusal([queue(), other().off()], partition.clone(), true),
                None
            );
            let other = Rule::new("other", Quota::gcra(1, SECOND)).wait(SECOND);
            assert_eq!(refusal([queue(), other], partition, false), None);
        }
        let next_to_another = |partition| refusal([queue(), other()], partition, false);
        assert_eq!(next_to_another(Partition::Key), None);
        assert!(next_to_another(by_rule()).is_some());
        assert_eq!(refusal([queue(), other()], Partition::One, true), None);
    }
}
