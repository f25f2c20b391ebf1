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
    request::Request,
    traffic::Resent,
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
    /// Set where earlier calls have later deadlines: a driver checks deadlines in the order in which calls come. So it
    /// is once the call was sent on, and where a part of its time was gone before.
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

    /// Ends at its deadline by itself, whatever waits before it.
    pub(super) fn ending_at_deadline(mut self) -> Self {
        if let State::Sent(sent) = &mut self.0 {
            sent.arm_deadline();
        }
        self
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
        let Some(redirect) = Redirect::of(
            &error,
            &self.member.place,
            &self.shared.options.node.address_map,
        ) else {
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
        self.shared.options.node.traffic.resent(match redirect {
            Redirect::Moved(_) => Resent::Moved,
            Redirect::Ask(_) => Resent::AskRedirect,
        });
        self.call = member.node.send(waiting);
        self.member = member;
        self.arm_deadline();
        Ok(())
    }

    fn arm_deadline(&mut self) {
        let _entered = self.shared.runtime.enter();
        self.timer
            .get_or_insert_with(|| Box::pin(sleep_until(self.deadline)));
    }

    fn expire(&mut self, cx: &mut Context<'_>) -> Poll<Result<Value, CallError>> {
        let Some(timer) = &mut self.timer else {
            return Poll::Pending;
        };
        let was_sent_on = self.moved || self.ask_followed;
        timer.as_mut().poll(cx).map(|()| {
            let message = match was_sent_on {
                true => "Redis did not answer in time, after the slot had moved",
                false => "Redis did not answer in time",
            };
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

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use tokio::time::sleep;

    use super::*;
    use crate::{
        address::Place,
        connection::{
            cluster::{
                options::ClusterOptions,
                played::{Played, place},
            },
            traffic::{Traffic, TrafficSink},
        },
    };

    const DEADLINE: Duration = Duration::from_millis(50);

    /// A cluster whose first server has all slots.
    async fn start(answers: &[&'static str]) -> Played {
        let answers: Vec<_> = answers.iter().copied().map(Some).collect();
        Played::start(ClusterOptions::default(), 1, &answers).await
    }

    /// What becomes of a call about a slot of the first server.
    async fn call(cluster: &Played) -> Result<Value, CallError> {
        cluster.call(Instant::now() + DEADLINE).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_sent_on_ends_at_its_deadline_whatever_waits_before_it() {
        for line in ["-MOVED 0 s2:2\r\n", "-ASK 0 s2:2\r\n"] {
            let cluster = start(&[line, ""]).await;
            let _earlier = cluster.occupy(2, Instant::now() + 100 * DEADLINE);
            let began = Instant::now();
            let error = call(&cluster).await.unwrap_err();
            assert_eq!(began.elapsed(), DEADLINE, "{line}");
            assert_eq!(error.kind(), CallErrorKind::Unknown);
            let message = error.to_string();
            assert!(message.ends_with("after the slot had moved"), "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_ends_at_its_deadline_by_itself_says_nothing_of_slots_that_move() {
        let cluster = start(&[""]).await;
        let _earlier = cluster.occupy(1, Instant::now() + 100 * DEADLINE);
        sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        let call = cluster.call(began + DEADLINE).ending_at_deadline();
        let error = call.await.unwrap_err();
        assert_eq!(began.elapsed(), DEADLINE);
        assert_eq!(error.kind(), CallErrorKind::Unknown);
        assert_eq!(error.to_string(), "Redis did not answer in time");
    }

    #[tokio::test(start_paused = true)]
    async fn the_map_is_learnt_anew_where_an_answer_says_that_it_is_old() {
        for (line, expected) in [
            ("-CLUSTERDOWN Hash slot not served\r\n", true),
            ("-READONLY You can't write against a replica\r\n", true),
            ("-MOVED 0 s2:2\r\n", true),
            ("-MOVED 0 s3:3\r\n", true),
            ("-MOVED 0 ?:3\r\n", true),
            // Only that one is new.
            ("-ASK 0 s3:3\r\n", true),
            ("-ASK 0 s2:2\r\n", false),
            ("-TRYAGAIN Multiple keys\r\n", false),
            ("-LOADING Redis is loading\r\n", false),
            (":1\r\n", false),
        ] {
            let cluster = start(&[line, ":1\r\n"]).await;
            assert!(!cluster.is_stale().await);
            let _ = call(&cluster).await;
            assert_eq!(cluster.is_stale().await, expected, "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_has_moved_stays_with_its_new_server_and_one_that_moves_does_not() {
        for (line, owner) in [("-MOVED 0 s2:2\r\n", 2), ("-ASK 0 s2:2\r\n", 1)] {
            let cluster = start(&[line, ":7\r\n"]).await;
            assert_eq!(call(&cluster).await.unwrap(), Value::Integer(7));
            assert_eq!(cluster.owner(0), place(owner), "{line}");
            assert_eq!(cluster.owner(1), place(1));
            assert_eq!(cluster.heard(), ["s1:1", "s2:2"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_names_no_host_means_itself() {
        let cluster = start(&["-MOVED 0 s2:2\r\n", "-MOVED 0 :9\r\n"]).await;
        let error = call(&cluster).await.unwrap_err();
        assert!(error.to_string().contains("is being connected"), "{error}");
        let named = cluster.shared.unlisted();
        assert_eq!(named, [Place::Tcp("s2".to_owned(), 9)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_sent_on_once_for_each_of_the_two_reasons() {
        let cluster = start(&["-MOVED 0 s2:2\r\n", "-ASK 0 s3:3\r\n", ":7\r\n"]).await;
        assert_eq!(call(&cluster).await.unwrap(), Value::Integer(7));
        assert_eq!(cluster.heard(), ["s1:1", "s2:2", "s3:3"]);
        for (word, why) in [("MOVED", "moves on and on"), ("ASK", "to and fro")] {
            let line = |to| &*format!("-{word} 0 s{to}:{to}\r\n").leak();
            let cluster = start(&[line(2), line(3), line(1)]).await;
            let error = call(&cluster).await.unwrap_err();
            assert_eq!(error.kind(), CallErrorKind::Unavailable);
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(cluster.heard(), ["s1:1", "s2:2"]);
        }
    }

    /// Why calls were sent once more.
    #[derive(Default)]
    struct Counts(Mutex<Vec<Resent>>);

    impl Traffic for Counts {
        fn queued(&self, _: Duration) {}

        fn round_trip(&self, _: Duration) {}

        fn resent(&self, why: Resent) {
            self.0.lock().unwrap().push(why);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_sent_on_is_counted_by_its_reason() {
        for (line, why) in [
            ("-MOVED 0 s2:2\r\n", Resent::Moved),
            ("-ASK 0 s2:2\r\n", Resent::AskRedirect),
        ] {
            let counts = Arc::new(Counts::default());
            let mut options = ClusterOptions::default();
            options.node.traffic = TrafficSink::new(counts.clone());
            let cluster = Played::start(options, 1, &[Some(line), Some(":1\r\n")]).await;
            assert!(call(&cluster).await.is_ok());
            assert_eq!(*counts.0.lock().unwrap(), [why]);
        }
    }
}
