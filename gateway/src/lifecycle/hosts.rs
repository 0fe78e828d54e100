//! Host names in client rules: looked up when exports are loaded, and again now and then, never for a call.

use std::{
    collections::HashMap,
    net::{IpAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use crate::exports::{ClientRules, Export, ExportTable, Exports};

/// How often names are looked up again.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// Looks names up, each once.
#[derive(Debug, Default)]
pub struct Resolver {
    known: HashMap<String, Option<Vec<IpAddr>>>,
}

impl Resolver {
    /// The rules with the addresses that their hosts have now. Blocks.
    pub fn resolve(&mut self, rules: &ClientRules) -> ClientRules {
        rules.resolved(&mut |name| self.look_up(name))
    }

    fn look_up(&mut self, name: &str) -> Option<Vec<IpAddr>> {
        let look_up = || match (name, 0_u16).to_socket_addrs() {
            Ok(addresses) => Some(addresses.map(|address| address.ip()).collect()),
            Err(error) => {
                tracing::warn!(
                    host = name,
                    %error,
                    "cannot look up a client's name; the addresses that it had stay valid"
                );
                None
            }
        };
        self.known.entry(name.to_owned()).or_insert_with(look_up).clone()
    }
}

/// Look all names up again and put the table in place if anything has changed. Blocks.
pub fn refresh(exports: &Exports) {
    let table = exports.load();
    if !table.iter().any(|export| export.clients.has_hosts()) {
        return;
    }
    let mut resolver = Resolver::default();
    let mut changed = false;
    let fresh = table.iter().map(|export| {
        let clients = resolver.resolve(&export.clients);
        if clients == export.clients {
            return Arc::clone(export);
        }
        changed = true;
        Arc::new(Export { clients, ..Export::clone(export) })
    });
    let fresh = ExportTable::new(fresh.collect());
    // Another table may have been loaded meanwhile: it was resolved then, and ours is out of date.
    if changed
        && Arc::ptr_eq(&table, &exports.load())
        && let Ok(fresh) = fresh
        && exports.replace(fresh).is_ok()
    {
        tracing::info!("addresses of clients' names have changed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::{ClientRule, Pattern, Rights};

    #[test]
    fn localhost_is_looked_up() {
        let name = "localhost".to_owned();
        let pattern = Pattern::Host { name, addresses: Vec::new() };
        let rules = ClientRules::new(vec![ClientRule { pattern, rights: Rights::ReadOnly }]);
        let local: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(rules.rights(local), None);
        let mut resolver = Resolver::default();
        assert_eq!(resolver.resolve(&rules).rights(local), Some(Rights::ReadOnly));
    }
}
