//! `tollgate top` and `tollgate watch`: what rules do at present, by a service's metrics, its top keys, or by Redis.

mod metrics_page;
mod metrics_view;
mod page;
mod redis_view;
mod source;
mod top_keys_view;
mod watch_command;

pub(crate) use self::watch_command::{TopArgs, WatchArgs, top, watch};
