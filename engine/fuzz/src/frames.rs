//! The traffic of a client and a daemon: consecutive frames, as the other side cuts them out of a stream.
//!
//! Input: the bytes of a connection.

use loom_client::protocol::{
    HEADER_BYTES, Header, Malformed, REPLY_BODY_BYTES_MAX, REQUEST_BODY_BYTES_MAX, Reply, Request,
    VERSION,
};

use crate::{SOUND, label};

pub fn requests(input: &[u8]) -> String {
    each_frame(input, REQUEST_BODY_BYTES_MAX, |header, frame| {
        let request = Request::decode(header, body(frame))?;
        // Only the version of another version's hello is checked.
        if !matches!(request, Request::Hello { version, .. } if version != VERSION) {
            let mut again = Vec::new();
            request.encode(&mut again);
            assert_eq!(again, frame, "{request:?}");
        }
        if let Request::Push(push) = request {
            let payload_bytes = push.shape.payload_bytes(push.bytes.len(), push.records);
            assert!(payload_bytes <= push.bytes.len() as u64);
        }
        Ok(())
    })
}

pub fn replies(input: &[u8]) -> String {
    each_frame(input, REPLY_BODY_BYTES_MAX, |header, frame| {
        let reply = Reply::decode(header, body(frame))?;
        let mut again = Vec::new();
        reply.encode(&mut again);
        assert_eq!(body(&again), body(frame), "{reply:?}");
        std::hint::black_box(reply.request());
        Ok(())
    })
}

fn body(frame: &[u8]) -> &[u8] {
    frame.get(HEADER_BYTES..).unwrap_or_default()
}

/// Gives `each` every whole frame of a stream, header included, until one is malformed.
fn each_frame(
    stream: &[u8],
    body_bytes_max: usize,
    mut each: impl FnMut(Header, &[u8]) -> Result<(), Malformed>,
) -> String {
    let mut rest = stream;
    while let Some(header) = Header::decode(rest, body_bytes_max) {
        let whole = header.map(|header| {
            let split = rest.split_at_checked(HEADER_BYTES + header.body_bytes);
            split.map(|(frame, after)| (each(header, frame), after))
        });
        match whole {
            Ok(Some((Ok(()), after))) => rest = after,
            Ok(None) => break,
            Ok(Some((Err(malformed), _))) | Err(malformed) => return label(&malformed),
        }
    }
    SOUND.to_owned()
}
