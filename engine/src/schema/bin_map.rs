//! Maps keys to bins (FORMAT.md, *Bins*). `bin` is called for every indexed record.
//!
//! Invariant: `bin` never decreases as the key grows, so a range of keys is a range of bins.

use std::sync::Arc;

use super::bins::BinsDef;
use crate::error::{Error, Result};
use crate::proven::at;
use crate::types::{Key, ValueKind};

const SIGN: u64 = 1 << 63;
/// The bin `M` of the greatest magnitude, `u64::MAX`.
const MAGNITUDE_BIN_MAX: u16 = 1919;
/// The bin of zero among signed integers.
const SIGNED_ZERO: u16 = 1921;
/// The greatest `F`, for magnitudes just below 2^64.
const FLOAT_BIN_MAX: u16 = 4096;
/// The bin of zero among floats.
const FLOAT_ZERO: u16 = 4097;
/// The bits of a float below its exponent and the 5 bits after the leading one.
const FLOAT_SHIFT: u32 = 47;
/// Exponent and 5 bits of 2^-64, the least magnitude that has a bin of its own.
const FLOAT_BASE: u64 = (1023 - 64) << 5;

/// The bins of one index, numbered from 0, the outlier below, to `len() - 1`, the outlier above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BinMap {
    kind: ValueKind,
    bins: Bins,
}

/// The way in which a bin is found, decided once.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Bins {
    AutoUnsigned,
    AutoSigned,
    AutoFloat,
    /// The keys of the defined edges, ascending.
    Edges(Arc<[u64]>),
}

impl BinMap {
    /// Refuses edges that do not ascend, are not finite, or that the kind of value cannot hold.
    pub fn new(def: &BinsDef, kind: ValueKind) -> Result<BinMap> {
        let Some(edges) = def.edges()? else {
            let bins = match kind {
                ValueKind::Unsigned => Bins::AutoUnsigned,
                ValueKind::Signed => Bins::AutoSigned,
                ValueKind::Float => Bins::AutoFloat,
            };
            return Ok(BinMap { kind, bins });
        };
        let mut keys: Vec<u64> = Vec::with_capacity(edges.len());
        for edge in &edges {
            let Some(key) = edge.key(kind) else {
                return Err(Error::schema(format!(
                    "bins: the edge {edge} is outside the range of the field"
                )));
            };
            if keys.last().is_some_and(|&previous| previous >= key.0) {
                return Err(Error::schema(format!(
                    "bins: edges must ascend; {edge} is not above the edge before it{}",
                    if kind == ValueKind::Float {
                        ""
                    } else {
                        " once both are rounded up"
                    }
                )));
            }
            keys.push(key.0);
        }
        Ok(BinMap {
            kind,
            bins: Bins::Edges(keys.into()),
        })
    }

    #[inline]
    pub fn bin(&self, key: Key) -> u16 {
        match &self.bins {
            Bins::AutoUnsigned => 1 + magnitude_bin(key.0),
            Bins::AutoSigned => signed_bin(key),
            Bins::AutoFloat => float_bin(key),
            Bins::Edges(edges) => edges.partition_point(|&edge| edge <= key.0) as u16,
        }
    }

    /// Appends the bin of every key, in order. The kind of bins is checked once instead of for each key.
    pub fn load_bins(&self, keys: &[Key], bins: &mut Vec<u16>) {
        match &self.bins {
            Bins::AutoUnsigned => bins.extend(keys.iter().map(|key| 1 + magnitude_bin(key.0))),
            Bins::AutoSigned => bins.extend(keys.iter().map(|key| signed_bin(*key))),
            Bins::AutoFloat => bins.extend(keys.iter().map(|key| float_bin(*key))),
            Bins::Edges(_) => bins.extend(keys.iter().map(|key| self.bin(*key))),
        }
    }

    /// The number of bins, both outliers included: bins are `0..len()`.
    #[expect(clippy::len_without_is_empty, reason = "there are always the outliers")]
    pub fn len(&self) -> usize {
        usize::from(self.last()) + 1
    }

    /// Whether the bins are `auto`; those keep only counts.
    pub fn is_auto(&self) -> bool {
        !matches!(self.bins, Bins::Edges(_))
    }

    /// The kind of value to which keys decode.
    pub fn kind(&self) -> ValueKind {
        self.kind
    }

    /// The least key of a bin. A bin that no value can fall in has the least or greatest key of all.
    pub fn lower(&self, bin: u16) -> Key {
        if bin == 0 {
            return self.least();
        }
        if bin > self.last() {
            return self.greatest();
        }
        match &self.bins {
            Bins::AutoUnsigned => Key(magnitude_lower(bin - 1)),
            Bins::AutoSigned => signed_lower(bin),
            Bins::AutoFloat => float_lower(bin),
            Bins::Edges(edges) => Key(*at(edges, usize::from(bin) - 1)),
        }
    }

    /// The greatest key of a bin. A bin that no value can fall in has the least or greatest key of all.
    pub fn upper(&self, bin: u16) -> Key {
        if bin >= self.last() {
            return self.greatest();
        }
        let below = self.lower(bin + 1).0.saturating_sub(1);
        // No value has the key just below that of 0.0, because -0.0 has the key of 0.0.
        let below = if self.kind == ValueKind::Float && below == SIGN - 1 {
            below - 1
        } else {
            below
        };
        Key(below).max(self.least())
    }

    fn last(&self) -> u16 {
        match &self.bins {
            Bins::AutoUnsigned => 1 + MAGNITUDE_BIN_MAX,
            Bins::AutoSigned => SIGNED_ZERO + magnitude_bin(i64::MAX as u64),
            Bins::AutoFloat => FLOAT_ZERO + FLOAT_BIN_MAX + 1,
            Bins::Edges(edges) => edges.len() as u16,
        }
    }

    fn least(&self) -> Key {
        match self.kind {
            ValueKind::Unsigned | ValueKind::Signed => Key::MIN,
            ValueKind::Float => Key::from_f64(f64::NEG_INFINITY),
        }
    }

    fn greatest(&self) -> Key {
        match self.kind {
            ValueKind::Unsigned | ValueKind::Signed => Key::MAX,
            ValueKind::Float => Key::from_f64(f64::NAN),
        }
    }
}

/// `M(m)`: the magnitude itself below 64, then 32 bins to an octave.
#[inline]
fn magnitude_bin(magnitude: u64) -> u16 {
    let shift = 58 - (magnitude | 32).leading_zeros();
    (shift << 5) as u16 + (magnitude >> shift) as u16
}

/// The least magnitude of a bin; saturates if the bin lies above all magnitudes.
fn magnitude_lower(bin: u16) -> u64 {
    match bin {
        0..64 => u64::from(bin),
        64..=MAGNITUDE_BIN_MAX => u64::from(32 + bin % 32) << (bin / 32 - 1),
        _ => u64::MAX,
    }
}

#[inline]
fn signed_bin(key: Key) -> u16 {
    let value = key.to_i64();
    let bin = magnitude_bin(value.unsigned_abs()) as i16;
    let sign = (value >> 63) as i16;
    (SIGNED_ZERO as i16 + ((bin ^ sign) - sign)) as u16
}

#[inline]
fn float_bin(key: Key) -> u16 {
    // All bits are set for values below zero, whose keys are inverted.
    let sign = !((key.0 as i64 >> 63) as u64);
    let magnitude = (key.0 ^ sign) & !SIGN;
    let above = (magnitude >> FLOAT_SHIFT).saturating_sub(FLOAT_BASE - 1);
    let bin = above.min(u64::from(FLOAT_BIN_MAX) + 1) as i16;
    (FLOAT_ZERO as i16 + ((bin ^ sign as i16) - sign as i16)) as u16
}

fn signed_lower(bin: u16) -> Key {
    match bin.checked_sub(SIGNED_ZERO) {
        Some(magnitude) => Key(SIGN | magnitude_lower(magnitude)),
        // The least value has the greatest magnitude, one less than the start of the next magnitudes.
        None => Key((SIGN + 1).saturating_sub(magnitude_lower(SIGNED_ZERO - bin + 1))),
    }
}

fn float_lower(bin: u16) -> Key {
    match bin.checked_sub(FLOAT_ZERO) {
        Some(f @ 1..) => Key(SIGN | float_magnitude_lower(f)),
        _ => Key(SIGN - float_magnitude_lower(FLOAT_ZERO - bin + 1)),
    }
}

/// The bits of the least magnitude of `F`; `bin` counts from 1.
fn float_magnitude_lower(bin: u16) -> u64 {
    (FLOAT_BASE + u64::from(bin) - 1) << FLOAT_SHIFT
}

#[cfg(test)]
mod tests {
    use super::super::number::Number;
    use super::*;
    use proptest::prelude::*;

    const KINDS: [ValueKind; 3] = [ValueKind::Unsigned, ValueKind::Signed, ValueKind::Float];

    fn auto(kind: ValueKind) -> BinMap {
        BinMap::new(&BinsDef::Auto, kind).unwrap()
    }

    fn map(json: &str, kind: ValueKind) -> Result<BinMap> {
        BinMap::new(&serde_json::from_str(json).unwrap(), kind)
    }

    /// The tables of FORMAT.md, word for word.
    mod oracle {
        use super::*;

        fn magnitude(m: u64) -> u16 {
            if m < 64 {
                return m as u16;
            }
            let log2 = m.ilog2();
            let below_leading_one = (m - (1 << log2)) >> (log2 - 5);
            (64 + 32 * (log2 - 6)) as u16 + below_leading_one as u16
        }

        pub fn auto(key: Key, kind: ValueKind) -> u16 {
            match kind {
                ValueKind::Unsigned => 1 + magnitude(key.to_u64()),
                ValueKind::Signed => match key.to_i64() {
                    value @ 0.. => 1921 + magnitude(value as u64),
                    value => 1921 - magnitude(value.unsigned_abs()),
                },
                ValueKind::Float => float(key.to_f64()),
            }
        }

        fn float(value: f64) -> u16 {
            let limit = 2f64.powi(64);
            if value.is_nan() || value >= limit {
                return 8194;
            }
            if value <= -limit {
                return 0;
            }
            let magnitude = value.abs();
            if magnitude < 2f64.powi(-64) {
                return 4097;
            }
            let mut exponent = 0;
            let mut mantissa = magnitude;
            while mantissa >= 2.0 {
                mantissa /= 2.0;
                exponent += 1;
            }
            while mantissa < 1.0 {
                mantissa *= 2.0;
                exponent -= 1;
            }
            let f = 1 + 32 * (exponent + 64) + ((mantissa - 1.0) * 32.0) as i32;
            if value > 0.0 {
                (4097 + f) as u16
            } else {
                (4097 - f) as u16
            }
        }
    }

    /// Every bin that a value can fall in is exactly the keys from `lower` to `upper`, and they ascend without gaps.
    fn assert_partition(map: &BinMap) {
        let mut next = None;
        for bin in 0..map.len() as u16 {
            let (lower, upper) = (map.lower(bin), map.upper(bin));
            if map.bin(lower) != bin {
                assert!(
                    lower == map.least() || lower == map.greatest(),
                    "{bin} of {map:?}"
                );
                continue;
            }
            assert!(lower <= upper, "{bin} of {map:?}");
            assert_eq!(map.bin(upper), bin, "{map:?}");
            let first = next.unwrap_or(map.least());
            let negative_zero = Key(SIGN - 1);
            assert!(
                lower == first || (map.kind == ValueKind::Float && first == negative_zero),
                "{bin} of {map:?}: {lower:?} after {first:?}"
            );
            next = upper.0.checked_add(1).map(Key);
        }
        assert_eq!(map.upper(map.len() as u16 - 1), map.greatest());
        assert_eq!(map.lower(u16::MAX), map.greatest());
        assert_eq!(map.upper(u16::MAX), map.greatest());
    }

    #[test]
    fn auto_bins_partition_all_keys() {
        KINDS.iter().for_each(|&kind| assert_partition(&auto(kind)));
        assert_eq!(KINDS.map(|kind| auto(kind).len()), [1921, 3809, 8195]);
    }

    #[test]
    fn auto_bins_of_extremes_are_those_of_the_format() {
        let unsigned = |value| auto(ValueKind::Unsigned).bin(Key::from_u64(value));
        assert_eq!(
            [0, 1, 63, 64, 65, 66, u64::MAX].map(unsigned),
            [1, 2, 64, 65, 65, 66, 1920]
        );
        let signed = |value| auto(ValueKind::Signed).bin(Key::from_i64(value));
        assert_eq!(
            [i64::MIN, -1, 0, 1, i64::MAX].map(signed),
            [33, 1920, 1921, 1922, 3808]
        );
        let float = |value| auto(ValueKind::Float).bin(Key::from_f64(value));
        assert_eq!(
            [f64::NAN, f64::INFINITY, 2f64.powi(64), f64::MAX].map(float),
            [8194; 4]
        );
        assert_eq!([f64::NEG_INFINITY, -(2f64.powi(64))].map(float), [0; 2]);
        assert_eq!(
            [0.0, -0.0, 1e-20, -1e-20, f64::MIN_POSITIVE].map(float),
            [4097; 5]
        );
        assert_eq!([1.0, -1.0].map(float), [4097 + 2049, 4097 - 2049]);
    }

    proptest! {
        #[test]
        fn auto_bins_are_those_of_the_format(bits: u64, shift in 0u32..64) {
            let keys = [
                (Key::from_u64(bits >> shift), ValueKind::Unsigned),
                (Key::from_i64(bits as i64 >> shift), ValueKind::Signed),
                (Key::from_f64(f64::from_bits(bits)), ValueKind::Float),
                (Key::from_f64((bits >> shift) as f64), ValueKind::Float),
                (Key::from_f64(-1.0 / (bits >> shift) as f64), ValueKind::Float),
            ];
            for (key, kind) in keys {
                prop_assert_eq!(auto(kind).bin(key), oracle::auto(key, kind), "{:?} {:?}", kind, key);
            }
        }

        #[test]
        fn bins_ascend_with_any_key(a: u64, b: u64) {
            let (low, high) = (Key(a.min(b)), Key(a.max(b)));
            for kind in KINDS {
                let map = auto(kind);
                prop_assert!(map.bin(low) <= map.bin(high));
                prop_assert!(usize::from(map.bin(high)) < map.len());
            }
        }

        #[test]
        fn edges_partition_all_keys(mut edges in prop::collection::btree_set(any::<i64>(), 2..50), near in -50i64..50) {
            edges.extend([near, near + 1]);
            let def = BinsDef::Edges(edges.iter().map(|&edge| Number::from(edge)).collect());
            assert_partition(&BinMap::new(&def, ValueKind::Signed).unwrap());
            let floats = edges.iter().map(|&edge| Number::Float(edge as f64 / 1e3));
            if let Ok(map) = BinMap::new(&BinsDef::Edges(floats.collect()), ValueKind::Float) {
                assert_partition(&map);
            }
        }

        #[test]
        fn a_value_lies_between_the_edges_of_its_bin(
            edges in prop::collection::btree_set(-100i32..100, 2..20), value in -120i64..120,
        ) {
            let edges: Vec<i32> = edges.into_iter().collect();
            let def = BinsDef::Edges(edges.iter().map(|&edge| Number::from(i64::from(edge))).collect());
            let expected = edges.iter().filter(|&&edge| i64::from(edge) <= value).count() as u16;
            let (signed, float) = (Key::from_i64(value), Key::from_f64(value as f64));
            prop_assert_eq!(BinMap::new(&def, ValueKind::Signed).unwrap().bin(signed), expected);
            prop_assert_eq!(BinMap::new(&def, ValueKind::Float).unwrap().bin(float), expected);
        }
    }

    #[test]
    fn edges_of_integers_are_rounded_up() {
        let map = map("[0.5, 3, 7.25]", ValueKind::Unsigned).unwrap();
        let bins = [0, 1, 2, 3, 7, 8, u64::MAX].map(|value| map.bin(Key::from_u64(value)));
        assert_eq!(bins, [0, 1, 1, 2, 2, 3, 3]);
        assert_partition(&map);
    }

    #[test]
    fn edges_at_the_ends_of_the_type_are_allowed() {
        assert_partition(&map("[0, 18446744073709551615]", ValueKind::Unsigned).unwrap());
        let signed = "[-9223372036854775808, 0, 9223372036854775807]";
        assert_partition(&map(signed, ValueKind::Signed).unwrap());
        assert_partition(
            &map("[-1.7976931348623157e308, -0.0, 5e-324]", ValueKind::Float).unwrap(),
        );
    }

    // case Corruption: bins that do not ascend or are not numbers
    #[test]
    fn edges_that_do_not_ascend_or_fit_are_refused() {
        for (json, kind) in [
            ("[1, 1]", ValueKind::Float),
            ("[2, 1]", ValueKind::Signed),
            ("[0.0, -0.0]", ValueKind::Float),
            ("[1.2, 1.8]", ValueKind::Unsigned),
            ("[-1, 1]", ValueKind::Unsigned),
            ("[1, 18446744073709551615]", ValueKind::Signed),
            (r#"{"from":1,"factor":2,"count":64}"#, ValueKind::Unsigned),
            (r#"{"from":1e300,"factor":10,"count":20}"#, ValueKind::Float),
        ] {
            assert!(map(json, kind).is_err(), "{json}");
        }
        let message = map("[1.2, 1.8]", ValueKind::Unsigned)
            .unwrap_err()
            .to_string();
        assert!(message.contains("rounded up"), "{message}");
    }

    #[test]
    fn geometric_and_linear_bins_have_the_edges_declared() {
        let geometric = map(
            r#"{"from":1000,"factor":2,"count":24}"#,
            ValueKind::Unsigned,
        )
        .unwrap();
        assert_eq!(geometric.len(), 26);
        assert_eq!(geometric.lower(1), Key(1000));
        assert_eq!(geometric.upper(24), Key((1000 << 24) - 1));
        assert_eq!(geometric.bin(Key(1000 << 24)), 25);
        let linear = map(r#"{"from":-1,"step":0.5,"count":4}"#, ValueKind::Float).unwrap();
        assert_eq!(linear.len(), 6);
        assert_eq!(linear.lower(2).to_f64(), -0.5);
        assert_eq!(linear.lower(5).to_f64(), 1.0);
        assert_eq!(linear.upper(2).to_f64(), -5e-324);
        assert!(!linear.is_auto() && auto(ValueKind::Float).is_auto());
    }
}
