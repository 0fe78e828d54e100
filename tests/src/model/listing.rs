//! Whole directories, page by page, and whole trees.

use std::{collections::BTreeMap, sync::Arc};

use backends::{
    Attributes, ErrorKind, FileKind, Identity, ObjectHandle, Operation, Outcome, op::ReadDirectory,
};
use bytes::Bytes;

use super::{
    agree::{self, Disagreement},
    steps::OFFSETS,
};
use crate::lane::Lane;

/// The entries of a directory by name; without handles when it was not asked for them.
pub type Listing = BTreeMap<Bytes, Option<(ObjectHandle, Attributes)>>;

/// List a directory in pages of `page` entries. "." and ".." must be there and are left out.
///
/// # Errors
/// The error of the backend.
///
/// # Panics
/// When the listing breaks a rule: an entry twice, a cookie 0, an empty page before the end.
pub fn directory(
    lane: &mut Lane,
    who: &Arc<Identity>,
    directory: ObjectHandle,
    plus: bool,
    page: u32,
) -> Result<Listing, ErrorKind> {
    let (mut listing, mut cookie, mut dots) = (Listing::new(), 0, 0);
    loop {
        let args =
            ReadDirectory { directory, cookie, plus, name_bytes_max: 1 << 16, entries_max: page };
        let result = lane.call(who, Operation::ReadDirectory(args)).result;
        let (entries, end) = match result {
            Ok(Outcome::Entries { entries, end }) => (entries, end),
            Ok(other) => panic!("a listing gave {other:?}"),
            Err(error) => return Err(error.kind),
        };
        assert!(end || !entries.is_empty(), "an empty page that is not the last");
        assert!(entries.len() <= page as usize, "more entries than asked for");
        for entry in entries {
            assert_ne!(entry.cookie, 0, "cookie 0 is the start");
            cookie = entry.cookie;
            if matches!(&entry.name[..], b"." | b"..") {
                dots += 1;
                continue;
            }
            if let Some((_, attr)) = &entry.object {
                assert_eq!(attr.file_id, entry.file_id, "one object has one number");
            }
            let twice = listing.insert(entry.name.clone(), entry.object);
            assert!(twice.is_none(), "{:?} is listed twice", entry.name);
        }
        if end {
            assert_eq!(dots, 2, "\".\" and \"..\" are listed once each");
            return Ok(listing);
        }
    }
}

/// Compare two whole trees: names, attributes, link targets and data.
///
/// # Errors
/// The first difference, with its path.
pub fn trees(model: &mut Lane, other: &mut Lane) -> Result<(), Disagreement> {
    let mut todo = vec![(Vec::new(), model.root(), other.root())];
    let root = Arc::new(Identity::root());
    while let Some((path, model_directory, other_directory)) = todo.pop() {
        let ours = listed(model, &root, model_directory)?;
        let theirs = listed(other, &root, other_directory)?;
        let names = |listing: &BTreeMap<Bytes, _>| listing.keys().cloned().collect::<Vec<_>>();
        let place = || String::from_utf8_lossy(&path).into_owned();
        agree::equal(&format!("names in /{}", place()), &names(&ours), &names(&theirs))?;
        for ((name, (ours, our_attr)), (theirs, their_attr)) in ours.iter().zip(theirs.values()) {
            let path = [&path[..], b"/", name].concat();
            let in_place = |why| format!("{}: {why}", String::from_utf8_lossy(&path));
            agree::attributes(our_attr, their_attr).map_err(in_place)?;
            match our_attr.kind {
                FileKind::Directory => todo.push((path, *ours, *theirs)),
                FileKind::Regular => {
                    contents(model, other, &root, (*ours, *theirs)).map_err(in_place)?;
                }
                FileKind::Symlink => {
                    let ours = model.call(&root, Operation::ReadLink { object: *ours });
                    let theirs = other.call(&root, Operation::ReadLink { object: *theirs });
                    agree::results(&ours, &theirs).map_err(in_place)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The root's view of a directory, with a look-up where the listing gave no handle.
fn listed(
    lane: &mut Lane,
    root: &Arc<Identity>,
    id: ObjectHandle,
) -> Result<BTreeMap<Bytes, (ObjectHandle, Attributes)>, Disagreement> {
    let listing = directory(lane, root, id, true, 100).map_err(|kind| format!("{kind:?}"))?;
    let mut found = BTreeMap::new();
    for (name, object) in listing {
        let object = match object {
            Some(object) => object,
            None => {
                let lookup = Operation::Lookup { directory: id, name: name.clone() };
                match lane.call(root, lookup).result {
                    Ok(Outcome::Found { object, attributes }) => (object, attributes),
                    result => return Err(format!("{name:?} is listed, but: {result:?}")),
                }
            }
        };
        found.insert(name, object);
    }
    Ok(found)
}

/// Compare data around all offsets that steps write at: a whole sparse file would take too long.
fn contents(
    model: &mut Lane,
    other: &mut Lane,
    root: &Arc<Identity>,
    (ours, theirs): (ObjectHandle, ObjectHandle),
) -> Result<(), Disagreement> {
    let count = 80_000;
    for offset in OFFSETS {
        let read = |lane: &mut Lane, object| {
            let into = lane.buffer(count);
            lane.call(root, Operation::Read { object, offset, count, into, pages: None })
        };
        agree::results(&read(model, ours), &read(other, theirs))
            .map_err(|why| format!("at {offset}: {why}"))?;
    }
    Ok(())
}
