//! The values of one JSON object by key number, as slices of the text.

/// The values of one object by key number, as written.
#[derive(Default)]
pub(in super::super) struct Values<'a> {
    cells: Vec<Option<&'a str>>,
    /// A key with two values.
    pub(super) twice: Option<usize>,
    /// The number of values with an unknown key.
    pub(super) beyond: u64,
}

impl<'a> Values<'a> {
    pub(super) fn with_capacity(keys: usize) -> Values<'a> {
        Values {
            cells: Vec::with_capacity(keys),
            ..Values::default()
        }
    }

    pub(super) fn reset(&mut self) {
        self.cells.clear();
        (self.twice, self.beyond) = (None, 0);
    }

    /// Whether no key has two values.
    pub(super) fn are_single(&self) -> bool {
        self.twice.is_none()
    }

    pub(super) fn get(&self, number: usize) -> Option<&'a str> {
        self.cells.get(number).copied().flatten()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Option<&'a str>> {
        self.cells.iter().copied()
    }

    pub(super) fn set(&mut self, number: usize, value: &'a str) {
        if self.cells.len() <= number {
            self.cells.resize(number + 1, None);
        }
        if let Some(cell) = self.cells.get_mut(number)
            && cell.replace(value).is_some()
        {
            self.twice = Some(number);
        }
    }
}
