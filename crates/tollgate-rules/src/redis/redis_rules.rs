//! The rules of a namespace in Redis.

use std::sync::Arc;

use tokio::sync::Mutex;
use tollgate_redis::{Address, Secret, SetupError};

#[cfg(feature = "tls")]
use crate::redis::certificates::Certificates;
use crate::{
    bindings::HashKey,
    redis::{
        link::Link,
        names::Names,
        push_error::{PushError, PushErrorKind},
        servers::Servers,
    },
    rule_text::RuleText,
    signing_key::SigningKey,
};

/// The rules of a service in Redis: pushes documents, and makes the [source](Self::source) that each process
/// [follows](crate::LiveRules::follow). See the [module](crate::redis).
///
/// Cheap to clone.
#[derive(Clone)]
pub struct RedisRules {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) servers: Arc<Servers>,
    pub(crate) names: Names,
    pub(crate) key: SigningKey,
    pub(crate) link: Mutex<Link>,
}

impl RedisRules {
    /// The rules in this namespace of the Redis at this [address](Address), signed with the secret of the service. It connects
    /// when it is used first.
    ///
    /// # Errors
    ///
    /// An address or a namespace that cannot be used; an address that asks for encryption, which is for
    /// [`with_tls`](Self::with_tls).
    pub fn new(
        address: impl TryInto<Address, Error: Into<SetupError>>,
        namespace: &str,
        secret: &Secret,
    ) -> Result<Self, PushError> {
        let address = read_address(address)?;
        if address.parts().is_encrypted {
            let message = "the address of Redis asks for encryption; say whom to trust, with RedisRules::with_tls";
            return Err(PushError::new(PushErrorKind::Setting, message));
        }
        Self::of_servers(Servers::new(address.parts()), namespace, secret)
    }

    /// The same through encrypted connections, as `rediss://` asks for: whom to trust, with which certificate of one's own. The
    /// cryptography is that of the process, which is chosen when it starts: `rustls::crypto::CryptoProvider::install_default`.
    ///
    /// # Errors
    ///
    /// An address or a namespace that cannot be used; an address that does not ask for encryption; certificates that cannot be
    /// read; a process without cryptography.
    #[cfg(feature = "tls")]
    pub fn with_tls(
        address: impl TryInto<Address, Error: Into<SetupError>>,
        namespace: &str,
        secret: &Secret,
        certificates: Certificates,
    ) -> Result<Self, PushError> {
        let address = read_address(address)?;
        if !address.parts().is_encrypted {
            let message =
                "the address of Redis does not ask for encryption; write it as rediss://host:6379";
            return Err(PushError::new(PushErrorKind::Setting, message));
        }
        certificates.client_config()?;
        let mut servers = Servers::new(address.parts());
        servers.certificates = Some(certificates.0);
        Self::of_servers(servers, namespace, secret)
    }

    fn of_servers(servers: Servers, namespace: &str, secret: &Secret) -> Result<Self, PushError> {
        let names = Names::new(namespace)?;
        let servers = Arc::new(servers);
        let key = SigningKey::new(secret);
        let link = Mutex::new(Link::new(Arc::clone(&servers)));
        Ok(Self {
            shared: Arc::new(Shared {
                servers,
                names,
                key,
                link,
            }),
        })
    }

    /// The text, with the secret for keys that are named by their hash.
    pub(crate) fn hashed(&self, text: RuleText) -> RuleText {
        let key = self.shared.key.clone();
        let hash_key: Arc<HashKey> = Arc::new(move |rule, client| key.hash_key(rule, client));
        text.with_hash_key(hash_key)
    }

    pub(crate) fn origin(&self) -> String {
        format!("Redis, namespace {}", self.shared.names.namespace)
    }
}

/// It does not repeat what may be a password.
fn read_address(
    address: impl TryInto<Address, Error: Into<SetupError>>,
) -> Result<Address, PushError> {
    address.try_into().map_err(|wrong| {
        let wrong: SetupError = wrong.into();
        PushError::new(PushErrorKind::Setting, wrong.to_string())
    })
}

// Without the address, which may have a password in it.
tollgate_core::debug_fields!(RedisRules, it => namespace: it.shared.names.namespace);
