//! What all three signals share: records within scopes within resources. Each record is met with what stands around it.

use std::cell::Cell;

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::json;
use crate::utf8;
use crate::wire::{Malformed, messages};

/// The longest resource, scope or record that is decoded: none that is longer could become a record.
pub(crate) const PART_BYTES_MAX: usize = 256 << 10;

/// The attributes that make a job and an instance. `host.name` is an instance only if `service.instance.id` is missing.
const IDENTIFYING: [&str; 3] = ["service.namespace", "service.name", "service.instance.id"];

/// The fields of ExportXServiceRequest, ResourceX and ScopeX: the same of each signal.
pub(crate) const RESOURCES: u32 = 1;
pub(crate) const RESOURCE: u32 = 1;
pub(crate) const SCOPES: u32 = 2;
pub(crate) const SCOPE: u32 = 1;
pub(crate) const ITEMS: u32 = 2;

/// Where records come from: their resource and their scope.
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

/// An item, and where it comes from; why not, where that is out of bounds.
pub(crate) type Item<'a> = (Result<&'a Origin, &'static str>, &'a [u8]);

/// Calls `each` for each record or span of a request.
pub(crate) fn each_item(
    body: &[u8],
    is_repaired: &Cell<bool>,
    mut each: impl FnMut(Item<'_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    for resource in messages(body, RESOURCES) {
        each_of_resource(resource?, is_repaired, &mut each)?;
    }
    Ok(())
}

/// Calls `each` for each record, span or metric of a resource, and gives the resource, unless it is out of bounds.
pub(crate) fn each_of_resource(
    resource: &[u8],
    is_repaired: &Cell<bool>,
    mut each: impl FnMut(Item<'_>) -> Result<(), Malformed>,
) -> Result<Option<Origin>, Malformed> {
    let mut origin = of_resource(resource, is_repaired)?;
    for scope in messages(resource, SCOPES) {
        let scope = scope?;
        if let Ok(origin) = &mut origin {
            origin.clear_scope();
        }
        let enters = match &mut origin {
            Ok(origin) => enter_scope(origin, scope, is_repaired)?,
            Err(why) => Err(*why),
        };
        for item in messages(scope, ITEMS) {
            let around = match (&origin, enters) {
                (Ok(origin), Ok(())) => Ok(origin),
                (Err(why), _) => Err(*why),
                (_, Err(why)) => Err(why),
            };
            each((around, item?))?;
        }
    }
    Ok(origin.ok())
}

/// What stands around a record, and its bytes, or why it is refused.
pub(crate) fn record<'a>(
    (origin, bytes): Item<'a>,
) -> Result<(&'a Origin, &'a [u8]), &'static str> {
    let origin = origin?;
    match bytes.len() > PART_BYTES_MAX {
        true => Err("it is longer than 256 KiB"),
        false => Ok((origin, bytes)),
    }
}

fn of_resource(
    message: &[u8],
    is_repaired: &Cell<bool>,
) -> Result<Result<Origin, &'static str>, Malformed> {
    let Some(resource) = messages(message, RESOURCE).last().transpose()? else {
        return Ok(Ok(Origin::default()));
    };
    if resource.len() > PART_BYTES_MAX {
        return Ok(Err("its resource is longer than 256 KiB"));
    }
    let resource = utf8::decoded::<Resource>(resource, &utf8::RESOURCE, is_repaired);
    let Ok(Resource { attributes, .. }) = resource else {
        return Ok(Err("its resource is not one of OTLP"));
    };
    Ok(Ok(Origin {
        service: text_of(&attributes, "service.name").map(str::to_owned),
        resource: json::object(&attributes),
        resource_attributes: attributes,
        ..Origin::default()
    }))
}

fn enter_scope(
    origin: &mut Origin,
    message: &[u8],
    is_repaired: &Cell<bool>,
) -> Result<Result<(), &'static str>, Malformed> {
    let Some(scope) = messages(message, SCOPE).last().transpose()? else {
        return Ok(Ok(()));
    };
    if scope.len() > PART_BYTES_MAX {
        return Ok(Err("its scope is longer than 256 KiB"));
    }
    let scope = utf8::decoded::<InstrumentationScope>(scope, &utf8::SCOPE, is_repaired);
    let Ok(scope) = scope else {
        return Ok(Err("its scope is not one of OTLP"));
    };
    origin.scope = json::scope(&scope);
    origin.scope_name = scope.name;
    origin.scope_version = scope.version;
    origin.scope_attributes = scope.attributes;
    Ok(Ok(()))
}

impl Origin {
    fn clear_scope(&mut self) {
        self.scope = None;
        self.scope_name.clear();
        self.scope_version.clear();
        self.scope_attributes.clear();
    }

    /// The service with its namespace, as Prometheus names a job.
    pub fn job(&self) -> String {
        let service = self.service.as_deref().unwrap_or("unknown_service");
        match text_of(&self.resource_attributes, "service.namespace") {
            Some(namespace) => format!("{namespace}/{service}"),
            None => service.to_owned(),
        }
    }

    /// Which one of a job's: its `service.instance.id`, else its host.
    pub fn instance(&self) -> String {
        let of = |key| text_of(&self.resource_attributes, key);
        let found = of("service.instance.id").or_else(|| of("host.name"));
        found.unwrap_or("unknown").to_owned()
    }

    /// The resource's attributes that are neither its service nor the name of its instance.
    pub(crate) fn other_attributes(&self) -> impl Iterator<Item = &KeyValue> {
        let all = &self.resource_attributes;
        // If one of these is not a text, neither label has it.
        let is_known = |key| IDENTIFYING.contains(&key) && text_of(all, key).is_some();
        all.iter()
            .filter(move |attribute| !is_known(attribute.key.as_str()))
    }
}

/// An attribute that is a text, and not an empty one.
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
