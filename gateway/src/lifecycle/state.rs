//! The state directory and the key of the file handles.

use std::{fs::DirBuilder, io, os::unix::fs::DirBuilderExt, path::Path};

use crate::{
    config::schema::StateDir,
    exports::{HandleKey, KeyFileError},
};

/// Why the gateway cannot have its key.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The configured directory cannot be made.
    #[error(
        "cannot make the state directory {path}: {source}; make it for the user that runs the gateway \
         (`install -d -m 700`), or choose another with --state-dir or server.state_dir"
    )]
    Directory {
        /// The directory.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The system has no randomness.
    #[error("cannot draw a random key: {0}")]
    Random(#[source] io::Error),
}

/// The key, and whether it will be the same after a restart. A place that is only a default may be unusable:
/// the gateway then runs with a key of its own and says what that means. A key file that is there but not as
/// it must be is an error in any case: another key would make every client's handles invalid.
///
/// # Errors
/// When there is no key to be had, or not the one that the configuration asks for.
pub fn handle_key(state_dir: &StateDir) -> Result<(HandleKey, bool), StateError> {
    let (path, result) = match state_dir {
        StateDir::Configured(path) => return Ok((open(path)?, true)),
        StateDir::Default(path) => (path.display().to_string(), open(path)),
        StateDir::None => ("(none)".to_owned(), Err(no_directory())),
    };
    match result {
        Ok(key) => Ok((key, true)),
        Err(
            error @ (StateError::Key(KeyFileError::Exposed { .. } | KeyFileError::Content { .. })
            | StateError::Random(_)),
        ) => Err(error),
        Err(error) => {
            tracing::warn!(
                state_dir = %path,
                %error,
                "no state directory: file handles will not survive a restart, clients must then remount \
                 (give --state-dir or server.state_dir)"
            );
            Ok((HandleKey::random().map_err(StateError::Random)?, false))
        }
    }
}

fn no_directory() -> StateError {
    StateError::Directory { path: "(none)".to_owned(), source: io::ErrorKind::NotFound.into() }
}

fn open(path: &Path) -> Result<HandleKey, StateError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| StateError::Directory { path: path.display().to_string(), source })?;
    Ok(HandleKey::load_or_create(path)?)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_directory_is_made_and_the_key_persists() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let (key, persistent) = handle_key(&StateDir::Configured(state.clone())).unwrap();
        assert!(persistent);
        let object = backends::ObjectHandle::new(b"x").unwrap();
        let sealed = key.seal(1, &object);
        let (again, _) = handle_key(&StateDir::Default(state.clone())).unwrap();
        assert_eq!(again.open(sealed.as_bytes()), Ok((1, object)));
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn an_unusable_default_gives_a_key_for_this_run_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let (_, persistent) = handle_key(&StateDir::Default(file.join("below"))).unwrap();
        assert!(!persistent);
        assert!(!handle_key(&StateDir::None).unwrap().1);
        assert!(handle_key(&StateDir::Configured(file.join("below"))).is_err());
    }

    #[test]
    fn a_damaged_key_is_never_replaced_by_another() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::Default(dir.path().to_owned());
        handle_key(&state).unwrap();
        fs::write(dir.path().join("handle.key"), "damaged").unwrap();
        assert!(matches!(handle_key(&state), Err(StateError::Key(KeyFileError::Content { .. }))));
    }
}
