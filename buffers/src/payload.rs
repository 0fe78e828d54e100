//! Bulk data of a message, wherever it lies.

use std::sync::Arc;

use bytes::Bytes;

use crate::pages::Pages;

/// Bulk data of a message.
#[derive(Debug, Clone)]
pub enum Payload {
    /// In memory of ours.
    Bytes(Bytes),
    /// In the page cache. Only for a byte stream, and gone once it was sent.
    Pages(Arc<Pages>),
}

impl Payload {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Pages(pages) => pages.len(),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they lie in memory of ours.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Pages(_) => None,
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(these), Self::Bytes(those)) => these == those,
            (Self::Pages(these), Self::Pages(those)) => Arc::ptr_eq(these, those),
            _ => false,
        }
    }
}

impl Eq for Payload {}
