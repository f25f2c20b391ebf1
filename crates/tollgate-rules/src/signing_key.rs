//! What is made with the service's secret: signatures, and hashes of keys.

use std::sync::Arc;

use tollgate_core::KeyBuf;
use tollgate_redis::Secret;

use crate::audit::Author;

/// Keys that are derived from the service's secret.
#[derive(Clone)]
pub(crate) struct SigningKey {
    documents: [u8; 32],
    clients: [u8; 32],
}

/// A document as it is stored: with what lies beside it, who changed it, and the signature of all that.
#[derive(Clone, Debug)]
pub(crate) struct StoredDocument {
    pub(crate) text: String,
    /// What operators set.
    pub(crate) beside: String,
    pub(crate) author: Author,
    pub(crate) signature: String,
}

impl SigningKey {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self {
            documents: secret.derive("tollgate-rules, signature of documents"),
            clients: secret.derive("tollgate-rules, hash of clients"),
        }
    }

    /// The signature of a document of a namespace, with its number.
    pub(crate) fn sign(
        &self,
        namespace: &str,
        revision: u64,
        document: &StoredDocument,
    ) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.documents);
        hasher.update(&revision.to_le_bytes());
        let (by, beside) = (&document.author, &*document.beside);
        let parts = [namespace, by.actor(), by.reason(), &document.text];
        // A document that is alone is signed as it always was.
        for part in parts
            .into_iter()
            .chain(Some(beside).filter(|it| !it.is_empty()))
        {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize()
    }

    /// Whether it has that signature.
    pub(crate) fn has_signed(
        &self,
        namespace: &str,
        revision: u64,
        document: &StoredDocument,
    ) -> bool {
        let given = blake3::Hash::from_hex(&document.signature);
        // Hashes are compared in constant time.
        given.is_ok_and(|given| given == self.sign(namespace, revision, document))
    }

    /// How a client of a rule is hashed with this secret.
    pub(crate) fn hashing(self) -> Arc<impl Fn(&str, &KeyBuf) -> u128 + Send + Sync> {
        Arc::new(move |rule: &str, client: &KeyBuf| self.hash_key(rule, client))
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
        let document = StoredDocument {
            text: "text".to_owned(),
            beside: "set".to_owned(),
            author: Author::new("alice").because("launch"),
            signature: String::new(),
        };
        let signed = StoredDocument {
            signature: key(7).sign("shop", 3, &document).to_string(),
            ..document.clone()
        };
        assert!(key(7).has_signed("shop", 3, &signed));
        assert!(!key(8).has_signed("shop", 3, &signed));
        let alone = StoredDocument {
            beside: String::new(),
            ..document.clone()
        };
        // Redis has such signatures of other versions of this program.
        let mut hasher = blake3::Hasher::new_keyed(&key(7).documents);
        hasher.update(&3_u64.to_le_bytes());
        for part in ["shop", "alice", "launch", "text"] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        assert_eq!(key(7).sign("shop", 3, &alone), hasher.finalize());
        assert!(!key(7).has_signed("shop", 4, &signed));
        assert!(!key(7).has_signed("web", 3, &signed));
        assert!(!key(7).has_signed("shop", 3, &document));
        for differs in [
            StoredDocument {
                text: "text ".to_owned(),
                ..signed.clone()
            },
            StoredDocument {
                author: Author::new("alic").because("elaunch"),
                ..signed.clone()
            },
            StoredDocument {
                beside: String::new(),
                ..signed.clone()
            },
        ] {
            assert!(!key(7).has_signed("shop", 3, &differs));
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
