//! Reports on their way.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Check, StoreError, StoreErrorKind, Tick};

use crate::{
    call::Call,
    observe::ReportEvent,
    prefilter::{
        reports::{Report, SentAt},
        table_key::{check_of, table_key_of},
    },
    reply::Reply,
    store::{in_flight_calls::InFlightCall, inner::Inner},
};

/// Reports that go with a call. Each is settled once, whatever becomes of the call: also if this is dropped.
pub(super) struct InFlightReports {
    inner: Arc<Inner>,
    sent: SentAt,
    /// With the places of their answers.
    placed: SmallVec<[(Report, u16); 1]>,
    _in_flight: InFlightCall,
}

impl InFlightReports {
    pub(super) fn new(inner: &Arc<Inner>, sent: SentAt) -> Self {
        Self {
            inner: Arc::clone(inner),
            sent,
            placed: SmallVec::new(),
            _in_flight: inner.shared.in_flight_calls.begin(),
        }
    }

    /// Puts what was counted of the keys of checks into a call, before the checks themselves: the answer to these is to be no
    /// older. `None`: there is nothing to say.
    pub(super) fn of(
        inner: &Arc<Inner>,
        call: &mut Call,
        checks: &[Check],
        sent: SentAt,
    ) -> Option<Self> {
        let reports = inner.prefilter.reports()?;
        let mut reports_in_flight = None;
        for check in checks {
            if let Some(report) = reports.report(table_key_of(check), sent.at) {
                let reports_in_flight =
                    reports_in_flight.get_or_insert_with(|| Self::new(inner, sent));
                reports_in_flight.add(call, report);
            }
        }
        reports_in_flight
    }

    /// Puts a report into a call.
    pub(super) fn add(&mut self, call: &mut Call, report: Report) {
        let check = check_of(report.slot).with_cost(report.units);
        match call.debit(&self.inner.encoder, &check) {
            Some(place) => self.placed.push((report, place)),
            // The call is full.
            None => self.inner.keep(report),
        }
    }

    /// The call is sent.
    pub(super) fn are_sent(&self) {
        let observer = &self.inner.shared.observer;
        observer.reports(ReportEvent::Sent, self.placed.len() as u64);
    }

    /// The call is not sent.
    pub(super) fn are_not_sent(mut self) {
        for (report, _) in std::mem::take(&mut self.placed) {
            self.inner.keep(report);
        }
    }

    /// The answer to the call is there, or why there is none.
    pub(super) fn on_reply(mut self, reply: Result<&Reply, &StoreError>) {
        for (report, place) in std::mem::take(&mut self.placed) {
            let did_not_run = match reply {
                Ok(reply) => reply.refusal(place).is_some(),
                Err(error) => did_not_run(error),
            };
            if did_not_run {
                self.inner.shared.observer.reports(ReportEvent::Kept, 1);
                self.inner.keep(report);
                continue;
            }
            // Of a value that is not ours as little is known as of a call without an answer.
            let left = reply.ok().and_then(|reply| reply.reported(place));
            match left {
                Some(left) => self.inner.reported(report, self.sent, left),
                None => self.inner.give_up(report),
            }
        }
    }
}

impl Drop for InFlightReports {
    /// Nobody hears the answer any more.
    fn drop(&mut self) {
        for (report, _) in &self.placed {
            self.inner.give_up(*report);
        }
    }
}

impl Inner {
    fn reported(&self, report: Report, sent: SentAt, left: (u64, Tick)) {
        if let Some(reports) = self.prefilter.reports() {
            reports.reported(report, (sent, self.prefilter.now()), left);
        }
    }

    fn keep(&self, report: Report) {
        if let Some(reports) = self.prefilter.reports() {
            reports.kept(report, self.prefilter.now());
        }
    }

    fn give_up(&self, report: Report) {
        let reports = self.prefilter.reports();
        let units = reports.map_or(0, |reports| reports.lost(report));
        self.shared.observer.reports(ReportEvent::Lost, 1);
        self.shared.gave_up(units);
    }
}

/// Whether a call certainly changed nothing.
pub(super) fn did_not_run(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Unavailable | StoreErrorKind::Overloaded | StoreErrorKind::Misconfigured
    )
}
