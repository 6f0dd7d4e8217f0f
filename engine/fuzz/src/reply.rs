//! What a daemon sends: frames one after the other, as a client cuts them out of a stream.
//!
//! Input: the bytes of a connection.

use crate::{SOUND, label};
use loom_client::protocol::{HEADER_BYTES, Header, Malformed, REPLY_BODY_BYTES_MAX, Reply};

pub fn run(input: &[u8]) -> String {
    each_frame(input, REPLY_BODY_BYTES_MAX, |header, frame| {
        let reply = Reply::decode(header, frame.get(HEADER_BYTES..).unwrap_or_default())?;
        let mut again = Vec::new();
        reply.encode(&mut again);
        let told = again.get(HEADER_BYTES..).unwrap_or_default();
        assert_eq!(
            told,
            frame.get(HEADER_BYTES..).unwrap_or_default(),
            "{reply:?}"
        );
        std::hint::black_box(reply.request());
        Ok(())
    })
    .map_or_else(|error| label(&error), |()| SOUND.to_owned())
}

/// Gives `each` every whole frame of a stream, header included, until one is malformed.
pub fn each_frame(
    stream: &[u8],
    body_bytes_max: usize,
    mut each: impl FnMut(Header, &[u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut rest = stream;
    while let Some(header) = Header::decode(rest, body_bytes_max) {
        let header = header?;
        let Some((frame, after)) = rest.split_at_checked(HEADER_BYTES + header.body_bytes) else {
            break;
        };
        each(header, frame)?;
        rest = after;
    }
    Ok(())
}
