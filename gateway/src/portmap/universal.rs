//! Universal addresses (RFC 5665 section 5.2.3): an address and a port as one dotted text.

use std::net::{IpAddr, SocketAddr};

/// Longest one that is accepted, in bytes.
pub const UNIVERSAL_BYTES_MAX: u32 = 128;

/// The text of an address: the port's two bytes in decimal behind the IP address.
pub fn format(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// The address of a text.
pub fn parse(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let ip: IpAddr = ip.parse().ok()?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let cases = [
            ("0.0.0.0:2049", "0.0.0.0.8.1"),
            ("[::]:20049", "::.78.81"),
            ("10.1.2.3:111", "10.1.2.3.0.111"),
            ("[fe80::1]:65535", "fe80::1.255.255"),
        ];
        for (address, text) in cases {
            let address = address.parse().unwrap();
            assert_eq!(format(address), text);
            assert_eq!(parse(text.as_bytes()), Some(address));
        }
        for bad in ["", "1.2.3.4", "1.2.3.4.256.1", "1.2.3.4.1", "::.1", "x.1.1", "1.2.3.4.-1.1"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse(b"\xff.1.1"), None);
    }
}
