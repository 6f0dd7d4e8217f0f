//! Random fields and indexes.

use anyhow::Result;
use loom_engine::schema::{FieldDef, FieldType, IndexDef, TimeKind};
use serde_json::json;

use super::value::{Spread, draw, kind};
use crate::seed::Seed;
use crate::table::Kind;

/// The parts of a source, in the order in which they are added.
pub struct Schema {
    pub time: TimeKind,
    pub fields: Vec<FieldDef>,
    /// The distribution of each field's values.
    pub spreads: Vec<Spread>,
    pub indexes: Vec<IndexDef>,
}

const TYPES: [FieldType; 19] = [
    FieldType::U8,
    FieldType::U16,
    FieldType::U32,
    FieldType::U64,
    FieldType::U64,
    FieldType::I8,
    FieldType::I16,
    FieldType::I32,
    FieldType::I64,
    FieldType::F32,
    FieldType::F64,
    FieldType::F64,
    FieldType::Bool,
    FieldType::TimestampNs,
    FieldType::Char(7),
    FieldType::Bytes(3),
    FieldType::Utf8,
    FieldType::VarBytes,
    FieldType::Json,
];

impl Schema {
    pub fn draw(seed: &mut Seed) -> Result<Schema> {
        let fixed = (0..seed.between(1, 9))
            .map(|at| field(seed, at))
            .collect::<Vec<_>>();
        // Fields of variable length follow those of fixed length.
        let (mut fields, late): (Vec<_>, Vec<_>) = fixed
            .into_iter()
            .partition(|def| def.ty.fixed_bytes().is_some());
        fields.extend(late);
        let spreads = fields.iter().map(|_| Spread::draw(seed)).collect();
        let time = seed.pick(&[TimeKind::Arrival, TimeKind::Own, TimeKind::Own]);
        let mut schema = Schema {
            time,
            fields,
            spreads,
            indexes: Vec::new(),
        };
        for _ in 0..seed.between(0, 8) {
            let index = schema.index(seed)?;
            schema.indexes.push(index);
        }
        Ok(schema)
    }

    /// Draws one more index: of a value, of a value that a filter selects, or of a filter alone.
    fn index(&self, seed: &mut Seed) -> Result<IndexDef> {
        let name = format!("i{}", self.indexes.len());
        let keyed: Vec<usize> = (0..self.fields.len())
            .filter(|at| {
                self.fields
                    .get(*at)
                    .is_some_and(|def| def.ty.kind().is_some())
            })
            .collect();
        let mut def = serde_json::Map::from_iter([("name".to_owned(), json!(name))]);
        let mut set = |key: &str, value| def.insert(key.to_owned(), value);
        if !keyed.is_empty() && seed.chance(85) {
            let at = seed.pick(&keyed);
            if let Some(field) = self.fields.get(at) {
                set("value", json!(field.name));
                if seed.chance(40) {
                    set("bins", bins(seed, field));
                }
            }
        }
        if seed.chance(35)
            && let Some(filter) = self.filter(seed, 2)
        {
            set("where", json!(filter));
        }
        Ok(serde_json::from_value(def.into())?)
    }

    /// Draws a filter that means the same in SQL.
    pub fn filter(&self, seed: &mut Seed, depth: u32) -> Option<String> {
        if depth > 0 && seed.chance(40) {
            let (one, other) = (self.filter(seed, depth - 1)?, self.filter(seed, depth - 1)?);
            return Some(match seed.between(0, 3) {
                0 => format!("NOT ({one})"),
                1 => format!("({one}) OR ({other})"),
                _ => format!("({one}) AND ({other})"),
            });
        }
        let comparable: Vec<usize> = (0..self.fields.len())
            .filter(|at| self.literal(seed, *at).is_some())
            .collect();
        if comparable.is_empty() {
            return None;
        }
        let at = seed.pick(&comparable);
        let (field, one, other) = (
            self.fields.get(at)?,
            self.literal(seed, at)?,
            self.literal(seed, at)?,
        );
        let name = &field.name;
        // Labels and texts are not ordered like numbers.
        let operators: &[&str] = if kind(field).is_number() {
            &["=", "<>", "<", "<=", ">", ">="]
        } else {
            &["=", "<>"]
        };
        let operator = seed.pick(operators);
        Some(match seed.between(0, 6) {
            0 => format!("{name} IN ({one}, {other})"),
            1 if operators.len() > 2 => format!("{name} BETWEEN {one} AND {other}"),
            2 => format!("{name} IS {}NULL", seed.pick(&["", "NOT "])),
            _ => format!("{name} {operator} {one}"),
        })
    }

    /// A value of the field as filters write it; `None` for types that filters do not compare in this way.
    fn literal(&self, seed: &mut Seed, at: usize) -> Option<String> {
        let (field, spread) = (self.fields.get(at)?, *self.spreads.get(at)?);
        let row = seed.between(0, 20_000);
        let value = draw(seed, field, spread, row);
        let text = value.text(field)?;
        match kind(field) {
            Kind::Integer { .. } | Kind::Bool => Some(text),
            Kind::Float => Some(format!("{}.5", seed.between(-400, 2000))),
            Kind::Label => Some(format!("'{text}'")),
            Kind::Time | Kind::Text | Kind::Blob => None,
        }
    }
}

fn field(seed: &mut Seed, at: i64) -> FieldDef {
    let mut def = FieldDef::new(format!("f{at}"), seed.pick(&TYPES));
    def.nullable = seed.chance(40);
    if def.ty.integer_range().is_some() && seed.chance(15) {
        def.labels = [
            (1, "GET".to_owned()),
            (2, "SET".to_owned()),
            (3, "1".to_owned()),
        ]
        .into();
    }
    def
}

fn bins(seed: &mut Seed, field: &FieldDef) -> serde_json::Value {
    match (field.ty, seed.between(0, 3)) {
        (FieldType::U8 | FieldType::I8 | FieldType::Bool, _) => json!([0, 1, 2, 3, 100]),
        (_, 0) => {
            json!({ "from": seed.between(0, 500), "step": seed.between(1, 500), "count": seed.between(1, 60) })
        }
        (_, 1) => {
            json!({ "from": seed.between(1, 100), "factor": 2, "count": seed.between(1, 14) })
        }
        _ => json!([0, 10, 11, 1000, 5000, 32_000]),
    }
}
