//! The values of one JSON object, by the number of their key. Each is a part of the text, not a copy.

/// The values of one object, by the number of their key, each as it is written.
#[derive(Default)]
pub(in super::super) struct Values<'a> {
    cells: Vec<Option<&'a str>>,
    /// A key that has two values.
    pub(super) twice: Option<usize>,
    /// How many values have a key that is not looked at.
    pub(super) beyond: u64,
}

impl<'a> Values<'a> {
    pub(super) fn with_capacity(keys: usize) -> Values<'a> {
        Values {
            cells: Vec::with_capacity(keys),
            ..Values::default()
        }
    }

    /// Without any value.
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

    /// The value of each number in order, or none.
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
