//! The states of an aggregate by row, as DuckDB 1 passes them.
//!
//! The array of an update has a state for each row, except from two callers, which own the memory of their states: an aggregate with ORDER BY, and a
//! window that is a whole partition. These pass one state for all rows, and nothing says so: the places behind it hold anything, even states of
//! other groups. They ask for the size of a state, and make all their states at once, one behind the other. So states that a thread makes this way
//! are a *family*. If the first state of an array has a family, the array is believed only if all its states are of this family. A hash table's
//! states lie in rows with other columns, so its second row ends the family. For a table, DuckDB asks at least once for each
//! aggregate of a row. So if it asked once and a family has several states, these are not the aggregates of a row, and the family has an *owner*.
//!
//! Behind a window's one place lies what was there before, maybe the states of an earlier window, which lay where this one's lie. So the arrays of an
//! owner are cleared after use: an owner writes them again before each update, and does not read them after the states are destroyed. Allocators align
//! an array to 16 bytes, but a single place to 8. So a place that is not aligned to 16 is alone, and behind one that is, the next lies in the same page.
//!
//! A table would be misread only if DuckDB moved it to a thread that has planned a query and made no state since, and the first row there had the
//! only new group of its batch. DuckDB 1 moves a table between threads only if its source waits. A window of
//! one partition would be misread only if its thread made states of another query's table meanwhile.

use std::cell::RefCell;
use std::ops::{Index, IndexMut};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use duckdb::ffi;

use crate::exec::bins::Bins;

/// A group's bins, in memory of DuckDB, which may move them.
pub struct State {
    bins: Bins,
    /// `None` for the states of a hash table, except its first one.
    family: Option<Arc<Family>>,
}

/// States that lie one behind the other.
struct Family {
    first: usize,
    /// Zero once a state lies elsewhere, if nobody owns the family: then its states are read as a table's.
    len: AtomicUsize,
    has_owner: bool,
}

impl Family {
    fn of(state: *const State, has_owner: bool) -> Arc<Family> {
        Arc::new(Family {
            first: state as usize,
            len: AtomicUsize::new(1),
            has_owner,
        })
    }

    /// The family of the state that its thread makes next; `None` if that state lies elsewhere.
    fn followed_by(self: &Arc<Family>, state: *const State) -> Option<Arc<Family>> {
        let len = self.len.load(Relaxed);
        if state as usize == self.first {
            // The owner destroyed its states, and uses the memory again.
            return Some(Family::of(state, self.has_owner));
        }
        let follows = state as usize == self.first + len * size_of::<State>();
        if follows {
            self.len.store(len + 1, Relaxed);
        } else if !self.has_owner || len == 1 {
            self.len.store(0, Relaxed);
        }
        follows.then(|| Arc::clone(self))
    }

    fn holds(&self, state: *const State) -> bool {
        let offset = (state as usize).wrapping_sub(self.first);
        offset.is_multiple_of(size_of::<State>())
            && offset / size_of::<State>() < self.len.load(Relaxed)
    }
}

/// The owner of the next state that this thread makes.
enum Making {
    Rows,
    /// The size was asked for so many times.
    Begun(usize),
    Family(Arc<Family>),
}

thread_local! {
    static MAKING: RefCell<Making> = const { RefCell::new(Making::Rows) };
}

/// Notes that DuckDB asked for the size of a state.
pub fn begin() {
    MAKING.with_borrow_mut(|making| {
        let times = match making {
            Making::Begun(times) => *times + 1,
            _ => 1,
        };
        *making = Making::Begun(times);
    });
}

/// Makes a state.
///
/// # Safety
///
/// `state` is aligned memory of a state's size.
pub unsafe fn add(state: *mut State) {
    let family = MAKING.with_borrow_mut(|making| {
        let family = match making {
            Making::Rows => None,
            Making::Begun(times) => Some(Family::of(state, *times == 1)),
            Making::Family(family) => family.followed_by(state),
        };
        *making = family.clone().map_or(Making::Rows, Making::Family);
        family
    });
    let bins = Bins::default();
    // SAFETY: as promised by the caller.
    unsafe { state.write(State { bins, family }) };
}

/// Destroys states.
///
/// # Safety
///
/// `states` has `count` states that `add` made, which nobody uses any more.
pub unsafe fn remove(states: *mut *mut State, count: usize) {
    for row in 0..count {
        // SAFETY: as promised by the caller.
        unsafe {
            let place = states.add(row);
            let has_owner = (*place.read()).is_owned();
            place.read().drop_in_place();
            if has_owner {
                place.write(null_mut());
            }
        }
    }
}

impl State {
    /// Whether it is one of several of an owner. A single one may also be of a table.
    fn is_owned(&self) -> bool {
        let family = self.family.as_ref();
        family.is_some_and(|family| family.has_owner && family.len.load(Relaxed) > 1)
    }
}

/// The states of groups, one for each row; several rows may have the same.
pub struct Groups {
    states: *mut *mut State,
    count: usize,
    /// Whether all rows have the first state.
    is_one: bool,
    /// Whether the array is cleared at the end.
    is_cleared: bool,
}

impl Groups {
    /// # Safety
    ///
    /// `states` has `count` states that `add` made, which nobody else uses while the groups are in use.
    pub unsafe fn new(states: *mut ffi::duckdb_aggregate_state, count: usize) -> Groups {
        Groups {
            states: states.cast(),
            count,
            is_one: false,
            is_cleared: false,
        }
    }

    /// The states of an update.
    ///
    /// # Safety
    ///
    /// As for [`Groups::new`], but there may be one state for all rows.
    pub unsafe fn of_rows(states: *mut ffi::duckdb_aggregate_state, count: usize) -> Groups {
        // SAFETY: as promised by the caller. No place behind the first is followed before it is compared.
        unsafe {
            let groups = Groups::new(states, count);
            if count == 0 {
                return groups;
            }
            let first = &*groups.states.read();
            let is_one = match &first.family {
                Some(family) => match family.len.load(Relaxed) {
                    0 => false,
                    1 => true,
                    _ => {
                        !states.cast::<u128>().is_aligned()
                            || !(1..count).all(|row| family.holds(groups.states.add(row).read()))
                    }
                },
                None => false,
            };
            Groups {
                is_one,
                is_cleared: first.is_owned(),
                ..groups
            }
        }
    }

    fn state(&self, row: usize) -> *mut State {
        assert!(row < self.count, "row {row} of {}", self.count);
        let place = if self.is_one { 0 } else { row };
        // SAFETY: the place lies in the array.
        unsafe { self.states.add(place).read() }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let places = match (self.is_cleared, self.is_one) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => self.count,
        };
        for row in 0..places {
            // SAFETY: the place lies in the array.
            unsafe { self.states.add(row).write(null_mut()) };
        }
    }
}

impl Index<usize> for Groups {
    type Output = Bins;

    fn index(&self, row: usize) -> &Bins {
        // SAFETY: the state is live, and the borrow of the groups keeps other references away.
        unsafe { &(*self.state(row)).bins }
    }
}

impl IndexMut<usize> for Groups {
    fn index_mut(&mut self, row: usize) -> &mut Bins {
        // SAFETY: as above.
        unsafe { &mut (*self.state(row)).bins }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    /// Memory for states, as an owner has it.
    fn memory(states: usize) -> Vec<MaybeUninit<State>> {
        (0..states).map(|_| MaybeUninit::uninit()).collect()
    }

    fn make(memory: &mut [MaybeUninit<State>]) -> Vec<*mut State> {
        let states: Vec<*mut State> = memory.iter_mut().map(MaybeUninit::as_mut_ptr).collect();
        for &state in &states {
            // SAFETY: the memory is that of a state, and is written once.
            unsafe { add(state) };
        }
        states
    }

    /// Counts 1 in each row's group.
    fn update(mut rows: Vec<*mut State>) {
        count_in(&mut rows);
    }

    fn count_in(rows: &mut [*mut State]) {
        // SAFETY: the states are live, or are not followed.
        let mut groups = unsafe { Groups::of_rows(rows.as_mut_ptr().cast(), rows.len()) };
        for row in 0..rows.len() {
            groups[row].add(1.0, 1).unwrap();
        }
    }

    /// Returns the counts of the states, and destroys them.
    fn counts(states: &[*mut State]) -> Vec<u64> {
        let count = |state: &*mut State| {
            // SAFETY: each state was made once, and is given once.
            unsafe { state.read() }.bins.count()
        };
        states.iter().map(count).collect()
    }

    #[test]
    fn states_of_a_table_have_their_own_rows() {
        // Rows of two states' size.
        let mut rows = memory(8);
        begin();
        let mut states = Vec::new();
        for place in [0, 2, 6, 4] {
            states.append(&mut make(&mut rows[place..=place]));
            let newest = *states.last().unwrap();
            let batch = [vec![newest], states.clone()].concat();
            update(batch);
        }
        assert_eq!(counts(&states), [5, 4, 3, 2]);
    }

    #[test]
    fn an_order_has_one_state_for_all_rows() {
        let mut others = memory(3);
        let others = make(&mut others);
        begin();
        let mut own = memory(1);
        for _ in 0..3 {
            let state = make(&mut own)[0];
            // Behind the only place lie states of others, and nothing.
            update([vec![state], others.clone(), vec![null_mut()]].concat());
            update(vec![state, others[1]]);
            assert_eq!(counts(&[state]), [7]);
        }
        assert_eq!(counts(&others), [0, 0, 0]);
    }

    #[test]
    fn a_window_has_one_state_for_all_rows_and_a_list_has_many() {
        // Two functions of one window make their states before either is updated.
        begin();
        let (mut first, mut second) = (memory(3), memory(2));
        let first = make(&mut first);
        begin();
        let second = make(&mut second);
        update(vec![first[1], second[0], second[1], second[0]]);
        update(vec![second[1], first[0], null_mut()]);
        update(vec![first[2], first[0], null_mut()]);
        assert_eq!(counts(&first), [0, 4, 3]);
        assert_eq!(counts(&second), [0, 3]);

        begin();
        let mut lists = memory(4);
        let states = make(&mut lists);
        update(vec![states[1], states[1], states[3], states[2], states[3]]);
        assert_eq!(counts(&states), [0, 2, 1, 2]);
    }

    #[test]
    fn no_array_keeps_the_states_of_a_window_that_ended() {
        let mut own = memory(3);
        let mut places = [null_mut(); 4];
        for _ in 0..2 {
            begin();
            let states = make(&mut own);
            for (place, &state) in states.iter().enumerate() {
                for rows in [1, 2, 1] {
                    // Behind it lie the states of an earlier window, at a place that is aligned or not.
                    places[place] = state;
                    count_in(&mut places[place..4.min(place + rows)]);
                }
            }
            assert_eq!(places, [null_mut(); 4]);
            let bins = |&state: &*mut State| {
                // SAFETY: it is live.
                unsafe { &*state }.bins.count()
            };
            assert_eq!(states.iter().map(bins).collect::<Vec<_>>(), [4, 4, 4]);
            places[..3].copy_from_slice(&states);
            // SAFETY: each state was made once, and is given once.
            unsafe { remove(places.as_mut_ptr(), 3) };
        }
    }

    #[test]
    fn a_place_that_is_not_aligned_is_alone() {
        begin();
        let mut own = memory(2);
        let states = make(&mut own);
        let mut places = [states[0], states[1], states[0]];
        let odd = usize::from(places.as_ptr().cast::<u128>().is_aligned());
        let rows = &mut places[odd..];
        let first = rows[0];
        count_in(&mut rows[..2]);
        for state in states {
            let counted = counts(&[state]);
            assert_eq!(counted, [if state == first { 2 } else { 0 }]);
        }
    }

    #[test]
    fn a_window_goes_on_while_its_thread_makes_states_of_a_table() {
        begin();
        let (mut own, mut rows) = (memory(2), memory(3));
        let states = make(&mut own);
        let table = make(&mut rows[1..2]);
        let mut array = vec![states[0], null_mut(), null_mut()];
        count_in(&mut array);
        assert_eq!(counts(&states), [3, 0]);
        assert_eq!(counts(&table), [0]);
    }

    #[test]
    fn the_aggregates_of_a_row_keep_their_places() {
        for _ in 0..3 {
            begin();
        }
        let mut row = memory(3);
        let states = make(&mut row);
        for &state in &states {
            let mut places = [state; 2];
            count_in(&mut places);
            assert_eq!(places, [state; 2]);
        }
        assert_eq!(counts(&states), [2, 2, 2]);
    }
}
