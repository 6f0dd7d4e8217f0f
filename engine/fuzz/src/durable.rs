//! The slots of `durable`: where the logs end without staging.
//!
//! Input: flags, then what the two slots hold before their zeroes, half of the input each.

use loom_engine::format::{LOSS_TABLE_BYTES, LOSSES_LOG, SLOT_LOG, checksum_for};

use crate::files::in_folder;
use crate::world::{SLOT_BYTES, World, path};
use crate::{UNREPAIRED, flagged, questions};

pub fn run(input: &[u8]) -> String {
    let (flags, given) = flagged(input);
    let world = World::base();
    let mut file = Vec::with_capacity(2 * SLOT_BYTES);
    let (first, second) = given.split_at(given.len() / 2);
    for slot in [first, second] {
        let end = file.len() + SLOT_BYTES;
        file.extend(slot.iter().take(SLOT_BYTES));
        file.resize(end, 0);
    }
    if flags & UNREPAIRED == 0 {
        repair(&world.uuid, &mut file);
    }
    let mut files = world.files.clone();
    files.put(path("durable"), file);
    in_folder(|dir| files.write(dir), questions::ask)
}

/// Where the table of pending losses stands in a slot.
const LOSSES_OFFSET: usize = 152;

/// Makes the checksums of each whole slot right, the one of its table of pending losses first.
pub fn repair(uuid: &[u8; 16], file: &mut [u8]) {
    for (slot, number) in file.chunks_exact_mut(SLOT_BYTES).zip(0u64..) {
        let sequence = slot.get(8..).and_then(|slot| slot.first_chunk()).copied();
        let table = slot.get_mut(LOSSES_OFFSET..LOSSES_OFFSET + LOSS_TABLE_BYTES);
        if let Some((sum, rows)) = table.and_then(|table| table.split_first_chunk_mut::<4>()) {
            let sequence = u64::from_le_bytes(sequence.unwrap_or_default());
            if let Some(number) = rows.get_mut(4..12) {
                number.copy_from_slice(&sequence.to_le_bytes());
            }
            *sum = checksum_for(uuid, LOSSES_LOG, sequence, rows).to_le_bytes();
        }
        if let Some((head, body)) = slot.split_first_chunk_mut::<8>() {
            let sum = checksum_for(uuid, SLOT_LOG, number, body).to_le_bytes();
            if let Some(place) = head.last_chunk_mut::<4>() {
                *place = sum;
            }
        }
    }
}
