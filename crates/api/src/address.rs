//! The addresses that a program may be sent to by somebody it does not trust.
//!
//! Only addresses of the public internet are allowed. An IPv6 address that carries an IPv4 one
//! (mapped, translated, tunnelled) is as public as what it carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true if an address belongs to the public internet. These do not: this machine, private and
/// local networks, groups of machines, and the places where clouds keep a machine's credentials.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match a {
        // "This network"; private; loopback; groups, reserved and broadcast.
        0 | 10 | 127 | 224..=255 => true,
        // Shared by carriers; a cloud keeps its metadata there too.
        100 => (64..128).contains(&b),
        // Link-local, where most clouds keep metadata.
        169 => b == 254,
        172 => (16..32).contains(&b),
        // Private; protocol assignments; documentation; the old 6to4 relay.
        192 => b == 168 || (b == 0 && (c == 0 || c == 2)) || (b == 88 && c == 99),
        // Measuring of networks; documentation.
        198 => b == 18 || b == 19 || (b == 51 && c == 100),
        203 => b == 0 && c == 113,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match s[0] {
        // IPv4 translated (64:ff9b::/96). A local translation prefix (64:ff9b:1::/48) is private.
        0x0064 => s[1..6] == [0xff9b, 0, 0, 0, 0] && v4(s[6], s[7]),
        // IPv4 mapped (::ffff:0:0/96); no other address that begins with zeros is public.
        0 => s[1..6] == [0, 0, 0, 0, 0xffff] && v4(s[6], s[7]),
        // Protocol assignments and Teredo (2001::/23), documentation (2001:db8::/32).
        0x2001 => s[1] >= 0x0200 && s[1] != 0x0db8,
        // 6to4.
        0x2002 => v4(s[1], s[2]),
        // Documentation (3fff::/20).
        0x3fff => s[1] >= 0x1000,
        // Global unicast; all the rest is local, a group, or not given out.
        first => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_internet_are_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.1.1",
            "198.17.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn all_others_are_not() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1.1.1.1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
