//! What a peer's bytes can get wrong.

/// Bytes of a peer that are not what the protocol allows. The message is answered (GARBAGE_ARGS, ERR_CHUNK)
/// or dropped; it never costs more than itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends before the item does.
    #[error("message ends inside {0}")]
    Short(&'static str),
    /// A length or count is above its limit.
    #[error("{what} of {found} exceeds the limit of {limit}")]
    TooLong {
        /// Which item.
        what: &'static str,
        /// What the peer sent.
        found: u32,
        /// What is allowed.
        limit: u32,
    },
    /// A discriminant or enum has no meaning here.
    #[error("{found} is not a valid {what}")]
    Invalid {
        /// Which item.
        what: &'static str,
        /// What the peer sent.
        found: u32,
    },
    /// Payload was placed where the protocol has no bulk data item (RFC 8267 section 6).
    #[error("bulk data where {0} is expected")]
    Misplaced(&'static str),
    /// Bulk data that no item of the message claimed.
    #[error("bulk data that no argument claims")]
    Unclaimed,
}
