//! Networks of addresses, in CIDR notation.

use std::net::IpAddr;

/// A network: the first bits of its addresses. IPv4 and IPv6 networks never overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    v4: bool,
    bits: u128,
    length: u32,
}

impl Network {
    /// Reads an address and the number of its bits that count; by default all of them.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let (v4, bits) = bits(address);
        let most = if v4 { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok()?
            }
            Some(_) => return None,
        };
        (length <= most).then_some(Self { v4, bits, length })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let (v4, bits) = bits(address);
        v4 == self.v4 && self.agrees(bits)
    }

    /// Returns true if every address of `child` belongs to this network.
    pub fn covers(&self, child: &Self) -> bool {
        self.v4 == child.v4 && child.length >= self.length && self.agrees(child.bits)
    }

    fn agrees(&self, bits: u128) -> bool {
        let width = if self.v4 { 32 } else { 128 };
        let differ = self.bits ^ bits;
        // A length of 0 shifts by the whole width, which `>>` does not allow: then every address agrees.
        differ.checked_shr(width - self.length).unwrap_or(0) == 0
    }
}

fn bits(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (true, u128::from(address.to_bits())),
        IpAddr::V6(address) => (false, address.to_bits()),
    }
}
