//! One call to a cluster.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::time::{Instant, Sleep, sleep_until};

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
pub(crate) struct ClusterCall(State);

enum State {
    /// No server could be called, and this says why.
    Refused(Call),
    /// A server was.
    Sent(Sent),
}

struct Sent {
    shared: Arc<Shared>,
    request: Request,
    slot: u16,
    deadline: Instant,
    /// Who was asked last. Held so that it does not end before it has answered.
    member: Arc<Member>,
    call: Call,
    moved: bool,
    ask_followed: bool,
    /// Set once the call was sent on: earlier calls there have later deadlines, and a driver checks deadlines in the order
    /// in which calls come.
    timer: Option<Pin<Box<Sleep>>>,
}

impl ClusterCall {
    pub(super) fn refused(error: CallError) -> Self {
        Self(State::Refused(Call::refused(error)))
    }

    /// Whether it has failed without having been queued.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.0, State::Refused(_))
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
        Self(match sent {
            None => State::Refused(call),
            Some(request) => State::Sent(Sent {
                shared: Arc::clone(shared),
                request,
                slot,
                deadline,
                member: Arc::clone(member),
                call,
                moved: false,
                ask_followed: false,
                timer: None,
            }),
        })
    }
}

impl Future for ClusterCall {
    type Output = Result<Value, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let sent = match &mut self.get_mut().0 {
            State::Refused(call) => return Pin::new(call).poll(cx),
            State::Sent(sent) => sent,
        };
        loop {
            match Pin::new(&mut sent.call).poll(cx) {
                Poll::Ready(Ok(value)) => return Poll::Ready(Ok(value)),
                Poll::Ready(Err(error)) => {
                    if let Err(error) = sent.follow(error) {
                        return Poll::Ready(Err(error));
                    }
                }
                Poll::Pending => return sent.expire(cx),
            }
        }
    }
}

impl Sent {
    /// Sends the call to where an error says, or gives back the error that is its end.
    fn follow(&mut self, error: CallError) -> Result<(), CallError> {
        let options = &self.shared.options.node;
        let Some(redirect) = Redirect::of(&error, &self.member.place, options) else {
            if matches!(code_of(error.line()), "CLUSTERDOWN" | "READONLY") {
                self.shared.stale().notify_one();
            }
            return Err(error);
        };
        let lost = |why: &str| {
            let message = format!("{why}: {error}");
            Err(CallError::new(CallErrorKind::Unavailable, message))
        };
        let (place, was_before) = match &redirect {
            Redirect::Moved(place) => (place, std::mem::replace(&mut self.moved, true)),
            Redirect::Ask(place) => (place, std::mem::replace(&mut self.ask_followed, true)),
        };
        if let Redirect::Moved(_) = redirect {
            self.shared.stale().notify_one();
        }
        let Some(place) = place else {
            return lost("the slot is with a server that has no name yet");
        };
        let map = self.shared.map.load();
        let member = match redirect {
            Redirect::Moved(_) => map.correct(self.slot, place).cloned(),
            Redirect::Ask(_) => None,
        };
        let Some(member) = member.or_else(|| self.shared.named(place)) else {
            return lost("the slot is with a server that is being connected");
        };
        if was_before {
            return lost(match redirect {
                Redirect::Moved(_) => "the slot moves on and on",
                // The reply to `ASKING` is dropped. Where it is not allowed, the call comes back at once.
                Redirect::Ask(_) => {
                    "the slot moves to and fro, or the user has no right to ASKING (+asking)"
                }
            });
        }
        let waiting = || {
            let (waiting, call) = Waiting::new(self.request.clone(), self.deadline);
            match redirect {
                Redirect::Moved(_) => (waiting, call),
                Redirect::Ask(_) => (waiting.asking(), call),
            }
        };
        if let Some(tell) = &options.calls {
            tell(CallEvent::Resent(match redirect {
                Redirect::Moved(_) => Resent::Moved,
                Redirect::Ask(_) => Resent::AskRedirect,
            }));
        }
        self.call = member.node.send(waiting);
        self.member = member;
        let _entered = self.shared.runtime.enter();
        self.timer
            .get_or_insert_with(|| Box::pin(sleep_until(self.deadline)));
        Ok(())
    }

    fn expire(&mut self, cx: &mut Context<'_>) -> Poll<Result<Value, CallError>> {
        let Some(timer) = &mut self.timer else {
            return Poll::Pending;
        };
        timer.as_mut().poll(cx).map(|()| {
            let message = "Redis did not answer in time, after the slot had moved";
            Err(CallError::new(CallErrorKind::Unknown, message))
        })
    }
}

impl fmt::Debug for ClusterCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = f.debug_struct("ClusterCall");
        match &self.0 {
            State::Refused(refused) => call.field("refused", refused),
            State::Sent(sent) => call
                .field("slot", &sent.slot)
                .field("member", &sent.member.place),
        };
        call.finish_non_exhaustive()
    }
}
