//! The instructions of a `redis-server` for a check, in commands of 32 requests. See `benches/README.md`.
//!
//! ```text
//! cargo run -p tollgate-benches --bin instructions -- --only gcra
//! ```

use std::{env, error::Error, fs, process::ExitCode};

use tollgate_benches::redis::{
    server::Server,
    store::{Shared, quotas},
};

/// The requests of a command.
const TOGETHER: u64 = 32;

/// The clients, each of which has a state before anything counts.
const CLIENTS: u64 = 10 * TOGETHER;

/// The commands of the two runs whose difference counts.
const COMMANDS: [u64; 2] = [40, 120];

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
    let arguments: Vec<String> = env::args().skip(1).collect();
    let only = arguments.iter().position(|argument| argument == "--only");
    let only = only.and_then(|place| arguments.get(place + 1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    print("algorithm        instructions of a check".into());
    for (name, quota) in quotas() {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let mut counted = [0; 2];
        for (counted, commands) in counted.iter_mut().zip(COMMANDS) {
            let file = env::temp_dir().join(format!("tollgate-callgrind-{}", std::process::id()));
            let server = Server::start_under_callgrind(&file)?;
            runtime.block_on(async {
                let shared = Shared::connect(&server, quota, Some(TOGETHER as usize)).await?;
                for command in 0..CLIENTS / TOGETHER + commands {
                    let first = command * TOGETHER;
                    let takes = (first..first + TOGETHER)
                        .map(|client| tokio::spawn(shared.clone().take(client % CLIENTS)));
                    for take in takes.collect::<Vec<_>>() {
                        take.await?;
                    }
                }
                Ok::<_, Box<dyn Error>>(())
            })?;
            server.shut_down()?;
            let text = fs::read_to_string(&file)?;
            fs::remove_file(&file)?;
            *counted = text
                .lines()
                .find_map(|line| line.strip_prefix("totals: "))
                .ok_or("callgrind wrote no totals")?
                .trim()
                .parse::<u64>()?;
        }
        let checks = (COMMANDS[1] - COMMANDS[0]) * TOGETHER;
        print(format!(
            "{name:<16} {:>8}",
            counted[1].saturating_sub(counted[0]) / checks
        ));
    }
    Ok(())
}
