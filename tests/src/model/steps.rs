//! One step of a random run. Objects are named by a number that picks one of those met so far, so that a
//! step makes sense for any backend, and a failing run can shrink.

use backends::{
    attr::{Changes, SetTime, Timestamp},
    op::{AccessMask, NodeKind, Stability},
};
use proptest::prelude::*;

/// Names that steps use: few, so that they meet; raw bytes; the longest.
pub const NAMES: [&[u8]; 7] =
    [b"a", b"b", b"c", b"d", b"\xff\xfe \n", b"...", &[b'n'; backends::op::NAME_BYTES_MAX]];

/// Offsets around the borders of pages and of 32 bits.
pub const OFFSETS: [u64; 10] =
    [0, 1, 4095, 4096, 4097, 65_536, 1 << 20, (1 << 32) - 1, (1 << 32) + 4096, (1 << 40) + 17];

/// Lengths of reads and writes.
pub const LENGTHS: [u32; 7] = [0, 1, 2, 4095, 4096, 8193, 70_000];

/// Who acts: an index into the identities of the pair.
#[derive(Debug, Clone)]
pub struct Step {
    /// Who acts.
    pub who: usize,
    /// What they do.
    pub action: Action,
}

/// How to use the guard of SETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Without.
    None,
    /// With the change time that the object has.
    Right,
    /// With another one.
    Wrong,
}

/// How to create a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Whether it is there or not.
    Unchecked,
    /// Only when it is not there.
    Guarded,
    /// As a client does: exclusively, once again with the same verifier, then set the mode.
    Exclusive,
}

/// What is done. `object` picks among all objects, `directory` mostly among directories.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Action {
    GetAttributes { object: usize },
    SetAttributes { object: usize, changes: Changes, guard: Guard },
    Lookup { directory: usize, name: usize },
    LookupParent { directory: usize },
    Access { object: usize, mask: AccessMask },
    ReadLink { object: usize },
    Read { object: usize, offset: u64, count: u32 },
    Write { object: usize, offset: u64, len: u32, fill: u8, stability: Stability },
    Commit { object: usize },
    Create { directory: usize, name: usize, how: How, mode: u32, size: Option<u64> },
    MakeDirectory { directory: usize, name: usize, mode: u32 },
    MakeSymlink { directory: usize, name: usize, target: usize },
    MakeNode { directory: usize, name: usize, node: NodeKind, mode: u32 },
    Remove { directory: usize, name: usize },
    RemoveDirectory { directory: usize, name: usize },
    Rename { from: usize, from_name: usize, to: usize, to_name: usize },
    Link { object: usize, directory: usize, name: usize },
    List { directory: usize, plus: bool, page: u32 },
}

fn pick() -> impl Strategy<Value = usize> {
    0_usize..64
}

fn name() -> impl Strategy<Value = usize> {
    0..NAMES.len()
}

fn mode() -> impl Strategy<Value = u32> {
    let usual = prop::sample::select(vec![0o777, 0o755, 0o775, 0o644, 0o664, 0o600, 0o700]);
    let rare = prop::sample::select(vec![0, 0o111, 0o444, 0o1777, 0o2775, 0o4755, 0o6775, 0o007]);
    prop_oneof![4 => usual, 1 => rare]
}

fn size() -> impl Strategy<Value = u64> {
    prop::sample::select(OFFSETS.to_vec())
}

fn length() -> impl Strategy<Value = u32> {
    prop::sample::select(LENGTHS.to_vec())
}

fn stability() -> impl Strategy<Value = Stability> {
    use Stability::{DataSync, FileSync, Unstable};
    prop::sample::select(vec![Unstable, Unstable, DataSync, FileSync])
}

/// One change at a time mostly, as programs do; several in one request are another test's matter.
fn changes() -> impl Strategy<Value = Changes> {
    let keep = Changes::default;
    let time = |seconds| SetTime::To(Timestamp { seconds, nanos: 5 });
    prop_oneof![
        3 => mode().prop_map(move |mode| Changes { mode: Some(mode), ..keep() }),
        3 => size().prop_map(move |size| Changes { size: Some(size), ..keep() }),
        1 => prop::sample::select(vec![0_u32, 1000, 1001])
            .prop_map(move |uid| Changes { uid: Some(uid), ..keep() }),
        1 => prop::sample::select(vec![0_u32, 50, 1000, 1002])
            .prop_map(move |gid| Changes { gid: Some(gid), ..keep() }),
        1 => (0_i64..1 << 33).prop_map(move |seconds| Changes {
            accessed: time(seconds),
            modified: time(seconds),
            ..keep()
        }),
        1 => Just(Changes { accessed: SetTime::Now, modified: SetTime::Now, ..keep() }),
        1 => Just(keep()),
    ]
}

fn guard() -> impl Strategy<Value = Guard> {
    prop_oneof![8 => Just(Guard::None), 1 => Just(Guard::Right), 1 => Just(Guard::Wrong)]
}

fn how() -> impl Strategy<Value = How> {
    prop::sample::select(vec![How::Unchecked, How::Guarded, How::Exclusive])
}

fn inspections() -> impl Strategy<Value = Action> {
    prop_oneof![
        pick().prop_map(|object| Action::GetAttributes { object }),
        (pick(), name()).prop_map(|(directory, name)| Action::Lookup { directory, name }),
        pick().prop_map(|directory| Action::LookupParent { directory }),
        (pick(), 0_u32..0x40)
            .prop_map(|(object, mask)| Action::Access { object, mask: AccessMask(mask) }),
        pick().prop_map(|object| Action::ReadLink { object }),
        (pick(), size(), length()).prop_map(|(object, offset, count)| Action::Read {
            object,
            offset,
            count
        }),
        (pick(), any::<bool>(), 1_u32..6).prop_map(|(directory, plus, page)| Action::List {
            directory,
            plus,
            page
        }),
    ]
}

fn data() -> impl Strategy<Value = Action> {
    let write = (pick(), size(), length(), any::<u8>(), stability());
    prop_oneof![
        6 => write.prop_map(|(object, offset, len, fill, stability)| {
            Action::Write { object, offset, len, fill, stability }
        }),
        1 => pick().prop_map(|object| Action::Commit { object }),
        3 => (pick(), changes(), guard()).prop_map(|(object, changes, guard)| {
            Action::SetAttributes { object, changes, guard }
        }),
    ]
}

fn creations() -> impl Strategy<Value = Action> {
    let file = (pick(), name(), how(), mode(), prop::option::weighted(0.3, size()));
    prop_oneof![
        4 => file.prop_map(|(directory, name, how, mode, size)| {
            // Whether a size at creation counts as a write, which ends set-id bits, is nowhere said.
            let mode = if size.is_some() { mode & 0o1777 } else { mode };
            Action::Create { directory, name, how, mode, size }
        }),
        3 => (pick(), name(), mode()).prop_map(|(directory, name, mode)| {
            Action::MakeDirectory { directory, name, mode: mode & 0o1777 }
        }),
        1 => (pick(), name(), name()).prop_map(|(directory, name, target)| {
            Action::MakeSymlink { directory, name, target }
        }),
        1 => (pick(), name(), any::<bool>(), mode()).prop_map(|(directory, name, fifo, mode)| {
            let node = if fifo { NodeKind::Fifo } else { NodeKind::Socket };
            Action::MakeNode { directory, name, node, mode: mode & 0o777 }
        }),
        2 => (pick(), pick(), name()).prop_map(|(object, directory, name)| {
            Action::Link { object, directory, name }
        }),
    ]
}

fn removals() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => (pick(), name()).prop_map(|(directory, name)| Action::Remove { directory, name }),
        1 => (pick(), name())
            .prop_map(|(directory, name)| Action::RemoveDirectory { directory, name }),
        3 => (pick(), name(), pick(), name()).prop_map(|(from, from_name, to, to_name)| {
            Action::Rename { from, from_name, to, to_name }
        }),
    ]
}

/// A random step; the superuser acts in one of four.
pub fn step() -> impl Strategy<Value = Step> {
    let action = prop_oneof![
        3 => inspections(),
        4 => data(),
        5 => creations(),
        3 => removals(),
    ];
    (0_usize..4, action).prop_map(|(who, action)| Step { who, action })
}

/// A random run.
pub fn run() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..80)
}
