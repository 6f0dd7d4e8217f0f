//! Encodes values of any Arrow type as JSON, for columns without a field type.
//!
//! `arrow-json` writes most types, and calls back here for those that it writes differently or not at all: NULLs among the values of a dictionary,
//! maps whose keys are not texts, unions, times outside any calendar, NaN and infinities. `cells` is the only caller.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use arrow::array::{
    Array, ArrayRef, AsArray, LargeBinaryArray, LargeBinaryBuilder, MapArray, UnionArray,
    downcast_dictionary_array,
};
use arrow::datatypes::{
    ArrowNativeType, DataType, Field, FieldRef, Float16Type, Float32Type, Float64Type,
};
use arrow::error::ArrowError;
use arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::columns::named;

/// A column as JSON.
pub(super) struct Encoded {
    pub values: LargeBinaryArray,
    /// Rows that cannot be encoded, with the reason. They are NULL in `values`.
    pub failed: Vec<(usize, String)>,
    /// Rows with NaN or an infinity, which JSON can only write as a string.
    pub not_finite: Vec<usize>,
}

/// Encodes each value of a column. An error means that JSON cannot express the type.
pub(super) fn encoded(column: &ArrayRef, field_name: &str) -> anyhow::Result<Encoded> {
    let field = Arc::new(Field::new("value", column.data_type().clone(), true));
    let remarks = Remarks::default();
    let options = EncoderOptions::default()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(Others(remarks.clone())));
    let mut encoder = make_encoder(&field, column, &options).with_context(|| {
        format!(
            "values of type {} cannot become json",
            named(column.data_type())
        )
    })?;
    let nulls = column.logical_nulls();
    let mut out = LargeBinaryBuilder::new();
    let (mut failed, mut not_finite, mut value) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..column.len() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.append_null();
            continue;
        }
        value.clear();
        encoder.encode(row, &mut value);
        let remark = remarks.take();
        match remark.failure {
            None => {
                out.append_value(&value);
                not_finite.extend(remark.not_finite.then_some(row));
            }
            Some(reason) => {
                out.append_null();
                failed.push((
                    row,
                    format!("field '{field_name}' cannot hold its value: {reason}"),
                ));
            }
        }
    }
    Ok(Encoded {
        values: out.finish(),
        failed,
        not_finite,
    })
}

/// Remarks about the current value; encoders have no other way to return them.
#[derive(Clone, Debug, Default)]
struct Remarks(Arc<Mutex<Remark>>);

#[derive(Debug, Default)]
struct Remark {
    /// The reason why a part of the value has no JSON.
    failure: Option<String>,
    not_finite: bool,
}

impl Remarks {
    fn at_hand(&self) -> MutexGuard<'_, Remark> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, error: &ArrowError) {
        let mut remark = self.at_hand();
        remark.failure.get_or_insert_with(|| error.to_string());
    }

    fn take(&self) -> Remark {
        std::mem::take(&mut *self.at_hand())
    }
}

/// Makes the encoders of this file.
#[derive(Debug)]
struct Others(Remarks);

impl EncoderFactory for Others {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Dictionary(_, _) => downcast_dictionary_array! {
                array => {
                    let keys = array.keys();
                    Box::new(Shared {
                        key: Box::new(move |row| keys.value(row).as_usize()),
                        values: make_encoder(field, array.values(), options)?,
                    })
                }
                _ => return Ok(None)
            },
            DataType::Map(_, _) => {
                let map = array.as_map();
                let keys = ArrayFormatter::try_new(map.keys(), &PRINTED)?;
                let values = make_encoder(field, map.values(), options)?;
                let remarks = self.0.clone();
                Box::new(Map {
                    map,
                    keys,
                    values,
                    remarks,
                })
            }
            DataType::Union(fields, _) => {
                let array = array.as_union();
                let child = |(id, field): (i8, &'a FieldRef)| {
                    Ok((id, make_encoder(field, array.child(id), options)?))
                };
                let children = fields
                    .iter()
                    .map(child)
                    .collect::<Result<_, ArrowError>>()?;
                Box::new(Union { array, children })
            }
            ty if ty.is_floating() => Box::new(Float {
                array,
                finite: make_encoder(field, array, &PLAIN)?,
                remarks: self.0.clone(),
            }),
            ty if ty.is_temporal() => Box::new(Time {
                values: ArrayFormatter::try_new(array, &PRINTED)?,
                remarks: self.0.clone(),
            }),
            _ => return Ok(None),
        };
        // The encoders write NULLs within a value themselves.
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

static PLAIN: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);
const PRINTED: FormatOptions<'static> = FormatOptions::new();

fn encode(encoder: &mut NullableEncoder<'_>, at: usize, out: &mut Vec<u8>) {
    if encoder.is_null(at) {
        out.extend_from_slice(b"null");
    } else {
        encoder.encode(at, out);
    }
}

/// Writes the printed value as a JSON string.
fn encode_printed(values: &ArrayFormatter<'_>, at: usize, remarks: &Remarks, out: &mut Vec<u8>) {
    let mut printed = String::new();
    let written = values.value(at).write(&mut printed);
    let quoted = written.and_then(|()| {
        serde_json::to_writer(out, &printed)
            .map_err(|error| ArrowError::JsonError(error.to_string()))
    });
    if let Err(error) = quoted {
        remarks.note(&error);
    }
}

/// The values of a dictionary.
struct Shared<'a> {
    key: Box<dyn Fn(usize) -> usize + 'a>,
    values: NullableEncoder<'a>,
}

impl Encoder for Shared<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        encode(&mut self.values, (self.key)(row), out);
    }
}

/// A map, written as an object with the printed keys as names.
struct Map<'a> {
    map: &'a MapArray,
    keys: ArrayFormatter<'a>,
    values: NullableEncoder<'a>,
    remarks: Remarks,
}

impl Encoder for Map<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let [from, to] = [row, row + 1].map(|end| {
            let end = self.map.offsets().get(end);
            end.and_then(|end| usize::try_from(*end).ok()).unwrap_or(0)
        });
        out.push(b'{');
        for at in from..to {
            if at > from {
                out.push(b',');
            }
            encode_printed(&self.keys, at, &self.remarks, out);
            out.push(b':');
            encode(&mut self.values, at, out);
        }
        out.push(b'}');
    }
}

/// A union, written as its current value.
struct Union<'a> {
    array: &'a UnionArray,
    children: Vec<(i8, NullableEncoder<'a>)>,
}

impl Encoder for Union<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let id = self.array.type_id(row);
        match self.children.iter_mut().find(|(child, _)| *child == id) {
            Some((_, child)) => encode(child, self.array.value_offset(row), out),
            None => out.extend_from_slice(b"null"),
        }
    }
}

/// A number, or the name of NaN or an infinity as a string.
struct Float<'a> {
    array: &'a dyn Array,
    finite: NullableEncoder<'a>,
    remarks: Remarks,
}

impl Encoder for Float<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = match self.array.data_type() {
            DataType::Float16 => self.array.as_primitive::<Float16Type>().value(row).to_f64(),
            DataType::Float32 => f64::from(self.array.as_primitive::<Float32Type>().value(row)),
            _ => self.array.as_primitive::<Float64Type>().value(row),
        };
        if value.is_finite() {
            return self.finite.encode(row, out);
        }
        self.remarks.at_hand().not_finite = true;
        let name: &[u8] = match value {
            f64::INFINITY => br#""Infinity""#,
            f64::NEG_INFINITY => br#""-Infinity""#,
            _ => br#""NaN""#,
        };
        out.extend_from_slice(name);
    }
}

/// Dates, times and durations, written as a string.
struct Time<'a> {
    values: ArrayFormatter<'a>,
    remarks: Remarks,
}

impl Encoder for Time<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        encode_printed(&self.values, row, &self.remarks, out);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryArray, DictionaryArray, Float32Array, Float64Array, Int32Array, Int32Builder,
        Int64Array, ListArray, MapBuilder, StringArray, StringBuilder, StructArray,
        Time64MicrosecondArray, UnionArray,
    };
    use arrow::buffer::{OffsetBuffer, ScalarBuffer};
    use arrow::datatypes::{Int32Type, UnionFields};

    use super::*;

    /// The JSON of each row; `-` for NULL.
    fn lines(column: ArrayRef) -> Vec<String> {
        let encoded = encoded(&column, "f").unwrap();
        assert!(encoded.failed.is_empty(), "{:?}", encoded.failed);
        let line = |value: Option<&[u8]>| {
            let Some(value) = value else {
                return "-".to_owned();
            };
            serde_json::from_slice::<serde_json::Value>(value).unwrap();
            String::from_utf8(value.to_vec()).unwrap()
        };
        encoded.values.iter().map(line).collect()
    }

    fn listed(values: ArrayRef, lengths: &[usize]) -> ArrayRef {
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
        Arc::new(ListArray::new(field, offsets, values, None))
    }

    #[test]
    fn a_null_among_the_values_of_a_dictionary_is_null() {
        let keys = Int32Array::from(vec![Some(0), Some(1), None, Some(2)]);
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("")]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(0)]));
        for (values, expected) in [
            (texts, [r#"["a",null]"#, r#"[null,""]"#]),
            (numbers, ["[7,null]", "[null,0]"]),
        ] {
            let dictionary = DictionaryArray::<Int32Type>::new(keys.clone(), values);
            assert_eq!(lines(listed(Arc::new(dictionary), &[2, 2])), expected);
        }
        let none: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
        let keys = Int32Array::from(vec![None, None]);
        let nulls: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(keys, none));
        assert_eq!(lines(listed(nulls, &[2])), ["[null,null]"]);
    }

    #[test]
    fn keys_of_a_map_are_strings_whatever_their_type() {
        let mut map = MapBuilder::new(None, Int32Builder::new(), StringBuilder::new());
        map.keys().append_value(-1);
        map.values().append_value("a \"b\"");
        map.keys().append_value(2);
        map.values().append_null();
        map.append(true).unwrap();
        map.append(false).unwrap();
        map.append(true).unwrap();
        let map: ArrayRef = Arc::new(map.finish());
        assert_eq!(lines(map), [r#"{"-1":"a \"b\"","2":null}"#, "-", "{}"]);
        let mut named = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        named.keys().append_value("a \"b\"");
        named.values().append_value(1);
        named.append(true).unwrap();
        assert_eq!(lines(Arc::new(named.finish())), [r#"{"a \"b\"":1}"#]);
        let keys: [ArrayRef; 2] = [
            Arc::new(BinaryArray::from(vec![&b"\0\"\xff"[..]])),
            Arc::new(Float64Array::from(vec![f64::NAN])),
        ];
        for (key, expected) in keys.into_iter().zip([r#"{"0022ff":7}"#, r#"{"NaN":7}"#]) {
            let key_field = Field::new("key", key.data_type().clone(), false);
            let value_field = Field::new("value", DataType::Int64, true);
            let values: ArrayRef = Arc::new(Int64Array::from(vec![7]));
            let fields = vec![Arc::new(key_field), Arc::new(value_field)];
            let entries = StructArray::new(fields.into(), vec![key, values], None);
            let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
            let map = MapArray::new(field, OffsetBuffer::from_lengths([1]), entries, None, false);
            assert_eq!(lines(Arc::new(map)), [expected]);
        }
    }

    #[test]
    fn a_union_is_the_value_that_a_row_has() {
        let fields = UnionFields::try_new(
            vec![1, 5],
            vec![
                Field::new("number", DataType::Int32, true),
                Field::new("text", DataType::Utf8, true),
            ],
        )
        .unwrap();
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x, \"y\""]));
        let ids = ScalarBuffer::from(vec![5_i8, 1, 1]);
        let offsets = ScalarBuffer::from(vec![0, 0, 1]);
        let union = UnionArray::try_new(fields, ids, Some(offsets), vec![numbers, texts]).unwrap();
        let union: ArrayRef = Arc::new(union);
        assert_eq!(lines(Arc::clone(&union)), [r#""x, \"y\"""#, "3", "-"]);
        assert_eq!(lines(listed(union, &[3])), [r#"["x, \"y\"",3,null]"#]);
    }

    #[test]
    fn a_number_that_is_not_finite_is_the_string_of_its_name_and_counted() {
        let floats = vec![1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let narrow = Float32Array::from_iter_values(floats.iter().map(|float| *float as f32));
        let wide: ArrayRef = Arc::new(Float64Array::from(floats));
        for floats in [Arc::new(narrow), wide] {
            let encoded = encoded(&listed(floats, &[1, 3]), "f").unwrap();
            assert!(encoded.failed.is_empty());
            assert_eq!(encoded.values.value(0), b"[1.5]");
            assert_eq!(
                encoded.values.value(1),
                br#"["NaN","Infinity","-Infinity"]"#
            );
            assert_eq!(encoded.not_finite, [1]);
        }
    }

    #[test]
    fn a_time_that_no_clock_shows_refuses_its_row() {
        let times = Time64MicrosecondArray::from(vec![Some(3_723_000_001), Some(-1), None]);
        let times: ArrayRef = Arc::new(times);
        let encoded = encoded(&times, "f").unwrap();
        assert_eq!(encoded.values.value(0), br#""01:02:03.000001""#);
        assert_eq!(encoded.values.null_count(), 2);
        let [(1, reason)] = encoded.failed.as_slice() else {
            panic!("{:?}", encoded.failed);
        };
        assert!(reason.contains("-1"), "{reason}");
        let within = StructArray::from(vec![(
            Arc::new(Field::new("at", times.data_type().clone(), true)),
            times,
        )]);
        let within: ArrayRef = Arc::new(within);
        assert_eq!(super::encoded(&within, "f").unwrap().failed.len(), 1);
    }
}
