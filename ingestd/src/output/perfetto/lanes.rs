//! Tracks beside each other for the slices of one thread, service or source. On a track of Perfetto, slices begin and end like calls on a stack, and of
//! two at the same time the first in the file comes first. A slice that would break this goes to the next lane, so that each keeps its begin and end.

use std::collections::VecDeque;

/// Beyond so many, a slice gets a lane of its own, without a memory.
const LANES_MAX: usize = 8;
/// The spans of a lane that are remembered one by one.
const REMEMBERED: usize = 16;

#[derive(Default)]
pub(super) struct Lanes(Vec<Lane>);

#[derive(Default)]
struct Lane {
    uuid: u64,
    /// Apart from each other, and ascending.
    taken: VecDeque<(u64, u64)>,
}

impl Lanes {
    /// The uuid of the track for a slice, 0 if it is new; `None` for one that no other slice uses.
    pub(super) fn place(&mut self, begin: u64, end: u64) -> Option<&mut u64> {
        let fitting = self.0.iter_mut().position(|lane| lane.take(begin, end));
        let at = match fitting {
            Some(at) => at,
            None if self.0.len() == LANES_MAX => return None,
            None => {
                let mut lane = Lane::default();
                lane.take(begin, end);
                self.0.push(lane);
                self.0.len() - 1
            }
        };
        Some(&mut self.0.get_mut(at)?.uuid)
    }

    /// The lane of what has no length.
    pub(super) fn first(&mut self) -> &mut u64 {
        if self.0.is_empty() {
            self.0.push(Lane::default());
        }
        &mut self.0.first_mut().expect("a lane was added").uuid
    }
}

impl Lane {
    /// Takes a slice that comes after all others or around the latest of them. The latter began later, because one that began at the same time is the
    /// first in the file.
    fn take(&mut self, begin: u64, end: u64) -> bool {
        let before = self.taken.partition_point(|(from, _)| *from <= begin);
        let is_apart = |at: usize| self.taken.get(at).is_none_or(|(_, to)| *to <= begin);
        let is_last = self.taken.back().is_none_or(|(_, to)| *to <= end);
        if !is_last || !before.checked_sub(1).is_none_or(is_apart) {
            return false;
        }
        self.taken.truncate(before);
        self.taken.push_back((begin, end));
        if self.taken.len() > REMEMBERED
            && let (Some((from, _)), Some((_, to))) =
                (self.taken.pop_front(), self.taken.pop_front())
        {
            self.taken.push_front((from, to));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Reads slices as Perfetto does: it sorts, and an end belongs to the latest begin of its track.
    fn read(slices: &[(u64, u64)]) -> (Vec<(u64, u64)>, usize) {
        let (mut lanes, mut tracks) = (Lanes::default(), 0);
        let mut events = Vec::new();
        for (begin, end) in slices {
            let mut own = 0;
            let uuid = lanes.place(*begin, *end).unwrap_or(&mut own);
            if *uuid == 0 {
                tracks += 1;
                *uuid = tracks;
            }
            events.extend([(*begin, *uuid, true), (*end, *uuid, false)]);
        }
        events.sort_by_key(|(at, ..)| *at);
        let mut open: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut found = Vec::new();
        for (at, track, is_begin) in events {
            let open = open.entry(track).or_default();
            match is_begin {
                true => open.push(at),
                false => found.push((open.pop().unwrap(), at)),
            }
        }
        found.sort_unstable();
        (found, tracks as usize)
    }

    #[test]
    fn calls_and_the_calls_around_them_share_a_lane() {
        let calls = [(1, 2), (2, 3), (5, 5), (1, 9), (9, 10), (0, 12), (12, 12)];
        assert_eq!(read(&calls).1, 1 + 1, "one begins when another does");
        let many: Vec<_> = (0..1000_u64).map(|n| (3 * n + 1, 3 * n + 3)).collect();
        let around = [many, vec![(0, 5000)]].concat();
        assert_eq!(read(&around).1, 1);
    }

    proptest::proptest! {
        #[test]
        fn every_slice_keeps_its_begin_and_end(
            slices in proptest::collection::vec((0..40_u64, 0..12_u64), 0..120)
        ) {
            let mut slices: Vec<_> = slices.iter().map(|(at, len)| (*at, at + len)).collect();
            let read = read(&slices).0;
            slices.sort_unstable();
            proptest::prop_assert_eq!(read, slices);
        }
    }
}
