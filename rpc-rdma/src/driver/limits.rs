//! How many connections there may be, in total and from one address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// Counts connections of all lanes and transports against their limits.
#[derive(Debug)]
pub struct ConnectionLimits {
    total_max: usize,
    per_address_max: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl ConnectionLimits {
    /// Allow so many in total and so many from one address.
    pub fn new(total_max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self { total_max, per_address_max, counts: Mutex::default() })
    }

    /// Count one more connection, or `None` when a limit is reached. IPv4 addresses in IPv6 form count as
    /// IPv4.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admission> {
        let address = address.to_canonical();
        let mut counts = self.lock();
        let here = counts.by_address.get(&address).copied().unwrap_or(0);
        if counts.total >= self.total_max || here >= self.per_address_max {
            return None;
        }
        counts.total += 1;
        counts.by_address.insert(address, here + 1);
        Some(Admission { limits: self.clone(), address })
    }

    /// Connections that there are now.
    pub fn total(&self) -> usize {
        self.lock().total
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One counted connection; dropping it counts down.
#[derive(Debug)]
pub struct Admission {
    limits: Arc<ConnectionLimits>,
    address: IpAddr,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut counts = self.limits.lock();
        counts.total -= 1;
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
    fn both_limits_hold_and_are_given_back() {
        let limits = ConnectionLimits::new(3, 2);
        let a: IpAddr = "10.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let b: IpAddr = "10.0.0.2".parse().unwrap();
        let first = limits.admit(a).unwrap();
        let _second = limits.admit(mapped).unwrap();
        assert!(limits.admit(a).is_none(), "two from this address");
        let _third = limits.admit(b).unwrap();
        assert!(limits.admit(b).is_none(), "three in total");
        drop(first);
        assert!(limits.admit(a).is_some());
    }
}
