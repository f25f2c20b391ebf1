//! A request body that can be sent again.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tower::BoxError;

/// The maximum number of kept frames, whatever their size: each has an overhead.
const MOST_FRAMES: usize = 1_024;

/// The body of a request that [`ClientRateLimit`](crate::ClientRateLimit) sends.
///
/// Of a request that is safe to retry, it keeps what of the caller's body is there when the request begins, up to
/// [`max_replay_bytes`](crate::ClientRateLimitLayer::max_replay_bytes). If that is all of it, a retry can send it again. Otherwise the
/// rest is passed on frame by frame, without delay, and the request is sent once.
pub struct ReplayBody<B> {
    kept: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    /// What comes behind, if anything does: the rest of the body, or the error in its place.
    rest: Option<Result<Pin<Box<B>>, BoxError>>,
}

impl<B: Body<Error: Into<BoxError>>> ReplayBody<B> {
    /// Keeps what is there of a body, up to `limit` bytes; without a limit, or with a size hint that exceeds it, nothing.
    pub(crate) async fn new(body: B, limit: Option<u64>) -> Self {
        let mut body = Box::pin(body);
        let limit = limit.filter(|limit| body.size_hint().lower() <= *limit);
        let mut this = Self::kept(VecDeque::new(), None);
        let mut bytes = 0;
        while let Some(limit) = limit
            && bytes <= limit
            && this.kept.len() < MOST_FRAMES
            && !body.is_end_stream()
        {
            let next = poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await;
            let frame = match next {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => {
                    this.rest = Some(Err(error.into()));
                    return this;
                }
                Poll::Ready(None) => return this,
                Poll::Pending => break,
            };
            match frame.into_data() {
                Ok(mut data) => {
                    bytes += data.remaining() as u64;
                    this.kept.push_back(data.copy_to_bytes(data.remaining()));
                }
                Err(frame) => this.trailers = frame.into_trailers().ok(),
            }
        }
        if !body.is_end_stream() || limit.is_none_or(|limit| bytes > limit) {
            this.rest = Some(Ok(body));
        }
        this
    }

    /// The same from its beginning, if all of it is kept.
    pub(crate) fn again(&self) -> Option<Self> {
        let is_whole = self.rest.is_none();
        is_whole.then(|| Self::kept(self.kept.clone(), self.trailers.clone()))
    }

    fn kept(kept: VecDeque<Bytes>, trailers: Option<HeaderMap>) -> Self {
        Self {
            kept,
            trailers,
            rest: None,
        }
    }
}

impl<B: Body<Error: Into<BoxError>>> Body for ReplayBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(data) = this.kept.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        match &mut this.rest {
            Some(Ok(body)) => body.as_mut().poll_frame(cx).map(|next| {
                let next = next?.map_err(Into::into);
                Some(next.map(|frame| frame.map_data(|mut it| it.copy_to_bytes(it.remaining()))))
            }),
            rest => Poll::Ready(rest.take().and_then(Result::err).map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = match &self.rest {
            Some(Ok(body)) => body.is_end_stream(),
            rest => rest.is_none(),
        };
        has_ended && self.kept.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let kept: u64 = self.kept.iter().map(|data| data.len() as u64).sum();
        let rest = match &self.rest {
            Some(Ok(body)) => body.size_hint(),
            _ => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(kept));
        // HTTP/1.1 has no trailers behind a body of a known length.
        if let Some(upper) = rest.upper().filter(|_| self.trailers.is_none()) {
            hint.set_upper(upper.saturating_add(kept));
        }
        hint
    }
}

tollgate_core::debug_fields!(ReplayBody<B>);

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, pin::pin, task::Waker};

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

    /// The body of a request whose body is this one.
    fn sent<B: Body<Error: Into<BoxError>>>(body: B, limit: u64) -> ReplayBody<B> {
        let new = pin!(ReplayBody::new(body, Some(limit)));
        match new.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(body) => body,
            Poll::Pending => panic!("it waits"),
        }
    }

    /// Reads until there is nothing more now.
    fn read<B: Body<Error: Into<BoxError>>>(body: &mut ReplayBody<B>) -> Vec<String> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = Vec::new();
        loop {
            match Pin::new(&mut *body).poll_frame(&mut cx) {
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
    fn a_body_that_is_there_is_sent_again_with_its_trailers() {
        let first = sent(body(&["a", "b", "trailers"]), 100);
        let mut again = first.again().unwrap();
        for mut body in [first, again.again().unwrap()] {
            let hint = body.size_hint();
            assert_eq!((hint.lower(), hint.upper()), (2, None));
            assert_eq!(read(&mut body), ["a", "b", "trailers", "end"]);
            assert!(body.is_end_stream());
        }
        read(&mut again);
        assert_eq!(again.size_hint().exact(), Some(0));
    }

    #[test]
    fn a_body_that_comes_later_or_is_long_is_sent_once() {
        let hinted = |hint| Frames {
            hint: Some(hint),
            ..body(&["a", "wait", "b"])
        };
        for (body, limit) in [
            (body(&["a", "wait", "b"]), 100),
            (hinted(2), 100),
            (hinted(5), 4),
            (body(&["a", "wait", "b"]), 0),
        ] {
            let mut once = sent(body, limit);
            assert!(once.again().is_none() && !once.is_end_stream());
            let mut parts = [read(&mut once), read(&mut once)].concat();
            parts.retain(|part| !["wait", "end"].contains(&&**part));
            assert_eq!(parts, ["a", "b"]);
        }
        let mut long = sent(body(&["abc", "de"]), 4);
        assert!(long.again().is_none());
        assert_eq!(read(&mut long), ["abc", "de", "end"]);
    }

    #[test]
    fn a_body_that_fails_is_sent_once_and_ends() {
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
        let mut first = sent(Failing, 100);
        assert!(first.again().is_none());
        assert_eq!(read(&mut first), ["error: it broke"]);
        assert!(first.is_end_stream());
        assert_eq!(read(&mut first), ["end"]);
    }

    #[test]
    fn the_number_of_frames_is_limited() {
        for (frames, is_kept) in [(1_024, true), (1_025, false)] {
            let first = sent(body(&vec!["a"; frames]), u64::MAX);
            assert_eq!(first.again().is_some(), is_kept, "{frames}");
        }
    }

    #[test]
    fn the_size_hint_is_what_is_kept_and_the_rest() {
        let half = sent(
            Frames {
                hint: Some(2),
                ..body(&["abc", "wait", "de"])
            },
            100,
        );
        assert_eq!(half.size_hint().exact(), Some(5));
    }
}
