//! A request's body that can be sent again.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::BoxError;

/// No more frames than this are kept, whatever their size: each has a cost of its own.
const MOST_FRAMES: usize = 1_024;

pin_project! {
    /// The body of a request that [`Pace`](crate::client::Pace) sends: that of the caller, kept as it is sent, so that a
    /// retry can send it again.
    ///
    /// What does not fit into the [limit](crate::client::PaceLayer::keep_bodies) is not kept, nor is the body of a request
    /// that is not retried. Data and trailers are passed on frame by frame, without waiting for the rest.
    pub struct ReplayBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        /// Sent once.
        Once { #[pin] body: B },
        /// One sending of a body that is kept.
        Kept { sending: Sending<B> },
    }
}

/// One sending: where it is in what was kept.
struct Sending<B> {
    body: Arc<Mutex<KeptBody<B>>>,
    /// Which sending it is; only the newest one reads on.
    number: u32,
    /// How many of the kept frames it has sent.
    sent: usize,
}

/// A body and what was sent of it.
struct KeptBody<B> {
    rest: Pin<Box<B>>,
    frames: Vec<Kept>,
    bytes: u64,
    limit: u64,
    /// Whether all that was sent is in `frames`.
    whole: bool,
    ended: bool,
    newest: u32,
    /// Who reads the newest sending and waits for more of it.
    reader: Option<Waker>,
}

#[derive(Clone)]
enum Kept {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// The caller's end of a kept body: makes a new sending of it.
pub(super) struct Replay<B> {
    body: Arc<Mutex<KeptBody<B>>>,
}

impl<B: Body> ReplayBody<B> {
    /// A body that is sent once.
    pub(super) fn once(body: B) -> Self {
        Self {
            kind: Kind::Once { body },
        }
    }

    /// A body that can be sent again while no more than `limit` bytes were sent; nothing is kept of one that says that it
    /// is longer.
    pub(super) fn kept(body: B, limit: u64) -> (Self, Option<Replay<B>>) {
        if body.size_hint().lower() > limit {
            return (Self::once(body), None);
        }
        let body = Arc::new(Mutex::new(KeptBody {
            ended: body.is_end_stream(),
            rest: Box::pin(body),
            frames: Vec::new(),
            bytes: 0,
            limit,
            whole: true,
            newest: 0,
            reader: None,
        }));
        let replay = Replay { body };
        (replay.sending(0), Some(replay))
    }
}

impl<B> Replay<B> {
    /// The body once more: what was sent, and then the rest. `None` if something was not kept.
    ///
    /// A sending before this one ends with an error where it is still read.
    pub(super) fn again(&self) -> Option<ReplayBody<B>> {
        let (number, overtaken) = {
            let mut body = lock(&self.body);
            if !body.whole {
                return None;
            }
            body.newest += 1;
            (body.newest, body.reader.take())
        };
        // A connection that still waits for the rest would wait for ever: it comes here no more.
        if let Some(reader) = overtaken {
            reader.wake();
        }
        Some(self.sending(number))
    }

    /// Whether the body can be sent again, as far as is known now.
    pub(super) fn is_whole(&self) -> bool {
        lock(&self.body).whole
    }

    fn sending(&self, number: u32) -> ReplayBody<B> {
        let body = Arc::clone(&self.body);
        ReplayBody {
            kind: Kind::Kept {
                sending: Sending {
                    body,
                    number,
                    sent: 0,
                },
            },
        }
    }
}

impl<B> KeptBody<B> {
    fn keep(&mut self, frame: &Kept) {
        if !self.whole {
            return;
        }
        if let Kept::Data(data) = frame {
            self.bytes = self.bytes.saturating_add(data.len() as u64);
        }
        if self.bytes > self.limit || self.frames.len() >= MOST_FRAMES {
            self.whole = false;
            self.frames = Vec::new();
        } else {
            self.frames.push(frame.clone());
        }
    }
}

impl<B> Sending<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut body = lock(&self.body);
        if self.number != body.newest {
            return Poll::Ready(Some(Err(Box::new(Superseded))));
        }
        if let Some(frame) = body.frames.get(self.sent) {
            self.sent += 1;
            return Poll::Ready(Some(Ok(frame.clone().into())));
        }
        if body.ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(next) = body.rest.as_mut().poll_frame(cx) else {
            body.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let frame = match next {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                // What failed once has no rest to send.
                body.whole = false;
                body.ended = true;
                return Poll::Ready(Some(Err(error.into())));
            }
            None => {
                body.ended = true;
                return Poll::Ready(None);
            }
        };
        body.ended = body.rest.is_end_stream();
        let Some(frame) = Kept::of(frame) else {
            // A kind of frame that there is not yet: it cannot be passed on as bytes.
            body.whole = false;
            return Poll::Ready(Some(Err(Box::new(UnknownFrame))));
        };
        body.keep(&frame);
        self.sent += 1;
        Poll::Ready(Some(Ok(frame.into())))
    }

    fn is_end_stream(&self) -> bool {
        let body = lock(&self.body);
        body.ended && self.sent >= body.frames.len() && self.number == body.newest
    }

    fn size_hint(&self) -> SizeHint {
        let body = lock(&self.body);
        let unsent = body.frames.iter().skip(self.sent);
        let kept: u64 = unsent
            .map(|frame| match frame {
                Kept::Data(data) => data.len() as u64,
                Kept::Trailers(_) => 0,
            })
            .sum();
        let rest = if body.ended {
            SizeHint::with_exact(0)
        } else {
            body.rest.size_hint()
        };
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(kept));
        }
        hint.set_lower(rest.lower().saturating_add(kept));
        hint
    }
}

impl Kept {
    /// The frame with its data as bytes; nothing is copied where they are bytes already.
    fn of<D: Buf>(frame: Frame<D>) -> Option<Self> {
        match frame.into_data() {
            Ok(mut data) => Some(Self::Data(data.copy_to_bytes(data.remaining()))),
            Err(frame) => frame.into_trailers().ok().map(Self::Trailers),
        }
    }
}

impl From<Kept> for Frame<Bytes> {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Data(data) => Self::data(data),
            Kept::Trailers(trailers) => Self::trailers(trailers),
        }
    }
}

impl<B> Body for ReplayBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            KindProj::Once { body } => Poll::Ready(match ready!(body.poll_frame(cx)) {
                Some(Ok(frame)) => Some(Ok(
                    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
                )),
                Some(Err(error)) => Some(Err(error.into())),
                None => None,
            }),
            KindProj::Kept { sending } => sending.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Once { body } => body.is_end_stream(),
            Kind::Kept { sending } => sending.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Once { body } => body.size_hint(),
            Kind::Kept { sending } => sending.size_hint(),
        }
    }
}

impl<B> fmt::Debug for ReplayBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Once { .. } => "ReplayBody::Once",
            Kind::Kept { .. } => "ReplayBody::Kept",
        })
    }
}

/// A body that panicked while it was polled is not polled again: its lock still tells what was kept.
fn lock<B>(body: &Mutex<KeptBody<B>>) -> MutexGuard<'_, KeptBody<B>> {
    body.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a sending ends that a retry has overtaken.
#[derive(Debug)]
struct Superseded;

impl fmt::Display for Superseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the request was answered and is sent again; this sending of its body has ended",
        )
    }
}

impl std::error::Error for Superseded {}

#[derive(Debug)]
struct UnknownFrame;

impl fmt::Display for UnknownFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body has a frame that is neither data nor trailers")
    }
}

impl std::error::Error for UnknownFrame {}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible, pin::pin, task::Waker};

    use http::HeaderValue;

    use super::*;

    /// A body of these frames; `None` is one that is not there yet.
    #[derive(Default)]
    struct Frames {
        frames: VecDeque<Option<Frame<Bytes>>>,
        hint: Option<u64>,
    }

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.frames.pop_front() {
                Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                Some(None) => Poll::Pending,
                None => Poll::Ready(None),
            }
        }

        fn is_end_stream(&self) -> bool {
            self.frames.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            self.hint.map_or_else(SizeHint::new, SizeHint::with_exact)
        }
    }

    fn body(parts: &[&'static str]) -> Frames {
        let frames = parts.iter().map(|part| match *part {
            "wait" => None,
            "trailers" => {
                let value = HeaderValue::from_static("v");
                let trailers = HeaderMap::from_iter([(http::header::ETAG, value)]);
                Some(Frame::trailers(trailers))
            }
            data => Some(Frame::data(Bytes::from_static(data.as_bytes()))),
        });
        Frames {
            frames: frames.collect(),
            hint: None,
        }
    }

    /// Reads until there is nothing more now.
    fn read(body: &mut ReplayBody<Frames>) -> Vec<String> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = Vec::new();
        loop {
            match pin!(&mut *body).poll_frame(&mut cx) {
                Poll::Pending => read.push("wait".to_owned()),
                Poll::Ready(None) => read.push("end".to_owned()),
                Poll::Ready(Some(Err(error))) => read.push(format!("error: {error}")),
                Poll::Ready(Some(Ok(frame))) => {
                    read.push(match frame.into_data() {
                        Ok(data) => String::from_utf8(data.into()).unwrap(),
                        Err(_) => "trailers".to_owned(),
                    });
                    continue;
                }
            }
            return read;
        }
    }

    #[test]
    fn a_body_that_was_sent_is_sent_again_with_its_trailers() {
        let (mut first, replay) = ReplayBody::kept(body(&["a", "b", "trailers"]), 100);
        assert_eq!(read(&mut first), ["a", "b", "trailers", "end"]);
        for _ in 0..2 {
            let mut again = replay.as_ref().unwrap().again().unwrap();
            assert_eq!(read(&mut again), ["a", "b", "trailers", "end"]);
            assert!(again.is_end_stream());
        }
    }

    #[test]
    fn a_body_that_was_half_sent_is_sent_from_its_beginning_to_its_end() {
        let (mut first, replay) = ReplayBody::kept(body(&["a", "wait", "b"]), 100);
        assert_eq!(read(&mut first), ["a", "wait"]);
        let mut again = replay.unwrap().again().unwrap();
        assert_eq!(read(&mut again), ["a", "b", "end"]);
    }

    #[test]
    fn a_sending_that_was_overtaken_ends_with_an_error() {
        let (mut first, replay) = ReplayBody::kept(body(&["a", "wait", "b"]), 100);
        assert_eq!(read(&mut first), ["a", "wait"]);
        let mut again = replay.unwrap().again().unwrap();
        assert!(read(&mut first)[0].contains("sent again"));
        assert!(!first.is_end_stream());
        assert_eq!(read(&mut again), ["a", "b", "end"]);
    }

    #[test]
    fn a_reader_that_waits_for_more_is_woken_when_it_is_overtaken() {
        struct Woken(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let woken = Arc::new(Woken(false.into()));
        let (first, replay) = ReplayBody::kept(body(&["wait", "a"]), 100);
        let mut first = pin!(first);
        let waker = Waker::from(Arc::clone(&woken));
        let polled = first.as_mut().poll_frame(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let _again = replay.unwrap().again().unwrap();
        assert!(woken.0.load(std::sync::atomic::Ordering::SeqCst));
    }

    #[test]
    fn what_outgrows_the_limit_is_passed_on_and_not_kept() {
        let (mut first, replay) = ReplayBody::kept(body(&["aa", "bb", "c"]), 4);
        let replay = replay.unwrap();
        assert!(replay.is_whole());
        assert_eq!(read(&mut first), ["aa", "bb", "c", "end"]);
        assert!(!replay.is_whole());
        assert!(replay.again().is_none());
    }

    #[test]
    fn a_body_that_says_that_it_is_longer_is_not_kept_at_all() {
        let long = Frames {
            hint: Some(5),
            ..body(&["a"])
        };
        let (mut first, replay) = ReplayBody::kept(long, 4);
        assert!(replay.is_none());
        assert_eq!(read(&mut first), ["a", "end"]);
    }

    #[test]
    fn many_small_frames_are_too_much_as_well() {
        let parts: Vec<_> = (0..=MOST_FRAMES).map(|_| "a").collect();
        let (mut first, replay) = ReplayBody::kept(body(&parts), u64::MAX);
        read(&mut first);
        assert!(!replay.unwrap().is_whole());
    }

    #[test]
    fn its_length_is_what_is_still_to_be_sent() {
        let known = Frames {
            hint: Some(3),
            ..body(&["abc"])
        };
        let (mut first, replay) = ReplayBody::kept(known, 100);
        assert_eq!(first.size_hint().exact(), Some(3));
        assert!(!first.is_end_stream());
        read(&mut first);
        assert_eq!(first.size_hint().exact(), Some(0));
        assert!(first.is_end_stream());
        let again = replay.unwrap().again().unwrap();
        assert_eq!(again.size_hint().exact(), Some(3));
        assert!(!again.is_end_stream());
    }

    #[test]
    fn an_empty_body_is_at_its_end_from_the_beginning() {
        let (first, replay) = ReplayBody::kept(body(&[]), 100);
        assert!(first.is_end_stream());
        assert_eq!(first.size_hint().exact(), Some(0));
        assert!(replay.unwrap().again().unwrap().is_end_stream());
    }

    #[test]
    fn its_debug_shows_no_data() {
        let (first, _) = ReplayBody::kept(body(&["secret"]), 100);
        assert_eq!(format!("{first:?}"), "ReplayBody::Kept");
    }
}
