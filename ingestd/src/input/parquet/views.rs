//! Reads a file as other Arrow types: texts become views, so that any number of rows can share the bytes of a value.
//!
//! `parquet` and `int96` call it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};

/// Replaces texts and bytes by views.
pub(super) fn with_views(meta: &ArrowReaderMetadata) -> ArrowReaderMetadata {
    with_schema(meta, views(meta.schema().fields())).unwrap_or_else(|| meta.clone())
}

/// Reads the file as these types; `None` if that is impossible.
pub(super) fn with_schema(
    meta: &ArrowReaderMetadata,
    fields: impl Into<Fields>,
) -> Option<ArrowReaderMetadata> {
    let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
    ArrowReaderMetadata::try_new(Arc::clone(meta.metadata()), options).ok()
}

pub(super) fn views(fields: &Fields) -> Fields {
    fields.iter().map(view).collect()
}

fn view(field: &FieldRef) -> FieldRef {
    let ty = view_of(field.data_type());
    Arc::new(Field::clone(field).with_data_type(ty))
}

fn view_of(ty: &DataType) -> DataType {
    use DataType as A;
    match ty {
        A::List(item) => A::List(view(item)),
        A::LargeList(item) => A::LargeList(view(item)),
        A::FixedSizeList(item, length) => A::FixedSizeList(view(item), *length),
        A::Map(entry, sorted) => A::Map(view(entry), *sorted),
        A::Struct(fields) => A::Struct(views(fields)),
        A::Utf8 | A::LargeUtf8 => A::Utf8View,
        A::Binary | A::LargeBinary => A::BinaryView,
        A::Dictionary(_, values) if **values == A::Utf8 || **values == A::LargeUtf8 => A::Utf8View,
        A::Dictionary(_, values) if **values == A::Binary || **values == A::LargeBinary => {
            A::BinaryView
        }
        ty => ty.clone(),
    }
}
