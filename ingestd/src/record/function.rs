//! Records calls of functions into a source that has the name of their symbol, or hits of static probes into one that has theirs.

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{Function, ValueType};

use super::Capture;
use super::drainer::{Kind, Probed, is_over};
use crate::protocol::Shape;

/// Attaches the programs. `names` are those of the arguments' fields, in the order of the filter's arguments.
pub fn function(
    filter: &Function,
    names: &[String],
    source: Option<String>,
) -> anyhow::Result<Box<dyn Capture>> {
    let source = source.unwrap_or_else(|| filter.target.symbol().to_owned());
    let kind = Kind {
        shape: Shape::Fixed {
            record_bytes: filter.payload_bytes(),
        },
        event: "call",
        end: "return",
        unpaired: "calls that began before the recording, or in a process before it forked",
        under_way: Function::under_way,
        is_over: is_over(&filter.selection),
        least: Some(filter.latency_min),
    };
    let is_static = filter.target.is_static;
    Ok(Box::new(Probed::new(
        filter.open()?,
        definition(filter, names, source),
        match is_static {
            true => "probe, count(*)",
            false => "function, count(*), avg(latency_ns), max(latency_ns)",
        },
        Kind {
            // A hit has no duration.
            least: kind.least.filter(|_| !is_static),
            ..kind
        },
    )))
}

/// The fields are in the order in which the programs write them.
fn definition(filter: &Function, names: &[String], name: String) -> SourceDef {
    let functions = filter.target.functions.iter();
    let labels = functions.map(|function| (i128::from(function.number), function.name.clone()));
    let is_static = filter.target.is_static;
    let function = if is_static { "probe" } else { "function" };
    let mut fields = vec![
        FieldDef::new("latency_ns", FieldType::U64),
        FieldDef::new("cgroup", FieldType::U64),
        FieldDef {
            labels: labels.collect(),
            ..FieldDef::new(function, FieldType::U32)
        },
        FieldDef::new("pid", FieldType::U32),
        FieldDef::new("tid", FieldType::U32),
        FieldDef::new("comm", FieldType::Char(16)),
        FieldDef::new("cpu", FieldType::U16),
    ];
    let value = |name: &str, ty| FieldDef {
        nullable: true,
        ..FieldDef::new(name, field_type(ty))
    };
    let arguments = names.iter().zip(&filter.args);
    fields.extend(arguments.map(|(name, argument)| value(name, argument.ty)));
    fields.extend(filter.result.map(|ty| value("result", ty)));
    let mut indexes = vec![IndexDef::new("latency", Some("latency_ns"))];
    if is_static {
        fields.remove(0);
        indexes.clear();
    }
    SourceDef {
        time: TimeKind::Own,
        fields,
        indexes,
        ..SourceDef::new(name)
    }
}

fn field_type(ty: ValueType) -> FieldType {
    match ty {
        ValueType::I8 => FieldType::I8,
        ValueType::I16 => FieldType::I16,
        ValueType::I32 => FieldType::I32,
        ValueType::I64 => FieldType::I64,
        ValueType::U8 => FieldType::U8,
        ValueType::U16 => FieldType::U16,
        ValueType::U32 => FieldType::U32,
        ValueType::U64 | ValueType::Pointer => FieldType::U64,
        ValueType::Bool => FieldType::Bool,
        ValueType::Text => FieldType::Char(ty.bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loom_probes::{Argument, Selection, Target};

    use super::super::drainer::tests::check_layout;
    use super::*;

    #[test]
    fn payloads_have_the_layout_that_the_source_declares() {
        let mut filter = Function {
            target: Target::find("libc.so.6:getppid", &[]).unwrap(),
            selection: Selection::default(),
            latency_min: Duration::ZERO,
            args: Vec::new(),
            result: None,
        };
        let names = ["arg0", "path", "arg2"].map(str::to_owned);
        let check = |filter: &Function| {
            let source = definition(filter, &names, "getppid".to_owned());
            check_layout(&source, filter.payload_bytes());
        };
        check(&filter);
        filter.result = Some(ValueType::I32);
        check(&filter);
        let types = [ValueType::Bool, ValueType::Text, ValueType::Pointer];
        let args = (0..).zip(types).map(|(place, ty)| Argument { place, ty });
        filter.args = args.collect();
        check(&filter);
        filter.result = None;
        check(&filter);
        filter.target.is_static = true;
        check(&filter);
    }
}
