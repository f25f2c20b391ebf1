//! Bodies of given frames.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;

/// What a body gives next.
pub type FrameResult = Result<Frame<Bytes>, &'static str>;

/// The frames of a response.
#[derive(Debug)]
pub struct Frames {
    /// Those that are left.
    pub frames: Vec<FrameResult>,
    /// It says that it has ended with the last frame.
    pub knows_end: bool,
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        let is_empty = self.frames.is_empty();
        Poll::Ready((!is_empty).then(|| self.frames.remove(0)))
    }

    fn is_end_stream(&self) -> bool {
        self.knows_end && self.frames.is_empty()
    }
}

/// A frame of data.
pub fn data() -> FrameResult {
    Ok(Frame::data(Bytes::from_static(b"a line")))
}
