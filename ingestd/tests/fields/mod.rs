//! Short declarations of sources for `--fields`. Test programs include this as a module.

use std::path::Path;

/// Declares a source of fields such as `n i64, s utf8?` in a file beside `path`, and returns the file's path. A question mark makes a field nullable.
pub fn declared(path: &Path, source: &str, fields: &str) -> String {
    let field = |field: &str| {
        let (name, ty) = field.rsplit_once(' ').unwrap();
        let nullable = ty.ends_with('?');
        let ty = ty.trim_end_matches('?');
        format!("[[source.field]]\nname = '{name}'\ntype = '{ty}'\nnullable = {nullable}\n")
    };
    let fields: String = fields.split(", ").map(field).collect();
    let toml = path.with_extension("toml");
    std::fs::write(&toml, format!("[[source]]\nname = '{source}'\n{fields}")).unwrap();
    toml.to_str().unwrap().to_owned()
}
