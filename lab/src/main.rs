//! `cargo run --release -p tollgate-lab simulate` prints what each consistency costs under each workload; `overload` what shedding
//! makes of more requests than a service can serve.

#![expect(clippy::print_stdout, reason = "the table is what the program is for")]

use clap::{Parser, Subcommand};
use tollgate::shed::Priority;
use tollgate_lab::{
    Consistency, Network, Workload,
    overload::{Scene, Stack},
    regions, run, table,
};

/// The laboratory of tollgate's prefilter.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Simulate workloads under consistencies, and print a table
    Simulate(Simulate),
    /// Put half of the processes into another region than the store, 80 and 150 ms away, and print a table
    Regions {
        /// From what everything is drawn
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run a service of four permits under overload, with and without shedding, and print a table
    Overload {
        /// How many seeds, whose means are printed
        #[arg(long, default_value_t = 5)]
        seeds: u64,
    },
}

#[derive(Debug, clap::Args)]
struct Simulate {
    /// From what everything is drawn: the same seed prints the same table
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A workload; may be given several times. Default: all
    #[arg(long, value_name = "WORKLOAD")]
    only: Vec<Workload>,
    /// exact, deny-cache, leased-<percent> or eventual; may be given several times. Default: all
    #[arg(long)]
    consistency: Vec<Consistency>,
    /// The round trip to the store, in µs
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    round_trip: u64,
    /// How many virtual seconds a workload lasts
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
}

fn main() {
    match Arguments::parse().command {
        Command::Simulate(arguments) => simulate(&arguments),
        Command::Overload { seeds } => overload(seeds),
        Command::Regions { seed } => {
            println!("{}", regions::HEAD);
            regions::rows(seed).for_each(|row| println!("{row}"));
        }
    }
}

fn overload(seeds: u64) {
    println!(
        "| load | in front | useful work | P0 served | P0, p99 | P1 shed | P2 shed | P3 shed |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for load in [1.0, 2.0, 4.0, 10.0] {
        for stack in Stack::ALL {
            let mut sums = [0.0; 6];
            for seed in 1..=seeds {
                let scene = Scene {
                    stack,
                    load,
                    seconds: 60,
                    slow: None,
                    seed,
                };
                let outcome = scene.run();
                let row = [
                    outcome.useful(scene),
                    f64::from(outcome.served[0]) / f64::from(outcome.offered[0].max(1)),
                    outcome.p99(Priority::P0) / 100.0,
                    outcome.shed_part(Priority::P1),
                    outcome.shed_part(Priority::P2),
                    outcome.shed_part(Priority::P3),
                ];
                sums.iter_mut().zip(row).for_each(|(sum, one)| *sum += one);
            }
            let [useful, served, p99, p1, p2, p3] = sums.map(|sum| sum / seeds as f64 * 100.0);
            println!(
                "| {load} × | {stack} | {useful:.0} % | {served:.1} % | {p99:.0} ms | {p1:.0} % | {p2:.0} % | {p3:.0} % |"
            );
        }
    }
}

fn simulate(arguments: &Simulate) {
    let network = Network::new(arguments.round_trip);
    println!("{}", table::head());
    for workload in or_all(&arguments.only, &Workload::ALL) {
        let scene = workload.draw(arguments.seed, f64::from(arguments.seconds));
        for consistency in or_all(&arguments.consistency, &Consistency::ALL) {
            if let Some(figures) = run(&scene, *consistency, network, arguments.seed) {
                println!("{}", table::row(workload.name(), *consistency, &figures));
            }
        }
    }
}

fn or_all<'a, T>(chosen: &'a [T], all: &'a [T]) -> &'a [T] {
    if chosen.is_empty() { all } else { chosen }
}
