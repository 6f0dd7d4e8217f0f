//! Units that verify and claim the impossible at each of their places.

use super::*;

/// Any place of a unit may begin a number, and none may be 2^60. The test computes the checksums again, and the claim is refused before memory is allocated.
// G8
#[test]
fn a_number_that_claims_the_impossible_at_any_place_of_a_unit_is_an_error_that_asks_for_no_memory()
{
    // In LEB128.
    const CLAIMED: [u8; 9] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
    // The claims stand in front of the sections, which hold numbers and texts.
    const PLACES_MAX: usize = 96;
    let records = (0..3000).map(|nth| {
        let source = 1 + nth % 3;
        (source, 130, payload(source, u64::from(nth), b"text"))
    });
    for records in [records.collect(), of_many_sources(3)] {
        let sound = encode(&some(chunks_of(&records)), template);
        let unit = Unit::of(&UUID, FIRST, CHUNK, sound.clone()).unwrap();
        let head_bytes = unit.header.head_bytes;
        let head = unit.head.as_ref().unwrap();
        let of_groups = head.streams().flat_map(|stream| stream.groups.iter());
        let parts = of_groups.flat_map(|group| group.parts.iter().map(|part| part.section));
        let mut sections: Vec<_> = head.orders.iter().copied().chain(parts).collect();
        sections.sort_by_key(|section| section.ordinal);
        sections.dedup_by_key(|section| section.ordinal);
        assert!(sections.iter().any(|section| section.bytes > CLAIMED.len()));
        let judge = |mut forged: Vec<u8>| {
            let (head, body) = forged.split_at_mut(head_bytes);
            super::super::head::seal_head(&UUID, FIRST, head, body.len());
            let error = match decode(&forged) {
                Ok(_) => return,
                Err(error) => error,
            };
            assert!(
                !matches!(error, crate::format::FormatError::Memory(_)),
                "{error}"
            );
        };
        for place in UNIT_HEADER_BYTES..head_bytes - CLAIMED.len() {
            let mut forged = sound.clone();
            forged[place..place + CLAIMED.len()].copy_from_slice(&CLAIMED);
            judge(forged);
        }
        for section in sections {
            let own = section.start..section.start + section.bytes;
            let ends = section.bytes.saturating_sub(CLAIMED.len()).min(PLACES_MAX);
            for place in section.start..section.start + ends {
                let mut forged = sound.clone();
                forged[place..place + CLAIMED.len()].copy_from_slice(&CLAIMED);
                let sum = super::super::groups::section_checksum(
                    &UUID,
                    FIRST,
                    section.ordinal,
                    &forged[own.clone()],
                );
                let stored = section.checksum.to_le_bytes();
                let at = forged[..head_bytes]
                    .windows(stored.len())
                    .position(|four| four == stored)
                    .unwrap();
                forged[at..at + stored.len()].copy_from_slice(&sum.to_le_bytes());
                judge(forged);
            }
        }
    }
}
