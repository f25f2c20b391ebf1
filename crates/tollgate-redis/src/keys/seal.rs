//! Texts that only processes with the secret read or write: what a reservation says of its client is hidden, and cannot be changed.

use crate::keys::{
    keyspace::Keyspace,
    secret::{Secret, from_hex},
};

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
    let key = secret.derive(&format!(
        "stream of reservations in {}",
        keyspace.namespace()
    ));
    let (id, bytes) = sealed.split_at_mut(ID);
    let mut stream = vec![0; bytes.len()];
    let mut hasher = blake3::Hasher::new_keyed(&key);
    hasher.update(id).finalize_xof().fill(&mut stream);
    for (byte, mask) in bytes.iter_mut().zip(stream) {
        *byte ^= mask;
    }
}

fn tag(keyspace: &Keyspace, secret: &Secret, sealed: &[u8]) -> blake3::Hash {
    let key = secret.derive(&format!("tag of reservations in {}", keyspace.namespace()));
    blake3::keyed_hash(&key, sealed)
}
