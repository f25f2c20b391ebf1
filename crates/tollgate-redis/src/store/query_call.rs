//! A query of the engine as a call of the script, and the reply of the script as one to the query.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tollgate_core::{Check, Clock, Decision};
use tollgate_prefilter::{GrantReply, IndexSet, LeaseReply, NoReply, Query, Reply, ReportReply};

use crate::{
    script::{
        call::{RequestLayout, ScriptCall},
        reply::{BlockReply, NewKey, ScriptReply},
    },
    store::{
        binding::{Binding, report_block},
        slots::RequestSlots,
    },
};

/// Where in a reply the answers to the parts of a query are. `None`: the part was not sent, because the call had no room left.
#[derive(Default)]
pub(super) struct QueryLayout {
    pub(super) checks: RequestLayout,
    reports: SmallVec<[Option<u16>; 1]>,
    returned: SmallVec<[Option<u16>; 1]>,
    grants: SmallVec<[Option<u16>; 1]>,
}

impl QueryLayout {
    /// Puts a query into a call.
    pub(super) fn new(
        binding: &Binding,
        call: &mut ScriptCall,
        query: &Query,
        slots: Option<&mut RequestSlots>,
    ) -> Result<Self, NoReply> {
        let encoder = &binding.encoder;
        let returned = query.leases.iter().map(|item| {
            let returned = item.query.returned?;
            call.close(encoder, &item.check, returned)
        });
        let returned = returned.collect();
        let reports = query.reports.iter();
        let reports = reports.map(|check| call.debit(encoder, check)).collect();
        call.counted = query.counted.iter().copied().collect();
        let checks = add_checks(binding, call, query, slots);
        // More checks than a call carries.
        let checks = checks.ok_or(NoReply::NotRun)?;
        if checks.is_nothing() && !query.checks.is_empty() || call.is_empty() {
            return Err(NoReply::NothingToSend);
        }
        let grants = query.leases.iter().map(|item| {
            let terms = query.lease_terms(item)?;
            let is_wanted = item.query.requests_grant();
            is_wanted.then(|| call.grant(encoder, &item.check, &item.query, terms))?
        });
        Ok(Self {
            grants: grants.collect(),
            checks,
            reports,
            returned,
        })
    }

    /// That of a query whose checks alone were sent.
    pub(super) fn of_checks(checks: RequestLayout) -> Self {
        Self {
            checks,
            ..Self::default()
        }
    }

    /// Whether the server's clock is in none of the windows that the checks have brought. The next call brings those of its time.
    pub(super) fn is_outside(&self, binding: &Binding, reply: &ScriptReply) -> bool {
        let mut checks = self.checks.places().flatten();
        let is_outside = checks.any(|place| reply.is_outside(place as u16));
        let mut reports = self.reports.iter().flatten();
        if is_outside || reports.any(|place| reply.is_outside(*place)) {
            let ahead = i128::from(reply.at) - i128::from(Clock::system().now());
            let ahead = i64::try_from(ahead).unwrap_or(0);
            binding.shared.ahead.store(ahead, Ordering::Relaxed);
        }
        is_outside
    }

    /// Counts the keys that were created.
    fn note_new_keys(
        &self,
        binding: &Binding,
        reply: &ScriptReply,
        query: &Query,
        decision: &Decision,
    ) {
        if query.takes() {
            binding.note_new_keys(reply, &self.checks, &query.checks, decision);
        }
        for (report, place) in query.reports.iter().zip(&self.reports) {
            if let Some((left, _)) = place.and_then(|place| reply.reported(place)) {
                binding.note_reported(report, left);
            }
        }
    }

    /// What the engine is answered. Counts what was created and what was blocked.
    pub(super) fn decode(&self, binding: &Binding, reply: &ScriptReply, query: &Query) -> Reply {
        let was_refused = |place: Option<u16>| {
            // It was not sent, or the server has refused it.
            place.is_none_or(|place| reply.refusal(place).is_some() || reply.is_outside(place))
        };
        let report = |place: &Option<u16>| match *place {
            place if was_refused(place) => ReportReply::Refused,
            // Of a value that is not ours as little is known as of a call without an answer.
            place => match place.and_then(|place| reply.reported(place)) {
                Some((left, reset_after)) => ReportReply::Counted { left, reset_after },
                None => ReportReply::Unknown,
            },
        };
        let lease = |(returned, grant): (&Option<u16>, &Option<u16>)| {
            let grant = match grant.map(|place| reply.grant(place)) {
                None | Some(Some(None)) => GrantReply::None,
                Some(Some(Some(grant))) => GrantReply::Granted(grant),
                Some(None) => GrantReply::Lost,
            };
            LeaseReply {
                is_refused: was_refused(*returned),
                grant,
            }
        };
        let mut shared = IndexSet::default();
        for (index, check) in query.checks.iter().enumerate() {
            let mut new_keys = reply.new_keys(&self.checks);
            let is_refused = new_keys
                .any(|(capped, new_key)| capped.rule == check.rule() && new_key == NewKey::Refused);
            // The same client has a state with each client of the rule that decides about the hash slot.
            if !binding.encoder.is_found_alone(check.rule())
                || is_refused
                || reply.is_of_another_quota(&self.checks, index)
            {
                shared.insert(index);
            }
        }
        let decision = reply.decision(&self.checks, &query.checks, &binding.rules);
        self.note_new_keys(binding, reply, query, &decision);
        let mut decoded = Reply::new(reply.at, decision);
        decoded.shared = shared;
        if binding.rules.has_blocks() {
            let blocks = query.checks.iter().enumerate().map(|(index, check)| {
                let block = reply.block_of(&self.checks, index);
                let place = self.checks.place(index);
                // Checks on one state are one check.
                if (0..index).all(|other| self.checks.place(other) != place) {
                    report_block(&binding.rules, check, block);
                }
                match block {
                    Some(BlockReply::Counted(counted)) => counted,
                    _ => 0,
                }
            });
            decoded.counted = blocks.collect();
        }
        decoded.reports = self.reports.iter().map(report).collect();
        let leases = self.returned.iter().zip(&self.grants);
        decoded.leases = leases.map(lease).collect();
        decoded
    }
}

/// Adds the checks of a query. `None`: they do not fit, or slots of too many keys are in use.
pub(super) fn add_checks(
    binding: &Binding,
    call: &mut ScriptCall,
    query: &Query,
    mut slots: Option<&mut RequestSlots>,
) -> Option<RequestLayout> {
    let (encoder, checks) = (&binding.encoder, &query.checks);
    if checks.is_empty() {
        return Some(RequestLayout::default());
    }
    if !query.takes() {
        return call.peek(encoder, checks);
    }
    if encoder.has_durable {
        call.bases = binding.bases_of(checks);
    }
    let may_make = |rule| {
        let cap = binding.cap(rule);
        cap.is_none_or(|cap| cap.take(Clock::system().now()))
    };
    let mut has_room = true;
    let message = |check: &Check, with, place| {
        let message = slots.as_mut()?.acquire(encoder, check, with, place);
        has_room &= message.is_some();
        message
    };
    let layout = call.acquire_slots(encoder, checks, query.patience, may_make, message)?;
    if !has_room {
        binding.give_back_permits(&layout);
    }
    has_room.then_some(layout)
}
