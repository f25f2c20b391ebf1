//! An address in parts, for the crates of tollgate that connect by themselves.

use crate::address::{Address, Login, Place, Target};

/// What an [`Address`] says. It is for other crates of tollgate and may change in any release.
#[doc(hidden)]
#[derive(Clone)]
#[non_exhaustive]
pub struct AddressParts {
    /// The server, the sentinels, or servers of the cluster.
    pub places: Vec<Place>,
    /// The name by which sentinels know the master.
    pub master: Option<String>,
    /// Whether the servers are a cluster.
    pub is_cluster: bool,
    /// Whether connections are encrypted.
    pub is_encrypted: bool,
    /// The database.
    pub database: u32,
    /// Who logs in at the servers: a user and a password.
    pub login: [Option<String>; 2],
    /// Who logs in at the sentinels.
    pub sentinel_login: [Option<String>; 2],
}

impl Address {
    /// The address in parts. It is for other crates of tollgate.
    #[doc(hidden)]
    #[must_use]
    pub fn parts(&self) -> AddressParts {
        let login = |login: &Login| [login.user.clone(), login.password.clone()];
        let (places, sentinels) = match &self.target {
            Target::Server(place) => (vec![place.clone()], None),
            Target::Sentinel(sentinels) => (sentinels.places.clone(), Some(sentinels)),
            Target::Cluster(places) => (places.clone(), None),
        };
        AddressParts {
            places,
            master: sentinels.map(|sentinels| sentinels.master.clone()),
            is_cluster: matches!(self.target, Target::Cluster(_)),
            is_encrypted: self.encrypted,
            database: self.access.database,
            login: login(&self.access.login),
            sentinel_login: sentinels.map_or([None, None], |sentinels| login(&sentinels.login)),
        }
    }
}

// Without the passwords.
tollgate_core::debug_fields!(AddressParts, it => places: it.places, master: it.master);
