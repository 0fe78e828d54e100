//! How many connections there may be, in total and from one address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::service::Transport;

/// Counts connections of all lanes and transports against their limits.
#[derive(Debug)]
pub struct ConnectionLimits {
    tcp_max: usize,
    rdma_max: usize,
    per_address_max: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    tcp: usize,
    rdma: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Counts {
    fn of(&mut self, transport: Transport) -> &mut usize {
        match transport {
            Transport::Tcp => &mut self.tcp,
            Transport::Rdma => &mut self.rdma,
        }
    }
}

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMany {
    /// Of the transport.
    #[error("there are too many connections")]
    Connections,
    /// Of the address, by whatever transport.
    #[error("there are too many connections of this address")]
    OfAddress,
}

impl ConnectionLimits {
    /// Allow so many over each transport, and so many from one address over both.
    pub fn new(tcp_max: usize, rdma_max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self { tcp_max, rdma_max, per_address_max, counts: Mutex::default() })
    }

    /// Count one more connection. IPv4 addresses in IPv6 form count as IPv4.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn admit(
        self: &Arc<Self>,
        transport: Transport,
        address: IpAddr,
    ) -> Result<Admission, TooMany> {
        let address = address.to_canonical();
        let max = match transport {
            Transport::Tcp => self.tcp_max,
            Transport::Rdma => self.rdma_max,
        };
        let mut counts = self.lock();
        if *counts.of(transport) >= max {
            return Err(TooMany::Connections);
        }
        let here = counts.by_address.get(&address).copied().unwrap_or(0);
        if here >= self.per_address_max {
            return Err(TooMany::OfAddress);
        }
        *counts.of(transport) += 1;
        counts.by_address.insert(address, here + 1);
        Ok(Admission { limits: self.clone(), transport, address })
    }

    /// Connections that there are now.
    pub fn total(&self) -> usize {
        let counts = self.lock();
        counts.tcp + counts.rdma
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One counted connection; dropping it counts down.
#[derive(Debug)]
pub struct Admission {
    limits: Arc<ConnectionLimits>,
    transport: Transport,
    address: IpAddr,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut counts = self.limits.lock();
        *counts.of(self.transport) -= 1;
        if let Some(here) = counts.by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_limits_hold_and_are_given_back() {
        let limits = ConnectionLimits::new(3, 1, 2);
        let tcp = |address: IpAddr| limits.admit(Transport::Tcp, address);
        let rdma = |address: IpAddr| limits.admit(Transport::Rdma, address);
        let a: IpAddr = "10.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let b: IpAddr = "10.0.0.2".parse().unwrap();
        let c: IpAddr = "10.0.0.3".parse().unwrap();
        let first = tcp(a).unwrap();
        let _second = rdma(mapped).unwrap();
        assert_eq!(tcp(a).unwrap_err(), TooMany::OfAddress, "over both transports");
        assert_eq!(rdma(b).unwrap_err(), TooMany::Connections);
        let (_third, _fourth) = (tcp(b).unwrap(), tcp(b).unwrap());
        assert_eq!(tcp(c).unwrap_err(), TooMany::Connections);
        assert_eq!(limits.total(), 4);
        drop(first);
        assert!(tcp(a).is_ok());
    }
}
