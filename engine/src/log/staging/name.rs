//! The name of a staging file: `loom-`, the directory's UUID, its device and inode, the epoch.

use std::fmt;

use uuid::Uuid;

use crate::log::files::storage::FileId;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StagingName {
    pub uuid: Uuid,
    pub directory: FileId,
    pub epoch: u64,
}

impl StagingName {
    /// The common prefix of the names of all epochs of the directory.
    pub fn prefix(&self) -> String {
        let FileId { device, inode } = self.directory;
        format!("loom-{}-{device:x}-{inode:x}-", self.uuid.simple())
    }

    /// Returns `None` for a name of another form.
    pub fn parse(name: &str) -> Option<StagingName> {
        let parts: Vec<&str> = name.split('-').collect();
        let &["loom", uuid, device, inode, epoch] = parts.as_slice() else {
            return None;
        };
        let parsed = StagingName {
            uuid: Uuid::try_parse(uuid).ok()?,
            directory: FileId {
                device: u64::from_str_radix(device, 16).ok()?,
                inode: u64::from_str_radix(inode, 16).ok()?,
            },
            epoch: epoch.parse().ok()?,
        };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for StagingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix(), self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_none() {
        let name = StagingName {
            uuid: Uuid::from_bytes([0xA5; 16]),
            directory: FileId {
                device: 0xfe00,
                inode: 17,
            },
            epoch: 3,
        };
        let text = format!("loom-{}-fe00-11-3", "a5".repeat(16));
        assert_eq!(name.to_string(), text);
        assert_eq!(StagingName::parse(&text), Some(name));
        for other in [
            "loom-of-somebody-else",
            "loom-ring",
            &text[1..],
            &text.replace("-3", "-03"),
            &text.replace("-3", ""),
            &text.to_uppercase(),
        ] {
            assert_eq!(StagingName::parse(other), None, "{other}");
        }
    }
}
