//! What a connection says of itself once there is one: who logs in, to which database, and by which protocol.

use std::{fmt, time::Duration};

use socket2::TcpKeepalive;

/// What a connection is given and says before its first command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) login: Login,
    pub(crate) database: u32,
    pub(crate) protocol: Protocol,
    pub(crate) library: Library,
    pub(crate) tcp: TcpOptions,
}

/// A user and a password, either of which may be absent.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// The version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// 3 where the server has it, otherwise 2.
    #[default]
    Newest,
    /// 2, without asking for another: for proxies that take `HELLO` badly.
    Resp2,
}

/// The library that a server shows in `CLIENT LIST`.
#[cfg_attr(
    not(feature = "redis-1"),
    expect(dead_code, reason = "tollgate names itself")
)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Library {
    /// tollgate, in this version.
    #[default]
    Own,
    /// This name and version.
    Named(String, String),
    /// Nothing is said.
    Untold,
}

/// What is asked of a TCP socket; what is `None` is left at the default of this crate.
#[derive(Clone, Debug, Default)]
pub(crate) struct TcpOptions {
    pub(crate) keepalive: Option<TcpKeepalive>,
    pub(crate) user_timeout: Option<Duration>,
}

impl Login {
    /// The user and the password, where there is a password. Before access lists everybody was `default`.
    pub(crate) fn parts(&self) -> Option<(&str, &str)> {
        let password = self.password.as_deref()?;
        Some((self.user.as_deref().unwrap_or("default"), password))
    }

    /// Whether a user is named, which servers before Redis 6 do not know.
    pub(crate) fn names_a_user(&self) -> bool {
        self.user.is_some()
    }
}

impl Library {
    /// The name and the version that the server shows for the connection, if any.
    pub(crate) fn parts(&self) -> Option<(&str, &str)> {
        match self {
            Self::Own => Some(("tollgate-redis", env!("CARGO_PKG_VERSION"))),
            Self::Named(name, version) => Some((name, version)),
            Self::Untold => None,
        }
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
