//! Which program answers a call (RFC 5531 section 9).
//!
//! NFS and MOUNT are answered on the same port. Everything else is refused with a reply and the connection
//! stays: clients probe for NFSACL, LOCALIO and newer versions on the connection that they go on using, and a
//! server that closes it stalls the mount.

use rpc_rdma::rpc::{AcceptError, CallHeader};

use crate::{mount, nfs3};

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Procedure NULL of a program that is served.
    Null,
    /// An NFSv3 procedure.
    Nfs3,
    /// A MOUNT procedure.
    Mount(mount::Procedure),
    /// Nobody.
    Refuse(AcceptError),
}

/// Find who answers.
pub fn route(header: &CallHeader) -> Route {
    match header.program {
        nfs3::types::PROGRAM if header.version != nfs3::types::VERSION => {
            let version = nfs3::types::VERSION;
            Route::Refuse(AcceptError::ProgramMismatch { low: version, high: version })
        }
        nfs3::types::PROGRAM if header.procedure == 0 => Route::Null,
        nfs3::types::PROGRAM if nfs3::has_procedure(header.procedure) => Route::Nfs3,
        mount::PROGRAM if !mount::VERSIONS.contains(&header.version) => {
            let (low, high) = (*mount::VERSIONS.start(), *mount::VERSIONS.end());
            Route::Refuse(AcceptError::ProgramMismatch { low, high })
        }
        mount::PROGRAM if header.procedure == 0 => Route::Null,
        mount::PROGRAM => match mount::Procedure::of(header.version, header.procedure) {
            Some(procedure) => Route::Mount(procedure),
            None => Route::Refuse(AcceptError::ProcedureUnavailable),
        },
        nfs3::types::PROGRAM => Route::Refuse(AcceptError::ProcedureUnavailable),
        _ => Route::Refuse(AcceptError::ProgramUnavailable),
    }
}

#[cfg(test)]
mod tests {
    use rpc_rdma::rpc::Credential;

    use super::*;

    fn at(program: u32, version: u32, procedure: u32) -> Route {
        route(&CallHeader { xid: 1, program, version, procedure, credential: Credential::None })
    }

    #[test]
    fn probes_of_linux_clients_are_refused_with_a_reply() {
        // NFSACL, NLM, LOCALIO, NSM.
        for (program, version) in [(100_227, 3), (100_021, 4), (400_122, 1), (100_024, 1)] {
            for procedure in [0, 1] {
                let expected = Route::Refuse(AcceptError::ProgramUnavailable);
                assert_eq!(at(program, version, procedure), expected);
            }
        }
        for version in [2, 4] {
            let expected = Route::Refuse(AcceptError::ProgramMismatch { low: 3, high: 3 });
            assert_eq!(at(100_003, version, 0), expected);
        }
    }

    #[test]
    fn procedures() {
        assert_eq!(at(100_003, 3, 0), Route::Null);
        assert_eq!(at(100_003, 3, 21), Route::Nfs3);
        assert_eq!(at(100_003, 3, 22), Route::Refuse(AcceptError::ProcedureUnavailable));
        assert_eq!(at(100_005, 3, 0), Route::Null);
        assert_eq!(at(100_005, 3, 1), Route::Mount(mount::Procedure::Mount));
        assert_eq!(at(100_005, 1, 1), Route::Refuse(AcceptError::ProcedureUnavailable));
        assert_eq!(at(100_005, 1, 5), Route::Mount(mount::Procedure::Export));
        assert_eq!(at(100_005, 3, 6), Route::Refuse(AcceptError::ProcedureUnavailable));
        let expected = Route::Refuse(AcceptError::ProgramMismatch { low: 1, high: 3 });
        assert_eq!(at(100_005, 4, 1), expected);
    }
}
