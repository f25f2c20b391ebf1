//! Checks through one Redis: how many a second, how long each waits, what they cost the server. See `benches/README.md`.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin redis -- --only gcra --callers 512 --together 1,32
//! ```

use std::{error::Error, process::ExitCode, time::Duration};

use tollgate::Quota;
use tollgate_benches::redis::{
    load::{Clients, Measured, run},
    server::Server,
    store::{Shared, quotas},
};

/// How long each side of a line runs in one round.
const SPAN: Duration = Duration::from_millis(300);

#[allow(clippy::print_stdout, reason = "it is what this program is for")]
fn main() -> ExitCode {
    let mut print = |line: String| println!("{line}");
    match measure(&mut print) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}

fn measure(print: &mut dyn FnMut(String)) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        let place = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(place + 1)
    };
    let list = |flag: &str, usual: &str| {
        let list = value(flag).map_or(usual, String::as_str).split(',');
        list.map(str::parse::<usize>).collect::<Result<Vec<_>, _>>()
    };
    let callers = list("--callers", "1,64,512")?;
    let together = list("--together", "1,8,16,32,64")?;
    let rounds = value("--rounds").map_or(Ok(7), |rounds| rounds.parse::<usize>())?;
    let server = Server::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    print(
        "algorithm        callers together   checks/s   median      p99   server CPU of a check"
            .into(),
    );
    for (name, quota) in quotas() {
        if value("--only").is_some_and(|only| only != name) {
            continue;
        }
        for callers in callers.iter().copied().filter(|callers| *callers > 0) {
            server.forget()?;
            let measured =
                runtime.block_on(alternately(&server, quota, callers, &together, rounds))?;
            for (together, rounds) in together.iter().zip(measured) {
                let figure = |of: fn(&Measured) -> f64| median(rounds.iter().map(of).collect());
                print(format!(
                    "{name:<16} {callers:>7} {together:>8} {:>10.0} {:>6.0} µs {:>6.0} µs   {:.2} µs",
                    figure(|line| line.per_second),
                    figure(|line| line.median),
                    figure(|line| line.p99),
                    figure(|line| line.server),
                ));
            }
        }
    }
    Ok(())
}

/// The rounds of each number of checks that may travel together.
async fn alternately(
    server: &Server,
    quota: Quota,
    callers: usize,
    together: &[usize],
    rounds: usize,
) -> Result<Vec<Vec<Measured>>, Box<dyn Error>> {
    let mut stores = Vec::new();
    for checks in together {
        stores.push(Shared::connect(server, quota, Some(*checks)).await?);
    }
    let mut measured = vec![Vec::new(); stores.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for (store, measured) in stores.iter().zip(&mut measured) {
            let store = store.clone();
            let figures = run(server, (callers, Clients::Many), SPAN, move |client| {
                store.clone().take(client)
            })
            .await;
            if round > 0 || rounds == 0 {
                measured.push(figures);
            }
        }
    }
    Ok(measured)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
