//! Which names a procedure takes (RFC 1813 section 3.2).

use backends::op::{LINK_BYTES_MAX, NAME_BYTES_MAX};

use super::Status;

/// Check a name that LOOKUP may ask for: "." and ".." are fine.
///
/// # Errors
/// INVAL or NAMETOOLONG.
pub fn check(name: &[u8]) -> Result<(), Status> {
    if name.is_empty() || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(Status::Inval);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    Ok(())
}

/// Check a name that is to be made: the dots always exist.
///
/// # Errors
/// INVAL, NAMETOOLONG or EXIST.
pub fn check_new(name: &[u8]) -> Result<(), Status> {
    check(name)?;
    if is_dot(name) { Err(Status::Exist) } else { Ok(()) }
}

/// Check a name that is to be removed (RFC 1813 section 3.3.13: INVAL for ".", EXIST for "..").
///
/// # Errors
/// INVAL, NAMETOOLONG or EXIST.
pub fn check_removal(name: &[u8]) -> Result<(), Status> {
    check(name)?;
    match name {
        b"." => Err(Status::Inval),
        b".." => Err(Status::Exist),
        _ => Ok(()),
    }
}

/// Check either name of a RENAME (section 3.3.14: the dots are INVAL).
///
/// # Errors
/// INVAL or NAMETOOLONG.
pub fn check_rename(name: &[u8]) -> Result<(), Status> {
    check(name)?;
    if is_dot(name) { Err(Status::Inval) } else { Ok(()) }
}

/// Check the target of a symbolic link: any bytes but NUL.
///
/// # Errors
/// INVAL or NAMETOOLONG.
pub fn check_target(target: &[u8]) -> Result<(), Status> {
    if target.is_empty() || target.contains(&0) {
        return Err(Status::Inval);
    }
    if target.len() > LINK_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    Ok(())
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_lengths() {
        assert_eq!(check(b""), Err(Status::Inval));
        assert_eq!(check(b"a/b"), Err(Status::Inval));
        assert_eq!(check(b"a\0"), Err(Status::Inval));
        assert_eq!(check(&[b'x'; 255]), Ok(()));
        assert_eq!(check(&[b'x'; 256]), Err(Status::NameTooLong));
        assert_eq!(check(b"\xff\xfe"), Ok(()));
    }

    #[test]
    fn dots_by_procedure() {
        for dot in [&b"."[..], b".."] {
            assert_eq!(check(dot), Ok(()));
            assert_eq!(check_new(dot), Err(Status::Exist));
            assert_eq!(check_rename(dot), Err(Status::Inval));
        }
        assert_eq!(check_removal(b"."), Err(Status::Inval));
        assert_eq!(check_removal(b".."), Err(Status::Exist));
        assert_eq!(check_removal(b"..."), Ok(()));
    }

    #[test]
    fn targets() {
        assert_eq!(check_target(b"../a//b"), Ok(()));
        assert_eq!(check_target(b""), Err(Status::Inval));
        assert_eq!(check_target(b"a\0b"), Err(Status::Inval));
        assert_eq!(check_target(&[b'x'; 4095]), Ok(()));
        assert_eq!(check_target(&[b'x'; 4096]), Err(Status::NameTooLong));
    }
}
