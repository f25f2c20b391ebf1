//! The header fields of a rule set.

use std::{cmp::Reverse, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tollgate_core::{RuleSet, Tick, Verdict};

use crate::header::{
    named::Named,
    older::{DRAFT_6, X_RATELIMIT, write_dictionary, write_policies, write_triple},
    quota_status::QuotaStatus,
    style::HeaderStyle,
    template::{Template, Values},
    times::{epoch_seconds, response_time, whole_seconds},
};

/// The fields of one style for one rule set, prepared once.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    style: HeaderStyle,
    named: Option<Named>,
    own: OwnFields,
    /// Whether any field says what one quota of all does.
    has_single: bool,
    /// Whether any may say when, and not only for how long.
    pub(crate) has_moments: bool,
}

/// Fields of the service's own.
pub(crate) type OwnFields = Arc<Vec<(HeaderName, Template)>>;

impl Headers {
    /// Prepares the fields. `style` has been [validated](HeaderStyle::validate).
    pub(crate) fn new(style: HeaderStyle, own: OwnFields, rules: &RuleSet) -> Self {
        Self {
            style,
            named: style.has(HeaderStyle::DRAFT_11).then(|| Named::new(rules)),
            has_moments: style.has(HeaderStyle::X_RATELIMIT_EPOCH) || !own.is_empty(),
            has_single: style.and(HeaderStyle::DRAFT_11) != HeaderStyle::DRAFT_11
                || !own.is_empty(),
            own,
        }
    }

    /// The same fields for another stripe of threads: each response counts on the prepared value.
    pub(crate) fn for_stripe(&self) -> Self {
        Self {
            named: self.named.as_ref().map(Named::for_stripe),
            ..self.clone()
        }
    }

    /// Adds the fields of a decision's verdicts, allowed or denied, made under `rules`: the rule set that `self` was made for. They were
    /// `decided` then by the clock of this machine, if that is known.
    ///
    /// Fields of an inner limiter are kept: lists get further members, and fields for one rule keep the fewer remaining units. Returns a
    /// rule that it lists, too.
    #[inline]
    pub(crate) fn write(
        &self,
        map: &mut HeaderMap,
        verdicts: &[Verdict],
        rules: &RuleSet,
        decided: Option<Tick>,
    ) -> Option<usize> {
        let named = self.named.as_ref();
        let listed = named.and_then(|named| named.write(map, rules, verdicts));
        if self.has_single {
            let statuses = QuotaStatus::all(verdicts, rules).filter(|status| !status.is_of_slots);
            self.write_single(map, rules, &statuses.collect::<SmallVec<[_; 4]>>(), decided);
        }
        listed
    }

    /// The fields of older styles, which report one rule.
    fn write_single(
        &self,
        map: &mut HeaderMap,
        rules: &RuleSet,
        statuses: &[QuotaStatus],
        decided: Option<Tick>,
    ) {
        // A denial first, then the fewest units left, then the longest reset.
        let closest = statuses
            .iter()
            .min_by_key(|status| (!status.denied, status.remaining, Reverse(status.lasts)));
        let Some(closest) = closest else {
            return;
        };
        let delta = whole_seconds(closest.lasts);
        let from = match self.has_moments {
            true => response_time(map, decided),
            false => 0,
        };
        if self.style.has(HeaderStyle::DRAFT_7) || self.style.has(HeaderStyle::DRAFT_6) {
            write_policies(map, rules, statuses);
        }
        if self.style.has(HeaderStyle::DRAFT_7) {
            write_dictionary(map, closest);
        }
        if self.style.has(HeaderStyle::DRAFT_6) {
            write_triple(map, &DRAFT_6, closest, delta);
        }
        if self.style.has(HeaderStyle::X_RATELIMIT_EPOCH) {
            write_triple(
                map,
                &X_RATELIMIT,
                closest,
                epoch_seconds(from, closest.lasts),
            );
        } else if self.style.has(HeaderStyle::X_RATELIMIT_DELTA) {
            write_triple(map, &X_RATELIMIT, closest, delta);
        }
        for (name, template) in &*self.own {
            // One of the style, or an inner limiter's, stays: no two of these can be compared.
            if map.contains_key(name) {
                continue;
            }
            let quota = (closest.rule, closest.plan, closest.remaining);
            let values = Values::new(rules, Some(quota), None, Some(closest.lasts), from);
            let text = template.text(&values);
            if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
                let _ = map.try_insert(name, value);
            }
        }
    }
}
