//! One call to a cluster.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::time::{Instant, timeout_at};

use crate::connection::{
    call::{Call, Waiting},
    cluster::{map::Member, redirect::Redirect, shared::Shared},
    error::{CallError, CallErrorKind, code_of},
    event::{CallEvent, Resent},
    request::Request,
    value::Value,
};

/// The answer to a call, at the latest shortly after its deadline.
///
/// # Cancel safety
///
/// As that of a [`Call`].
#[must_use = "await the answer"]
pub(crate) enum ClusterCall {
    /// No server could be called, and this says why.
    Refused(Call),
    /// A server was.
    Sent(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

type Answer = Result<Value, CallError>;

impl ClusterCall {
    pub(super) fn refused(error: CallError) -> Self {
        Self::Refused(Call::refused(error))
    }

    /// Whether it has failed without having been queued.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    pub(super) fn send(
        shared: &Arc<Shared>,
        member: &Arc<Member>,
        slot: u16,
        deadline: Instant,
        request: impl FnOnce() -> Request,
    ) -> Self {
        let mut sent = None;
        let call = member.node.send(|| {
            let request = request();
            sent = Some(request.clone());
            Waiting::new(request, deadline)
        });
        let Some(request) = sent else {
            return Self::Refused(call);
        };
        let routed = Routed {
            shared: Arc::clone(shared),
            request,
            slot,
            deadline,
            member: Arc::clone(member),
            moved: false,
            ask_followed: false,
        };
        Self::Sent(Box::pin(routed.answer(call)))
    }
}

impl Future for ClusterCall {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        match self.get_mut() {
            Self::Refused(call) => Pin::new(call).poll(cx),
            Self::Sent(answer) => answer.as_mut().poll(cx),
        }
    }
}

/// A call that a server has, and where it goes from there.
struct Routed {
    shared: Arc<Shared>,
    request: Request,
    slot: u16,
    deadline: Instant,
    /// Who was asked last. Held so that it does not end before it has answered.
    member: Arc<Member>,
    moved: bool,
    ask_followed: bool,
}

impl Routed {
    async fn answer(mut self, call: Call) -> Answer {
        let mut answer = call.await;
        while let Err(error) = answer {
            let call = self.follow(error)?;
            // Earlier calls there have later deadlines, and a driver checks deadlines in the order in which calls come. The timer
            // is that of the connections: whoever polls may have none.
            let call = {
                let _entered = self.shared.runtime.enter();
                timeout_at(self.deadline, call)
            };
            answer = call.await.unwrap_or_else(|_| {
                let message = "Redis did not answer in time, after the slot had moved";
                Err(CallError::new(CallErrorKind::Unknown, message))
            });
        }
        answer
    }

    /// Sends the call to where an error says, or gives back the error that is its end.
    fn follow(&mut self, error: CallError) -> Result<Call, CallError> {
        let options = &self.shared.options;
        let Some(redirect) = Redirect::of(&error, &self.member.place, options) else {
            if matches!(code_of(error.line()), "CLUSTERDOWN" | "READONLY") {
                self.shared.stale.notify_one();
            }
            return Err(error);
        };
        let lost = |why: &str| {
            let message = format!("{why}: {error}");
            Err(CallError::new(CallErrorKind::Unavailable, message))
        };
        // The reply to `ASKING` is dropped. Where it is not allowed, the call comes back at once.
        let (place, was_before, on_and_on, why) = match &redirect {
            Redirect::Moved(place) => {
                self.shared.stale.notify_one();
                let on_and_on = "the slot moves on and on";
                (place, &mut self.moved, on_and_on, Resent::Moved)
            }
            Redirect::Ask(place) => {
                let on_and_on =
                    "the slot moves to and fro, or the user has no right to ASKING (+asking)";
                (
                    place,
                    &mut self.ask_followed,
                    on_and_on,
                    Resent::AskRedirect,
                )
            }
        };
        let Some(place) = place else {
            return lost("the slot is with a server that has no name yet");
        };
        let corrected = match redirect {
            Redirect::Moved(_) => self.shared.map.load().correct(self.slot, place).cloned(),
            Redirect::Ask(_) => None,
        };
        let Some(member) = corrected.or_else(|| self.shared.named(place)) else {
            return lost("the slot is with a server that is being connected");
        };
        if std::mem::replace(was_before, true) {
            return lost(on_and_on);
        }
        if let Some(tell) = &options.calls {
            tell(CallEvent::Resent(why));
        }
        self.member = member;
        Ok(self.member.node.send(|| {
            let (waiting, call) = Waiting::new(self.request.clone(), self.deadline);
            match redirect {
                Redirect::Moved(_) => (waiting, call),
                Redirect::Ask(_) => (waiting.asking(), call),
            }
        }))
    }
}
