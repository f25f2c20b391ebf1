//! What was answered of late, for a proxy that asks twice about one request: nginx, where it redirects by itself.

use std::{collections::HashMap, mem, time::Duration};

use bytes::Bytes;
use http::Response;
use tokio::time::Instant;
use tollgate_core::sync::{Mutex, lock};

/// How long an answer is kept, at least and at most twice.
const TERM: Duration = Duration::from_secs(5);
/// How many are kept for a term.
const MOST: usize = 50_000;
/// The longest name that a request has here. nginx makes 32 letters.
const LONGEST: usize = 64;

/// The answers of the last seconds, by the name that the proxy has given a request.
#[derive(Default)]
pub(crate) struct Repeats(Mutex<Terms>);

#[derive(Default)]
struct Terms {
    current: HashMap<Box<[u8]>, Answer>,
    before: HashMap<Box<[u8]>, Answer>,
    began: Option<Instant>,
}

/// A response, and when it was given: a map may be older than its term, as the next answer replaces it.
type Answer = (Response<Bytes>, Instant);

impl Repeats {
    pub(crate) fn find(&self, name: &[u8]) -> Option<Response<Bytes>> {
        let terms = lock(&self.0);
        let known = terms.current.get(name).or_else(|| terms.before.get(name));
        let (response, at) = known?;
        (at.elapsed() < 2 * TERM).then(|| response.clone())
    }

    pub(crate) fn keep(&self, name: &[u8], response: &Response<Bytes>) {
        if name.is_empty() || name.len() > LONGEST {
            return;
        }
        let at = Instant::now();
        let mut terms = lock(&self.0);
        let is_over = terms.began.is_none_or(|began| at - began >= TERM);
        if is_over || terms.current.len() >= MOST {
            terms.before = mem::take(&mut terms.current);
            terms.began = Some(at);
        }
        terms.current.insert(name.into(), (response.clone(), at));
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_given_again_for_ten_seconds_at_most() {
        let repeats = Repeats::default();
        let mut denial = Response::new(Bytes::from_static(b"no"));
        *denial.status_mut() = StatusCode::FORBIDDEN;
        repeats.keep(b"a", &denial);
        tokio::time::advance(Duration::from_secs(4)).await;
        repeats.keep(&[b'x'; 65], &denial);
        repeats.keep(b"b", &Response::default());
        assert_eq!(
            repeats.find(b"a").map(|it| it.status()),
            Some(StatusCode::FORBIDDEN)
        );
        assert!(repeats.find(&[b'x'; 65]).is_none());
        tokio::time::advance(Duration::from_secs(5)).await;
        repeats.keep(b"c", &Response::default());
        assert!(repeats.find(b"a").is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(repeats.find(b"a").is_none() && repeats.find(b"b").is_some());
        // A flood of names forgets the oldest.
        for name in 0..2 * MOST as u64 {
            repeats.keep(&name.to_be_bytes(), &Response::default());
        }
        let terms = lock(&repeats.0);
        assert!(terms.current.len() + terms.before.len() <= 2 * MOST);
    }
}
