//! The rules of a namespace in Redis, and the audit there: of who changes rules.

use std::sync::Arc;

use ::redis::{Cmd, FromRedisValue};
use tollgate_redis::{Address, Secret, SetupError};

#[cfg(feature = "tls")]
use crate::redis::certificates::Certificates;
use crate::{
    audit::{AuditKind, AuditRecord, Author},
    redis::{
        link::Servers,
        push_error::{PushError, PushErrorKind},
    },
    rule_text::RuleText,
    signing_key::SigningKey,
    term::time,
};

/// The longest namespace, as stores have it.
const LONGEST: usize = 64;

/// The rules of a service in Redis: pushes documents, and makes the [source](Self::source) that each process
/// [follows](crate::LiveRules::follow). See the [module](crate::redis).
///
/// Cheap to clone.
#[derive(Clone)]
pub struct RedisRules {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) servers: Servers,
    pub(crate) namespace: String,
    pub(crate) key: SigningKey,
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
        if address.is_encrypted {
            let message = "the address of Redis asks for encryption; say whom to trust, by the certificates of RedisRules::with_tls";
            return Err(PushError::new(PushErrorKind::Setting, message));
        }
        Self::of_servers(Servers::new(address), namespace, secret)
    }

    /// The same through encrypted connections, as `rediss://` asks for: whom to trust, with which certificate of one's own. The
    /// cryptography is that of the process, which is chosen when it starts: `rustls::crypto::CryptoProvider::install_default`. With
    /// `None` it is as [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// An address or a namespace that cannot be used; certificates for an address that does not ask for encryption, or none for one that
    /// does; certificates that cannot be read; a process without cryptography.
    #[cfg(feature = "tls")]
    pub fn with_tls(
        address: impl TryInto<Address, Error: Into<SetupError>>,
        namespace: &str,
        secret: &Secret,
        certificates: impl Into<Option<Certificates>>,
    ) -> Result<Self, PushError> {
        let Some(certificates) = certificates.into() else {
            return Self::new(address, namespace, secret);
        };
        let address = read_address(address)?;
        if !address.is_encrypted {
            let message =
                "the address of Redis does not ask for encryption; write it as rediss://host:6379";
            return Err(PushError::new(PushErrorKind::Setting, message));
        }
        certificates.client_config()?;
        let mut servers = Servers::new(address);
        servers.certificates = Some(certificates.0);
        Self::of_servers(servers, namespace, secret)
    }

    fn of_servers(servers: Servers, namespace: &str, secret: &Secret) -> Result<Self, PushError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        if !(1..=LONGEST).contains(&namespace.len()) || !namespace.bytes().all(fits) {
            let message = format!(
                "{namespace:?} is no namespace; take the name of the service, in 1 to {LONGEST} letters, digits and _ . : -"
            );
            return Err(PushError::new(PushErrorKind::Setting, message));
        }
        let shared = Shared {
            servers,
            namespace: namespace.to_owned(),
            key: SigningKey::new(secret),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The name in Redis of what belongs to the rules, or of themselves where `part` is empty. No state of a limit has it: those end in a
    /// number.
    pub(crate) fn name(&self, part: &str) -> String {
        format!("{{{}}}:rules{part}", self.shared.namespace)
    }

    /// The call of a script with these of the [names](Self::name), for arguments to follow. With its text: it is called every few seconds.
    pub(crate) fn script(&self, text: &str, parts: &[&str]) -> Cmd {
        let mut call = Cmd::new();
        call.arg("EVAL").arg(text).arg(parts.len());
        for part in parts {
            call.arg(self.name(part));
        }
        call
    }

    /// The answer to a command.
    ///
    /// # Errors
    ///
    /// Redis is unavailable.
    pub(crate) async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, PushError> {
        self.shared.servers.send(command).await
    }

    /// The text, with the secret for keys that are named by their hash.
    pub(crate) fn hashed(&self, text: RuleText) -> RuleText {
        text.with_hash_key(self.shared.key.clone().hashing())
    }

    pub(crate) fn origin(&self) -> String {
        format!("Redis, namespace {}", self.shared.namespace)
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
tollgate_core::debug_fields!(RedisRules, it => namespace: it.shared.namespace);

/// About how many records the audit keeps.
pub(crate) const AUDIT: &str = "10000";

impl RedisRules {
    /// The latest records of the audit, the newest first.
    ///
    /// # Errors
    ///
    /// Redis is unavailable.
    pub async fn audit(&self, most: usize) -> Result<Vec<AuditRecord>, PushError> {
        let mut command = Cmd::new();
        command.arg("XREVRANGE").arg(self.name(":audit"));
        command.arg("+").arg("-").arg("COUNT").arg(most);
        let entries: Vec<(String, Vec<String>)> = self.send(&command).await?;
        let records = entries.iter().map(|(id, fields)| record(id, fields));
        Ok(records.collect())
    }

    /// Records in the audit what somebody did to a client of a rule, as "starts anew" or "is granted 100 units"; the client by its
    /// [hash](crate::operators::Explanation::key_hash).
    ///
    /// # Errors
    ///
    /// Redis is unavailable.
    pub async fn record(
        &self,
        kind: AuditKind,
        rule: &str,
        client: Option<u128>,
        what: &str,
        author: &Author,
    ) -> Result<(), PushError> {
        let client = client.map_or(String::new(), |hash| format!(" {:08x}", hash >> 96));
        let lines = vec![format!("{rule}: client{client} {what}")];
        self.add_record(&AuditRecord::new(kind, author.clone(), lines))
            .await
    }

    /// Adds a record to the audit.
    pub(crate) async fn add_record(&self, record: &AuditRecord) -> Result<(), PushError> {
        let mut command = Cmd::new();
        command.arg("XADD").arg(self.name(":audit"));
        command.arg("MAXLEN").arg("~").arg(AUDIT).arg("*");
        command.arg("what").arg(record.kind.name());
        command.arg("actor").arg(record.author.actor());
        command.arg("before").arg(record.before);
        command.arg("after").arg(record.after);
        command.arg("changes").arg(record.lines.join("\n"));
        command.arg("reason").arg(record.author.reason());
        let _: String = self.send(&command).await?;
        Ok(())
    }
}

/// A record of the stream.
fn record(id: &str, fields: &[String]) -> AuditRecord {
    let field = |name: &str| {
        let pair = fields.chunks_exact(2).find(|pair| pair[0] == name);
        pair.map_or("", |pair| &*pair[1])
    };
    let ms = id.split('-').next().and_then(|ms| ms.parse::<u64>().ok());
    let mut kinds = [AuditKind::Rejected, AuditKind::Reset, AuditKind::Credits].into_iter();
    let kind = kinds.find(|kind| kind.name() == field("what"));
    let author = Author::new(field("actor")).because(field("reason"));
    let lines = field("changes").lines().map(str::to_owned).collect();
    AuditRecord {
        at: time(ms.unwrap_or(0).saturating_mul(1_000)),
        before: field("before").parse().unwrap_or(0),
        after: field("after").parse().unwrap_or(0),
        ..AuditRecord::new(kind.unwrap_or(AuditKind::Accepted), author, lines)
    }
}
