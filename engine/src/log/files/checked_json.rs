//! JSON that proves itself: its last member is a checksum of the others.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Checked<T> {
    #[serde(flatten)]
    value: T,
    /// CRC-32C of the other members as JSON without white space. It may lack.
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<u32>,
}

/// The value as JSON, for people too, and a newline; `with_checksum` says whether it proves itself.
pub fn encode<T: Serialize>(value: &T, with_checksum: bool) -> serde_json::Result<Vec<u8>> {
    let checksum = match with_checksum {
        true => Some(checksum_of(value)?),
        false => None,
    };
    let mut text = serde_json::to_vec_pretty(&Checked { value, checksum })?;
    text.push(b'\n');
    Ok(text)
}

/// The value, or what is wrong.
pub fn decode<T: Serialize + DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let Checked { value, checksum } =
        serde_json::from_slice::<Checked<T>>(text).map_err(|error| error.to_string())?;
    match checksum {
        Some(told) if Ok(told) != checksum_of(&value).map_err(drop) => {
            Err("its checksum does not verify".to_owned())
        }
        _ => Ok(value),
    }
}

fn checksum_of<T: Serialize>(value: &T) -> serde_json::Result<u32> {
    serde_json::to_vec(value).map(|text| crc32c::crc32c(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Value {
        name: String,
        sizes: [u64; 2],
    }

    #[test]
    fn a_flipped_bit_is_seen_or_says_the_same() {
        let value = Value {
            name: "a".to_owned(),
            sizes: [u64::MAX, 7],
        };
        let text = encode(&value, true).unwrap();
        assert_eq!(decode::<Value>(&text), Ok(value));
        let value: Value = decode(&text).unwrap();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                if let Ok(other) = decode::<Value>(&flipped) {
                    assert_eq!(other, value, "byte {at}");
                }
            }
        }
    }

    #[test]
    fn a_text_without_a_checksum_is_taken_at_its_word() {
        let value: Value = decode(br#"{"name":"b","sizes":[1,2]}"#).unwrap();
        let text = encode(&value, false).unwrap();
        assert_eq!(decode::<Value>(&text), Ok(value));
        assert!(decode::<Value>(b"{").is_err());
    }
}
