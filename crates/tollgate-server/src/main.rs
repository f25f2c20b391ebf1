//! The program `tollgate-server`.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use tokio::signal::unix::{SignalKind, signal};
use tollgate_server::{Mistakes, Server, Settings, install_metrics};

const HELP: &str = "\
Rate limits for Envoy, nginx, Caddy, Traefik and HAProxy, by the rules of services.

  tollgate-server server.toml          serves until SIGTERM or SIGINT
  tollgate-server check server.toml    says what is wrong with the settings, the rules and the certificates
  tollgate-server --version

Exit codes: 0, it has ended or all is right; 2, something is wrong, a line each.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["--version" | "-V"] => {
            let version = env!("CARGO_PKG_VERSION");
            writeln!(io::stdout(), "tollgate-server {version}").map_err(Mistakes::from)
        }
        ["--help" | "-h"] => write!(io::stdout(), "{HELP}").map_err(Mistakes::from),
        ["check", file] => Settings::read(file)
            .and_then(|settings| Server::check(&settings))
            .map(|warnings| warnings.iter().for_each(|it| eprintln!("warning: {it}"))),
        [file] if !file.starts_with('-') => serve(file),
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(mistakes) => {
            eprintln!("{mistakes}");
            ExitCode::from(2)
        }
    }
}

fn serve(file: &str) -> Result<(), Mistakes> {
    let settings = Settings::read(file)?;
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_target(false)
        .init();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let recorder = install_metrics().ok();
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [mut term, mut int, mut hup] = signals.map(signal);
        let server = Server::start(settings, recorder).await?;
        tracing::info!(target: "tollgate", "listening on {}", server.addresses().join(", "));
        server
            .run(async {
                loop {
                    tokio::select! {
                        Some(()) = async { term.as_mut().ok()?.recv().await } => break,
                        Some(()) = async { int.as_mut().ok()?.recv().await } => break,
                        Some(()) = async { hup.as_mut().ok()?.recv().await } => {
                            tracing::info!(target: "tollgate", "rules and certificates follow their files; settings need a restart");
                        }
                    }
                }
            })
            .await;
        Ok(())
    })
}
