//! JSON whose last member is a checksum of the others, as the small files of a directory are written.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The content of `loom.json`.
#[derive(Serialize, Deserialize)]
pub struct Meta {
    format: u64,
    uuid: String,
    chunk_bytes: u64,
    segment_bytes: [u64; 3],
}

/// The content of the note `staging`.
#[derive(Serialize, Deserialize)]
pub struct Note {
    pub path: String,
    pub device: u64,
    pub inode: u64,
    pub directory_device: u64,
    pub directory_inode: u64,
    pub uuid: String,
    pub epoch: u64,
    pub boot_id: String,
}

#[derive(Serialize)]
struct Checked<'a, T> {
    #[serde(flatten)]
    value: &'a T,
    checksum: u32,
}

/// The file that holds the value.
pub fn sign<T: Serialize>(value: &T) -> Vec<u8> {
    let signed = serde_json::to_vec(value).and_then(|members| {
        let checksum = crc32c::crc32c(&members);
        serde_json::to_vec_pretty(&Checked { value, checksum })
    });
    let mut text = signed.unwrap_or_else(|error| panic!("numbers and texts are JSON: {error}"));
    text.push(b'\n');
    text
}

/// The file with its checksum made right, if it holds a `T`.
pub fn repaired<T: Serialize + DeserializeOwned>(file: &[u8]) -> Option<Vec<u8>> {
    serde_json::from_slice::<T>(file)
        .ok()
        .map(|value| sign(&value))
}
