//! Texts with each byte changed, and cut to each length: rows come or are refused, an error says why, and nothing panics.

use super::testing::{options, try_load};
use super::{Format, LoadOptions};

/// Changes each byte, and cuts the file there.
fn damage_all(format: Format, file: &[u8]) {
    for at in 0..file.len() {
        for flip in [1, 0x80, 0xFF] {
            let mut changed = file.to_vec();
            changed[at] ^= flip;
            look(format, &changed, options());
        }
        look(format, &file[..at], options());
    }
}

/// Whatever comes of it is rows that keep to their layout, which `try_load` holds, or an error with words in it.
fn look(format: Format, file: &[u8], options: LoadOptions) {
    match try_load(file, format, options) {
        Ok(loaded) => assert!(loaded.refused.iter().all(|(_, why)| !why.is_empty())),
        Err(error) => assert!(!format!("{error:#}").is_empty()),
    }
}

#[test]
fn no_csv_panics() {
    damage_all(
        Format::Csv,
        b"n,text,at\n1,\"a \"\"b\"\"\",2024-01-02T03:04:05Z\n,x,\n2.5,\"two\nlines\",1969-12-31\n",
    );
}

#[test]
fn no_json_panics() {
    damage_all(
        Format::Json,
        b"{\"n\": 1, \"text\": \"a\\u00e4\", \"deep\": {\"x\": [1, null]}}\n{\"n\": -2.5e3, \"text\": null}\n{}\n",
    );
}
