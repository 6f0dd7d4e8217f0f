//! The SQL type of an index's values, and keys, sums and bin edges as cells of that type.

use loom_engine::schema::{BinMap, Domain, FieldType};
use loom_engine::{Key, Sum, ValueKind};

use super::part::Part;
use super::types::{SqlType, of_numbers};
use crate::error::Result;
use crate::exec::cells::Cell;

#[derive(Clone, Copy)]
pub struct Values {
    kind: ValueKind,
    /// `None` if the index only counts records.
    ty: Option<FieldType>,
}

impl Values {
    /// The values of the index that the call names.
    pub fn of(parts: &[Part]) -> Result<Values> {
        let first = parts.first();
        let Part { source, chosen, .. } = first.expect("a call reads at least one directory");
        let index = chosen.required_index()?;
        Ok(Values {
            kind: index.kind,
            ty: source.value_of(index).map(|field| field.ty),
        })
    }

    pub fn value_type(self) -> SqlType {
        self.ty.map_or(SqlType::I64, of_numbers)
    }

    pub fn sum_type(self) -> SqlType {
        if self.kind == ValueKind::Float {
            SqlType::F64
        } else {
            SqlType::Huge
        }
    }

    /// The sum of `count` values; NULL if there are none or the index only counts.
    pub fn sum(self, count: u64, sum: &Sum) -> Cell {
        match *sum {
            _ if self.ty.is_none() || count == 0 => Cell::Null,
            Sum::Int(value) => Cell::Int(value),
            Sum::Float { .. } => Cell::Float(sum.to_f64()),
        }
    }

    pub fn value(self, key: Option<Key>) -> Cell {
        let (Some(key), Some(ty)) = (key, self.ty) else {
            return Cell::Null;
        };
        match self.kind {
            ValueKind::Unsigned if ty == FieldType::Bool => Cell::Bool(key.to_u64() != 0),
            ValueKind::Unsigned => Cell::from(key.to_u64()),
            ValueKind::Signed => Cell::Int(i128::from(key.to_i64())),
            ValueKind::Float => Cell::Float(key.to_f64()),
        }
    }

    /// The least value of a bin. NULL for the lowest bin, and for a bin below the range of the type.
    pub fn lower(self, bins: &BinMap, bin: u16) -> Cell {
        if bin == 0 {
            return Cell::Null;
        }
        self.end(bins.lower(bin))
    }

    /// The end of a bin, exclusive. NULL for the highest bin, and for a bin above the range of the type.
    pub fn upper(self, bins: &BinMap, bin: u16) -> Cell {
        match bin.checked_add(1) {
            Some(next) if usize::from(next) < bins.len() => self.end(bins.lower(next)),
            _ => Cell::Null,
        }
    }

    /// The least value of the type that is not below a key.
    fn end(self, key: Key) -> Cell {
        let holds = match self.ty.and_then(Domain::of) {
            None => false,
            Some(Domain::Unsigned { greatest }) => key.to_u64() <= greatest,
            Some(Domain::Signed { least, greatest }) => (least..=greatest).contains(&key.to_i64()),
            Some(Domain::F32) => {
                let end = key.to_f64();
                let nearest = end as f32;
                let above = if f64::from(nearest) < end {
                    nearest.next_up()
                } else {
                    nearest
                };
                return Cell::Float(f64::from(above));
            }
            Some(Domain::F64) => true,
        };
        if holds {
            self.value(Some(key))
        } else {
            Cell::Null
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom_engine::schema::{BinsDef, Number};

    fn ends(ty: FieldType, kind: ValueKind, bins: &BinsDef, value: Key) -> (Cell, Cell) {
        let bins = BinMap::new(bins, kind).unwrap();
        let values = Values { kind, ty: Some(ty) };
        let bin = bins.bin(value);
        (values.lower(&bins, bin), values.upper(&bins, bin))
    }

    #[test]
    fn the_ends_of_a_bin_fit_the_type_or_are_null() {
        let auto = &BinsDef::Auto;
        let unsigned = |ty, value| ends(ty, ValueKind::Unsigned, auto, Key::from_u64(value));
        assert_eq!(unsigned(FieldType::U8, 0), (Cell::Int(0), Cell::Int(1)));
        assert_eq!(unsigned(FieldType::U8, 255), (Cell::Int(252), Cell::Null));
        assert_eq!(
            unsigned(FieldType::U16, 255),
            (Cell::Int(252), Cell::Int(256))
        );
        assert_eq!(unsigned(FieldType::U64, u64::MAX).1, Cell::Null);
        let signed = |ty, value| ends(ty, ValueKind::Signed, auto, Key::from_i64(value));
        assert_eq!(signed(FieldType::I8, -128), (Cell::Null, Cell::Int(-127)));
        assert_eq!(signed(FieldType::I8, -1), (Cell::Int(-1), Cell::Int(0)));
        let edges = &BinsDef::Edges([0.1, 5.0].map(Number::Float).to_vec());
        let float = |ty, value| ends(ty, ValueKind::Float, edges, Key::from_f64(value));
        assert_eq!(float(FieldType::F64, 0.05), (Cell::Null, Cell::Float(0.1)));
        assert_eq!(float(FieldType::F64, 7.0), (Cell::Float(5.0), Cell::Null));
        // This is the least FLOAT at or above 0.1.
        let single = Cell::Float(f64::from(0.1f32));
        assert_eq!(float(FieldType::F32, 0.2), (single, Cell::Float(5.0)));
    }

    #[test]
    fn an_index_that_counts_has_no_values() {
        let values = Values {
            kind: ValueKind::Unsigned,
            ty: None,
        };
        let bins = BinMap::new(&BinsDef::Auto, ValueKind::Unsigned).unwrap();
        assert_eq!(values.lower(&bins, 1), Cell::Null);
        assert_eq!(values.upper(&bins, 1), Cell::Null);
        assert_eq!(values.sum(3, &Sum::Int(0)), Cell::Null);
        assert_eq!(values.value(Some(Key(7))), Cell::Null);
    }
}
