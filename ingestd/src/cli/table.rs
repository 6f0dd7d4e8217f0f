//! Plain tables for a terminal: text to the left, numbers to the right.

/// The kind of a column, and its name.
#[derive(Copy, Clone)]
pub(super) enum Column {
    Text(&'static str),
    Number(&'static str),
}
use Column::{Number, Text};

/// Rows of `N` cells; a column is as wide as its widest cell.
pub(super) struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(columns: [Column; N]) -> Self {
        let header = columns.map(|(Text(name) | Number(name))| name.to_owned());
        Table {
            columns,
            rows: vec![header],
        }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    pub(super) fn render(&self) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(self.columns).zip(widths);
            let cells = cells.map(|((cell, column), width)| match column {
                Text(_) => format!("{cell:<width$}"),
                Number(_) => format!("{cell:>width$}"),
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A number with commas between its thousands.
pub(super) fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new([Text("source"), Number("stored"), Text("fields")]);
        table.row(["x".to_owned(), count(1_234_567), "a, b, c".to_owned()]);
        table.row(["y".to_owned(), count(7), "a".to_owned()]);
        assert_eq!(
            table.render(),
            "source     stored  fields\nx       1,234,567  a, b, c\ny               7  a\n"
        );
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }
}
