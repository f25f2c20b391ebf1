//! The commands.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use clap::Args;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    exit::Exit,
    failure::Failure,
    report::Report,
    run::print,
    watch::{
        metrics_page::{self, Sample},
        metrics_view, redis_view,
        source::{Source, SourceArgs},
        top_keys_view,
    },
};

const TOP_EXAMPLES: &str = "\
Examples:
  tollgate top --metrics http://127.0.0.1:3000/metrics
  tollgate top --keys http://127.0.0.1:3000/top-keys
  tollgate top --redis redis://admin:sesame@cache.internal --namespace shop

With --metrics: the rules that deny most, from two readings. With --keys: the keys that come most often, in one process. With --redis:
the rules with most keys, from a sample.";

const WATCH_EXAMPLES: &str = "\
Examples:
  tollgate watch --metrics http://127.0.0.1:3000/metrics
  tollgate watch --redis redis://admin:sesame@cache.internal --namespace shop --every 5

It ends with Ctrl-C, or after --times looks. With --json, one document for each look.";

#[derive(Args, Debug)]
#[command(after_help = TOP_EXAMPLES)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    source: SourceArgs,

    /// The keys that come most often under each rule that keeps them: a service's `TopKeysEndpoint`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["metrics", "redis"])]
    keys: Option<String>,

    /// The seconds between the two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    over: f64,

    /// How many rules, or keys of each rule.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    most: usize,
}

#[derive(Args, Debug)]
#[command(after_help = WATCH_EXAMPLES)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    source: SourceArgs,

    /// The seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    every: f64,

    /// How many rules.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    most: usize,

    /// Ends after this number of tables.
    #[arg(long, value_name = "NUMBER")]
    times: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .filter(|seconds| (0.1..=3_600.0).contains(seconds))
        .ok_or_else(|| "write seconds from 0.1 to 3600".to_owned())
}

/// One look.
pub(crate) async fn top(args: &TopArgs) -> Result<Report, Failure> {
    if let Some(url) = &args.keys {
        let (text, json) = top_keys_view::view(url, args.most).await?;
        return Ok(Report::new(text, json, Exit::Yes));
    }
    let mut looks = Looks::open(&args.source).await?;
    let (text, json) = looks
        .next(Duration::from_secs_f64(args.over), args.most)
        .await?;
    Ok(Report::new(text, json, Exit::Yes))
}

/// Look after look.
pub(crate) async fn watch(args: &WatchArgs, as_json: bool) -> Result<Report, Failure> {
    let mut looks = Looks::open(&args.source).await?;
    let every = Duration::from_secs_f64(args.every);
    let is_live = io::stdout().is_terminal() && !as_json;
    let mut left = args.times;
    while left != Some(0) {
        let look = tokio::select! {
            look = looks.next(every, args.most) => look?,
            _ = tokio::signal::ctrl_c() => break,
        };
        let (text, json) = look;
        let printed = Report::new(text, json, Exit::Yes).printed(as_json);
        // The cursor goes home, and what was there is cleared.
        let text = if is_live {
            format!("\u{1b}[H\u{1b}[2J{printed}")
        } else {
            printed
        };
        if print(&text).is_err() {
            // Who reads has seen enough.
            break;
        }
        left = left.map(|left| left - 1);
    }
    Ok(Report::nothing())
}

/// Looks at a source. Each is compared with the one before.
#[derive(Debug)]
struct Looks {
    source: Source,
    before: Option<(Vec<Sample>, Instant)>,
}

impl Looks {
    async fn open(source: &SourceArgs) -> Result<Self, Failure> {
        let source = source.open().await?;
        let before = None;
        Ok(Self { source, before })
    }

    async fn next(&mut self, pause: Duration, most: usize) -> Result<(String, Value), Failure> {
        match &mut self.source {
            Source::Metrics(url) => {
                let (before, then) = match self.before.take() {
                    Some(before) => before,
                    None => (metrics_page::fetch(url).await?, Instant::now()),
                };
                sleep(pause).await;
                let after = metrics_page::fetch(url).await?;
                let now = Instant::now();
                let view = metrics_view::view(&before, &after, now - then, most);
                self.before = Some((after, now));
                Ok(view)
            }
            Source::Redis(server, namespace) => {
                if self.before.is_some() {
                    sleep(pause).await;
                }
                self.before = Some((Vec::new(), Instant::now()));
                redis_view::view(server, namespace, most).await
            }
        }
    }
}
