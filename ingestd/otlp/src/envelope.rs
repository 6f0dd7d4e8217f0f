//! The structure that all three signals share: records in scopes in resources. Each record comes with its scope and resource.

use std::cell::Cell;

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use crate::json;
use crate::utf8;
use crate::wire::{Malformed, messages};

/// The longest resource, scope or record that is decoded. A longer one could not become a record.
const PART_BYTES_MAX: usize = 256 << 10;

/// The attributes that become the job and the instance. `host.name` is the instance only if `service.instance.id` is missing.
const IDENTIFYING: [&str; 3] = ["service.namespace", "service.name", "service.instance.id"];

/// The fields of ExportXServiceRequest, ResourceX and ScopeX, which are the same for each signal.
pub(crate) const RESOURCES: u32 = 1;
const RESOURCE: u32 = 1;
const SCOPES: u32 = 2;
const SCOPE: u32 = 1;
const ITEMS: u32 = 2;

/// The origin of records: their resource and their scope.
#[derive(Default)]
pub struct Origin {
    /// `service.name`.
    pub service: Option<String>,
    /// The resource's attributes as a JSON object.
    pub resource: Option<String>,
    /// The scope's name, version and attributes as a JSON object.
    pub scope: Option<String>,
    pub(crate) scope_name: String,
    pub(crate) scope_version: String,
    pub(crate) resource_attributes: Vec<KeyValue>,
    pub(crate) scope_attributes: Vec<KeyValue>,
}

/// An item and its origin, or the reason why it is refused.
pub(crate) type Item<'a> = (Result<&'a Origin, &'static str>, &'a [u8]);

/// A message that is decoded as a whole: its name in the schema, and the reasons to refuse one that is too long or cannot be decoded.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) long: &'static str,
    pub(crate) wrong: &'static str,
}

const OF_RESOURCE: Part = Part {
    name: "resource.v1.Resource",
    long: "its resource is longer than 256 KiB",
    wrong: "its resource is not one of OTLP",
};
const OF_SCOPE: Part = Part {
    name: "common.v1.InstrumentationScope",
    long: "its scope is longer than 256 KiB",
    wrong: "its scope is not one of OTLP",
};

impl Part {
    pub(crate) fn decoded<M: Message + Default>(
        &self,
        bytes: &[u8],
        is_repaired: &Cell<bool>,
    ) -> Result<M, &'static str> {
        if bytes.len() > PART_BYTES_MAX {
            return Err(self.long);
        }
        utf8::decoded(bytes, self.name, is_repaired).map_err(|_| self.wrong)
    }
}

/// Calls `each` for each record or span of a request, or with the reason why it is refused. Returns whether it repaired texts that are not UTF-8.
pub(crate) fn each_record<M: Message + Default>(
    body: &[u8],
    part: &Part,
    mut each: impl FnMut(Result<(&Origin, M), &'static str>),
) -> Result<bool, Malformed> {
    let is_repaired = Cell::new(false);
    for resource in messages(body, RESOURCES) {
        each_of_resource(resource?, &is_repaired, |(origin, bytes)| {
            each(origin.and_then(|origin| Ok((origin, part.decoded(bytes, &is_repaired)?))));
            Ok(())
        })?;
    }
    Ok(is_repaired.get())
}

/// Calls `each` for each record, span or metric of a resource. Returns the resource, unless it exceeds a limit.
pub(crate) fn each_of_resource(
    resource: &[u8],
    is_repaired: &Cell<bool>,
    mut each: impl FnMut(Item<'_>) -> Result<(), Malformed>,
) -> Result<Option<Origin>, Malformed> {
    let mut origin = Origin::of_resource(resource, is_repaired)?;
    for scope in messages(resource, SCOPES) {
        let scope = scope?;
        let entered = match &mut origin {
            Ok(origin) => origin.enter_scope(scope, is_repaired)?,
            Err(why) => Err(*why),
        };
        for item in messages(scope, ITEMS) {
            let around = entered.and_then(|()| origin.as_ref().map_err(|why| *why));
            each((around, item?))?;
        }
    }
    Ok(origin.ok())
}

impl Origin {
    fn of_resource(
        message: &[u8],
        is_repaired: &Cell<bool>,
    ) -> Result<Result<Origin, &'static str>, Malformed> {
        let Some(resource) = messages(message, RESOURCE).last().transpose()? else {
            return Ok(Ok(Origin::default()));
        };
        let resource = OF_RESOURCE.decoded(resource, is_repaired);
        Ok(resource.map(|Resource { attributes, .. }| Origin {
            service: text_of(&attributes, "service.name").map(str::to_owned),
            resource: json::object(&attributes).as_ref().map(json::text),
            resource_attributes: attributes,
            ..Origin::default()
        }))
    }

    fn enter_scope(
        &mut self,
        message: &[u8],
        is_repaired: &Cell<bool>,
    ) -> Result<Result<(), &'static str>, Malformed> {
        let scope = messages(message, SCOPE).last().transpose()?;
        let scope = scope.map(|scope| OF_SCOPE.decoded(scope, is_repaired));
        let scope = scope.transpose();
        Ok(scope.map(|scope| {
            let scope: InstrumentationScope = scope.unwrap_or_default();
            self.scope = json::scope(&scope);
            self.scope_name = scope.name;
            self.scope_version = scope.version;
            self.scope_attributes = scope.attributes;
        }))
    }

    /// The service with its namespace, which Prometheus calls the job.
    pub fn job(&self) -> String {
        let service = self.service.as_deref().unwrap_or("unknown_service");
        match text_of(&self.resource_attributes, "service.namespace") {
            Some(namespace) => format!("{namespace}/{service}"),
            None => service.to_owned(),
        }
    }

    /// The instance of the job: its `service.instance.id`, or else its host.
    pub fn instance(&self) -> String {
        let of = |key| text_of(&self.resource_attributes, key);
        let found = of("service.instance.id").or_else(|| of("host.name"));
        found.unwrap_or("unknown").to_owned()
    }

    /// The resource's attributes, without those of its service and its instance.
    pub(crate) fn other_attributes(&self) -> impl Iterator<Item = &KeyValue> {
        let all = &self.resource_attributes;
        // If one of these is not a text, it is in neither label.
        let is_known = |key| IDENTIFYING.contains(&key) && text_of(all, key).is_some();
        all.iter()
            .filter(move |attribute| !is_known(attribute.key.as_str()))
    }
}

/// An attribute that is a text and not empty.
fn text_of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match &value_of(attributes, key)?.value {
        Some(any_value::Value::StringValue(text)) if !text.is_empty() => Some(text),
        _ => None,
    }
}

pub(crate) fn value_of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a AnyValue> {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    found?.value.as_ref()
}
