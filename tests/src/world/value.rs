//! Random values of every field type, with difficult ones among them: in the encoder's form, as text for a file, and as SQL.

use loom_engine::schema::{FieldDef, FieldType, FieldValue};

use crate::seed::Seed;
use crate::table::Kind;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Int(i128),
    Float(f64),
    Bool(bool),
    Bytes(Vec<u8>),
}

/// The distribution of a field's values over the rows.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Spread {
    /// A few small values, many times each.
    Few,
    /// Ascending with the rows, so that chunks differ.
    Walk,
    /// Mostly small, with a long tail, like latencies.
    Skewed,
    /// Random bits.
    Any,
}

impl Spread {
    pub fn draw(seed: &mut Seed) -> Spread {
        seed.pick(&[
            Spread::Few,
            Spread::Walk,
            Spread::Walk,
            Spread::Skewed,
            Spread::Any,
        ])
    }
}

const WORDS: [&str; 9] = [
    "",
    "t",
    "te",
    "text",
    "GET",
    "GETs",
    "Zürich",
    "1",
    "a longer text, of more than twelve bytes",
];

pub fn kind(def: &FieldDef) -> Kind {
    match def.ty {
        _ if !def.labels.is_empty() => Kind::Label,
        FieldType::U8 | FieldType::I8 => Kind::Integer { bits: 8 },
        FieldType::U16 | FieldType::I16 => Kind::Integer { bits: 16 },
        FieldType::U32 | FieldType::I32 => Kind::Integer { bits: 32 },
        FieldType::U64 | FieldType::I64 => Kind::Integer { bits: 64 },
        FieldType::F32 | FieldType::F64 => Kind::Float,
        FieldType::Bool => Kind::Bool,
        FieldType::TimestampNs => Kind::Time,
        FieldType::Char(_) | FieldType::Utf8 | FieldType::Json => Kind::Text,
        FieldType::Bytes(_) | FieldType::VarBytes => Kind::Blob,
    }
}

/// The value of row `row`, which is not NULL.
pub fn draw(seed: &mut Seed, def: &FieldDef, spread: Spread, row: i64) -> Value {
    if let Some((least, greatest)) = def.ty.integer_range() {
        return Value::Int(integer(seed, spread, row, least, greatest));
    }
    match def.ty {
        FieldType::F64 => Value::Float(float(seed, spread, row)),
        FieldType::F32 => Value::Float(f64::from(float(seed, spread, row) as f32)),
        FieldType::Bool => Value::Bool(if spread == Spread::Walk {
            row / 1000 % 2 == 1
        } else {
            seed.chance(30)
        }),
        FieldType::TimestampNs => {
            // DuckDB does not print times near the ends of the type, which are its infinities.
            let most = 9_200_000_000_000_000_000;
            let near = integer(seed, spread, row, -most, most);
            let offset = 1_700_000_000_000_000_000;
            Value::Int(if seed.chance(90) {
                near % (1 << 40) + offset
            } else {
                near
            })
        }
        FieldType::Char(bytes) => {
            let mut word = seed.pick(&WORDS);
            while word.len() > usize::from(bytes) {
                word = WORDS[1];
            }
            Value::Bytes(word.as_bytes().to_vec())
        }
        FieldType::Bytes(bytes) => {
            Value::Bytes((0..bytes).map(|_| seed.pick(&[0, 1, 65, 255])).collect())
        }
        FieldType::VarBytes => Value::Bytes(
            (0..seed.between(0, 20))
                .map(|_| seed.pick(&[0, 1, 65, 255]))
                .collect(),
        ),
        FieldType::Json => Value::Bytes(format!("{{\"a\": {}}}", seed.between(0, 9)).into_bytes()),
        _ => Value::Bytes(seed.pick(&WORDS).as_bytes().to_vec()),
    }
}

fn integer(seed: &mut Seed, spread: Spread, row: i64, least: i128, greatest: i128) -> i128 {
    const NASTY: [i128; 10] = [
        0,
        1,
        -1,
        255,
        1 << 53,
        (1 << 53) + 1,
        (1 << 63) - 1,
        1 << 63,
        (1 << 63) + 1,
        -(1 << 53) - 1,
    ];
    let value = match spread {
        _ if seed.chance(1) => {
            let nasty = seed.pick(&NASTY);
            seed.pick(&[least, greatest, nasty])
        }
        Spread::Few => i128::from(seed.between(-2, 6)),
        Spread::Walk => least.max(-1000) + i128::from(row / 3 + seed.between(0, 20)),
        Spread::Skewed => {
            let octave = (0..5).map(|_| seed.between(0, 7)).sum::<i64>();
            i128::from((1_i64 << octave) + seed.between(0, 1 << octave))
        }
        Spread::Any => {
            i128::from(seed.draw() >> seed.between(0, 64)) * i128::from(seed.pick(&[1, 1, -1]))
        }
    };
    if (least..=greatest).contains(&value) {
        value
    } else {
        least + value.rem_euclid(greatest - least + 1)
    }
}

fn float(seed: &mut Seed, spread: Spread, row: i64) -> f64 {
    const NASTY: [f64; 14] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.0,
        1e300,
        -1e300,
        f64::MIN_POSITIVE,
        5e-324,
        9_007_199_254_740_993.0,
        0.1,
        -1.5,
        2.5,
        1e20,
    ];
    match spread {
        _ if seed.chance(1) => seed.pick(&NASTY),
        Spread::Few => seed.between(-3, 6) as f64 / 4.0,
        Spread::Walk => (row + seed.between(0, 100)) as f64 / 8.0 - 500.0,
        Spread::Skewed => 2_f64.powi(seed.between(-20, 40) as i32) * seed.pick(&[1.0, 1.25, -1.0]),
        Spread::Any => {
            let value = f64::from_bits(seed.draw());
            // A sum that overflows depends on the order in which it is added up.
            if value.is_nan() {
                f64::NAN
            } else if value.abs() > 1e300 && value.is_finite() {
                value * 1e-10
            } else {
                value
            }
        }
    }
}

impl Value {
    pub fn encoded(&self) -> FieldValue<'_> {
        match self {
            Value::Null => FieldValue::Null,
            Value::Int(value) => match u64::try_from(*value) {
                Ok(value) => FieldValue::U64(value),
                Err(_) => FieldValue::I64(*value as i64),
            },
            Value::Float(value) => FieldValue::F64(*value),
            Value::Bool(value) => FieldValue::Bool(*value),
            Value::Bytes(bytes) => FieldValue::Bytes(bytes),
        }
    }

    /// The value as text of a file, which [`from_text`] reads.
    pub fn text(&self, def: &FieldDef) -> Option<String> {
        Some(match self {
            Value::Null => return None,
            Value::Int(value) => def
                .labels
                .get(value)
                .cloned()
                .unwrap_or_else(|| value.to_string()),
            Value::Float(value) if value.is_nan() => "nan".to_owned(),
            Value::Float(value) => format!("{value:?}"),
            Value::Bool(value) => value.to_string(),
            Value::Bytes(bytes) if kind(def) == Kind::Blob => hex(bytes),
            Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        })
    }

    /// The value as a constant of SQL, of the column's type except for integers.
    pub fn literal(&self, def: &FieldDef) -> String {
        let Some(text) = self.text(def) else {
            return "NULL".to_owned();
        };
        match kind(def) {
            Kind::Integer { .. } | Kind::Bool => text,
            _ => from_text(def, &format!("'{text}'")),
        }
    }
}

/// SQL that converts a text to the field's type.
pub fn from_text(def: &FieldDef, text: &str) -> String {
    match kind(def) {
        Kind::Label | Kind::Text => text.to_owned(),
        Kind::Blob => format!("from_hex({text})"),
        Kind::Time => format!("make_timestamp_ns(CAST({text} AS BIGINT))"),
        Kind::Integer { .. } | Kind::Float | Kind::Bool => {
            format!("CAST({text} AS {})", sql_type(def.ty))
        }
    }
}

fn sql_type(ty: FieldType) -> &'static str {
    match ty {
        FieldType::U8 => "UTINYINT",
        FieldType::U16 => "USMALLINT",
        FieldType::U32 => "UINTEGER",
        FieldType::U64 => "UBIGINT",
        FieldType::I8 => "TINYINT",
        FieldType::I16 => "SMALLINT",
        FieldType::I32 => "INTEGER",
        FieldType::I64 => "BIGINT",
        FieldType::F32 => "FLOAT",
        FieldType::F64 => "DOUBLE",
        FieldType::Bool => "BOOLEAN",
        FieldType::TimestampNs => "TIMESTAMP_NS",
        FieldType::Bytes(_) | FieldType::VarBytes => "BLOB",
        FieldType::Char(_) | FieldType::Utf8 | FieldType::Json => "VARCHAR",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}
