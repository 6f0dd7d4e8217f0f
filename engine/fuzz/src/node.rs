//! A node of the chunk index: decoded, looked at from every side, taken apart, and encoded again.
//!
//! Input: flags, then the node's bytes.

use loom_engine::format::{IndexBlock, Node, checksum, encode_node};
use loom_engine::{Address, IndexId, LogKind, SourceId, Timestamp};

use crate::{SOUND, UNREPAIRED, UUID, flagged, label};

/// Where the node stands.
const AT: Address = Address(4096);

pub fn run(input: &[u8]) -> String {
    let (flags, given) = flagged(input);
    let mut bytes = given.to_vec();
    if flags & UNREPAIRED == 0 {
        repair(&UUID, AT, &mut bytes);
    }
    match Node::decode(&UUID, AT, &bytes) {
        Ok(node) => {
            look_at(&node);
            SOUND.to_owned()
        }
        Err(error) => label(&error),
    }
}

/// Makes the checksum of a node right, if there is room for one.
pub fn repair(uuid: &[u8; 16], at: Address, bytes: &mut [u8]) {
    let length = bytes.get(8..12).and_then(|length| length.first_chunk());
    let Some(length) = length.map(|length| u32::from_le_bytes(*length)) else {
        return;
    };
    let Some(covered) = bytes.get(8..length as usize) else {
        return;
    };
    let sum = checksum(uuid, LogKind::Chunks, at, covered).to_le_bytes();
    if let Some(place) = bytes
        .get_mut(4..)
        .and_then(|rest| rest.first_chunk_mut::<4>())
    {
        *place = sum;
    }
}

/// Holds what `Node::decode` has proven against every accessor.
fn look_at(node: &Node<'_>) {
    let mut previous = SourceId(0);
    for stats in node.sources() {
        assert!(stats.source > previous, "sources out of order");
        previous = stats.source;
        let found = node.source(stats.source).map(|found| found.records);
        assert_eq!(found, Some(stats.records));
        assert_eq!(
            stats.children().count(),
            stats.child_mask.count_ones() as usize
        );
        assert!(
            stats
                .previous_chunk
                .is_none_or(|chunk| chunk < node.first_chunk())
        );
    }
    assert!(node.source(SourceId(0)).is_none());
    let mut indexes = 0;
    for (source, block) in node.indexes() {
        indexes += 1;
        let found = node.index(source, block.index).map(|found| found.count);
        assert_eq!(found, Some(block.count));
        look_at_index(&block);
    }
    assert!(node.index(SourceId(u16::MAX), IndexId(u32::MAX)).is_none() || indexes > 0);
    let summary = node.to_summary();
    assert_eq!(summary.sources.len(), node.sources().count());
    let mut again = Vec::new();
    encode_node(&UUID, AT, &summary, |_, _| true, &mut again);
    std::hint::black_box((node.records(), node.missing_chunks(), node.node_bytes()));
    assert!(node.first_arrival() >= Timestamp::MIN && node.last_arrival() <= Timestamp::MAX);
}

fn look_at_index(block: &IndexBlock<'_>) {
    let mut last = None;
    let mut total = 0u64;
    for entry in block.bins() {
        assert!(last < Some(entry.bin), "bins out of order");
        assert_eq!(entry.stats.is_some(), block.has_bin_stats());
        last = Some(entry.bin);
        total = total.saturating_add(entry.count);
    }
    if block.count > 0 && block.has_bins() {
        assert_eq!(total, block.count, "bins that do not add up");
    }
    assert!(block.tops().all(|top| block.range.contains(top.key)));
    assert!(
        block
            .tops()
            .zip(block.tops().skip(1))
            .all(|(a, b)| a.key >= b.key)
    );
    std::hint::black_box((block.children().count(), block.has_children(), block.sum));
}
