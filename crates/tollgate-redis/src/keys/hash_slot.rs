//! In which hash slot a key is: CRC-16/XMODEM of its hash tag, modulo 16384, as the Redis Cluster specification says.

use std::sync::LazyLock;

/// How many hash slots there are.
pub(crate) const HASH_SLOTS: usize = 16_384;

/// The hash slot of a key. If the key has a `{`, and behind it a `}` with something in between, only what is in between counts.
pub(crate) fn hash_slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % HASH_SLOTS as u16
}

/// The first number, in decimal digits, that is in each hash slot.
static FIRST_NUMBERS: LazyLock<Box<[u32]>> = LazyLock::new(|| {
    let mut first = vec![None; HASH_SLOTS];
    let mut missing = HASH_SLOTS;
    for number in 0_u32.. {
        let entry = &mut first[usize::from(hash_slot(number.to_string().as_bytes()))];
        if entry.is_none() {
            *entry = Some(number);
            missing -= 1;
        }
        // Numbers of up to six digits reach every hash slot; a test says so.
        if missing == 0 || number == 999_999 {
            break;
        }
    }
    first.into_iter().map(Option::unwrap_or_default).collect()
});

/// A text in a hash slot, of digits: whatever has it for its hash tag is in that hash slot. Slow the first time.
pub(crate) fn hash_tag_in(hash_slot: u16) -> String {
    FIRST_NUMBERS[usize::from(hash_slot) % HASH_SLOTS].to_string()
}

fn tag(key: &[u8]) -> &[u8] {
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

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_tag_for_every_slot() {
        let mut reached: Vec<_> = (0..1_000_000_u32)
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
