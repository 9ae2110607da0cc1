//! The client behind proxies.

use std::net::{IpAddr, SocketAddr};

use asyncgate_engine::Network;
use axum::http::{HeaderMap, HeaderName};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns the client of a request that came by proxies, or nothing if `peer`, the other end of the
/// connection, is the client itself.
///
/// Each proxy appends the address that it was called from, so the list is read from its end for as long
/// as the proxies are trusted. Everything before the first address that is not a trusted proxy was
/// written by the client, who can write anything.
pub fn forwarded_for(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> Option<IpAddr> {
    let is_trusted = |address| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(peer.to_canonical()) {
        return None;
    }
    let values = headers.get_all(FORWARDED_FOR).iter().rev();
    let hops = values.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
    let mut client = None;
    // What is no address ends the list: nobody knows who is behind it.
    for address in hops.map_while(read) {
        client = Some(address);
        if !is_trusted(address) {
            break;
        }
    }
    client
}

/// Reads an address. Some proxies write the port too, and brackets around an IPv6 address.
fn read(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    let address = bare.unwrap_or(text).parse().ok().or_else(with_port);
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, values: &[&str]) -> Option<String> {
        let trusted: Vec<Network> = ["10.0.0.0/8", "192.0.2.7", "fd00::/8"]
            .iter()
            .map(|text| Network::parse(text).unwrap())
            .collect();
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(FORWARDED_FOR, value.parse().unwrap());
        }
        let client = forwarded_for(peer.parse().unwrap(), &headers, &trusted);
        client.map(|client| client.to_string())
    }

    #[test]
    fn the_last_address_that_is_no_trusted_proxy_counts() {
        let stranger = Some("203.0.113.9".to_owned());
        for values in [
            &["203.0.113.9"][..],
            &["203.0.113.9, 10.2.3.4"],
            &["203.0.113.9", "10.2.3.4, 192.0.2.7"],
            &["1.1.1.1, 203.0.113.9, 10.2.3.4"],
            &["10.9.9.9,203.0.113.9"],
            &["garbage, 203.0.113.9"],
            &["203.0.113.9:4711"],
            &["::ffff:203.0.113.9"],
        ] {
            assert_eq!(client("10.0.0.1", values), stranger, "{values:?}");
            assert_eq!(client("::ffff:10.0.0.1", values), stranger, "{values:?}");
        }
    }

    #[test]
    fn ipv6_is_read_in_all_forms() {
        for value in ["2001:db8::7", "[2001:db8::7]", "[2001:db8::7]:443, fd12::1"] {
            let found = client("fd00::1", &[value]);
            assert_eq!(found.as_deref(), Some("2001:db8::7"), "{value}");
        }
    }

    #[test]
    fn without_a_stranger_the_first_proxy_is_the_client() {
        let values = ["10.1.1.1, 10.2.2.2"];
        assert_eq!(client("10.0.0.1", &values).as_deref(), Some("10.1.1.1"));
    }

    #[test]
    fn nobody_else_is_believed_and_nonsense_is_not() {
        assert_eq!(client("203.0.113.1", &["1.1.1.1"]), None);
        assert_eq!(client("11.0.0.1", &["1.1.1.1"]), None);
        for values in [&[][..], &[""], &["unknown"], &["1.1.1.1, x"], &["1.1.1.1,"]] {
            assert_eq!(client("10.0.0.1", values), None, "{values:?}");
        }
        let half = client("10.0.0.1", &["1.1.1.1, nonsense, 10.2.2.2"]);
        assert_eq!(half.as_deref(), Some("10.2.2.2"));
    }
}
