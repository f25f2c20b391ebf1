//! What is sent without a request: reports that are due, and leases that nobody asks for.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tollgate_core::StoreError;
use tollgate_prefilter::ReturnedLease;

use crate::{
    call::Call,
    connection::value::Value,
    observe::{CallFor, LeaseEvent, Timer},
    prefilter::{
        filter::Prefilter,
        reports::Report,
        table_key::{TableKey, check_of},
    },
    reply::Reply,
    store::{
        in_flight_reports::{InFlightReports, did_not_run},
        inner::Inner,
    },
};

/// The most reports, or leases, of one call.
const TOGETHER: usize = 32;

/// So many reports are sent at once, and then others have a turn: some 60 000 a second.
const AT_ONCE: usize = 4 * TOGETHER;
const BETWEEN: Duration = Duration::from_millis(2);

/// Reports that Redis did not take are sent again after this, when there is nothing else to wait for.
const AGAIN: Duration = Duration::from_millis(50);

impl Inner {
    /// Sends what is due, a little at a time: requests that wait for Redis are not to wait for all of it.
    pub(super) async fn send_due(self: &Arc<Self>) {
        while !self.report(Prefilter::due) {
            sleep(BETWEEN).await;
        }
    }

    /// Sends the first reports, due or not, and hands all leases back.
    pub(super) fn send_first(self: &Arc<Self>) {
        self.take_out(self.prefilter.take_out());
        self.report(Prefilter::all_due);
    }

    /// Reports until Redis knows all there is, or nobody can know whether it does.
    pub(super) async fn send_all(self: &Arc<Self>) {
        loop {
            let is_all = self.report(Prefilter::all_due);
            // Those that are under way are among them.
            if is_all && self.prefilter.units_unreported() == 0 {
                return;
            }
            let is_connected = self.shared.backend.is_connected();
            sleep(if is_connected { BETWEEN } else { AGAIN }).await;
        }
    }

    /// Sends some of the reports that there are. Gives whether these were all.
    fn report(self: &Arc<Self>, some: impl FnOnce(&Prefilter, usize) -> Vec<Report>) -> bool {
        let _sending = self.sending();
        let reports = some(&self.prefilter, AT_ONCE);
        let are_all = reports.len() < AT_ONCE;
        for reports in self.in_calls(reports, |report| report.slot) {
            let sent = self.prefilter.sent();
            let mut call = self.shared.begin();
            let mut reports_in_flight = InFlightReports::new(self, sent);
            for report in reports {
                reports_in_flight.add(&mut call, report);
            }
            reports_in_flight.are_sent();
            let timer = Timer::start();
            let (answer, size) = (self.shared.send(&call, CallFor::Reports), call.checks());
            let inner = Arc::clone(self);
            self.spawn(async move {
                let reply = inner.shared.reply(timer, answer.await, size);
                reports_in_flight.on_reply(reply.as_ref());
            });
        }
        are_all
    }

    /// Hands leases back.
    pub(super) fn take_out(self: &Arc<Self>, grants: Vec<(TableKey, ReturnedLease)>) {
        for grants in self.in_calls(grants, |(slot, _)| *slot) {
            let mut call = self.shared.begin();
            let places = self.close(&mut call, &grants);
            let in_flight = self.shared.in_flight_calls.begin();
            let inner = Arc::clone(self);
            let (answer, size) = (self.shared.send(&call, CallFor::Leases), call.checks());
            self.spawn(async move {
                match answer.await.map_err(StoreError::from) {
                    Ok(Value::Integers(integers)) => {
                        if let Some(reply) = Reply::new(size, integers) {
                            inner.keep_refused(&grants, &places, &reply);
                        }
                    }
                    Err(error) if did_not_run(&error) => inner.are_not_handed_back(&grants),
                    Ok(_) | Err(_) => {}
                }
                for (slot, _) in grants {
                    inner.prefilter.handed_back(slot);
                }
                drop(in_flight);
            });
        }
    }

    /// Leases that were to go back certainly did not: they are here again.
    pub(super) fn are_not_handed_back(&self, grants: &[(TableKey, ReturnedLease)]) {
        for (slot, returned) in grants {
            self.prefilter.not_handed_back(*slot, *returned);
        }
    }

    /// Leases that the server has refused to take back are here again.
    pub(super) fn keep_refused(
        &self,
        grants: &[(TableKey, ReturnedLease)],
        places: &[Option<u16>],
        reply: &Reply,
    ) {
        for ((slot, returned), place) in grants.iter().zip(places) {
            if place.is_some_and(|place| reply.refusal(place).is_some()) {
                self.prefilter.not_handed_back(*slot, *returned);
            }
        }
    }

    /// Adds that leases go back, and gives the places of their answers. One that does not go runs out.
    pub(super) fn close(
        &self,
        call: &mut Call,
        grants: &[(TableKey, ReturnedLease)],
    ) -> Vec<Option<u16>> {
        let close = |(slot, returned): &(TableKey, ReturnedLease)| {
            let back = call.close(&self.encoder, &check_of(*slot), *returned);
            if back.is_some() {
                self.shared.observer.grants(LeaseEvent::HandedBack, 1);
            }
            back
        };
        grants.iter().map(close).collect()
    }

    /// What goes in one call each: what is of one rule, so that no other is refused with one that the user may not touch; in
    /// a cluster, what is known to be in one slot.
    fn in_calls<T>(&self, mut all: Vec<T>, slot: impl Fn(&T) -> TableKey) -> Vec<Vec<T>> {
        let place = |one: &T| {
            let check = check_of(slot(one));
            let place = self.encoder.slot_of(&[check], &check);
            place.map(|place| place.bits())
        };
        let is_cluster = self.shared.backend.is_cluster();
        let rule = |one: &T| slot(one).rule();
        all.sort_by_key(|one| (is_cluster.then(|| place(one)), rule(one)));
        let mut calls: Vec<Vec<T>> = Vec::new();
        for one in all {
            let goes_with = |call: &&mut Vec<T>| {
                let same = |first: &T| {
                    rule(first) == rule(&one) && (!is_cluster || place(first) == place(&one))
                };
                call.len() < TOGETHER && call.first().is_some_and(same)
            };
            match calls.last_mut().filter(goes_with) {
                Some(call) => call.push(one),
                None => calls.push(vec![one]),
            }
        }
        calls
    }
}
