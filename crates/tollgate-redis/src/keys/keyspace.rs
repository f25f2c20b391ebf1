//! Names: where a state lies in Redis, and what lies in one hash slot of a cluster with it.
//!
//! `{namespace}:client:rule:a1`, where the client is a fingerprint of 22 letters and digits, the last letter stands for the
//! algorithm, and the number behind it is the version of the state's format. What clients send is in none of it but hashed, so
//! that no name has more than some 200 bytes, and no brace of a client decides about a hash slot.
//!
//! With another [partition](Partition) a state is `namespace:{client}:rule:a1`, one that lies with a tenant
//! `namespace:{tenant}+client:rule:a1`, and an overflow bucket `namespace:{4711}+bucket:rule:a1`, where the number is of the
//! hash slot. So all names of a namespace begin with
//! `{namespace}:` or `namespace:{`, and no name of another namespace does, because a namespace has no brace. Names of other
//! data, such as `{namespace}:instances`, keep to that.
//!
//! Each algorithm has its own states, as in memory: a rule that changes its algorithm starts fresh, and two versions of a
//! service do not overwrite each other's states during a deployment. The same holds for [formats](VERSION): [what happens when
//! two meet](crate::guide::redis#upgrading).

use std::{fmt, str::FromStr, sync::LazyLock};

use smallvec::SmallVec;
use tollgate_core::store::Fingerprint;

use crate::{
    error::SetupError,
    keys::keys::{Keys, LETTERS, Name, Secret, from_hex, wrong},
};

/// The longest namespace.
const LONGEST: usize = 64;

/// Which states share a hash slot of a Redis Cluster, and are therefore decided in one atomic step.
///
/// A single server decides all rules of a request in one step, whatever the partition; the default there is
/// [`One`](Self::One). For a cluster you have to [choose](crate::RedisStoreBuilder::partition):
/// [what each costs](crate::guide::redis#cluster). A cluster decides in one step only states of the same
/// hash slot. If the rules of a request are in several hash slots, they are decided one after the other, and units taken are given
/// back if a later rule denies. Changing the partition resets all budgets.
///
/// While a hash slot moves from one node to another, a request whose states have not all moved is answered with `TRYAGAIN`:
/// it is decided by its rules' answer to a store failure. One rule with one client never is, unless its state has two
/// names, during a change of secrets, it may go to an overflow bucket, or the rule takes credits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Partition {
    /// All states of the namespace. Every request is decided in one step.
    ///
    /// One node of a cluster does all the work for the namespace: give services namespaces of their own, or choose
    /// another partition when one node is not enough.
    One,
    /// All states of one client. Rules of a request are decided in one step if they count by the same key, and not
    /// otherwise: a rule by account and one by address are two steps.
    ///
    /// What a step takes goes back if a later one denies. Until then it is missing: requests that are denied themselves can deny another
    /// one, which is told to wait for as long as if they had been admitted. Steps follow the order of the rules, so put the rule first that
    /// denies most often.
    ///
    /// With a [cap on new keys](crate::RedisStoreBuilder::cap_new_keys), each hash slot has an overflow bucket of its own. A
    /// change of secrets moves states to other hash slots, so a cluster refuses it here.
    Key,
    /// All states of one client of the rule with this name, such as one that counts by tenant. Requests that this rule
    /// checks are decided in one step; for others it works as [`Key`](Self::Key), also for those of a plan without a limit.
    ///
    /// **Every other rule is then counted for each tenant apart**: one by address lets an address through once for each
    /// tenant. The state of such a rule is found only together with its tenant: by a request, by its ticket,
    /// and by [`Limiter::reset_all`](tollgate_core::Limiter::reset_all) with a check of each of the two rules. Overflow buckets are counted for each tenant apart too. A cluster refuses a change of secrets, as with
    /// [`Key`](Self::Key).
    ByRule(Box<str>),
}

/// As it is written: `one`, `key`, `by-rule:tenant`.
impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One => f.write_str("one"),
            Self::Key => f.write_str("key"),
            Self::ByRule(rule) => write!(f, "by-rule:{rule}"),
        }
    }
}

impl FromStr for Partition {
    type Err = SetupError;

    /// Reads what is displayed.
    ///
    /// # Errors
    ///
    /// Another text.
    fn from_str(text: &str) -> Result<Self, SetupError> {
        match text.split_once(':') {
            None if text == "one" => Ok(Self::One),
            None if text == "key" => Ok(Self::Key),
            Some(("by-rule", rule)) if !rule.is_empty() => Ok(Self::ByRule(rule.into())),
            _ => wrong("a partition is \"one\", \"key\" or \"by-rule:NAME\", where NAME is a rule"),
        }
    }
}

/// The version of the format of states: in their names, and in the upper half of their first byte. Processes of two releases
/// whose formats differ never read what they do not understand, and each counts for itself.
pub(crate) const VERSION: u8 = 1;

/// The names of the states of a service.
#[derive(Clone, Debug)]
pub(crate) struct Keyspace {
    pub(crate) namespace: Box<str>,
    pub(crate) partition: Partition,
    pub(crate) keys: Keys,
}

impl Keyspace {
    /// The names in `namespace`, which is part of each: 1 to 64 letters, digits and `_ . : -`. Services that have
    /// different ones never meet. Keys of clients are plain.
    ///
    /// # Errors
    ///
    /// A namespace of other characters or another length.
    pub(crate) fn new(
        namespace: impl Into<String>,
        partition: Partition,
    ) -> Result<Self, SetupError> {
        let namespace = namespace.into();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        if !(1..=LONGEST).contains(&namespace.len()) || !namespace.bytes().all(fits) {
            return wrong(format!(
                "{namespace:?} is no namespace; take the name of the service, \
                 in 1 to {LONGEST} letters, digits and _ . : -"
            ));
        }
        Ok(Self {
            namespace: namespace.into(),
            partition,
            keys: Keys::plain(),
        })
    }

    /// A name of data that is no state: a state's ends in a number.
    pub(crate) fn name_of(&self, what: &str) -> String {
        format!("{{{}}}:{what}", self.namespace)
    }

    /// A name in this hash slot of a cluster. No state has it, as with [`name_of`](Self::name_of).
    #[cfg(feature = "metrics")]
    pub(crate) fn name_in(&self, hash_slot: u16) -> String {
        format!("{}:{{{}}}:size", self.namespace, hash_tag_in(hash_slot))
    }

    /// The name of the record of a reservation, in the hash slot of this client. No rule has its name.
    pub(crate) fn record(&self, id: Fingerprint, with: Option<Fingerprint>) -> Bytes {
        let with = with.map(|with| self.keys.names(with).0);
        let mut name = Bytes::new();
        self.write_name(&mut name, "", b'r', &Name::Hash(id), with.as_ref());
        name
    }

    /// Writes the name of what says since when the server has the states in the hash slot of this client. No state has it, as with
    /// [`name_of`](Self::name_of).
    pub(crate) fn write_since(&self, out: &mut Bytes, with: Fingerprint) {
        self.write_place(out, |out| {
            self.keys.names(with).0.hash_slot_tag().write(out)
        });
        out.extend_from_slice(b":since");
    }

    /// Begins a name with the namespace, and in another partition than one with what says in which hash slot it is.
    fn write_place(&self, out: &mut Bytes, write_tag: impl FnOnce(&mut Bytes)) {
        if self.partition == Partition::One {
            out.push(b'{');
            out.extend_from_slice(self.namespace.as_bytes());
        } else {
            out.extend_from_slice(self.namespace.as_bytes());
            out.extend_from_slice(b":{");
            write_tag(out);
        }
        out.push(b'}');
    }

    /// Writes the name of a state of a rule and a family, which lies where `with` does.
    pub(crate) fn write_name(
        &self,
        out: &mut Bytes,
        rule: &str,
        family: u8,
        name: &Name,
        with: Option<&Name>,
    ) {
        self.write_place(out, |out| with.unwrap_or(name).write(out));
        if self.partition == Partition::One {
            out.push(b':');
            name.write(out);
        } else if with.is_some() {
            // No name of a rule begins with it, so that this is no state of another partition.
            out.push(b'+');
            name.write(out);
        }
        out.push(b':');
        out.extend_from_slice(rule.as_bytes());
        // Of one digit.
        out.extend_from_slice(&[b':', family, b'0' + VERSION]);
    }
}

impl Name {
    /// The hash tag of what lies in the hash slot of this client, and is not the client's alone: digits, which no client is
    /// called.
    pub(crate) fn hash_slot_tag(&self) -> Self {
        let mut name = Bytes::new();
        self.write(&mut name);
        Self::Text(hash_tag_in(hash_slot(&name)).into())
    }

    fn write(&self, out: &mut Bytes) {
        match self {
            Self::Hash(key) => out.extend(letters(*key)),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

/// A fingerprint in [`LETTERS`], the highest bits first: 22 of them.
fn letters(key: Fingerprint) -> impl Iterator<Item = u8> {
    (0..22)
        .rev()
        .map(move |place| LETTERS[(key.bits() >> (6 * place)) as usize & 63])
}

/// Bytes; those of a usual key without an allocation.
pub(crate) type Bytes = SmallVec<[u8; 96]>;

// Texts that only processes with the secret read or write: what a reservation says of its client is hidden, and cannot be changed.

/// The bytes of an id, and of the tag behind the text.
const ID: usize = 16;
const TAG: usize = 32;

/// Writes `bytes` under an `id` that no other text has; `None` where keys are plain, and there is no secret.
pub(crate) fn seal(keyspace: &Keyspace, id: u128, bytes: Vec<u8>) -> Option<String> {
    let secret = *keyspace.keys.secrets().first()?;
    let mut sealed = [id.to_le_bytes().to_vec(), bytes].concat();
    apply_stream(keyspace, secret, &mut sealed);
    let tag = tag(keyspace, secret, &sealed);
    sealed.extend(tag.as_bytes());
    Some(sealed.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads the id and the bytes, by any of the secrets that the process knows.
pub(crate) fn unseal(keyspace: &Keyspace, text: &str) -> Option<(u128, Vec<u8>)> {
    let mut sealed = from_hex(text)?;
    let tag_at = sealed.len().checked_sub(TAG).filter(|at| *at >= ID)?;
    let given: [u8; TAG] = sealed.split_off(tag_at).try_into().ok()?;
    // A hash is compared in constant time.
    let wrote = |secret: &&Secret| tag(keyspace, secret, &sealed) == given;
    let secret = keyspace.keys.secrets().into_iter().find(wrote)?;
    apply_stream(keyspace, secret, &mut sealed);
    let bytes = sealed.split_off(ID);
    Some((u128::from_le_bytes(sealed.try_into().ok()?), bytes))
}

/// Hides what is behind the id, or shows it again.
fn apply_stream(keyspace: &Keyspace, secret: &Secret, sealed: &mut [u8]) {
    let key = secret.derive(&format!("stream of reservations in {}", keyspace.namespace));
    let (id, bytes) = sealed.split_at_mut(ID);
    let mut stream = vec![0; bytes.len()];
    let mut hasher = blake3::Hasher::new_keyed(&key);
    hasher.update(id).finalize_xof().fill(&mut stream);
    for (byte, mask) in bytes.iter_mut().zip(stream) {
        *byte ^= mask;
    }
}

fn tag(keyspace: &Keyspace, secret: &Secret, sealed: &[u8]) -> blake3::Hash {
    let key = secret.derive(&format!("tag of reservations in {}", keyspace.namespace));
    blake3::keyed_hash(&key, sealed)
}

// In which hash slot a key is: CRC-16/XMODEM of its hash tag, modulo 16384, as the Redis Cluster specification says.

/// How many hash slots there are.
pub(crate) const HASH_SLOTS: usize = 16_384;

/// The hash slot of a key. If the key has a `{`, and behind it a `}` with something in between, only what is in between counts.
pub(crate) fn hash_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % HASH_SLOTS as u16
}

/// The first number, in decimal digits, that is in each hash slot. Those up to this one reach all; a test says so.
const LAST_FIRST_NUMBER: u32 = 109_757;
static FIRST_NUMBERS: LazyLock<Box<[u32]>> = LazyLock::new(|| {
    let mut first = vec![0; HASH_SLOTS];
    for number in (0..=LAST_FIRST_NUMBER).rev() {
        first[usize::from(hash_slot(number.to_string().as_bytes()))] = number;
    }
    first.into()
});

/// A text in a hash slot, of digits: whatever has it for its hash tag is in that hash slot. Slow the first time.
pub(crate) fn hash_tag_in(hash_slot: u16) -> String {
    FIRST_NUMBERS[usize::from(hash_slot) % HASH_SLOTS].to_string()
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], wanted| bytes.iter().position(|byte| *byte == wanted);
    let Some(open) = position(key, b'{') else {
        return key;
    };
    let behind = &key[open + 1..];
    match position(behind, b'}') {
        None | Some(0) => key,
        Some(close) => &behind[..close],
    }
}

/// Eight bits at once are divided by x^16 + x^12 + x^5 + 1.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let mixed = (crc >> 8) ^ u16::from(*byte);
        let high = mixed ^ (mixed >> 4);
        (crc << 8) ^ (high << 12) ^ (high << 5) ^ high
    })
}

#[cfg(test)]
impl Keyspace {
    /// The same with the keys of clients written so.
    pub(crate) fn with_keys(mut self, keys: Keys) -> Self {
        self.keys = keys;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_namespace_with_a_brace_is_refused() {
        for namespace in ["", "{shop}", "a b", "a/b", "ü", &"x".repeat(65)] {
            let error = Keyspace::new(namespace, Partition::One).expect_err("it is none");
            assert!(error.to_string().contains("letters, digits"), "{error}");
        }
    }

    #[test]
    fn a_pattern_of_a_namespace_fits_none_of_the_names_of_another() {
        let namespaces = ["shop", "shop:eu", "shop:", "shop:probe", "eu", "a", "a:a"];
        for namespace in namespaces {
            for partition in [
                Partition::One,
                Partition::Key,
                Partition::ByRule("r".into()),
            ] {
                let with_tenant = matches!(partition, Partition::ByRule(_));
                let keyspace = Keyspace::new(namespace, partition).expect("letters");
                let (name, _) = keyspace.keys.names(Fingerprint::from_bits(7));
                let with = with_tenant.then_some(&name);
                let mut state = Bytes::new();
                keyspace.write_name(&mut state, "r", b'a', &name, with);
                let state = String::from_utf8(state.to_vec()).expect("letters");
                for key in [state, keyspace.name_of("instances")] {
                    // As the guide gives them to a user of the server: `~{shop}:* ~shop:{*`.
                    let fits = |other: &&str| {
                        let prefixes = [format!("{{{other}}}:"), format!("{other}:{{")];
                        prefixes.iter().any(|prefix| key.starts_with(prefix))
                    };
                    let fitting: Vec<_> = namespaces.iter().copied().filter(fits).collect();
                    assert_eq!(fitting, [namespace], "{key}");
                }
            }
        }
    }

    #[test]
    fn each_bit_of_a_fingerprint_is_in_the_name() {
        let names: HashSet<Vec<u8>> = (0..128)
            .map(|bit| letters(Fingerprint::from_bits(1 << bit)).collect())
            .collect();
        assert_eq!(names.len(), 128);
    }

    #[test]
    fn there_is_a_tag_for_every_slot() {
        let mut reached: Vec<_> = (0..=LAST_FIRST_NUMBER)
            .map(|number| hash_slot(number.to_string().as_bytes()))
            .collect();
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(reached.len(), HASH_SLOTS);
        for wanted in 0..16_384 {
            let key = format!("probe:{{{}}}:one", hash_tag_in(wanted));
            assert_eq!(hash_slot(key.as_bytes()), wanted);
        }
    }
}
