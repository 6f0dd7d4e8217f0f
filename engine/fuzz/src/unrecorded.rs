//! The daemon's file of losses that are not records yet: its two slots.
//!
//! Input: flags, then the slots, half of the input each: sequence, then JSON, whose header is put before them; with [`UNREPAIRED`], the
//! bytes of the file.

use loom_engine::unrecorded::{Condition, Entry, FILE_BYTES, Kept, SLOT_BYTES, Slots};

use crate::memory::BOOT_ID;
use crate::{SOUND, UNREPAIRED, UUID, flagged};

pub fn run(input: &[u8]) -> String {
    let (flags, given) = flagged(input);
    let slots = Slots {
        uuid: UUID,
        boot_id: BOOT_ID.to_owned(),
    };
    let mut file = given.to_vec();
    if flags & UNREPAIRED == 0 {
        let (first, second) = given.split_at(given.len() / 2);
        file = slot(&slots, first);
        file.resize(SLOT_BYTES, 0);
        file.extend(slot(&slots, second));
    }
    let kept = slots.decode(&file);
    assert_eq!(kept.sequence == 0, kept.condition == Condition::Lost);
    let Kept {
        sequence, entries, ..
    } = kept;
    file.resize(FILE_BYTES, 0);
    if let Some(next) = sequence.checked_add(1) {
        write_next(&slots, &mut file, next, &entries);
    }
    if entries.is_empty() { "nothing" } else { SOUND }.to_owned()
}

/// A slot whose header is right.
fn slot(slots: &Slots, given: &[u8]) -> Vec<u8> {
    let (sequence, json) = given.split_first_chunk().unwrap_or((&[0; 8], &[]));
    slots.sealed(u64::from_le_bytes(*sequence), json)
}

/// What was read and is written again is read again.
fn write_next(slots: &Slots, file: &mut [u8], sequence: u64, entries: &[Entry]) {
    let Ok(slot) = slots.encode(sequence, entries) else {
        return;
    };
    let at = Slots::offset(sequence) as usize;
    let Some(place) = file.get_mut(at..at + slot.len()) else {
        panic!("a slot of {} bytes does not fit", slot.len());
    };
    place.copy_from_slice(&slot);
    for sequence in [sequence - 1, sequence] {
        let (mark, at) = slots.mark(sequence);
        let Some(place) = file
            .get_mut(at as usize..)
            .and_then(|file| file.get_mut(..mark.len()))
        else {
            panic!("a mark at {at} does not fit");
        };
        place.copy_from_slice(&mark);
    }
    let bare =
        |entries: &[Entry]| -> Vec<_> { entries.iter().map(Entry::without_detail).collect() };
    let again = slots.decode(file);
    assert_eq!(again.condition, Condition::Sound);
    assert_eq!(
        (again.sequence, bare(&again.entries)),
        (sequence, bare(entries))
    );
}
