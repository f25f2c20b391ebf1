//! What is made with the service's secret: signatures, and hashes of keys.

use tollgate_core::KeyBuf;
use tollgate_redis::Secret;

use crate::audit::Author;

/// Keys that are derived from the service's secret.
#[derive(Clone)]
pub(crate) struct SigningKey {
    documents: [u8; 32],
    clients: [u8; 32],
}

/// What is signed: a document of a namespace with its number, what lies beside it, and who changed it.
#[derive(Clone, Copy)]
pub(crate) struct Signed<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) revision: u64,
    pub(crate) text: &'a str,
    pub(crate) beside: &'a str,
    pub(crate) by: &'a Author,
}

impl SigningKey {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self {
            documents: secret.derive("tollgate-rules, signature of documents"),
            clients: secret.derive("tollgate-rules, hash of clients"),
        }
    }

    pub(crate) fn sign(&self, signed: &Signed<'_>) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.documents);
        hasher.update(&signed.revision.to_le_bytes());
        let (by, beside) = (signed.by, signed.beside);
        let beside = (!beside.is_empty()).then_some(beside);
        let parts = [signed.namespace, by.actor(), by.reason(), signed.text];
        for part in parts.into_iter().chain(beside) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize()
    }

    /// Whether it is the signature of that.
    pub(crate) fn has_signed(&self, signature: &str, signed: &Signed<'_>) -> bool {
        let given = blake3::Hash::from_hex(signature);
        // Hashes are compared in constant time.
        given.is_ok_and(|given| given == self.sign(signed))
    }

    /// The hash by which documents name a client of a rule.
    pub(crate) fn hash_key(&self, rule: &str, key: &KeyBuf) -> u128 {
        // At once: a hasher for longer texts takes as long to be made.
        let length = (rule.len() as u64).to_le_bytes();
        let text = [&length[..], rule.as_bytes(), key.as_bytes()].concat();
        let mut half = [0; 16];
        half.copy_from_slice(&blake3::keyed_hash(&self.clients, &text).as_bytes()[..16]);
        u128::from_be_bytes(half)
    }
}

// Shows nothing.
tollgate_core::debug_fields!(SigningKey);

#[cfg(test)]
mod tests {
    use tollgate_core::Key;

    use super::*;

    fn key(byte: u8) -> SigningKey {
        SigningKey::new(&Secret::from_bytes([byte; 32]).expect("32 bytes"))
    }

    #[test]
    fn a_signature_is_of_one_document_one_revision_one_namespace_and_one_author() {
        let by = &Author::new("alice").because("launch");
        let (namespace, revision, text, beside) = ("shop", 3, "text", "set");
        let signed = Signed {
            namespace,
            revision,
            text,
            beside,
            by,
        };
        let signature = &*key(7).sign(&signed).to_hex();
        assert!(key(7).has_signed(signature, &signed));
        assert!(!key(8).has_signed(signature, &signed));
        assert!(!key(7).has_signed("", &signed));
        let other = &Author::new("alic").because("elaunch");
        for differs in [
            Signed {
                revision: 4,
                ..signed
            },
            Signed {
                namespace: "web",
                ..signed
            },
            Signed {
                text: "text ",
                ..signed
            },
            Signed {
                by: other,
                ..signed
            },
            Signed {
                beside: "",
                ..signed
            },
        ] {
            assert!(!key(7).has_signed(signature, &differs));
        }
    }

    #[test]
    fn a_client_has_another_hash_under_each_rule_and_secret() {
        let hash =
            |byte: u8, rule: &str, text: &str| key(byte).hash_key(rule, Key::of(text).as_ref());
        let hashes = [
            hash(7, "a", "acme"),
            hash(7, "b", "acme"),
            hash(7, "a", "acme2"),
            hash(8, "a", "acme"),
        ];
        for (index, one) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(one), "{index}");
        }
        assert_eq!(hash(7, "a", "acme"), hashes[0]);
    }
}
