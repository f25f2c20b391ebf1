//! Keys of clients: how a key becomes a fingerprint, and how a fingerprint is written in Redis.
//!
//! A key is hashed twice: once without a secret, and where its name is written, what came out once more with it. So a
//! process that knows two secrets finds both names of a state from what it kept of the key, and what a process answers
//! alone is hashed once.
//!
//! ```
//! use tollgate_redis::{Keys, Secret};
//!
//! let keys = Keys::hashed(Secret::from_bytes([7; 32])?);
//! assert_eq!(format!("{keys:?}"), "Keys(hashed)");
//! # Ok::<(), tollgate_redis::SetupError>(())
//! ```
//!
//! # Changing the secret
//!
//! No client's budget begins anew if the change takes three deployments:
//!
//! ```
//! use tollgate_redis::{Keys, Secret};
//!
//! let (old, new) = (Secret::from_bytes([7; 32])?, Secret::from_bytes([8; 32])?);
//! // 1. Every process learns the new secret, and goes on under the old one.
//! let first = Keys::hashed(old.clone()).next(new.clone())?;
//! // 2. The new one is in force. States move to their new names as they are written.
//! let second = Keys::hashed(new.clone()).previous(old)?;
//! // 3. After as long as the longest window or refill of a rule no state has an old name any more.
//! let third = Keys::hashed(new);
//! assert!(first.is_rotating() && second.is_rotating() && !third.is_rotating());
//! # Ok::<(), tollgate_redis::SetupError>(())
//! ```
//!
//! Processes of one step and the next may run side by side for as long as a deployment takes, and share one budget. A
//! step that is left out is a split budget while both run. Only a request with an [id](tollgate_core::Rule::idempotent) that is repeated
//! across the first step counts once more. Until it is over, a check costs the server a second read.
//!
//! What tollgate-rules makes with a secret does not move: hashes of keys in documents and lists, and signatures of pushed documents.
//! Before the second step, write each entry of a hashed list twice, hashed with the old secret and with the new one, or its keys are
//! no longer denied; and each override of a key by its `hash`, too. With the second step push the document under the new secret, by
//! `tollgate rules push --replace-all`, which ends what operators set: set it anew. Until then processes of the second step have no
//! document but their fallback; afterwards those of the first one keep what they have. After the third step the old hashes may go.

use std::{env, fmt, sync::Arc};

use smallvec::SmallVec;
use tollgate_core::{KeyBuf, store::Fingerprint};

use crate::{
    error::{SetupError, SetupErrorKind},
    keys::plain::Plain,
};

/// How the keys of clients are written in Redis. All processes that share a limit write them alike.
#[must_use]
#[derive(Clone)]
pub struct Keys(Arc<KeyWriter>);

/// Writes keys by a secret, by two of which one is in force, or plainly.
struct KeyWriter {
    /// First the newer. None if it writes plainly.
    secrets: Vec<Secret>,
    /// Whether states move to the name by the newer secret: it is in force.
    moves: bool,
    mask: Mask,
    plain: Option<Plain>,
}

/// A fingerprint as it is written in a name.
#[derive(Clone)]
pub(crate) enum Name {
    Hash(Fingerprint),
    Text(Arc<str>),
}

impl Keys {
    /// As fingerprints, keyed by this secret: the names in Redis reveal nothing about the clients.
    pub fn hashed(secret: Secret) -> Self {
        Self::by(vec![secret], false)
    }

    fn by(secrets: Vec<Secret>, moves: bool) -> Self {
        Self(Arc::new(KeyWriter {
            mask: secrets.first().map(Mask::of).unwrap_or_default(),
            plain: secrets.is_empty().then(Plain::default),
            secrets,
            moves,
        }))
    }

    /// Readable, for debugging: `address=192.0.2.1/32`, or the start and a hash of long values.
    ///
    /// **Anyone who can list the keys of the server, or read a dump of its memory, sees the clients: their addresses, accounts
    /// and API keys.** Never leave it on. Switching it on or off resets all budgets, because the states have other names. A
    /// process that counts more than 60 000 clients at once may lose late settlements.
    pub fn plain() -> Self {
        Self::by(Vec::new(), false)
    }

    /// The same with the next secret: states are found under it too, and stay where they are.
    ///
    /// # Errors
    ///
    /// It is the one in force, or another change is under way, or keys are not hashed.
    pub fn next(self, next: Secret) -> Result<Self, SetupError> {
        self.rotate(next, false)
    }

    /// The same with the previous secret: states are found under it too, and move to the current one when they are written.
    ///
    /// # Errors
    ///
    /// As those of [`next`](Self::next).
    pub fn previous(self, previous: Secret) -> Result<Self, SetupError> {
        self.rotate(previous, true)
    }

    /// Whether a second secret is known.
    #[must_use]
    pub fn is_rotating(&self) -> bool {
        self.0.secrets.len() > 1
    }

    fn rotate(self, other: Secret, moves: bool) -> Result<Self, SetupError> {
        let current = match &self.0.secrets[..] {
            [] => {
                return wrong("keys that are written plainly have no secret; take `Keys::hashed`");
            }
            [current] if *current == other => {
                return wrong(
                    "the other secret is the one in force; give the one before or after it, or none",
                );
            }
            [current] => current.clone(),
            _ => {
                return wrong(
                    "two secrets are known already; end one change of secrets before the next",
                );
            }
        };
        let secrets = match moves {
            true => vec![current, other],
            false => vec![other, current],
        };
        Ok(Self::by(secrets, moves))
    }

    /// The fingerprint of a key in this process. The one in Redis is [derived from it](Self::names).
    pub(crate) fn fingerprint(&self, domain: &[u8], key: &KeyBuf) -> Fingerprint {
        let fingerprint = self.0.mask.put_on(digest(domain, key));
        if let Some(plain) = &self.0.plain {
            plain.remember(fingerprint, key);
        }
        fingerprint
    }

    /// How it is written; of two secrets by the newer, then by the older.
    pub(crate) fn names(&self, key: Fingerprint) -> (Name, Option<Name>) {
        let text = self.0.plain.as_ref().and_then(|plain| plain.text(key));
        let digest = self.digest_of(key);
        let mut names = (self.0.secrets.iter()).map(|secret| Name::Hash(secret.sign(digest)));
        let first = text.map(Name::Text).or_else(|| names.next());
        (first.unwrap_or(Name::Hash(key)), names.next())
    }

    /// The secrets, first the one in force.
    pub(crate) fn secrets(&self) -> Vec<&Secret> {
        let mut secrets: Vec<_> = self.0.secrets.iter().collect();
        if !self.0.moves {
            secrets.reverse();
        }
        secrets
    }

    /// What stands for a key in all processes. Anybody can compute it, so it leaves the process only hidden.
    pub(crate) fn digest_of(&self, key: Fingerprint) -> [u8; 16] {
        self.0.mask.take_off(key)
    }

    /// The fingerprint in this process of what stands for a key in all.
    pub(crate) fn fingerprint_of(&self, digest: [u8; 16]) -> Fingerprint {
        self.0.mask.put_on(digest)
    }

    /// What tells the secrets from others, first the one that states are written by.
    pub(crate) fn tags(&self) -> Vec<String> {
        match self.0.plain {
            Some(_) => vec!["plain".to_owned()],
            None => self.secrets().into_iter().map(Secret::tag).collect(),
        }
    }

    /// Whether states are moved from the older name to the newer.
    pub(crate) fn moves(&self) -> bool {
        self.0.moves
    }
}

/// A key and the domain in front of it, whose length is part of it.
fn digest(domain: &[u8], key: &KeyBuf) -> [u8; 16] {
    // In one piece it is hashed in half the time.
    let mut bytes = SmallVec::<[u8; 192]>::new();
    bytes.extend_from_slice(&(domain.len() as u64).to_le_bytes());
    bytes.extend_from_slice(domain);
    bytes.extend_from_slice(key.as_bytes());
    first_half(blake3::hash(&bytes))
}

fn first_half(hash: blake3::Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

/// Shows how keys are written, and no secret.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.secrets.len() {
            0 => "Keys(plain)",
            1 => "Keys(hashed)",
            _ if self.0.moves => "Keys(hashed, with the previous secret)",
            _ => "Keys(hashed, with the next secret)",
        })
    }
}

// What stands for a digest in a process.

/// A permutation of digests that cannot be followed without the secret: four rounds of a Feistel network over
/// halves.
///
/// Anybody can compute a digest, and would choose keys that fall on one place of a table. What comes out of this never
/// leaves the process, so that it has to be fast, and need not withstand somebody who sees it. It can be undone, where a
/// name is written. The default changes nothing.
#[derive(Default)]
pub(crate) struct Mask([[u64; 2]; 4]);

impl Mask {
    /// The same in all processes that know the secret.
    pub(crate) fn of(secret: &Secret) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate-redis, mask of digests");
        let mut bytes = hasher.update(&*secret.0).finalize_xof();
        let mut word = || {
            let mut word = [0; 8];
            bytes.fill(&mut word);
            u64::from_le_bytes(word)
        };
        Self([(); 4].map(|()| [word(), word()]))
    }

    pub(crate) fn put_on(&self, digest: [u8; 16]) -> Fingerprint {
        let (mut left, mut right) = halves(u128::from_le_bytes(digest));
        for round in &self.0 {
            (left, right) = (right, left ^ mix(*round, right));
        }
        Fingerprint::from_bits(u128::from(left) << 64 | u128::from(right))
    }

    pub(crate) fn take_off(&self, key: Fingerprint) -> [u8; 16] {
        let (mut left, mut right) = halves(key.bits());
        for round in self.0.iter().rev() {
            (left, right) = (right ^ mix(*round, left), left);
        }
        (u128::from(left) << 64 | u128::from(right)).to_le_bytes()
    }
}

/// Both halves of a product, in one.
fn mix([plus, times]: [u64; 2], half: u64) -> u64 {
    let (high, low) = halves(u128::from(half ^ plus) * u128::from(times));
    high ^ low
}

fn halves(bits: u128) -> (u64, u64) {
    ((bits >> 64) as u64, bits as u64)
}

// Secrets.

/// The fewest bytes of a secret.
const LEAST: usize = 32;

/// 32 or more bytes that an outsider cannot guess. Clones share them.
///
/// Without a secret, a reader of the keys in Redis could find out which addresses they stand for: trying all IPv4 addresses
/// takes minutes. All processes that share a limit need the same secret.
///
/// ```
/// use tollgate_redis::Secret;
///
/// // As `openssl rand -hex 32` or `openssl rand -base64 32` prints it.
/// let secret = Secret::from_text("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")?;
/// assert_eq!(format!("{secret:?}"), "Secret { .. }");
/// # Ok::<(), tollgate_redis::SetupError>(())
/// ```
///
/// From a file or a vault, as bytes:
///
/// ```
/// use tollgate_redis::Secret;
///
/// assert!(Secret::from_bytes([7; 32]).is_ok());
/// let error = Secret::from_bytes(b"hunter2").expect_err("seven bytes");
/// assert!(error.to_string().contains("7 bytes; it takes 32 or more"), "{error}");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8; 32]>);

impl Secret {
    /// A secret of these bytes. All of them count, however many there are.
    ///
    /// # Errors
    ///
    /// Fewer than 32 bytes, or nothing but zeroes: a buffer that was never filled, which is easy to guess.
    pub fn from_bytes(bytes: impl AsRef<[u8]>) -> Result<Self, SetupError> {
        let bytes = bytes.as_ref();
        if bytes.len() < LEAST {
            return wrong(format!(
                "a secret has {} bytes; it takes {LEAST} or more, such as `openssl rand -hex {LEAST}` prints them",
                bytes.len()
            ));
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return wrong(format!(
                "a secret of {} zero bytes is a buffer that was never filled; \
                 fill it with random bytes, such as `openssl rand -hex {LEAST}` prints them",
                bytes.len()
            ));
        }
        let key = blake3::derive_key("tollgate-redis, secret of fingerprints", bytes);
        Ok(Self(Arc::new(key)))
    }

    /// A secret in hexadecimal digits, or else in base 64 (of either alphabet, padded or not). White space around it
    /// does not count.
    ///
    /// # Errors
    ///
    /// Another text, or one for fewer than 32 bytes, or for nothing but zeroes. The error does not repeat it.
    pub fn from_text(text: &str) -> Result<Self, SetupError> {
        let text = text.trim();
        let hex = from_hex(text).map(|bytes| (bytes, "hexadecimal"));
        let read = hex.or_else(|| Some((from_base64(text)?, "base 64")));
        let characters = text.chars().count();
        match read {
            // Most passwords are valid base 64 as well. Report their length in characters, not in decoded bytes.
            Some((bytes, spelling)) if bytes.len() < LEAST => wrong(format!(
                "a text of {characters} characters is too short for a secret: as {spelling} it is {} bytes, and it takes \
                 {LEAST} or more. A password is not enough; take what `openssl rand -hex {LEAST}` prints",
                bytes.len()
            )),
            Some((bytes, _)) => Self::from_bytes(bytes),
            None => wrong(format!(
                "a text of {characters} characters is neither hexadecimal nor base 64; \
                 take what `openssl rand -hex {LEAST}` prints"
            )),
        }
    }

    /// The secret in an environment variable, as [`from_text`](Self::from_text) reads it.
    ///
    /// # Errors
    ///
    /// The variable is not there, or [`from_text`](Self::from_text) refuses what is in it. The error names the variable.
    pub fn from_env(variable: &str) -> Result<Self, SetupError> {
        let Ok(text) = env::var(variable) else {
            return wrong(format!(
                "the environment variable {variable} is not set, or is not Unicode; \
                 set it to the output of `openssl rand -hex {LEAST}`, the same in all processes"
            ));
        };
        Self::from_text(&text).or_else(|error| wrong(format!("{variable}: {error}")))
    }

    /// A key for another use than clients' names, which `context` names: to sign what a service keeps in Redis, say. It reveals
    /// nothing of the secret, and each use has its own.
    #[must_use]
    pub fn derive(&self, context: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"tollgate-redis, key of another use: ");
        hasher.update(context.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Distinguishes this secret from others. It does not reveal the secret.
    #[must_use]
    pub fn tag(&self) -> String {
        let hash = blake3::keyed_hash(&self.0, b"tollgate-redis, tag of a secret");
        hash.to_hex()[..16].to_owned()
    }

    /// The fingerprint of a digest by this secret.
    pub(crate) fn sign(&self, digest: [u8; 16]) -> Fingerprint {
        let half = first_half(blake3::keyed_hash(&self.0, &digest));
        Fingerprint::from_bits(u128::from_le_bytes(half))
    }
}

// Shows nothing.
tollgate_core::debug_fields!(Secret);

/// It says what would be right, and repeats nothing of the secret.
pub(super) fn wrong<T>(message: impl Into<String>) -> Result<T, SetupError> {
    Err(SetupError::new(SetupErrorKind::Keys, message))
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text
        .chars()
        .map(|digit| digit.to_digit(16))
        .collect::<Option<Vec<_>>>()?;
    let bytes = digits.chunks(2).map(|two| (two[0] * 16 + two[1]) as u8);
    (digits.len() % 2 == 0).then(|| bytes.collect())
}

/// Base 64 with the letters that are safe in URLs.
pub(super) const LETTERS: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let letter = match letter {
            b'+' => b'-',
            b'/' => b'_',
            letter => letter,
        };
        let six = LETTERS.iter().position(|known| *known == letter)? as u32;
        (bits, held) = (bits << 6 | six, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    (text.len() % 4 != 1).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use tollgate_core::Key;

    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes([byte; 32]).expect("32 bytes")
    }

    fn key(text: &str) -> KeyBuf {
        Key::of([text]).into()
    }

    fn bits(name: &Name) -> u128 {
        match name {
            Name::Hash(key) => key.bits(),
            Name::Text(text) => panic!("{text} is no hash"),
        }
    }

    #[test]
    fn a_process_with_two_secrets_finds_the_names_of_those_with_one() {
        let (old, new) = (Keys::hashed(secret(1)), Keys::hashed(secret(2)));
        let a = old.clone().next(secret(2)).expect("another");
        let b = new.clone().previous(secret(1)).expect("another");
        for text in ["", "a", "2001:db8::/64", &"x".repeat(1_000)] {
            let by = |keys: &Keys| bits(&keys.names(keys.fingerprint(b"api", &key(text))).0);
            for both in [&a, &b] {
                let fingerprint = both.fingerprint(b"api", &key(text));
                let (newer, older) = both.names(fingerprint);
                assert_eq!(bits(&newer), by(&new));
                assert_eq!(bits(&older.expect("two secrets")), by(&old));
                // In the process it is neither of the two, nor what a client could compute.
                assert_ne!(
                    fingerprint.bits(),
                    u128::from_le_bytes(digest(b"api", &key(text)))
                );
            }
            assert_ne!(by(&old), by(&new));
        }
    }

    #[test]
    fn a_name_is_the_same_in_all_versions() {
        let name = |text| {
            let keys = Keys::hashed(secret(1));
            bits(&keys.names(keys.fingerprint(b"api", &key(text))).0)
        };
        assert_eq!(name("a"), 0x40ded707c34a57862859382ea710045d);
        assert_eq!(name(&"x".repeat(1_000)), 0x1680689455f407007d0ebc1c5af71ab9);
    }

    #[test]
    fn a_part_of_a_key_is_not_taken_for_the_end_of_its_domain() {
        let (whole, rest) = (KeyBuf::from(Key::of(["a", "b"])), key("b"));
        let start = whole.as_bytes().strip_suffix(rest.as_bytes());
        let domain = [b"api", start.expect("parts stand one behind the other")].concat();
        assert_ne!(digest(b"api", &whole), digest(&domain, &rest));
    }

    #[test]
    fn a_change_of_secrets_that_is_none_is_refused() {
        let keys = Keys::hashed(secret(1));
        assert!(keys.clone().next(secret(1)).is_err());
        assert!(Keys::plain().next(secret(1)).is_err());
        let rotating = keys.next(secret(2)).expect("another");
        assert!(rotating.previous(secret(3)).is_err());
    }

    #[test]
    fn nothing_of_a_secret_is_printed() {
        let keys = Keys::hashed(secret(1)).next(secret(2)).expect("another");
        assert_eq!(format!("{keys:?}"), "Keys(hashed, with the next secret)");
    }

    fn mask(byte: u8) -> Mask {
        Mask::of(&Secret::from_bytes([byte; 32]).expect("32 bytes"))
    }

    #[test]
    fn a_mask_is_undone() {
        for bit in 0..128 {
            let digest = (1_u128 << bit).to_le_bytes();
            assert_ne!(mask(1).put_on(digest).bits(), 1 << bit);
            assert_eq!(mask(1).take_off(mask(1).put_on(digest)), digest);
        }
    }

    #[test]
    fn every_bit_of_a_digest_and_of_the_secret_counts_for_all_of_what_comes_out() {
        let ones = |one: Fingerprint, other: Fingerprint| (one.bits() ^ other.bits()).count_ones();
        let bits = |bits: u128| mask(1).put_on(bits.to_le_bytes());
        for bit in 0..128 {
            let changed = ones(bits(0x5eed), bits(0x5eed ^ 1 << bit));
            assert!((32..96).contains(&changed), "{changed} by bit {bit}");
        }
        let digest = [7; 16];
        assert!(ones(mask(1).put_on(digest), mask(2).put_on(digest)) > 32);
    }

    const BYTES: [u8; 33] = [0xfb; 33];

    #[test]
    fn one_secret_reads_the_same_in_every_spelling() {
        let secret = Secret::from_bytes(BYTES).expect("33 bytes");
        let text = "+/v7".repeat(11);
        let spellings = [
            "fb".repeat(33),
            "FB".repeat(33),
            text.clone(),
            format!(" {text}\n"),
            text.replace('+', "-").replace('/', "_"),
        ];
        for spelling in spellings {
            assert_eq!(
                Secret::from_text(&spelling),
                Ok(secret.clone()),
                "{spelling}"
            );
        }
        let padded = format!("{}+/s=", "+/v7".repeat(10));
        let short = Secret::from_bytes(&BYTES[..32]).expect("32 bytes");
        assert_eq!(Secret::from_text(&padded), Ok(short.clone()));
        assert_ne!(short, secret);
    }

    #[test]
    fn an_error_gives_the_length_of_a_password_in_characters() {
        for (text, characters, spelling) in [
            ("hunter2", "7 characters", "as base 64 it is 5 bytes"),
            ("fbfbfbfb", "8 characters", "as hexadecimal it is 4 bytes"),
            (" pässword ", "8 characters", "neither"),
            ("", "0 characters", "as hexadecimal it is 0 bytes"),
        ] {
            let error = Secret::from_text(text).expect_err("too short").to_string();
            for words in [characters, spelling, "openssl rand -hex 32"] {
                assert!(error.contains(words), "{error:?} lacks {words:?}");
            }
        }
    }

    #[test]
    fn zeroes_are_no_secret_in_any_spelling() {
        let zeroes = [
            Secret::from_bytes([0; 32]),
            Secret::from_bytes([0; 64]),
            Secret::from_text(&"00".repeat(32)),
            Secret::from_text(&format!("{}=", "A".repeat(43))),
        ];
        for secret in zeroes {
            let error = secret.expect_err("everybody can guess it").to_string();
            assert!(
                error.contains("zero bytes") && error.contains("openssl"),
                "{error}"
            );
        }
        let mut one = [0; 32];
        one[31] = 1;
        assert!(Secret::from_bytes(one).is_ok());
    }

    #[test]
    fn a_variable_that_has_no_secret_is_named_and_not_repeated() {
        let path = env::var("PATH").expect("tests have a path");
        let error = Secret::from_env("PATH").expect_err("it is no secret");
        assert!(error.to_string().starts_with("PATH: "), "{error}");
        assert!(!error.to_string().contains(&path));
    }

    #[test]
    fn the_key_of_another_use_stays_what_it_was_and_each_use_has_its_own() {
        let secret = Secret::from_bytes(BYTES).expect("33 bytes");
        let by_hand = |text: &[u8]| *blake3::keyed_hash(&secret.0, text).as_bytes();
        assert_eq!(
            secret.derive("audit"),
            by_hand(b"tollgate-redis, key of another use: audit")
        );
        assert_ne!(secret.derive("audit"), secret.derive("rules"));
    }
}
