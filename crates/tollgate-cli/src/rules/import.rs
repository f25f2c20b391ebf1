//! `tollgate rules import`: the configuration of another limiter as rules.

use std::{fs, path::PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use tollgate_rules::operators::import_envoy;

use crate::{failure::Failure, report::Report};

const EXAMPLES: &str = "\
Examples:
  tollgate rules import --from envoy ratelimit/*.yaml > limits.toml

What rules cannot say is refused with its line, and nothing is printed. The rules have at = \"edge\", for tollgate-server.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// Whose configuration it is.
    #[arg(long, value_name = "LIMITER")]
    from: Limiter,

    /// Its files. Those of one domain are put together.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Limiter {
    /// envoyproxy/ratelimit, in YAML.
    Envoy,
}

pub(crate) fn run(args: &ImportArgs) -> Result<Report, Failure> {
    let read = args.files.iter().map(|path| {
        let shown = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => Ok((shown, text)),
            Err(wrong) => Err(Failure::failed(format!("{shown} cannot be read: {wrong}"))),
        }
    });
    let files = read.collect::<Result<Vec<_>, _>>()?;
    let text = match args.from {
        Limiter::Envoy => import_envoy(files.iter().map(|(name, text)| (&**name, &**text)))?,
    };
    let json = json!({ "rules": text });
    Ok(Report::verbatim(text, json))
}
