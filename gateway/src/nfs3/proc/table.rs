//! Procedure number to procedure.

use rpc_rdma::xdr::{Reader, WireError, Writer};

use super::{
    access, commit, create, fsinfo, fsstat, getattr, link, lookup, mkdir, mknod, null, pathconf,
    read, readdir, readdirplus, readlink, remove, rename, rmdir, setattr, symlink, write,
};
use crate::nfs3::{Done, Plan, Reply, Scope, Status, types::RawHandle};

/// What every procedure but NULL can do.
pub(super) trait Procedure: Sized {
    /// Largest results, in bytes: of every outcome, without bulk data and without what grows with the
    /// directory or the target. A call whose client has less room is refused before anything happens.
    const RESULT_BYTES_MAX: usize;
    /// Whether it changes anything.
    const MUTATES: bool = false;

    /// Decode the arguments.
    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError>;

    /// The handle that says what it is about.
    fn object(&self) -> &RawHandle;

    /// The other handle.
    fn second(&self) -> Option<&RawHandle> {
        None
    }

    /// Check the arguments; say what the backend is to do.
    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status>;

    /// Encode the results.
    fn results(self, done: Done, reply: &mut Reply<'_>);
}

macro_rules! procedures {
    ($($module:ident $number:literal $variant:ident $name:literal $absent:literal $cached:literal;)*) => {
        /// The decoded arguments of a call.
        #[derive(Debug)]
        #[allow(missing_docs)] // named after the procedures
        pub enum Request {
            $($variant($module::Args),)*
        }

        impl Request {
            /// Decode the arguments of a procedure; `None` when there is no such procedure, or none with
            /// arguments.
            ///
            /// # Errors
            /// The arguments are not what the procedure takes: GARBAGE_ARGS.
            pub fn decode(procedure: u32, mut args: Reader<'_>) -> Result<Option<Self>, WireError> {
                let request = match procedure {
                    $($number => Self::$variant(<$module::Args as Procedure>::decode(&mut args)?),)*
                    _ => return Ok(None),
                };
                args.finish()?;
                Ok(Some(request))
            }

            /// The handle that says what it is about.
            pub fn object(&self) -> &RawHandle {
                match self { $(Self::$variant(args) => args.object(),)* }
            }

            /// The other handle of RENAME and LINK.
            pub fn second(&self) -> Option<&RawHandle> {
                match self { $(Self::$variant(args) => args.second(),)* }
            }

            /// Whether it changes anything, so that a read-only export refuses it.
            pub fn mutates(&self) -> bool {
                match self { $(Self::$variant(_) => <$module::Args as Procedure>::MUTATES,)* }
            }

            /// Largest results in bytes, without bulk data.
            pub fn result_bytes_max(&self) -> usize {
                match self { $(Self::$variant(_) => <$module::Args as Procedure>::RESULT_BYTES_MAX,)* }
            }

            /// Check the arguments and say what the backend is to do.
            ///
            /// # Errors
            /// The status to answer with.
            pub fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
                match self { $(Self::$variant(args) => args.plan(scope),)* }
            }

            /// Encode the results.
            pub fn results(self, done: Done, reply: &mut Reply<'_>) {
                match self { $(Self::$variant(args) => args.results(done, reply),)* }
            }
        }

        /// Name of a procedure for logs and metrics.
        pub fn procedure_name(procedure: u32) -> &'static str {
            match procedure {
                null::NUMBER => "null",
                $($number => $name,)*
                _ => "unknown",
            }
        }

        /// Whether there is such a procedure.
        pub fn has_procedure(procedure: u32) -> bool {
            matches!(procedure, null::NUMBER $(| $number)*)
        }

        /// Whether a repeated call must not be carried out twice, because the second time it would fail or do
        /// more (RFC 1813 section 4.5). WRITE is not among them: the same bytes at the same place.
        pub fn cacheable(procedure: u32) -> bool {
            match procedure { $($number => $cached,)* _ => false }
        }

        /// How many optional items a failure of this procedure has, all absent.
        fn absent_items(procedure: u32) -> usize {
            match procedure { $($number => $absent,)* _ => 0 }
        }
    };
}

// Module, number, variant, name; optional items of a failure; whether a repetition must be recognised.
procedures! {
    getattr 1 GetAttr "getattr" 0 false;
    setattr 2 SetAttr "setattr" 2 true;
    lookup 3 Lookup "lookup" 1 false;
    access 4 Access "access" 1 false;
    readlink 5 ReadLink "readlink" 1 false;
    read 6 Read "read" 1 false;
    write 7 Write "write" 2 false;
    create 8 Create "create" 2 true;
    mkdir 9 MkDir "mkdir" 2 true;
    symlink 10 Symlink "symlink" 2 true;
    mknod 11 MkNod "mknod" 2 true;
    remove 12 Remove "remove" 2 true;
    rmdir 13 RmDir "rmdir" 2 true;
    rename 14 Rename "rename" 4 true;
    link 15 Link "link" 3 true;
    readdir 16 ReadDir "readdir" 1 false;
    readdirplus 17 ReadDirPlus "readdirplus" 1 false;
    fsstat 18 FsStat "fsstat" 1 false;
    fsinfo 19 FsInfo "fsinfo" 1 false;
    pathconf 20 PathConf "pathconf" 1 false;
    commit 21 Commit "commit" 2 false;
}

/// Results that say nothing but the status: no handle could be resolved, or nothing is known of the object.
pub fn failure(procedure: u32, status: Status, writer: &mut Writer) {
    writer.u32(status.code());
    for _ in 0..absent_items(procedure) {
        writer.bool(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs3::types::STATUS_BYTES;

    /// A status and the four absent items of RENAME.
    const FAILURE_BYTES_MAX: usize = STATUS_BYTES + 4 * 4;

    #[test]
    fn all_twenty_two_are_there() {
        assert!((0..22).all(has_procedure));
        assert!(!has_procedure(22));
        assert_eq!((procedure_name(0), procedure_name(21)), ("null", "commit"));
        let cached: Vec<u32> = (0..30).filter(|&n| cacheable(n)).collect();
        assert_eq!(cached, [2, 8, 9, 10, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn failures_fit_the_smallest_room() {
        for procedure in 1..22 {
            let mut writer = Writer::default();
            failure(procedure, Status::Stale, &mut writer);
            assert!(writer.len() <= FAILURE_BYTES_MAX);
        }
    }
}
