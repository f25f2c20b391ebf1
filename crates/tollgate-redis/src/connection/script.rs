//! A script and its hash.

use sha1_smol::Sha1;

/// The text of a script, and the SHA-1 by which servers know it.
///
/// The hash names an entry of the server's cache and protects nothing.
pub(crate) struct Script {
    body: &'static str,
    sha: [u8; 40],
}

impl Script {
    pub(crate) fn new(body: &'static str) -> Self {
        let mut sha = [0; 40];
        for (digits, byte) in sha
            .chunks_exact_mut(2)
            .zip(Sha1::from(body).digest().bytes())
        {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            digits.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        Self { body, sha }
    }

    pub(crate) fn body(&self) -> &'static str {
        self.body
    }

    /// Forty hexadecimal digits.
    pub(crate) fn sha(&self) -> &[u8; 40] {
        &self.sha
    }
}
