//! What two backends have to agree on, and the few things on which they may differ.

use backends::{Attributes, Completion, ErrorKind, FileKind, Outcome};

/// Why two backends do not agree.
pub type Disagreement = String;

/// Compare two results of one operation.
///
/// # Errors
/// When they do not agree.
pub fn results(model: &Completion, other: &Completion) -> Result<(), Disagreement> {
    match (&model.result, &other.result) {
        (Ok(model), Ok(other)) => outcomes(model, other)?,
        (Err(model), Err(other)) if same_error(model.kind, other.kind) => {}
        (model, other) => return Err(format!("the model says {model:?}, the other {other:?}")),
    }
    if model.result.is_ok() {
        for (model, other) in [(&model.first, &other.first), (&model.second, &other.second)] {
            if let (Some(model), Some(other)) = (&model.after, &other.after) {
                attributes(model, other)?;
            }
        }
    }
    Ok(())
}

/// Errors that mean the same to a client.
fn same_error(model: ErrorKind, other: ErrorKind) -> bool {
    model == other
}

fn outcomes(model: &Outcome, other: &Outcome) -> Result<(), Disagreement> {
    match (model, other) {
        (Outcome::Done, Outcome::Done)
        | (Outcome::Committed { .. }, Outcome::Committed { .. })
        | (Outcome::Space(_), Outcome::Space(_)) => Ok(()),
        (Outcome::Found { attributes: a, .. }, Outcome::Found { attributes: b, .. })
        | (
            Outcome::Created { attributes: Some(a), .. },
            Outcome::Created { attributes: Some(b), .. },
        ) => attributes(a, b),
        (Outcome::Created { .. }, Outcome::Created { .. }) => Ok(()),
        (Outcome::Access { granted: a }, Outcome::Access { granted: b }) => {
            equal("granted rights", a, b)
        }
        (Outcome::LinkTarget { target: a }, Outcome::LinkTarget { target: b }) => {
            equal("link target", a, b)
        }
        (
            Outcome::Data { data: a, end_of_file: a_end },
            Outcome::Data { data: b, end_of_file: b_end },
        ) => {
            equal("bytes read", &a.len(), &b.len())?;
            equal("end of file", a_end, b_end)?;
            let (a, b) =
                (a.bytes().expect("no pages were asked for"), b.bytes().expect("nor here"));
            let at = a.iter().zip(b).position(|(a, b)| a != b);
            equal("place of the first different byte", &None, &at)
        }
        (Outcome::Written { count: a, .. }, Outcome::Written { count: b, .. }) => {
            equal("bytes written", a, b)
        }
        (model, other) => Err(format!("the model gives {model:?}, the other {other:?}")),
    }
}

/// Compare attributes, without times, numbers and space. The size and the links of a directory, and the mode
/// of a symbolic link, are the file system's own business.
///
/// # Errors
/// When they do not agree.
pub fn attributes(model: &Attributes, other: &Attributes) -> Result<(), Disagreement> {
    equal("kind", &model.kind, &other.kind)?;
    equal("owner", &model.uid, &other.uid)?;
    equal("group", &model.gid, &other.gid)?;
    if model.kind != FileKind::Symlink {
        equal_octal("mode", model.mode, other.mode)?;
    }
    if model.kind != FileKind::Directory {
        equal("size", &model.size, &other.size)?;
        equal("links", &model.links, &other.links)?;
    }
    Ok(())
}

fn equal_octal(what: &str, model: u32, other: u32) -> Result<(), Disagreement> {
    if model == other {
        return Ok(());
    }
    Err(format!("{what}: {model:o} in the model, {other:o} in the other"))
}

/// Compare any two values.
///
/// # Errors
/// When they are not equal.
pub fn equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    model: &T,
    other: &T,
) -> Result<(), Disagreement> {
    if model == other {
        return Ok(());
    }
    Err(format!("{what}: {model:?} in the model, {other:?} in the other"))
}
