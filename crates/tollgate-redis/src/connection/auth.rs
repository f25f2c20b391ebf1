//! The command that logs in.

use crate::address::Login;

/// The command that logs in; `None` without a password.
pub(super) fn auth(login: &Login) -> Option<Vec<&str>> {
    let (user, password) = login.parts()?;
    Some(if login.names_a_user() {
        vec!["AUTH", user, password]
    } else {
        vec!["AUTH", password]
    })
}
