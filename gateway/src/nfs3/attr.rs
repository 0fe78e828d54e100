//! Codecs of attributes: `fattr3`, `wcc_attr`, `sattr3` (RFC 1813 sections 2.5.5 and 2.6).

use backends::{
    Attributes, FileKind, Timestamp,
    attr::{Before, Changes, SetTime},
};
use rpc_rdma::xdr::{Reader, WireError, Writer};

use super::{Status, types::OFFSET_MAX};

/// Bits of a mode that can be set.
pub const MODE_MASK: u32 = 0o7777;
/// The id that chown(2) takes for "leave it": never a user or a group.
const NO_ID: u32 = u32::MAX;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// `ftype3`.
pub fn kind_code(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::Block => 3,
        FileKind::Character => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// Encode `fattr3`: 84 bytes.
pub fn encode(writer: &mut Writer, attr: &Attributes, file_system_id: u64) {
    writer.u32(kind_code(attr.kind));
    writer.u32(attr.mode & MODE_MASK);
    writer.u32(attr.links);
    writer.u32(attr.uid);
    writer.u32(attr.gid);
    writer.u64(attr.size);
    writer.u64(attr.used);
    writer.u32(attr.device.major);
    writer.u32(attr.device.minor);
    writer.u64(file_system_id);
    writer.u64(attr.file_id);
    encode_time(writer, attr.accessed);
    encode_time(writer, attr.modified);
    encode_time(writer, attr.changed);
}

/// Encode `wcc_attr`: 24 bytes.
pub fn encode_before(writer: &mut Writer, before: &Before) {
    writer.u64(before.size);
    encode_time(writer, before.modified);
    encode_time(writer, before.changed);
}

/// Encode `nfstime3`: seconds are unsigned, so times before 1970 and after 2106 become the nearest one that
/// there is.
pub fn encode_time(writer: &mut Writer, time: Timestamp) {
    let (seconds, nanos) = match u32::try_from(time.seconds) {
        Ok(seconds) => (seconds, time.nanos.min(NANOS_PER_SECOND - 1)),
        Err(_) if time.seconds < 0 => (0, 0),
        Err(_) => (u32::MAX, NANOS_PER_SECOND - 1),
    };
    writer.u32(seconds);
    writer.u32(nanos);
}

/// `nfstime3` as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawTime {
    seconds: u32,
    nanos: u32,
}

impl RawTime {
    /// Decode.
    ///
    /// # Errors
    /// When the message ends first.
    pub fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { seconds: args.u32("seconds")?, nanos: args.u32("nanoseconds")? })
    }

    /// The time, if its nanoseconds are some.
    ///
    /// # Errors
    /// INVAL.
    pub fn check(self) -> Result<Timestamp, Status> {
        if self.nanos >= NANOS_PER_SECOND {
            return Err(Status::Inval);
        }
        Ok(Timestamp { seconds: i64::from(self.seconds), nanos: self.nanos })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RawSetTime {
    Keep,
    Now,
    To(RawTime),
}

impl RawSetTime {
    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        match args.u32("time_how")? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::Now),
            2 => Ok(Self::To(RawTime::decode(args)?)),
            found => Err(WireError::Invalid { what: "time_how", found }),
        }
    }

    fn check(self) -> Result<SetTime, Status> {
        Ok(match self {
            Self::Keep => SetTime::Keep,
            Self::Now => SetTime::Now,
            Self::To(time) => SetTime::To(time.check()?),
        })
    }
}

/// `sattr3` as it came: well-formed, not yet valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawChanges {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    accessed: RawSetTime,
    modified: RawSetTime,
}

impl RawChanges {
    /// Decode.
    ///
    /// # Errors
    /// When it is not what section 2.6 says; the call is answered GARBAGE_ARGS.
    pub fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            mode: if args.bool("set_mode")? { Some(args.u32("mode")?) } else { None },
            uid: if args.bool("set_uid")? { Some(args.u32("uid")?) } else { None },
            gid: if args.bool("set_gid")? { Some(args.u32("gid")?) } else { None },
            size: if args.bool("set_size")? { Some(args.u64("size")?) } else { None },
            accessed: RawSetTime::decode(args)?,
            modified: RawSetTime::decode(args)?,
        })
    }

    /// The changes, if they make sense. `file_bytes_max` is the backend's limit.
    ///
    /// # Errors
    /// INVAL for a time with too many nanoseconds and for the id that means none; FBIG for a size that no
    /// file can have.
    pub fn check(&self, file_bytes_max: u64) -> Result<Changes, Status> {
        if self.uid == Some(NO_ID) || self.gid == Some(NO_ID) {
            return Err(Status::Inval);
        }
        if self.size.is_some_and(|size| size > file_bytes_max.min(OFFSET_MAX)) {
            return Err(Status::FBig);
        }
        Ok(Changes {
            mode: self.mode.map(|mode| mode & MODE_MASK),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            accessed: self.accessed.check()?,
            modified: self.modified.check()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use backends::attr::Device;
    use rpc_rdma::xdr::Rope;

    use super::*;

    fn words(words: &[u32]) -> Rope {
        let mut writer = Writer::default();
        words.iter().for_each(|&word| writer.u32(word));
        writer.finish()
    }

    #[test]
    fn fattr3_byte_for_byte() {
        let attr = Attributes {
            kind: FileKind::Character,
            mode: 0o20_4755,
            links: 2,
            uid: 1000,
            gid: 100,
            size: 0x1_0000_0005,
            used: 8192,
            device: Device { major: 1, minor: 3 },
            file_id: 77,
            accessed: Timestamp { seconds: 10, nanos: 11 },
            modified: Timestamp { seconds: 20, nanos: 21 },
            changed: Timestamp { seconds: 30, nanos: 31 },
        };
        let mut writer = Writer::default();
        encode(&mut writer, &attr, 0xaaaa_bbbb_cccc_dddd);
        let expected = words(&[
            4,
            0o4755,
            2,
            1000,
            100,
            1,
            5,
            0,
            8192,
            1,
            3,
            0xaaaa_bbbb,
            0xcccc_dddd,
            0,
            77,
            10,
            11,
            20,
            21,
            30,
            31,
        ]);
        assert_eq!(writer.len(), super::super::types::ATTRIBUTES_BYTES);
        assert_eq!(writer.finish(), expected);
    }

    #[test]
    fn times_outside_the_range_become_the_nearest() {
        for (seconds, expected) in [(-1, [0, 0]), (1 << 33, [u32::MAX, 999_999_999]), (7, [7, 5])] {
            let mut writer = Writer::default();
            encode_time(&mut writer, Timestamp { seconds, nanos: 5 });
            assert_eq!(writer.finish(), words(&expected));
        }
    }

    #[test]
    fn sattr3_all_and_none() {
        let rope = words(&[1, 0o17_7777, 1, 5, 1, 6, 1, 0, 9, 1, 2, 100, 200]);
        let mut reader = Reader::new(&rope);
        let changes = RawChanges::decode(&mut reader).unwrap().check(u64::MAX).unwrap();
        assert_eq!(reader.remaining(), 0);
        let expected = Changes {
            mode: Some(0o7777),
            uid: Some(5),
            gid: Some(6),
            size: Some(9),
            accessed: SetTime::Now,
            modified: SetTime::To(Timestamp { seconds: 100, nanos: 200 }),
        };
        assert_eq!(changes, expected);
        let rope = words(&[0; 6]);
        let changes = RawChanges::decode(&mut Reader::new(&rope)).unwrap().check(0).unwrap();
        assert!(changes.is_empty());
    }

    #[test]
    fn what_sattr3_may_not_say() {
        let cases: [(&[u32], Status); 5] = [
            (&[0, 0, 0, 0, 0, 2, 1, 1_000_000_000], Status::Inval),
            (&[0, 1, u32::MAX, 0, 0, 0, 0], Status::Inval),
            (&[0, 0, 1, u32::MAX, 0, 0, 0], Status::Inval),
            (&[0, 0, 0, 1, u32::MAX, 0, 0, 0], Status::FBig),
            (&[0, 0, 0, 1, 0, 101, 0, 0], Status::FBig),
        ];
        for (input, status) in cases {
            let rope = words(input);
            let raw = RawChanges::decode(&mut Reader::new(&rope)).unwrap();
            assert_eq!(raw.check(100), Err(status), "{input:?}");
        }
        for garbage in [&[2, 0, 0, 0, 0, 0][..], &[0, 0, 0, 0, 3, 0], &[0, 0, 0]] {
            assert!(RawChanges::decode(&mut Reader::new(&words(garbage))).is_err());
        }
    }
}
