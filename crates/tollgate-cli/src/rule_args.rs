//! A document of rules, as the command line names it.

use std::path::{Path, PathBuf};

use clap::Args;
use tokio::task::spawn_blocking;
use tollgate_rules::{Bindings, DocumentError, RuleDocument, RuleText};

use crate::{
    bound_names::{BoundNames, SecretArgs},
    failure::Failure,
};

/// Rules, with the names that code binds for them.
#[derive(Args, Clone, Debug)]
pub(crate) struct RuleArgs {
    /// The rules: a file, or a folder of files.
    #[arg(long, value_name = "PATH", env = "TOLLGATE_RULES")]
    pub(crate) rules: PathBuf,

    #[command(flatten)]
    pub(crate) bound: BoundNames,
}

impl RuleArgs {
    pub(crate) async fn document(&self, secret: &SecretArgs) -> Result<RuleDocument, Failure> {
        let bindings = self.bound.bindings(secret.find()?.as_ref())?;
        document(&self.rules, &bindings).await
    }
}

/// Reads a file with what it includes, or all files of a folder.
pub(crate) async fn read(path: &Path) -> Result<RuleText, DocumentError> {
    let path = path.to_owned();
    spawn_blocking(move || RuleText::read_path(path))
        .await
        // It only ends early if it panics, which is then shown.
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Reads rules, and says all that is wrong with them.
pub(crate) async fn document(path: &Path, bindings: &Bindings) -> Result<RuleDocument, Failure> {
    Ok(read(path).await?.parse(bindings)?)
}
