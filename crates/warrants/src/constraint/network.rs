//! Networks of addresses, in CIDR notation.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// A network: the first bits of its addresses. IPv4 and IPv6 networks never overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
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

    /// Returns true if an address belongs to this network.
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

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bits of an IPv4 address are the lowest 32.
        let address = match self.v4 {
            true => IpAddr::V4(Ipv4Addr::from_bits(self.bits as u32)),
            false => IpAddr::V6(Ipv6Addr::from_bits(self.bits)),
        };
        write!(f, "{address}/{}", self.length)
    }
}

fn bits(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (true, u128::from(address.to_bits())),
        IpAddr::V6(address) => (false, address.to_bits()),
    }
}
