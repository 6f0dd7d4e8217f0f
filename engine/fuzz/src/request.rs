//! What a client sends: frames one after the other, as the daemon cuts them out of a stream.
//!
//! Input: the bytes of a connection.

use crate::{SOUND, label};
use loom_client::protocol::{HEADER_BYTES, Malformed, REQUEST_BODY_BYTES_MAX, Request, VERSION};

pub fn run(input: &[u8]) -> String {
    crate::reply::each_frame(input, REQUEST_BODY_BYTES_MAX, |header, frame| {
        let body = frame.get(HEADER_BYTES..).unwrap_or_default();
        let request = Request::decode(header, body)?;
        // Of another version's hello nothing but the version is looked at.
        if !matches!(request, Request::Hello { version, .. } if version != VERSION) {
            let mut again = Vec::new();
            request.encode(&mut again);
            assert_eq!(again, frame, "{request:?}");
        }
        if let Request::Push(push) = request {
            let payload_bytes = push.shape.payload_bytes(push.bytes.len(), push.records);
            assert!(payload_bytes <= push.bytes.len() as u64);
        }
        Ok::<(), Malformed>(())
    })
    .map_or_else(|error| label(&error), |()| SOUND.to_owned())
}
