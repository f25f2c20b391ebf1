//! What goes to the script beside requests: leases that are asked for or handed back, and reports.

use tollgate_core::Check;
use tollgate_prefilter::{LeaseQuery, LeaseTerms, ReturnedLease, ScheduleTerms};

use crate::{
    call::{Call, check::What},
    encode::Encoder,
    rule_line::double,
};

impl Call {
    /// Adds that a lease of the check's state comes back. `None` where it does not fit any more, or there is no such state;
    /// otherwise the place of its answer.
    #[must_use = "what was taken out of a holder is lost if it is not sent"]
    pub(crate) fn close(
        &mut self,
        rules: &Encoder,
        check: &Check,
        returned: ReturnedLease,
    ) -> Option<u16> {
        let tail = [double(returned.left), double(returned.generation)];
        self.beside(rules, &check.with_cost(returned.size), What::Close, &tail)
    }

    /// Adds that a lease is wanted, if the request just before in this call is granted; a scheduled lease also where it is refused and
    /// has no other checks. `None` as for [`close`](Self::close).
    #[must_use = "the lease is in its answer"]
    pub(crate) fn grant(
        &mut self,
        rules: &Encoder,
        check: &Check,
        query: &LeaseQuery,
        terms: &LeaseTerms,
    ) -> Option<u16> {
        let tail = [
            double(terms.reserve()),
            double(terms.schedule().map_or(0, |_| query.scheduled)),
            double(terms.schedule().map_or(0, ScheduleTerms::line)),
            double(terms.schedule().map_or(0, ScheduleTerms::below)),
        ];
        self.beside(rules, &check.with_cost(query.tracked), What::Lend, &tail)
    }

    /// Adds that units were admitted, and count whether they are left or not. `None` as for [`close`](Self::close).
    #[must_use = "what is left is in its answer"]
    pub(crate) fn debit(&mut self, rules: &Encoder, check: &Check) -> Option<u16> {
        self.beside(rules, check, What::Debit, &[])
    }

    fn beside(
        &mut self,
        rules: &Encoder,
        check: &Check,
        what: What,
        tail: &[[u8; 8]],
    ) -> Option<u16> {
        if !self.has_room(1) {
            return None;
        }
        let (line, plan) = rules.line(check)?;
        // Below 65 535, as there was room.
        let place = self.checks() as u16;
        let places = self.places(rules, line, check, None, None, 0);
        self.check(what, line, check, places.key, plan);
        self.args.bytes.extend_from_slice(tail.as_flattened());
        self.end(rules, places, false);
        Some(place)
    }
}
