//! Where the user and the password of each connection come from, if they change while a service runs.

use std::{error::Error, time::Duration};

use tollgate_core::{Pending, Step};

use crate::address::Login;

/// Where the credentials of connections come from: a vault, a token service, a file that is written anew.
///
/// It is asked for each connection before that logs in, and again when three quarters of a
/// [lifetime](Credentials::expires_in) are over. Then the open connection logs in anew: no request is dropped for it, and none
/// waits. Where it fails or panics, or the server refuses what it gave, the connection goes on as it is, and the provider is asked
/// again after a pause, of up to 5 s. From Redis 8.2 on, a refusal ends the earlier log-in, and a connection is made anew. No request
/// ever waits for the provider. It is given 10 s.
///
/// A closure is one:
///
/// ```
/// use std::{fs, io, time::Duration};
///
/// use tollgate_redis::{Credentials, Keys, RedisStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::builder("redis://localhost", "shop", Keys::plain())
///     .credentials(|| async {
///         let token = fs::read_to_string("/run/secrets/redis-token")?;
///         Ok::<_, io::Error>(Credentials::new("limits", token).expires_in(Duration::from_secs(900)))
///     })
///     .connect()?;
/// # drop(store);
/// # Ok(())
/// # }
/// ```
///
/// In a cluster each server has a connection of its own. The sentinels of an address are asked with the login of the address.
#[diagnostic::on_unimplemented(
    message = "`{Self}` gives no credentials",
    note = "take a closure that returns a future of `Result<Credentials, _>`, or implement `CredentialsProvider`"
)]
pub trait CredentialsProvider: Send + Sync + 'static {
    /// The credentials that a connection logs in with now.
    ///
    /// # Errors
    ///
    /// Why there are none. Events show it, so it should not repeat a password.
    fn credentials(&self) -> Step<Result<Credentials, Box<dyn Error + Send + Sync>>>;
}

impl<F, C, E> CredentialsProvider for F
where
    F: Fn() -> C + Send + Sync + 'static,
    C: Future<Output = Result<Credentials, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    fn credentials(&self) -> Step<Result<Credentials, Box<dyn Error + Send + Sync>>> {
        let credentials = self();
        Step::Wait(Pending::new(async {
            credentials.await.map_err(Into::into)
        }))
    }
}

/// A user and a password, and for how long they are good.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a provider returns it"]
pub struct Credentials {
    pub(crate) login: Login,
    pub(crate) expires_in: Option<Duration>,
}

impl Credentials {
    /// The credentials of this user of the server's access list.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        let user = Some(user.into());
        let mut credentials = Self::password(password);
        credentials.login.user = user;
        credentials
    }

    /// The password of a server with one for everybody: `requirepass`.
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            login: Login {
                user: None,
                password: Some(password.into()),
            },
            expires_in: None,
        }
    }

    /// They are valid for `lifetime` from now on. Without this a connection keeps them for as long as it lasts.
    pub fn expires_in(mut self, lifetime: Duration) -> Self {
        self.expires_in = Some(lifetime);
        self
    }
}

// Without the password.
tollgate_core::debug_fields!(Credentials, it => user: it.login.user, expires_in: it.expires_in);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_show_no_password() {
        let shown = format!("{:?}", Credentials::new("limits", "sesame"));
        assert!(
            shown.contains("limits") && !shown.contains("sesame"),
            "{shown}"
        );
    }
}
