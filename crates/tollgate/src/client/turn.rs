//! A request's turn: a place at the server, and units of the client's own quota.

use http::request::Parts;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{Checks, Decision, Ticket};

use crate::{
    client::{
        config::Config,
        error::{PaceError, PaceErrorKind},
        scope::{Closed, Head, Pass, Scope},
    },
    observe::Timer,
    request_rules::{Asked, Refusal, RequestRules},
};

impl Config {
    /// What a request asks of the client's own quota.
    pub(super) async fn own_checks(
        &self,
        head: &Parts,
        deadline: Instant,
    ) -> Result<Checks, PaceError> {
        let Some(own) = &self.own else {
            return Ok(Checks::new());
        };
        let refused = |refusal: Box<Refusal>| {
            own.refused(&refusal);
            PaceError::new(PaceErrorKind::NoKey, None)
        };
        let mut asked = Asked::default();
        own.ask(head, &mut asked).map_err(refused)?;
        if !asked.waits() {
            return Ok(asked.checks);
        }
        let looked_up = timeout_at(deadline, own.clone().look_up(asked)).await;
        let none = PaceError::new(PaceErrorKind::OwnQuota, None);
        looked_up.map_err(|_| none)?.map_err(refused)
    }

    /// Waits until both the server and the own quota let a request pass, and takes one of each.
    ///
    /// Units are never held while the server is waited for: they would all be sent at once when it opens.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lines and takes nothing, where the store is in memory.
    pub(super) async fn turn<'a>(
        &self,
        scope: &'a Scope,
        checks: &Checks,
        deadline: Instant,
    ) -> Result<Pass<'a>, PaceError> {
        let Some(own) = self.own.as_ref().filter(|_| !checks.is_empty()) else {
            if let Some(pass) = scope.take_in_turn() {
                return Ok(pass);
            }
            let head = scope.wait(deadline).await.map_err(held)?;
            loop {
                match scope.take() {
                    Ok(pass) => return Ok(pass),
                    Err(_) => head.opened(deadline).await.map_err(held)?,
                }
            }
        };
        loop {
            if scope.closed_until().is_none() {
                let units = wait_for_units(own, checks, deadline).await?;
                if let Some(pass) = take_with(scope, units) {
                    return Ok(pass);
                }
            }
            let head = scope.wait(deadline).await.map_err(held)?;
            if let Some(pass) = take_at_head(own, checks, scope, &head, deadline).await? {
                return Ok(pass);
            }
            // The own quota is what is to be waited for: not at the head of this line, where it would keep others that
            // count against another key.
        }
    }
}

/// Waits in the line of the own quota.
async fn wait_for_units(
    own: &RequestRules,
    checks: &Checks,
    deadline: Instant,
) -> Result<Ticket, PaceError> {
    let timer = Timer::start();
    let patience = deadline.saturating_duration_since(Instant::now());
    let decision = own.limiter.acquire_within(checks, patience).await;
    let decision = decision.map_err(|_| PaceError::new(PaceErrorKind::OwnQuota, None))?;
    observe(own, checks, &decision, timer);
    if !decision.is_allowed() {
        let wait = decision.retry_after();
        return Err(PaceError::new(PaceErrorKind::OwnQuota, wait));
    }
    Ok(own.limiter.ticket(checks, &decision).cancel_on_drop())
}

/// At the head of the server's line: takes what the own quota has now. `None` where it has nothing.
async fn take_at_head<'a>(
    own: &RequestRules,
    checks: &Checks,
    scope: &'a Scope,
    head: &Head<'_>,
    deadline: Instant,
) -> Result<Option<Pass<'a>>, PaceError> {
    loop {
        let timer = Timer::start();
        let decision = own.limiter.acquire(checks).await;
        if !decision.is_allowed() {
            return Ok(None);
        }
        observe(own, checks, &decision, timer);
        let units = own.limiter.ticket(checks, &decision).cancel_on_drop();
        if let Some(pass) = take_with(scope, units) {
            return Ok(Some(pass));
        }
        head.opened(deadline).await.map_err(held)?;
    }
}

/// Spends the units with a place at the server, or gives them back.
fn take_with(scope: &Scope, units: Ticket) -> Option<Pass<'_>> {
    let pass = scope.take().ok()?;
    units.keep();
    Some(pass)
}

fn observe(own: &RequestRules, checks: &Checks, decision: &Decision, timer: Timer) {
    let bound = own.limiter.bound().as_ref();
    own.observer.decided(bound, checks, decision, timer);
}

fn held(Closed(until): Closed) -> PaceError {
    let wait = until.saturating_duration_since(Instant::now());
    PaceError::new(PaceErrorKind::Held, (!wait.is_zero()).then_some(wait))
}
