//! The network that stands for an address.

use std::net::IpAddr;

use tollgate_core::{KeyBuf, PartKind};

/// How much of an address counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefixes {
    pub(crate) ipv4: u8,
    pub(crate) ipv6: u8,
}

impl Default for Prefixes {
    fn default() -> Self {
        Self { ipv4: 32, ipv6: 64 }
    }
}

impl Prefixes {
    /// Adds family, prefix length and network: rules with different prefixes never share a key.
    pub(crate) fn push(self, address: IpAddr, key: &mut KeyBuf) {
        match address {
            IpAddr::V4(address) => {
                let mask = !u32::MAX.checked_shr(self.ipv4.into()).unwrap_or(0);
                let network = (address.to_bits() & mask).to_be_bytes();
                push(key, [4, self.ipv4], network);
            }
            IpAddr::V6(address) => {
                let mask = !u128::MAX.checked_shr(self.ipv6.into()).unwrap_or(0);
                let network = (address.to_bits() & mask).to_be_bytes();
                push(key, [6, self.ipv6], network);
            }
        }
    }
}

fn push<const N: usize>(key: &mut KeyBuf, head: [u8; 2], network: [u8; N]) {
    let mut part = [0; 18];
    part[..2].copy_from_slice(&head);
    part[2..2 + N].copy_from_slice(&network);
    key.push(PartKind::ADDRESS, &part[..2 + N]);
}
