//! Which addresses may use an export, and how.
//!
//! The most specific rule decides: a host or single address before a network, a longer prefix before a
//! shorter one, `*` last. IPv4 addresses that arrive in their IPv6-mapped form (a dual-stack listener shows
//! them so) count as IPv4 on both sides.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

/// Addresses of one host name that are kept.
pub const HOST_ADDRESSES_MAX: usize = 64;

/// What a matching peer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Read.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// A network in CIDR notation; a single address is one with a full prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The part before the slash is no address.
    #[error("`{0}` is not an IP address")]
    Address(String),
    /// The part after the slash is no number within the bounds.
    #[error("`{0}` has a prefix length that is not a number from 0 to {1}")]
    Prefix(String, u8),
    /// Bits are set that the prefix does not cover.
    #[error("`{0}` has bits set beyond its prefix; the network is `{1}`")]
    HostBits(String, Network),
}

impl Network {
    /// A single address.
    pub fn host(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { address, prefix: bits_of(address) }
    }

    /// Whether `address` lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && masked(address, self.prefix) == masked(self.address, self.prefix)
    }

    /// Length of the prefix counted in an IPv6 address, so that both families compare.
    fn specificity(&self) -> u8 {
        self.prefix + (128 - bits_of(self.address))
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address_text, prefix_text) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let written: IpAddr =
            address_text.parse().map_err(|_| NetworkError::Address(address_text.to_owned()))?;
        let bits = bits_of(written);
        let prefix = match prefix_text {
            None => bits,
            Some(digits) => digits
                .parse::<u8>()
                .ok()
                .filter(|prefix| *prefix <= bits && digits.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| NetworkError::Prefix(text.to_owned(), bits))?,
        };
        let canonical = written.to_canonical();
        // ::ffff:10.0.0.0/104 is 10.0.0.0/8; a mapped address with a prefix below 96 stays IPv6.
        let network = match (written.is_ipv6() && canonical.is_ipv4(), prefix.checked_sub(96)) {
            (true, Some(prefix)) => Self { address: canonical, prefix },
            _ => Self { address: written, prefix },
        };
        let cleared = Self { address: cleared(network.address, network.prefix), ..network };
        if cleared != network {
            return Err(NetworkError::HostBits(text.to_owned(), cleared));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == bits_of(self.address) {
            return self.address.fmt(f);
        }
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Everybody.
    Any,
    /// An address or a network.
    Network(Network),
    /// A host by name, with the addresses that it had at the last look-up. Names are looked up when a table
    /// is loaded and refreshed, never for a call.
    Host {
        /// The name.
        name: String,
        /// Its addresses; empty until it has been looked up.
        addresses: Vec<IpAddr>,
    },
}

impl Pattern {
    fn matches(&self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Network(network) => network.contains(address),
            Self::Host { addresses, .. } => {
                let address = address.to_canonical();
                addresses.iter().any(|known| known.to_canonical() == address)
            }
        }
    }

    /// Sort key: greater is more specific. A named host is one address.
    fn specificity(&self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Network(network) => network.specificity().saturating_add(1),
            Self::Host { .. } => 129,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Network(network) => network.fmt(f),
            Self::Host { name, .. } => f.write_str(name),
        }
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientRule {
    /// Whom it is about.
    pub pattern: Pattern,
    /// What they may do.
    pub rights: Rights,
}

/// The rules of an export. Nobody matches an empty list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientRules {
    /// Most specific first.
    rules: Vec<ClientRule>,
}

impl ClientRules {
    /// These rules, in whatever order.
    pub fn new(mut rules: Vec<ClientRule>) -> Self {
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.pattern.specificity()));
        Self { rules }
    }

    /// Everybody, with these rights.
    pub fn everyone(rights: Rights) -> Self {
        Self { rules: vec![ClientRule { pattern: Pattern::Any, rights }] }
    }

    /// What a peer with this address may do; `None` when no rule is about it.
    pub fn rights(&self, address: IpAddr) -> Option<Rights> {
        self.rules.iter().find(|rule| rule.pattern.matches(address)).map(|rule| rule.rights)
    }

    /// The rules, most specific first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ClientRule> {
        self.rules.iter()
    }

    /// The rules in the order in which people look for one: hosts by name, IPv4 and then IPv6 networks by
    /// address, everybody last.
    pub fn listed(&self) -> Vec<&ClientRule> {
        let mut rules: Vec<_> = self.rules.iter().collect();
        rules.sort_by_key(|rule| match &rule.pattern {
            Pattern::Host { name, .. } => (0, Some(name), None),
            Pattern::Network(network) => (1, None, Some((network.address, network.prefix))),
            Pattern::Any => (2, None, None),
        });
        rules
    }

    /// Whether any rule names a host that has to be looked up.
    pub fn has_hosts(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.pattern, Pattern::Host { .. }))
    }

    /// The same rules with fresh addresses. A name for which `resolve` gives `None` keeps those it had: a
    /// name server that is down takes no client's access away.
    pub fn resolved(&self, resolve: &mut dyn FnMut(&str) -> Option<Vec<IpAddr>>) -> Self {
        let mut rules = self.rules.clone();
        for rule in &mut rules {
            if let Pattern::Host { name, addresses } = &mut rule.pattern
                && let Some(mut fresh) = resolve(name)
            {
                fresh.sort_unstable();
                fresh.dedup();
                fresh.truncate(HOST_ADDRESSES_MAX);
                *addresses = fresh;
            }
        }
        Self { rules }
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address as a number with everything beyond the prefix shifted out.
fn masked(address: IpAddr, prefix: u8) -> u128 {
    let (value, bits) = match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32_u32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    value.checked_shr(bits.saturating_sub(u32::from(prefix))).unwrap_or(0)
}

fn cleared(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(u32::from(prefix))).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask =
                u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(prefix))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn rule(text: &str, rights: Rights) -> ClientRule {
        let pattern = if text == "*" { Pattern::Any } else { Pattern::Network(network(text)) };
        ClientRule { pattern, rights }
    }

    #[test]
    fn networks() {
        for (text, address, inside) in [
            ("10.0.0.0/8", "10.255.3.4", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.2", false),
            ("10.1.2.2/31", "10.1.2.3", true),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::/0", "fe80::1", true),
            ("::/0", "10.0.0.1", false),
            ("::/0", "::ffff:10.0.0.1", false),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::ffff:10.1.2.3", "10.1.2.3", true),
            ("fe80::1", "fe80::1", true),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(network(text).contains(address), inside, "{text} {address}");
        }
    }

    #[test]
    fn network_errors() {
        for (text, message) in [
            ("10.0.0.300/8", "`10.0.0.300` is not an IP address"),
            ("10.0.0.0/33", "`10.0.0.0/33` has a prefix length that is not a number from 0 to 32"),
            ("10.0.0.0/+8", "`10.0.0.0/+8` has a prefix length that is not a number from 0 to 32"),
            ("fd00::/129", "`fd00::/129` has a prefix length that is not a number from 0 to 128"),
            ("10.0.0.0/", "`10.0.0.0/` has a prefix length that is not a number from 0 to 32"),
            (
                "10.1.0.0/8",
                "`10.1.0.0/8` has bits set beyond its prefix; the network is `10.0.0.0/8`",
            ),
        ] {
            assert_eq!(text.parse::<Network>().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn people_find_a_rule_by_its_address() {
        let host = |name: &str| Pattern::Host { name: name.to_owned(), addresses: Vec::new() };
        let mut rules: Vec<ClientRule> = ["b.example", "a.example"]
            .into_iter()
            .map(|name| ClientRule { pattern: host(name), rights: Rights::ReadWrite })
            .collect();
        let networks = ["*", "fe80::/10", "172.16.0.0/12", "::1", "10.0.0.0/8", "10.0.0.0/16"];
        rules.extend(networks.map(|text| rule(text, Rights::ReadWrite)));
        let wanted = [
            "a.example",
            "b.example",
            "10.0.0.0/8",
            "10.0.0.0/16",
            "172.16.0.0/12",
            "::1",
            "fe80::/10",
            "*",
        ];
        for _ in 0..rules.len() {
            rules.rotate_left(1);
            let rules = ClientRules::new(rules.clone());
            let listed: Vec<_> =
                rules.listed().iter().map(|rule| rule.pattern.to_string()).collect();
            assert_eq!(listed, wanted);
        }
    }

    #[test]
    fn the_most_specific_rule_decides() {
        use Rights::{ReadOnly, ReadWrite};
        let rules = ClientRules::new(vec![
            rule("*", ReadOnly),
            rule("10.0.0.0/8", ReadWrite),
            rule("10.7.0.0/16", ReadOnly),
            rule("10.7.0.1", ReadWrite),
        ]);
        for (address, rights) in [
            ("192.0.2.1", ReadOnly),
            ("fd00::1", ReadOnly),
            ("10.1.1.1", ReadWrite),
            ("::ffff:10.1.1.1", ReadWrite),
            ("10.7.1.1", ReadOnly),
            ("10.7.0.1", ReadWrite),
        ] {
            assert_eq!(rules.rights(address.parse().unwrap()), Some(rights), "{address}");
        }
        assert_eq!(ClientRules::default().rights("10.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn hosts_match_by_their_last_known_addresses() {
        let host = Pattern::Host { name: "build".to_owned(), addresses: Vec::new() };
        let rules = ClientRules::new(vec![
            rule("10.0.0.0/8", Rights::ReadOnly),
            ClientRule { pattern: host, rights: Rights::ReadWrite },
        ]);
        let address: IpAddr = "10.0.0.5".parse().unwrap();
        assert_eq!(rules.rights(address), Some(Rights::ReadOnly));
        let known = rules.resolved(&mut |name| (name == "build").then(|| vec![address]));
        assert_eq!(known.rights(address), Some(Rights::ReadWrite));
        assert_eq!(known.rights("::ffff:10.0.0.5".parse().unwrap()), Some(Rights::ReadWrite));
        let server_down = known.resolved(&mut |_| None);
        assert_eq!(server_down, known);
        let moved = known.resolved(&mut |_| Some(Vec::new()));
        assert_eq!(moved.rights(address), Some(Rights::ReadOnly));
    }
}
