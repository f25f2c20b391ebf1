//! What the clients of an example are hashed with.

use std::env;

use tollgate_redis::{Secret, SecretError};

/// `$TOLLGATE_SECRET`, or one that is publicly known. All processes that share limits have the same one.
///
/// # Errors
///
/// `$TOLLGATE_SECRET` is too short, or neither hex nor base64.
pub fn secret() -> Result<Secret, SecretError> {
    if env::var_os("TOLLGATE_SECRET").is_some() {
        return Secret::from_env("TOLLGATE_SECRET");
    }
    println!(
        "TOLLGATE_SECRET is not set: using a publicly known one, with which anyone who reads Redis can find out who the clients are"
    );
    Secret::from_bytes(*b"a secret that is public knowledge")
}
