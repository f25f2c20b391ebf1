//! tollgate and its peers, side by side in one run. See `benches/README.md`.

mod counting;
mod grpc;
mod harness;
mod http;
mod keyed;
mod layers;
mod memory;
mod numbers;
mod overload;
mod prefilter;
mod redis;
mod reference;
mod served;
mod server;
mod table;
mod threads;
mod weather;

use std::process::ExitCode;

use crate::{
    keyed::Keyed,
    server::{App, Limiter, SERVE, serve},
    table::Row,
};

const GROUPS: [&str; 15] = [
    "hot-allowed",
    "hot-denied",
    "uniform",
    "zipf",
    "two-rules",
    "layers",
    "threads",
    "scaling",
    "http",
    "grpc",
    "allocations",
    "memory",
    "redis",
    "prefilter",
    "consistency",
];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all gates hold.
fn run() -> Result<bool, Box<dyn std::error::Error>> {
    #[cfg(feature = "observe")]
    tollgate_benches::recorder::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, limiter, app] = &arguments[..]
        && first == SERVE
    {
        let limiter = Limiter::named(limiter).ok_or("serve takes the name of a limiter")?;
        let app = App::named(app).ok_or("serve takes the name of an application")?;
        serve(limiter, app)?;
    }
    if let [first, limiter, app, count] = &arguments[..]
        && first == "call"
    {
        let limiter = Limiter::named(limiter).ok_or("call takes the name of a limiter")?;
        let app = App::named(app).ok_or("call takes the name of an application")?;
        grpc::calls(limiter, app, count.parse()?);
        return Ok(true);
    }
    if let [first, rest @ ..] = &arguments[..]
        && first == "overload"
    {
        overload::table(rest.first().map_or(Ok(10.0), |seconds| seconds.parse())?)?;
        return Ok(true);
    }
    let value = |flag: &str| {
        let place = arguments.iter().position(|argument| argument == flag)?;
        Some(arguments.get(place + 1).map_or("", String::as_str))
    };
    let rounds: usize = value("--rounds").map_or(Ok(11), str::parse)?;
    let only = value("--only");
    if rounds == 0 || only.is_some_and(|only| !GROUPS.contains(&only)) {
        return Err(format!(
            "usage: [--rounds <at least 1>] [--only <{}>]",
            GROUPS.join("|")
        )
        .into());
    }

    let mut all_hold = true;
    let mut print = |row: Row| {
        all_hold &= row.holds();
        println!("{row}");
    };
    Row::print_head();
    for group in GROUPS {
        if only.is_none_or(|only| only == group) {
            measure(group, rounds, &mut print)?;
        }
    }
    Ok(all_hold)
}

fn measure(
    group: &str,
    rounds: usize,
    print: &mut dyn FnMut(Row),
) -> Result<(), Box<dyn std::error::Error>> {
    match group {
        "hot-allowed" => Keyed::new(rounds).hot_allowed(print),
        "hot-denied" => Keyed::new(rounds).hot_denied(print),
        "uniform" => Keyed::new(rounds).uniform(print),
        "zipf" => Keyed::new(rounds).zipf(print),
        "two-rules" => Keyed::new(rounds).two_rules(print),
        "layers" => layers::rows(rounds, print),
        "threads" => threads::rows(rounds, print),
        "scaling" => threads::scaling(rounds, print),
        "http" => http::rows(print)?,
        "grpc" => grpc::rows(rounds, print)?,
        "allocations" => memory::per_request(print),
        "redis" => redis::rows(rounds, print)?,
        "prefilter" => prefilter::answered_here(rounds, print)?,
        "consistency" => prefilter::by_consistency(rounds, print)?,
        _ => memory::per_key(print),
    }
    Ok(())
}
