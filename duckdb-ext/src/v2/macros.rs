//! Registers the macros of `sql/macros.sql` with C API v2, in DuckDB's own catalog. The user's catalog stays unchanged, and a user's macro
//! of the same name takes precedence.

use duckdb_neo::extension::Extension;
use duckdb_neo::macro_function::{MacroBody, MacroFunctionBuilder};
use duckdb_neo::signature::{FunctionDocumentationBuilder, FunctionParameter, SignatureBuilder};
use duckdb_neo::types::Any;

use crate::plan::macros::{self, Macro};

pub fn register_all(extension: &Extension) {
    for found in macros::all() {
        // If a name is taken, the user keeps it, and the extension loads without that macro.
        let _taken = register(extension, found);
    }
}

fn register(extension: &Extension, found: Macro) -> duckdb_neo::Result<()> {
    let docs = FunctionDocumentationBuilder::new()
        .description(found.description)
        .add_category("loom");
    let mut signature = SignatureBuilder::new().documentation(docs);
    for parameter in found.parameters {
        let declared = FunctionParameter::new::<Any>(parameter.name);
        signature = signature.param(match parameter.is_optional {
            true => declared.default_value(None::<String>),
            false => declared,
        });
    }
    let body = match found.is_table {
        true => MacroBody::Table(found.body),
        false => MacroBody::Scalar(found.body),
    };
    MacroFunctionBuilder::new(found.name, signature, body).register(extension)
}
