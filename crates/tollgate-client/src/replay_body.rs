//! A request body that can be replayed.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tower::BoxError;

/// The maximum number of buffered frames, whatever their size: each has an overhead.
const MOST_FRAMES: usize = 1_024;

/// The body of a request that [`ClientRateLimit`](crate::ClientRateLimit) sends. It buffers the caller's body while it is sent, so
/// that a retry can replay it.
///
/// It does not buffer more than [`max_replay_bytes`](crate::ClientRateLimitLayer::max_replay_bytes), nor the body of a
/// request that is not safe to retry. Data and trailers are passed on frame by frame, without delay.
pub struct ReplayBody<B> {
    body: Arc<Mutex<Buffer<B>>>,
    /// The number of this pass over the body; only the newest one reads on.
    number: u32,
    /// How many of the buffered frames it has sent.
    sent: usize,
}

/// A body, and the frames of it that were sent.
struct Buffer<B> {
    rest: Pin<Box<B>>,
    frames: Vec<BufferedFrame>,
    bytes: u64,
    limit: u64,
    /// Whether `frames` has all that was sent.
    complete: bool,
    ended: bool,
    newest: u32,
    /// The task that waits for more of the newest pass.
    reader: Option<Waker>,
}

#[derive(Clone)]
enum BufferedFrame {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// Starts another pass over a buffered body.
pub(crate) struct Replay<B> {
    body: Arc<Mutex<Buffer<B>>>,
}

impl<B: Body> ReplayBody<B> {
    /// A body that can be replayed as long as no more than `limit` bytes were sent; without a limit, or with a size hint that
    /// exceeds it, it is not buffered.
    pub(crate) fn new(body: B, limit: Option<u64>) -> (Self, Replay<B>) {
        let body = Arc::new(Mutex::new(Buffer {
            complete: limit.is_some_and(|limit| body.size_hint().lower() <= limit),
            ended: body.is_end_stream(),
            rest: Box::pin(body),
            frames: Vec::new(),
            bytes: 0,
            limit: limit.unwrap_or(0),
            newest: 0,
            reader: None,
        }));
        let replay = Replay { body };
        (replay.pass(0), replay)
    }
}

impl<B> Replay<B> {
    /// The body from its beginning: the buffered frames, then the rest. `None` if the buffer is incomplete.
    ///
    /// An earlier pass that is still read ends with an error.
    pub(crate) fn replay(&self) -> Option<ReplayBody<B>> {
        let (number, superseded) = {
            let mut body = lock(&self.body);
            if !body.complete {
                return None;
            }
            body.newest += 1;
            (body.newest, body.reader.take())
        };
        // Wake a connection that still waits for the rest, or it would wait for ever.
        if let Some(reader) = superseded {
            reader.wake();
        }
        Some(self.pass(number))
    }

    /// Whether the body can be replayed, as far as is known now.
    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.body).complete
    }

    fn pass(&self, number: u32) -> ReplayBody<B> {
        ReplayBody {
            body: Arc::clone(&self.body),
            number,
            sent: 0,
        }
    }
}

impl<B> Buffer<B> {
    fn keep(&mut self, frame: &BufferedFrame) {
        if !self.complete {
            return;
        }
        if let BufferedFrame::Data(data) = frame {
            self.bytes = self.bytes.saturating_add(data.len() as u64);
        }
        if self.bytes > self.limit || self.frames.len() >= MOST_FRAMES {
            self.complete = false;
            self.frames = Vec::new();
        } else {
            self.frames.push(frame.clone());
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
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let mut body = lock(&this.body);
        if this.number != body.newest {
            let why = "the request is being retried, which ends this pass over its body";
            return Poll::Ready(Some(Err(why.into())));
        }
        if let Some(frame) = body.frames.get(this.sent) {
            this.sent += 1;
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
                // A body that failed cannot be replayed.
                body.complete = false;
                body.ended = true;
                return Poll::Ready(Some(Err(error.into())));
            }
            None => {
                body.ended = true;
                return Poll::Ready(None);
            }
        };
        body.ended = body.rest.is_end_stream();
        let Some(frame) = BufferedFrame::of(frame) else {
            // A future kind of frame, which cannot be passed on as bytes.
            body.complete = false;
            let why = "the body has a frame that is neither data nor trailers";
            return Poll::Ready(Some(Err(why.into())));
        };
        body.keep(&frame);
        this.sent += 1;
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
                BufferedFrame::Data(data) => data.len() as u64,
                BufferedFrame::Trailers(_) => 0,
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

impl BufferedFrame {
    /// The frame with its data as `Bytes`, without a copy if they are that already.
    fn of<D: Buf>(frame: Frame<D>) -> Option<Self> {
        match frame.into_data() {
            Ok(mut data) => Some(Self::Data(data.copy_to_bytes(data.remaining()))),
            Err(frame) => frame.into_trailers().ok().map(Self::Trailers),
        }
    }
}

impl From<BufferedFrame> for Frame<Bytes> {
    fn from(frame: BufferedFrame) -> Self {
        match frame {
            BufferedFrame::Data(data) => Self::data(data),
            BufferedFrame::Trailers(trailers) => Self::trailers(trailers),
        }
    }
}

impl<B> fmt::Debug for ReplayBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBody").finish_non_exhaustive()
    }
}

fn lock<B>(body: &Mutex<Buffer<B>>) -> MutexGuard<'_, Buffer<B>> {
    body.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    fn a_body_is_replayed_with_its_trailers() {
        let (mut first, replay) = ReplayBody::new(body(&["a", "b", "trailers"]), Some(100));
        assert_eq!(read(&mut first), ["a", "b", "trailers", "end"]);
        for _ in 0..2 {
            let mut again = replay.replay().unwrap();
            assert_eq!(read(&mut again), ["a", "b", "trailers", "end"]);
            assert!(again.is_end_stream());
        }
    }

    #[test]
    fn a_body_that_failed_has_ended_and_is_not_replayed() {
        struct Failing;
        impl Body for Failing {
            type Data = Bytes;
            type Error = std::io::Error;

            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
                Poll::Ready(Some(Err(std::io::Error::other("it broke"))))
            }
        }
        let (first, replay) = ReplayBody::new(Failing, Some(100));
        let (mut first, replay) = (pin!(first), replay);
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Err(error))) = first.as_mut().poll_frame(&mut cx) else {
            panic!("it does not fail");
        };
        assert_eq!(error.to_string(), "it broke");
        assert!(first.is_end_stream());
        assert!(matches!(first.poll_frame(&mut cx), Poll::Ready(None)));
        assert!(!replay.is_complete());
        assert!(replay.replay().is_none());
    }

    #[test]
    fn a_half_sent_body_is_replayed_from_its_beginning() {
        let (mut first, replay) = ReplayBody::new(body(&["a", "wait", "b"]), Some(100));
        assert_eq!(read(&mut first), ["a", "wait"]);
        let mut again = replay.replay().unwrap();
        assert_eq!(read(&mut again), ["a", "b", "end"]);
    }

    #[test]
    fn a_superseded_pass_ends_with_an_error() {
        let (mut first, replay) = ReplayBody::new(body(&["a", "wait", "b"]), Some(100));
        assert_eq!(read(&mut first), ["a", "wait"]);
        let mut again = replay.replay().unwrap();
        assert!(read(&mut first)[0].contains("being retried"));
        assert!(!first.is_end_stream());
        assert_eq!(read(&mut again), ["a", "b", "end"]);
    }

    #[test]
    fn a_superseded_reader_is_woken() {
        struct Woken(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let woken = Arc::new(Woken(false.into()));
        let (first, replay) = ReplayBody::new(body(&["wait", "a"]), Some(100));
        let mut first = pin!(first);
        let waker = Waker::from(Arc::clone(&woken));
        let polled = first.as_mut().poll_frame(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let _again = replay.replay().unwrap();
        assert!(woken.0.load(std::sync::atomic::Ordering::SeqCst));
    }

    #[test]
    fn a_body_with_a_long_size_hint_is_not_buffered() {
        let long = Frames {
            hint: Some(5),
            ..body(&["a"])
        };
        let (mut first, replay) = ReplayBody::new(long, Some(4));
        assert!(replay.replay().is_none());
        assert_eq!(read(&mut first), ["a", "end"]);
    }

    #[test]
    fn the_number_of_frames_is_limited() {
        for (frames, is_kept) in [(1_024, true), (1_025, false)] {
            let parts = vec!["a"; frames];
            let (mut first, replay) = ReplayBody::new(body(&parts), Some(u64::MAX));
            read(&mut first);
            assert_eq!(replay.is_complete(), is_kept, "{frames}");
        }
    }

    #[test]
    fn the_size_hint_of_a_half_sent_body_is_what_is_kept_and_the_rest() {
        let half = Frames {
            hint: Some(2),
            ..body(&["abc", "trailers", "wait", "de"])
        };
        let (mut first, replay) = ReplayBody::new(half, Some(100));
        read(&mut first);
        assert_eq!(first.size_hint().exact(), Some(2));
        let again = replay.replay().unwrap();
        assert_eq!(again.size_hint().exact(), Some(5));
    }
}
