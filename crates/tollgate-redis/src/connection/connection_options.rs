//! How connections are made and kept, as an application says it.

use std::time::Duration;

use crate::connection::options::NodeOptions;

/// How connections are made and kept: timeouts, the bounds of queues, and the name that servers show.
///
/// ```
/// use std::time::Duration;
///
/// use tollgate_redis::{ConnectionOptions, Keys, RedisStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let connection = ConnectionOptions::default()
///     .connect_timeout(Duration::from_secs(5))
///     .client_name("checkout-7");
/// let store = RedisStore::builder("unix:///nowhere", "shop", Keys::plain()).connection(connection).connect()?;
/// # drop(store);
/// # Ok(())
/// # }
/// ```
///
/// The values are checked by [`connect`](crate::RedisStoreBuilder::connect).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ConnectionOptions {
    connect_timeout: Option<Duration>,
    silence_timeout: Option<Duration>,
    queue: Option<usize>,
    in_flight: Option<usize>,
    batch_time: Option<Duration>,
    heartbeat: Option<Duration>,
    client_name: Option<String>,
}

impl ConnectionOptions {
    /// How long a connection may take until it can be used: TCP, encryption, log-in, and what is asked of the server then. Default:
    /// ten [deadlines](crate::RedisStoreBuilder::deadline), and at least 2 s; 10 ms to 10 minutes.
    ///
    /// No request waits for it. A host with several addresses is tried as RFC 8305 says: the next address after 250 ms, or at
    /// once where one refuses. Each address may take a quarter of this, and at least 500 ms, to accept.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// A server that owes replies and sends nothing for this time loses its connection, with all that it has not read yet.
    /// Default: three [deadlines](crate::RedisStoreBuilder::deadline), and at least 500 ms; 10 ms to 10 minutes.
    pub fn silence_timeout(mut self, timeout: Duration) -> Self {
        self.silence_timeout = Some(timeout);
        self
    }

    /// How many calls may wait to be sent to a server. More fail at once, and the rules' answers to a store failure apply. Default:
    /// 4096; 1 to 1 048 576.
    pub fn queue(mut self, calls: usize) -> Self {
        self.queue = Some(calls);
        self
    }

    /// How many calls may be sent to a server and not be answered yet. Default: 1024; 1 to 1 048 576.
    ///
    /// It is also how many takes a server that stood still may run afterwards, when their requests no longer wait.
    pub fn in_flight(mut self, calls: usize) -> Self {
        self.in_flight = Some(calls);
        self
    }

    /// For how long one command may keep the server from its other clients, as it is estimated: 4 µs for a check, and for one of a
    /// sliding log 8 µs and 0.15 µs for each unit of its limit. A request that is above it by itself goes alone. Default: 250 µs;
    /// 1 µs to 1 s.
    ///
    /// The number of checks in a command is bounded by [`together`](crate::RedisStoreBuilder::together) as well.
    pub fn batch_time(mut self, time: Duration) -> Self {
        self.batch_time = Some(time);
        self
    }

    /// How often this instance sends a heartbeat to Redis. Default: every 5 s, give or take a fifth; 100 ms to 10 minutes.
    /// After three times as long it counts as gone. Give all instances the same number.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = Some(interval);
        self
    }

    /// The name that servers show for the connections, in `CLIENT LIST` and the slow log. Default: `tollgate:` and the namespace.
    /// 1 to 128 printable characters of ASCII without spaces.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// What is wrong with the first value that cannot be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        const LONGEST: Duration = Duration::from_secs(600);
        let ms = Duration::from_millis;
        for (what, value, least, usual) in [
            ("connect timeout", self.connect_timeout, ms(10), "2 s"),
            ("silence timeout", self.silence_timeout, ms(10), "500 ms"),
            ("heartbeat", self.heartbeat, ms(100), "5 s"),
        ] {
            if let Some(value) = value
                && !(least..=LONGEST).contains(&value)
            {
                return Err(format!(
                    "a {what} of {value:?} is not between {least:?} and {LONGEST:?}; {usual} is usual"
                ));
            }
        }
        if let Some(time) = self.batch_time
            && !(Duration::from_micros(1)..=Duration::from_secs(1)).contains(&time)
        {
            return Err(format!(
                "a batch time of {time:?} is not between 1µs and 1s; 250 µs is usual"
            ));
        }
        const MOST: usize = 1 << 20;
        for (what, value, usual) in [
            ("waiting to be sent", self.queue, 4096),
            ("in flight", self.in_flight, 1024),
        ] {
            if let Some(value) = value
                && !(1..=MOST).contains(&value)
            {
                return Err(format!(
                    "{value} calls {what} are not between 1 and {MOST}; {usual} is usual"
                ));
            }
        }
        match &self.client_name {
            Some(name) if !is_client_name(name) => Err(format!(
                "the client name {name:?} is not 1 to 128 printable characters of ASCII without spaces; \
                 \"checkout-7\" would be one"
            )),
            _ => Ok(()),
        }
    }

    /// How often this instance tells that it is there, where that is said.
    pub(crate) fn heartbeat_interval(&self) -> Option<Duration> {
        self.heartbeat
    }

    /// Sets what is said here.
    pub(crate) fn apply(&self, options: &mut NodeOptions) {
        options.connect_timeout = self.connect_timeout;
        options.silence = self.silence_timeout;
        options.waiting = self.queue.unwrap_or(options.waiting);
        options.unanswered = self.in_flight.unwrap_or(options.unanswered);
        options.batch_time = self.batch_time.unwrap_or(options.batch_time);
        options.client_name.clone_from(&self.client_name);
    }
}

fn is_client_name(name: &str) -> bool {
    (1..=128).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_cannot_be_used_is_named_with_what_would_be_right() {
        let fine = ConnectionOptions::default;
        assert_eq!(fine().check(), Ok(()));
        let second = Duration::from_secs(1);
        let all = fine().connect_timeout(second).silence_timeout(second);
        let all = all
            .queue(1)
            .in_flight(1)
            .heartbeat(second)
            .client_name("a:b");
        assert_eq!(all.check(), Ok(()));
        for (options, words) in [
            (fine().connect_timeout(Duration::ZERO), ["0ns", "2 s"]),
            (fine().silence_timeout(second * 601), ["601s", "500 ms"]),
            (fine().heartbeat(Duration::ZERO), ["heartbeat", "5 s"]),
            (fine().queue(0), ["0 calls", "4096"]),
            (fine().in_flight(2 << 20), ["2097152 calls", "1024"]),
            (fine().batch_time(Duration::ZERO), ["0ns", "250 µs"]),
            (fine().client_name("a b"), ["\"a b\"", "without spaces"]),
            (fine().client_name(""), ["\"\"", "checkout-7"]),
        ] {
            let error = options.check().expect_err("it cannot be used");
            for word in words {
                assert!(error.contains(word), "{error}");
            }
        }
    }

    #[test]
    fn the_bounds_themselves_can_be_used_and_nothing_beyond_them() {
        let (ms, micros) = (Duration::from_millis, Duration::from_micros);
        let times = [
            (
                ConnectionOptions::connect_timeout as fn(_, _) -> _,
                ms(10),
                ms(600_000),
            ),
            (ConnectionOptions::silence_timeout, ms(10), ms(600_000)),
            (ConnectionOptions::heartbeat, ms(100), ms(600_000)),
            (ConnectionOptions::batch_time, micros(1), ms(1_000)),
        ];
        let nano = Duration::from_nanos(1);
        for (set, least, most) in times {
            let is_fine = |time| set(ConnectionOptions::default(), time).check().is_ok();
            assert_eq!(
                [least - nano, least].map(is_fine),
                [false, true],
                "{least:?}"
            );
            assert_eq!([most, most + nano].map(is_fine), [true, false], "{most:?}");
        }
        for set in [ConnectionOptions::queue, ConnectionOptions::in_flight] {
            let is_fine = |calls| set(ConnectionOptions::default(), calls).check().is_ok();
            let calls = [0, 1, 1_048_576, 1_048_577];
            assert_eq!(calls.map(is_fine), [false, true, true, false]);
        }
        let is_fine = |name: &str| {
            ConnectionOptions::default()
                .client_name(name)
                .check()
                .is_ok()
        };
        let longest = "n".repeat(128);
        let longer = "n".repeat(129);
        let names = ["!", "~", &longest, &longer, "a\tb", "a\u{7f}", "\u{e9}"];
        assert_eq!(
            names.map(is_fine),
            [true, true, true, false, false, false, false]
        );
    }

    #[test]
    fn what_is_said_is_used() {
        let mut options = NodeOptions::default();
        ConnectionOptions::default().apply(&mut options);
        assert_eq!([options.waiting, options.unanswered], [4_096, 1_024]);
        assert_eq!(options.batch_time, Duration::from_micros(250));
        assert_eq!(options.client_name, None);
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let said = ConnectionOptions::default().queue(5).in_flight(6);
        let said = said.batch_time(second).heartbeat(minute).client_name("a");
        said.apply(&mut options);
        assert_eq!([options.waiting, options.unanswered], [5, 6]);
        assert_eq!(options.batch_time, second);
        assert_eq!(options.client_name.as_deref(), Some("a"));
        assert_eq!(said.heartbeat_interval(), Some(minute));
        assert_eq!(ConnectionOptions::default().heartbeat_interval(), None);
    }

    #[test]
    fn what_is_not_said_follows_from_the_deadline() {
        let mut options = NodeOptions::default();
        ConnectionOptions::default().apply(&mut options);
        assert_eq!(options.connect_timeout(), Duration::from_secs(2));
        assert_eq!(options.silence(), Duration::from_millis(500));
        options.deadline = Duration::from_millis(400);
        assert_eq!(options.connect_timeout(), Duration::from_secs(4));
        assert_eq!(options.silence(), Duration::from_millis(1_200));
        let short = Duration::from_millis(100);
        let said = ConnectionOptions::default().connect_timeout(short);
        said.silence_timeout(short).apply(&mut options);
        assert_eq!([options.connect_timeout(), options.silence()], [short; 2]);
    }
}
