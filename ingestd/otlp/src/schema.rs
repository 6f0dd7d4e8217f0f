//! The messages of OTLP with the names, numbers and types of their fields, from the descriptors of the generated types. [`crate::from_json`] reads
//! requests by them, and [`crate::utf8`] finds the fields that are texts.

use std::collections::HashMap;
use std::sync::LazyLock;

use opentelemetry_proto::DESCRIPTORS;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

pub(crate) struct Message {
    /// The name with its package: `.opentelemetry.proto.logs.v1.LogRecord`.
    name: String,
    pub(crate) fields: Vec<Field>,
}

pub(crate) struct Field {
    pub(crate) number: u32,
    /// The name in JSON.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) is_list: bool,
    /// The index of its message.
    message: Option<usize>,
}

static MESSAGES: LazyLock<Vec<Message>> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(DESCRIPTORS).expect("the crate has its own descriptors");
    let mut found = Vec::new();
    for file in files.file {
        let package = format!(".{}", file.package());
        collect(&package, file.message_type, &mut found);
    }
    let places = found.iter().enumerate();
    let places: HashMap<String, usize> = places.map(|(at, (name, _))| (name.clone(), at)).collect();
    let messages = found.into_iter().map(|(name, fields)| Message {
        name,
        fields: fields.iter().map(|field| of(field, &places)).collect(),
    });
    messages.collect()
});

/// Messages and the messages within them, by name.
fn collect(
    within: &str,
    messages: Vec<DescriptorProto>,
    found: &mut Vec<(String, Vec<FieldDescriptorProto>)>,
) {
    for message in messages {
        let name = format!("{within}.{}", message.name());
        collect(&name, message.nested_type, found);
        found.push((name, message.field));
    }
}

fn of(field: &FieldDescriptorProto, places: &HashMap<String, usize>) -> Field {
    Field {
        number: field.number().unsigned_abs(),
        name: field.json_name().to_owned(),
        ty: field.r#type(),
        is_list: field.label() == Label::Repeated,
        message: places.get(field.type_name()).copied(),
    }
}

impl Message {
    /// The message of a name without the beginning of its package, such as `logs.v1.LogRecord`.
    pub(crate) fn named(name: &str) -> &'static Message {
        let mut all = MESSAGES.iter();
        let found = all.find(|message| message.name.strip_suffix(name).is_some());
        found.expect("OTLP has the message")
    }

    /// Whether it is a record, a metric or a data point: a mistake in one does not affect the others.
    pub(crate) fn is_part(&self) -> bool {
        ["DataPoint", ".LogRecord", ".Span", ".Metric"]
            .iter()
            .any(|end| self.name.ends_with(end))
    }
}

impl Field {
    pub(crate) fn message(&self) -> Option<&'static Message> {
        MESSAGES.get(self.message?)
    }
}
