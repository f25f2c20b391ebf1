//! A list that rules ask, and that is set anew while they do.

use std::{
    hash::BuildHasher as _,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use ipnet::IpNet;
use tollgate_core::{KeyBuf, PartKind, RuleError, RuleErrorKind, Tick};

use crate::{
    diagnostics,
    head::Head,
    key::{Extracted, KeyExtractor, NoKey},
    key_list::set::{Entry, Set, read_entry, without_comment},
};

type HashFn = dyn Fn(&str) -> u128 + Send + Sync;

/// Keys and networks by a name: see the [module](crate::key_list). Clones share the entries.
#[must_use]
#[derive(Clone)]
pub struct KeyList {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    name: Arc<str>,
    set: ArcSwap<Set>,
    hasher: RandomState,
    /// `None`: entries are the keys themselves.
    hash: Option<Box<HashFn>>,
    /// Whether a service without addresses was reported.
    is_reported: AtomicBool,
}

impl KeyList {
    /// An empty list with this name, for messages.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let shared = Arc::new(Shared {
            name: name.into(),
            ..Shared::default()
        });
        Self { shared }
    }

    /// An empty list of hashes, so that who reads the list does not have the keys. `hash` makes one of a key, with a secret and for
    /// this list alone; tollgate-rules' `hashed_list` has such a hash. Networks are written as they are.
    ///
    /// ```
    /// use tollgate::key_list::KeyList;
    ///
    /// # fn keyed_hash(_: &str) -> u128 { 0xf00d }
    /// let revoked = KeyList::hashed("revoked", keyed_hash);
    /// revoked.set(["0000000000000000000000000000f00d"])?;
    /// assert!(revoked.set(["acme-key-1"]).unwrap_err().to_string().contains("32 hexadecimal digits"));
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn hashed(
        name: impl Into<Arc<str>>,
        hash: impl Fn(&str) -> u128 + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            name: name.into(),
            hash: Some(Box::new(hash)),
            ..Shared::default()
        });
        Self { shared }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// How many keys and networks it has, each once, also if their time is over.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.set.load().len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces all entries at once by these [lines](crate::key_list#entries).
    ///
    /// # Errors
    ///
    /// The first line that is wrong. The entries from before stay.
    pub fn set<L: AsRef<str>>(&self, lines: impl IntoIterator<Item = L>) -> Result<(), RuleError> {
        let (mut keys, mut networks) = (Vec::new(), Vec::<(IpNet, Tick)>::new());
        for (index, line) in lines.into_iter().enumerate() {
            let wrong = |message: String| self.wrong(index, &message);
            match read_entry(line.as_ref()).map_err(wrong)? {
                None => {}
                Some((Entry::Network(network), until)) => networks.push((network, until)),
                Some((Entry::Key(key), until)) => {
                    let hash = self.hash_of_entry(key).map_err(wrong)?;
                    keys.push((hash, until));
                }
            }
        }
        self.shared.set.store(Arc::new(Set::new(&keys, &networks)));
        Ok(())
    }

    /// These [lines](crate::key_list#entries) as a [hashed](Self::hashed) list has them: hashes in the place of keys, with their ends, and
    /// networks as they are.
    ///
    /// # Errors
    ///
    /// The first line that is wrong.
    pub fn hashed_lines(&self, lines: &str) -> Result<Vec<String>, RuleError> {
        let mut hashed = Vec::new();
        for (index, line) in lines.lines().enumerate() {
            let entry = read_entry(line).map_err(|message| self.wrong(index, &message))?;
            let text = without_comment(line);
            hashed.extend(entry.map(|(entry, _)| match entry {
                Entry::Key(key) => self.hashed_key(key) + &text[key.len()..],
                Entry::Network(_) => text.to_owned(),
            }));
        }
        Ok(hashed)
    }

    /// All of this text as a key of a [hashed](Self::hashed) list: its hash, also where a line with it would be a comment or a network.
    /// Of another list, the text itself.
    #[must_use]
    pub fn hashed_key(&self, key: &str) -> String {
        match &self.shared.hash {
            Some(hash) => format!("{:032x}", hash(key)),
            None => key.to_owned(),
        }
    }

    fn wrong(&self, index: usize, message: &str) -> RuleError {
        let message = format!("list {:?}, line {}: {message}", self.name(), index + 1);
        RuleError::general(RuleErrorKind::Key, message)
    }

    fn hash_of_entry(&self, key: &str) -> Result<u64, String> {
        if self.shared.hash.is_none() {
            return Ok(self.shared.hasher.hash_one(key.as_bytes()));
        }
        let is_hash = key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(key, 16) {
            Ok(hash) if is_hash => Ok(folded(hash)),
            // It may be a key, so the message does not repeat it.
            _ => Err(format!(
                "this is no network and not the hash of a key, which has 32 hexadecimal digits: \
                 `tollgate key hash {} KEY` makes it",
                self.name()
            )),
        }
    }

    /// Whether it has the one part of this key, or networks that hold all addresses of it.
    #[must_use]
    pub fn has_key(&self, key: &KeyBuf) -> bool {
        let Some((kind, part)) = only_value(key) else {
            return false;
        };
        let set = self.shared.set.load();
        if kind == PartKind::ADDRESS {
            return match part {
                [4, known, a, b, c, d] => set.has_address([*a, *b, *c, *d].into(), *known),
                [6, known, address @ ..] => <[u8; 16]>::try_from(address)
                    .is_ok_and(|address| set.has_address(address.into(), *known)),
                _ => false,
            };
        }
        match &self.shared.hash {
            None => set.has_key(self.shared.hasher.hash_one(part)),
            // An entry of a list is text.
            Some(hash) => str::from_utf8(part).is_ok_and(|part| set.has_key(folded(hash(part)))),
        }
    }

    /// Whether it has a network that holds this address.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.shared.set.load().has_address(address, 128)
    }

    /// Whether it has the key that `by` finds in a head, or the whole address where that is the client's. `None`: the request has
    /// the key more than once, and the application may read any of these.
    #[doc(hidden)]
    pub fn has(&self, by: &dyn KeyExtractor, head: &Head<'_>) -> Option<bool> {
        match by.client_address(head) {
            Some(Ok(address)) => return Some(self.has_address(address)),
            Some(Err(why)) => {
                // Once.
                if !self.shared.is_reported.swap(true, Ordering::Relaxed) {
                    diagnostics::error(&format!("no client is in list {:?}: {why}", self.name()));
                }
                return Some(false);
            }
            None => {}
        }
        let mut key = KeyBuf::new();
        match by.extract(head, &mut key) {
            Extracted::Key => Some(self.has_key(&key)),
            Extracted::Nothing(NoKey::Ambiguous) => None,
            Extracted::Nothing(_) | Extracted::Later(_) => Some(false),
        }
    }
}

/// Each half goes into it: a hash of an application may have 64 bits.
fn folded(hash: u128) -> u64 {
    (hash >> 64) as u64 ^ (hash as u64).rotate_left(32)
}

/// The kind and the value of a key of one value, which may have a name in front.
fn only_value(key: &KeyBuf) -> Option<(PartKind, &[u8])> {
    let mut parts = key.parts();
    let first = parts.next()?;
    let is_named = [
        PartKind::HEADER,
        PartKind::COOKIE,
        PartKind::QUERY_PARAMETER,
        PartKind::PATH_PARAMETER,
        PartKind::METADATA,
    ]
    .contains(&first.0);
    let value = match is_named {
        true => parts.next().filter(|(kind, _)| *kind == first.0)?,
        false => first,
    };
    parts.next().is_none().then_some(value)
}

// Without the entries.
tollgate_core::debug_fields!(KeyList, it => name: it.shared.name, len: it.len());
