//! Content of a regular file: sparse pages, with the way back to what was last made stable.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// Bytes of a page; the unit in which space is counted.
pub(super) const PAGE_BYTES: usize = 4096;
const PAGE: u64 = PAGE_BYTES as u64;

type Page = Arc<[u8; PAGE_BYTES]>;

/// The content. Pages that were never written are holes and read as zeros.
#[derive(Debug, Default)]
pub(super) struct FileData {
    size: u64,
    pages: BTreeMap<u64, Page>,
    undo: Option<Undo>,
}

/// What a crash brings back: the size, and each page as it was before the first unstable write to it.
#[derive(Debug)]
struct Undo {
    size: u64,
    pages: BTreeMap<u64, Option<Page>>,
    kept: u64,
}

/// The part of one page that a span of the file touches.
struct Piece {
    index: u64,
    within: Range<usize>,
}

/// Cut `len` bytes at `offset` at the page borders.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset.checked_add(done as u64)?;
        let start = (at % PAGE) as usize;
        let take = (len - done).min(PAGE_BYTES - start);
        done += take;
        (take > 0).then_some(Piece { index: at / PAGE, within: start..start + take })
    })
}

impl FileData {
    /// Size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that the content takes, without what is kept for a crash.
    pub(super) fn used_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Pages held, with what is kept for a crash.
    pub(super) fn pages_held(&self) -> u64 {
        self.pages.len() as u64 + self.undo.as_ref().map_or(0, |undo| undo.kept)
    }

    /// Most pages by which a write can make [`FileData::pages_held`] grow.
    pub(super) fn growth(&self, offset: u64, len: usize, unstable: bool) -> u64 {
        let undone = |index| self.undo.as_ref().is_some_and(|undo| undo.pages.contains_key(&index));
        let grows = |piece: &Piece| match self.pages.contains_key(&piece.index) {
            true => unstable && !undone(piece.index),
            false => true,
        };
        pieces(offset, len).filter(grows).count() as u64
    }

    /// Fill `into` from `offset` as far as the file goes; returns how many bytes that was.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let left = self.size.saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let mut rest = &mut into[..len];
        for piece in pieces(offset, len) {
            let (part, next) = rest.split_at_mut(piece.within.len());
            match self.pages.get(&piece.index) {
                Some(page) => part.copy_from_slice(&page[piece.within]),
                None => part.fill(0),
            }
            rest = next;
        }
        len
    }

    /// Write `data` at `offset`, where the end must not overflow. A stable write makes all earlier ones
    /// stable as well, which is more than is asked and simpler.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], unstable: bool) {
        if !unstable {
            self.commit();
        }
        let mut rest = data;
        for Piece { index, within } in pieces(offset, data.len()) {
            let (part, next) = rest.split_at(within.len());
            if unstable {
                self.keep(index);
            }
            match <&[u8; PAGE_BYTES]>::try_from(part) {
                Ok(whole) => drop(self.pages.insert(index, Arc::new(*whole))),
                Err(_) => self.page(index)[within].copy_from_slice(part),
            }
            rest = next;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    /// Set the size; what is cut off reads as zeros when the file grows again. Stable at once.
    pub(super) fn set_size(&mut self, size: u64) {
        self.commit();
        self.pages.split_off(&size.div_ceil(PAGE));
        let tail = (size % PAGE) as usize;
        if tail > 0
            && let Some(page) = self.pages.get_mut(&(size / PAGE))
        {
            Arc::make_mut(page)[tail..].fill(0);
        }
        self.size = size;
    }

    /// Make everything stable.
    pub(super) fn commit(&mut self) {
        self.undo = None;
    }

    /// Go back to what was last stable.
    pub(super) fn crash(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        for (index, page) in undo.pages {
            match page {
                Some(page) => self.pages.insert(index, page),
                None => self.pages.remove(&index),
            };
        }
        self.size = undo.size;
    }

    fn page(&mut self, index: u64) -> &mut [u8; PAGE_BYTES] {
        let page = self.pages.entry(index).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
        Arc::make_mut(page)
    }

    fn keep(&mut self, index: u64) {
        let size = self.size;
        let undo = self.undo.get_or_insert_with(|| Undo { size, pages: BTreeMap::new(), kept: 0 });
        undo.pages.entry(index).or_insert_with(|| {
            let page = self.pages.get(&index).cloned();
            undo.kept += u64::from(page.is_some());
            page
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(data: &FileData) -> Vec<u8> {
        let mut into = vec![0xaa; data.size() as usize + 10];
        let len = data.read(0, &mut into);
        into.truncate(len);
        into
    }

    #[test]
    fn holes_read_as_zeros_and_take_no_space() {
        let mut data = FileData::default();
        let far = (5 << 30) + 4090;
        data.write(far, b"0123456789", false);
        assert_eq!(data.size(), far + 10);
        assert_eq!(data.used_bytes(), 2 * PAGE);
        let mut into = [0xaa; 20];
        assert_eq!(data.read(far - 5, &mut into), 15);
        assert_eq!(&into[..15], b"\0\0\0\0\x000123456789");
        assert_eq!(data.read(far + 10, &mut into), 0);
        assert_eq!(data.read(u64::MAX, &mut into), 0);
    }

    #[test]
    fn cut_bytes_do_not_come_back() {
        let mut data = FileData::default();
        data.write(0, &[7; 5000], false);
        data.set_size(10);
        data.set_size(20);
        assert_eq!(all(&data), [vec![7; 10], vec![0; 10]].concat());
    }

    #[test]
    fn a_crash_takes_back_what_was_not_committed() {
        let mut data = FileData::default();
        data.write(0, b"stable", false);
        data.write(2, &[1; 9000], true);
        data.write(0, b"XX", true);
        data.crash();
        assert_eq!(all(&data), b"stable");
        assert_eq!(data.pages_held(), 1);
        data.write(0, b"other", true);
        data.commit();
        data.crash();
        assert_eq!(all(&data), b"othere");
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_vector(steps in prop::collection::vec(
            (0_u8..4, 0_u64..20_000, 0_usize..9000, any::<u8>()), 1..30)
        ) {
            let (mut data, mut plain, mut stable) = (FileData::default(), Vec::new(), Vec::new());
            for (what, offset, len, fill) in steps {
                let (at, unstable) = (offset as usize, what == 1);
                match what {
                    0 | 1 => {
                        let grown = data.pages_held() + data.growth(offset, len, unstable);
                        data.write(offset, &vec![fill; len], unstable);
                        prop_assert!(data.pages_held() <= grown);
                        if len > 0 {
                            plain.resize(plain.len().max(at + len), 0);
                            plain[at..at + len].fill(fill);
                        }
                    }
                    2 => {
                        data.set_size(offset);
                        plain.resize(at, 0);
                    }
                    _ => {
                        data.crash();
                        plain.clone_from(&stable);
                    }
                }
                if !unstable {
                    stable.clone_from(&plain);
                }
                prop_assert_eq!(all(&data), plain.clone());
            }
        }
    }
}
