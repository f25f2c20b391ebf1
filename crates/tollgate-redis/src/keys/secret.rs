//! Secrets: what keeps the names of clients out of Redis.
//!
//! Without a secret, a reader of the keys in Redis could find out which addresses they stand for: trying all IPv4 addresses
//! takes minutes. All processes that share a limit need the same secret.
//!
//! ```
//! use tollgate_redis::Secret;
//!
//! // As `openssl rand -hex 32` or `openssl rand -base64 32` prints it.
//! let secret = Secret::from_text("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")?;
//! assert_eq!(format!("{secret:?}"), "Secret { .. }");
//! # Ok::<(), tollgate_redis::SetupError>(())
//! ```
//!
//! From a file or a vault, as bytes:
//!
//! ```
//! use tollgate_redis::Secret;
//!
//! assert!(Secret::from_bytes([7; 32]).is_ok());
//! let error = Secret::from_bytes(b"hunter2").expect_err("seven bytes");
//! assert!(error.to_string().contains("7 bytes; it takes 32 or more"), "{error}");
//! ```

use std::{env, sync::Arc};

use tollgate_core::store::Fingerprint;

use crate::error::{SetupError, SetupErrorKind};

/// The fewest bytes of a secret.
const LEAST: usize = 32;

/// 32 or more bytes that an outsider cannot guess. Clones share them.
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
        let mut hasher = blake3::Hasher::new_keyed(self.key());
        hasher.update(b"tollgate-redis, key of another use: ");
        hasher.update(context.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// The key for hashes.
    pub(crate) fn key(&self) -> &[u8; 32] {
        &self.0
    }

    /// Distinguishes this secret from others. It does not reveal the secret.
    #[must_use]
    pub fn tag(&self) -> String {
        let hash = blake3::keyed_hash(self.key(), b"tollgate-redis, tag of a secret");
        hash.to_hex()[..16].to_owned()
    }

    /// The fingerprint of a digest by this secret.
    pub(crate) fn sign(&self, digest: [u8; 16]) -> Fingerprint {
        let hash = blake3::keyed_hash(self.key(), &digest);
        let mut half = [0; 16];
        half.copy_from_slice(&hash.as_bytes()[..16]);
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
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| Some(digit.to_digit(16)? as u8))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect())
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        (bits, held) = (bits << 6 | u32::from(six), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    (text.len() % 4 != 1).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let by_hand = |text: &[u8]| *blake3::keyed_hash(secret.key(), text).as_bytes();
        assert_eq!(
            secret.derive("audit"),
            by_hand(b"tollgate-redis, key of another use: audit")
        );
        assert_ne!(secret.derive("audit"), secret.derive("rules"));
    }
}
