//! File handles: persistent, opaque, authenticated.
//!
//! ```text
//! version (1) | export id (4, big-endian) | MAC (12) | the backend's handle (0..=44)
//! ```
//!
//! At most 61 bytes, so they fit NFSv3's 64 (RFC 1813 section 2.4). The MAC is SipHash-2-4 with 128 bits,
//! cut to 96, under a key that only the gateway knows; it covers everything else. Without it a client could
//! name any object of the file system, exported or not; with the export id in it a handle of a read-only
//! export is of no use on a writable one. A handle carries all that is needed to find its object: nothing is
//! remembered for it, and it stays valid across restarts as long as the key file is kept.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    hash::Hasher,
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use backends::{ObjectHandle, handle::HANDLE_BYTES_MAX};
use siphasher::sip128::{Hasher128, SipHasher24};

/// Longest file handle, in bytes.
pub const FILE_HANDLE_BYTES_MAX: usize = FRAME_BYTES + HANDLE_BYTES_MAX;
const _: () = assert!(FILE_HANDLE_BYTES_MAX <= 64, "RFC 1813: NFS3_FHSIZE");

/// The only version so far. A new one is added beside it: handles in clients' hands outlive the program.
const VERSION: u8 = 1;
const EXPORT_BYTES: usize = 4;
const MAC_BYTES: usize = 12;
const FRAME_BYTES: usize = 1 + EXPORT_BYTES + MAC_BYTES;

const KEY_BYTES: usize = 16;
/// Name of the key file in the state directory.
pub const KEY_FILE_NAME: &str = "handle.key";
const KEY_FILE_PREFIX: &str = "aqueduct-handle-key-1 ";
const KEY_FILE_BYTES_MAX: u64 = 256;

/// A sealed handle as it goes over the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    len: u8,
    bytes: [u8; FILE_HANDLE_BYTES_MAX],
}

impl FileHandle {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }

    fn append(&mut self, part: &[u8]) {
        let start = usize::from(self.len);
        // The parts' bounds add up to the array's length (see the constants), so this always fits.
        if let Some(slot) = self.bytes.get_mut(start..start + part.len()) {
            slot.copy_from_slice(part);
            self.len += part.len() as u8;
        }
    }
}

impl AsRef<[u8]> for FileHandle {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why bytes are none of our handles. All of them are BADHANDLE to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Too short or too long.
    #[error("the file handle has an impossible length")]
    Malformed,
    /// The MAC is wrong: another gateway's, another key's, damaged, or made up.
    #[error("the file handle was not made with this gateway's key")]
    Forged,
    /// A version that this program does not know.
    #[error("the file handle is of a later version")]
    UnknownVersion,
}

/// The key under which handles are sealed.
#[derive(Clone, Copy)]
pub struct HandleKey {
    key: [u8; KEY_BYTES],
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(secret)")
    }
}

impl HandleKey {
    /// A key of these bytes.
    pub fn new(key: [u8; KEY_BYTES]) -> Self {
        Self { key }
    }

    /// A fresh key that dies with the process.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn random() -> io::Result<Self> {
        let mut key = [0; KEY_BYTES];
        let mut rest: &mut [u8] = &mut key;
        while !rest.is_empty() {
            let taken = rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())?;
            rest = rest.get_mut(taken..).unwrap_or_default();
        }
        Ok(Self { key })
    }

    /// The handle of an object of an export.
    pub fn seal(&self, export_id: u32, object: &ObjectHandle) -> FileHandle {
        let mut handle = FileHandle { len: 0, bytes: [0; FILE_HANDLE_BYTES_MAX] };
        handle.append(&[VERSION]);
        handle.append(&export_id.to_be_bytes());
        handle.append(&self.mac(export_id, object.as_bytes()));
        handle.append(object.as_bytes());
        handle
    }

    /// The export and the object that a handle names.
    ///
    /// # Errors
    /// When the bytes are no handle made with this key.
    pub fn open(&self, bytes: &[u8]) -> Result<(u32, ObjectHandle), HandleError> {
        if bytes.len() > FILE_HANDLE_BYTES_MAX {
            return Err(HandleError::Malformed);
        }
        let (&version, rest) = bytes.split_first().ok_or(HandleError::Malformed)?;
        if version != VERSION {
            return Err(HandleError::UnknownVersion);
        }
        let (export_id, rest) =
            rest.split_first_chunk::<EXPORT_BYTES>().ok_or(HandleError::Malformed)?;
        let (mac, object) = rest.split_first_chunk::<MAC_BYTES>().ok_or(HandleError::Malformed)?;
        let export_id = u32::from_be_bytes(*export_id);
        let handle = ObjectHandle::new(object).ok_or(HandleError::Malformed)?;
        if !equal_in_constant_time(mac, &self.mac(export_id, object)) {
            return Err(HandleError::Forged);
        }
        Ok((export_id, handle))
    }

    fn mac(&self, export_id: u32, object: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        // Fixed-width parts first, so no two inputs run together; SipHash itself adds the length.
        hasher.write(&[VERSION]);
        hasher.write(&export_id.to_be_bytes());
        hasher.write(object);
        let whole = hasher.finish128().as_bytes();
        let mut mac = [0; MAC_BYTES];
        mac.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
        mac
    }
}

/// Compare without a branch on the bytes, so that the time tells nothing about how many were right.
fn equal_in_constant_time(a: &[u8; MAC_BYTES], b: &[u8; MAC_BYTES]) -> bool {
    let difference = a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y));
    std::hint::black_box(difference) == 0
}

/// Why the key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others than the owner can read or write it.
    #[error(
        "{} can be read or written by others (mode {mode:03o}): whoever knows the key can forge file \
         handles. If nobody has seen it, `chmod 600` it; otherwise remove it, and clients must remount",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It does not hold a key.
    #[error(
        "{} is not a handle key file (expected `{KEY_FILE_PREFIX}` and 32 hexadecimal digits). Restore it \
         from a backup; if there is none remove it, and clients must remount",
        path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
    },
}

/// What to do about a key file that cannot be had.
fn advice(error: &io::Error) -> String {
    let user = rustix::process::geteuid().as_raw();
    let link = rustix::io::Errno::LOOP.raw_os_error();
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "; the gateway runs as user {user}: give that user the state directory and the key (`chown -R {user}`, \
             modes 700 and 600), or run it as their owner, or choose another directory with --state-dir"
        ),
        io::ErrorKind::ReadOnlyFilesystem => {
            "; choose a directory that can be written with --state-dir".to_owned()
        }
        _ if error.raw_os_error() == Some(link) => {
            "; it is a symbolic link, which is not followed: put the file itself there".to_owned()
        }
        _ => String::new(),
    }
}

impl HandleKey {
    /// The key kept in the state directory, made at the first run. The directory must exist.
    ///
    /// # Errors
    /// When the file can neither be read nor made, is open to others, or holds something else.
    pub fn load_or_create(state_dir: &Path) -> Result<Self, KeyFileError> {
        let path = state_dir.join(KEY_FILE_NAME);
        match Self::load(&path) {
            Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self::create(state_dir, &path)
            }
            result => result,
        }
    }

    fn load(path: &Path) -> Result<Self, KeyFileError> {
        let failed =
            |action| move |source| KeyFileError::Io { action, path: path.to_owned(), source };
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(failed("open"))?;
        let mode = file.metadata().map_err(failed("stat"))?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed("read"))?;
        let key = text.trim_end().strip_prefix(KEY_FILE_PREFIX).and_then(key_from_hex);
        key.map(Self::new).ok_or_else(|| KeyFileError::Content { path: path.to_owned() })
    }

    /// Write a new key under another name and link it into place, so that a crash leaves either no key file
    /// or a whole one, and of two gateways that start at once both use the same.
    fn create(state_dir: &Path, path: &Path) -> Result<Self, KeyFileError> {
        let failed =
            |action| move |source| KeyFileError::Io { action, path: path.to_owned(), source };
        let key = Self::random().map_err(failed("draw a random key for"))?;
        let fresh = state_dir.join(format!(".{KEY_FILE_NAME}.{}", std::process::id()));
        let _ = fs::remove_file(&fresh);
        let written = write_key(&fresh, &key).and_then(|()| match fs::hard_link(&fresh, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result,
        });
        let _ = fs::remove_file(&fresh);
        written.map_err(failed("create"))?;
        File::open(state_dir).and_then(|directory| directory.sync_all()).map_err(failed("sync"))?;
        Self::load(path)
    }
}

fn write_key(path: &Path, key: &HandleKey) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let hex: String = key.key.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{KEY_FILE_PREFIX}{hex}")?;
    file.sync_all()
}

fn key_from_hex(hex: &str) -> Option<[u8; KEY_BYTES]> {
    if hex.len() != 2 * KEY_BYTES || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(hex, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    fn key() -> HandleKey {
        HandleKey::new(*b"0123456789abcdef")
    }

    fn object(bytes: &[u8]) -> ObjectHandle {
        ObjectHandle::new(bytes).unwrap()
    }

    #[test]
    fn the_longest_fits_nfs3() {
        let sealed = key().seal(u32::MAX, &object(&[0xff; HANDLE_BYTES_MAX]));
        assert_eq!(sealed.as_bytes().len(), 61);
        let (export, handle) = key().open(sealed.as_bytes()).unwrap();
        assert_eq!((export, handle.as_bytes()), (u32::MAX, &[0xff; HANDLE_BYTES_MAX][..]));
    }

    /// Handles in clients' hands must survive an upgrade: this value never changes.
    #[test]
    fn version_one_is_frozen() {
        let sealed = key().seal(0x0102_0304, &object(b"inode 7"));
        assert_eq!(format!("{sealed:?}"), "010102030456a308c993af76382edd901a696e6f64652037");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let sealed = key().seal(3, &object(b"some object"));
        for bit in 0..sealed.as_bytes().len() * 8 {
            let mut bytes = sealed.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let wanted = if bit < 8 { HandleError::UnknownVersion } else { HandleError::Forged };
            assert_eq!(key().open(&bytes), Err(wanted), "bit {bit}");
        }
    }

    #[test]
    fn every_other_length_is_noticed() {
        let sealed = key().seal(3, &object(b"some object"));
        let bytes = sealed.as_bytes();
        for len in 0..bytes.len() {
            let wanted =
                if len < FRAME_BYTES { HandleError::Malformed } else { HandleError::Forged };
            assert_eq!(key().open(&bytes[..len]), Err(wanted), "{len}");
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert_eq!(key().open(&longer), Err(HandleError::Forged));
        longer.resize(64, 0);
        assert_eq!(key().open(&longer), Err(HandleError::Malformed));
        longer.resize(100_000, 0);
        assert_eq!(key().open(&longer), Err(HandleError::Malformed));
    }

    #[test]
    fn a_handle_is_bound_to_its_key_and_export() {
        let sealed = key().seal(1, &object(b"x"));
        let other = HandleKey::new(*b"0123456789abcdeX");
        assert_eq!(other.open(sealed.as_bytes()), Err(HandleError::Forged));
        let mut replayed = sealed.as_bytes().to_vec();
        replayed[1..5].copy_from_slice(&2_u32.to_be_bytes());
        assert_eq!(key().open(&replayed), Err(HandleError::Forged));
    }

    proptest! {
        #[test]
        fn seal_then_open(export: u32, bytes in proptest::collection::vec(any::<u8>(), 0..=HANDLE_BYTES_MAX)) {
            let sealed = key().seal(export, &object(&bytes));
            prop_assert_eq!(key().open(sealed.as_bytes()), Ok((export, object(&bytes))));
        }

        #[test]
        fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(key().open(&bytes).is_err());
        }
    }

    #[test]
    fn the_key_file_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let first = HandleKey::load_or_create(dir.path()).unwrap();
        let again = HandleKey::load_or_create(dir.path()).unwrap();
        assert_eq!(first.key, again.key);
        let path = dir.path().join(KEY_FILE_NAME);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left behind");
        let elsewhere = HandleKey::load_or_create(tempfile::tempdir().unwrap().path()).unwrap();
        assert_ne!(first.key, elsewhere.key);
    }

    #[test]
    fn a_bad_key_file_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(KEY_FILE_NAME);
        for content in ["", "garbage", "aqueduct-handle-key-1 00ff", "aqueduct-handle-key-2 0"] {
            let _ = fs::remove_file(&path);
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
            fs::write(&path, content).unwrap();
            let error = HandleKey::load_or_create(dir.path()).unwrap_err();
            assert!(matches!(error, KeyFileError::Content { .. }), "{content}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = HandleKey::load_or_create(dir.path()).unwrap_err();
        assert!(matches!(error, KeyFileError::Exposed { mode: 0o640, .. }), "{error}");
        let missing = dir.path().join("missing");
        assert!(matches!(HandleKey::load_or_create(&missing), Err(KeyFileError::Io { .. })));
    }

    #[test]
    fn a_key_file_that_may_not_be_used_names_the_fix() {
        let said = |kind: io::ErrorKind| {
            let (action, path, source) = ("open", PathBuf::from("/s/handle.key"), kind.into());
            KeyFileError::Io { action, path, source }.to_string()
        };
        let denied = said(io::ErrorKind::PermissionDenied);
        for part in ["cannot open /s/handle.key", "chown -R ", "--state-dir"] {
            assert!(denied.contains(part), "{part}: {denied}");
        }
        assert!(said(io::ErrorKind::ReadOnlyFilesystem).contains("--state-dir"));
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join(KEY_FILE_NAME)).unwrap();
        let link = HandleKey::load_or_create(dir.path()).unwrap_err().to_string();
        assert!(link.contains("put the file itself there"), "{link}");
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", key()), "HandleKey(secret)");
    }
}
