//! What a connection says of itself once there is one: who logs in, and to which database.

use std::fmt;

/// What a connection is given and says before its first command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) login: Login,
    pub(crate) database: u32,
    /// For proxies that take `HELLO` badly.
    pub(crate) without_hello: bool,
}

/// A user and a password, either of which may be absent.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl Access {
    /// The same with another login, if there is one.
    pub(crate) fn by(&self, login: Option<&Login>) -> Self {
        Self {
            login: login.unwrap_or(&self.login).clone(),
            ..self.clone()
        }
    }
}

impl Login {
    /// The user and the password, where there is a password. Before access lists everybody was `default`.
    pub(crate) fn parts(&self) -> Option<(&str, &str)> {
        let password = self.password.as_deref()?;
        Some((self.user.as_deref().unwrap_or("default"), password))
    }

    /// The command that logs in, where there is a password. Servers before Redis 6 know no users.
    pub(crate) fn auth(&self) -> Option<Vec<&str>> {
        let password = self.password.as_deref()?;
        Some(match self.user.as_deref() {
            Some(user) => vec!["AUTH", user, password],
            None => vec!["AUTH", password],
        })
    }
}

/// Without the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| ".."))
            .finish()
    }
}
