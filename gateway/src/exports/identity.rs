//! From the credential on the wire to the identity with which the backend works: squashing.
//!
//! `root` replaces uid 0, gid 0 and gid 0 among the groups; `all` replaces both ids and drops the groups;
//! 0xffffffff, which the kernel takes for "no id", and AUTH_NONE are anonymous under every rule.

use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::Arc,
};

use backends::Identity;
use rpc_rdma::rpc::{Credential, auth::AUTH_SYS_GROUPS_MAX};
use serde::Deserialize;

/// Identities that a thread remembers. When there are more it starts afresh.
const REMEMBERED_MAX: usize = 1024;
/// `(uid_t) -1`: changes nothing where it is set, so it must never be used as an id.
const NO_ID: u32 = u32::MAX;

/// Whose identity is replaced by the anonymous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Squash {
    /// Nobody's.
    None,
    /// The superuser's.
    #[default]
    Root,
    /// Everybody's.
    All,
}

/// Ids after squashing, in a form that needs no memory of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ids {
    uid: u32,
    gid: u32,
    groups: [u32; AUTH_SYS_GROUPS_MAX as usize],
    group_count: usize,
}

impl Ids {
    fn groups(&self) -> &[u32] {
        self.groups.get(..self.group_count).unwrap_or(&[])
    }
}

// Asked for every call, and most callers are in few groups: places that are not used are not hashed.
impl Hash for Ids {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.uid) << 32 | u64::from(self.gid));
        self.groups().iter().for_each(|&group| state.write_u32(group));
    }
}

thread_local! {
    /// What this lane has made, so that a call costs no allocation and equal callers share an identity.
    static REMEMBERED: RefCell<HashMap<Ids, Arc<Identity>>> = RefCell::new(HashMap::new());
}

/// The identity for a credential under these rules.
pub(super) fn identity_of(
    credential: &Credential,
    squash: Squash,
    anonymous_uid: u32,
    anonymous_gid: u32,
) -> Arc<Identity> {
    let ids = squashed(credential, squash, anonymous_uid, anonymous_gid);
    REMEMBERED.with_borrow_mut(|remembered| {
        if let Some(identity) = remembered.get(&ids) {
            return Arc::clone(identity);
        }
        let groups = Arc::from(ids.groups());
        let identity = Arc::new(Identity { uid: ids.uid, gid: ids.gid, groups });
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(ids, Arc::clone(&identity));
        identity
    })
}

fn squashed(
    credential: &Credential,
    squash: Squash,
    anonymous_uid: u32,
    anonymous_gid: u32,
) -> Ids {
    let mut ids = Ids {
        uid: anonymous_uid,
        gid: anonymous_gid,
        groups: [0; AUTH_SYS_GROUPS_MAX as usize],
        group_count: 0,
    };
    let sys = match (credential, squash) {
        (Credential::None, _) | (_, Squash::All) => return ids,
        (Credential::Sys(sys), Squash::Root | Squash::None) => sys,
    };
    let replaced = |id: u32| id == NO_ID || (id == 0 && squash == Squash::Root);
    if !replaced(sys.uid) {
        ids.uid = sys.uid;
    }
    if !replaced(sys.gid) {
        ids.gid = sys.gid;
    }
    for (slot, &group) in ids.groups.iter_mut().zip(sys.groups()) {
        *slot = if replaced(group) { anonymous_gid } else { group };
        ids.group_count += 1;
    }
    ids
}

#[cfg(test)]
mod tests {
    use rpc_rdma::rpc::AuthSys;

    use super::*;

    fn sys(uid: u32, gid: u32, groups: &[u32]) -> Credential {
        Credential::Sys(AuthSys::new(uid, gid, groups).unwrap())
    }

    #[test]
    fn squash_table() {
        const ANON: u32 = 65534;
        const NO: u32 = u32::MAX;
        type Ids = (u32, u32, &'static [u32]);
        let table: &[(Squash, Ids, Ids)] = &[
            (Squash::None, (0, 0, &[0, 5]), (0, 0, &[0, 5])),
            (Squash::None, (1000, 100, &[4, 27]), (1000, 100, &[4, 27])),
            (Squash::None, (NO, NO, &[NO, 3]), (ANON, ANON, &[ANON, 3])),
            (Squash::Root, (0, 0, &[0, 5]), (ANON, ANON, &[ANON, 5])),
            (Squash::Root, (0, 100, &[]), (ANON, 100, &[])),
            (Squash::Root, (1000, 0, &[0]), (1000, ANON, &[ANON])),
            (Squash::Root, (1000, 100, &[4, 27]), (1000, 100, &[4, 27])),
            (Squash::Root, (NO, 1, &[2]), (ANON, 1, &[2])),
            (Squash::All, (0, 0, &[0]), (ANON, ANON, &[])),
            (Squash::All, (1000, 100, &[4, 27]), (ANON, ANON, &[])),
        ];
        for (squash, wire, wanted) in table {
            let identity = identity_of(&sys(wire.0, wire.1, wire.2), *squash, ANON, ANON);
            let got = (identity.uid, identity.gid, &*identity.groups);
            assert_eq!(got, *wanted, "{squash:?} {wire:?}");
        }
        for squash in [Squash::None, Squash::Root, Squash::All] {
            assert_eq!(*identity_of(&Credential::None, squash, 7, 8), Identity::new(7, 8));
        }
    }

    #[test]
    fn equal_callers_share_an_identity_and_memory_is_bounded() {
        let first = identity_of(&sys(1000, 100, &[4]), Squash::Root, 1, 1);
        let again = identity_of(&sys(1000, 100, &[4]), Squash::Root, 2, 2);
        assert!(Arc::ptr_eq(&first, &again));
        for uid in 1..5000 {
            identity_of(&sys(uid, 100, &[]), Squash::None, 1, 1);
            assert!(REMEMBERED.with_borrow(HashMap::len) <= REMEMBERED_MAX);
        }
    }

    #[test]
    fn groups_that_differ_make_other_identities() {
        let groups: [&[u32]; 5] = [&[], &[0], &[0, 0], &[4], &[4, 0]];
        let of = |groups: &&[u32]| identity_of(&sys(1, 2, groups), Squash::None, 9, 9);
        let identities: Vec<_> = groups.iter().map(of).collect();
        for (identity, wanted) in identities.iter().zip(groups) {
            assert_eq!((identity.uid, identity.gid, &*identity.groups), (1, 2, wanted));
        }
        assert!(groups.iter().zip(&identities).all(|(g, identity)| Arc::ptr_eq(&of(g), identity)));
    }

    #[test]
    fn sixteen_groups_arrive() {
        let groups: Vec<u32> = (100..116).collect();
        let identity = identity_of(&sys(1, 1, &groups), Squash::Root, 9, 9);
        assert_eq!(*identity.groups, groups);
    }
}
