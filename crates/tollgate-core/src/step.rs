//! An answer that is there at once, or that has to be waited for.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll},
};

/// An answer that is there at once, or that comes after I/O.
///
/// The memory store, and every local answer of a remote one, is `Ready`: nothing is boxed and nothing is polled.
/// Awaiting a step waits where it has to.
#[must_use = "await the answer, or take it with `ready`"]
#[derive(Debug)]
pub enum Step<T> {
    /// The answer.
    Ready(T),
    /// The answer comes later.
    Wait(Pending<T>),
}

impl<T> Step<T> {
    /// The answer if it is there.
    pub fn ready(self) -> Option<T> {
        match self {
            Self::Ready(answer) => Some(answer),
            Self::Wait(_) => None,
        }
    }
}

impl<T: Send + 'static> Step<T> {
    /// Changes the answer once it is there.
    pub(crate) fn then(&mut self, change: impl FnOnce(&mut T) + Send + 'static) {
        match self {
            Self::Ready(answer) => change(answer),
            Self::Wait(pending) => {
                let before = std::mem::replace(&mut pending.0, Box::pin(std::future::pending()));
                pending.0 = Box::pin(async move {
                    let mut answer = before.await;
                    change(&mut answer);
                    answer
                });
            }
        }
    }
}

impl<T> IntoFuture for Step<T> {
    type Output = T;
    type IntoFuture = Stepping<T>;

    fn into_future(self) -> Stepping<T> {
        Stepping(match self {
            Self::Ready(answer) => Either::Ready(std::future::ready(answer)),
            Self::Wait(pending) => Either::Wait(pending),
        })
    }
}

/// The future of a [`Step`].
#[derive(Debug)]
pub struct Stepping<T>(Either<T>);

#[derive(Debug)]
enum Either<T> {
    Ready(std::future::Ready<T>),
    Wait(Pending<T>),
}

impl<T> Future for Stepping<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.get_mut().0 {
            Either::Ready(answer) => Pin::new(answer).poll(cx),
            Either::Wait(pending) => Pin::new(pending).poll(cx),
        }
    }
}

/// An answer that comes after I/O: a boxed future that borrows nothing.
pub struct Pending<T>(Pin<Box<dyn Future<Output = T> + Send>>);

impl<T> Pending<T> {
    /// Boxes a future.
    pub fn new(answer: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending(..)")
    }
}
