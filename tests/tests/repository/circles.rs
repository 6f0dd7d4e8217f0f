//! Circles of files: the files of a crate that import each other, found in the paths in their code.
//!
//! A file imports another if it names an item that is defined there, even under a name that a third file re-exports. Three cases are no
//! import: `mod`; a `pub use` of a name that the file itself does not need, because a module only re-exports it; and a name from the file
//! of an enclosing module, because a module and everything below it belong together. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};

/// The names of the modules from the crate's root down.
type Module = Vec<String>;

/// The most times that a name may be re-exported.
const HANDED_ON_MAX: usize = 20;

/// A path that a `use` binds.
struct Use {
    path: Vec<String>,
    /// The name in this file.
    name: String,
    is_handed_on: bool,
}

/// A file of a crate and its imports.
struct File<'a> {
    path: &'a str,
    module: Module,
    uses: Vec<Use>,
    /// Paths outside `use`.
    paths: Vec<Vec<String>>,
    /// The first names of all paths, and names that are not in a path.
    names: BTreeSet<String>,
}

/// The circles of a crate, and the files of each, ascending. `files` are the paths below the folder of the crate's root, ascending, with
/// their texts.
pub fn circles<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Vec<String>> {
    let files: Vec<File> = files.map(|(path, text)| File::of(path, text)).collect();
    let house = House::of(&files);
    let imports: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .map(|file| (file.path, house.imports(file)))
        .collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|file| (*file, reached(&imports, file)))
        .collect();
    let leads = |from: &str, to: &str| reach.get(from).is_some_and(|reached| reached.contains(to));
    let circle = |(file, reached): (&&str, &BTreeSet<&str>)| -> Vec<String> {
        let back = reached.iter().filter(|other| leads(other, file));
        back.map(|other| (*other).to_owned()).collect()
    };
    let found: BTreeSet<Vec<String>> = reach.iter().map(circle).collect();
    found
        .into_iter()
        .filter(|files| !files.is_empty())
        .collect()
}

/// The files that the imports of one file reach.
fn reached<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in imports.get(file).into_iter().flatten() {
            if reached.insert(*next) {
                open.push(next);
            }
        }
    }
    reached
}

/// The files of a crate by their modules.
struct House<'a>(BTreeMap<&'a [String], &'a File<'a>>);

impl<'a> House<'a> {
    fn of(files: &'a [File<'a>]) -> House<'a> {
        let mut house = BTreeMap::new();
        for file in files {
            // `main.rs` beside `lib.rs` is another crate with only that file.
            house.entry(file.module.as_slice()).or_insert(file);
        }
        House(house)
    }

    fn imports(&self, file: &'a File<'a>) -> BTreeSet<&'a str> {
        let is_needed = |used: &&Use| !used.is_handed_on || file.names.contains(&used.name);
        let used = file.uses.iter().filter(is_needed).map(|used| &used.path);
        used.chain(&file.paths)
            .filter_map(|path| self.home(file, path, 0))
            .filter(|home| !file.module.starts_with(&home.module))
            .map(|home| home.path)
            .collect()
    }

    /// The file that defines the item of a path in `file`; `None` if it is in another crate.
    fn home(&self, file: &'a File<'a>, path: &[String], handed_on: usize) -> Option<&'a File<'a>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.below(self.0.get(&[][..])?, rest, handed_on),
            "self" => self.below(file, rest, handed_on),
            "super" => {
                let (_, around) = file.module.split_last()?;
                let around = self.0.get(around)?;
                match rest.first() {
                    Some(next) if next == "super" => self.home(around, rest, handed_on),
                    _ => self.below(around, rest, handed_on),
                }
            }
            // The name is a module below or is bound by a `use`. Any other name is from another crate, or the file's own.
            name => {
                let is_bound = file.uses.iter().any(|used| used.name == name);
                let is_known = is_bound || self.child(file, name).is_some();
                is_known.then(|| self.below(file, path, handed_on))?
            }
        }
    }

    /// The file that defines the item of a path in a module.
    fn below(
        &self,
        module: &'a File<'a>,
        path: &[String],
        handed_on: usize,
    ) -> Option<&'a File<'a>> {
        let Some((first, rest)) = path.split_first() else {
            return Some(module);
        };
        if let Some(child) = self.child(module, first) {
            return self.below(child, rest, handed_on);
        }
        let Some(used) = module.uses.iter().find(|used| used.name == *first) else {
            return Some(module);
        };
        // A name that is bound to itself, as in `use anyhow; anyhow::Result`, is from another crate.
        if handed_on == HANDED_ON_MAX {
            return None;
        }
        let whole = [used.path.as_slice(), rest].concat();
        self.home(module, &whole, handed_on + 1)
    }

    fn child(&self, file: &File, name: &str) -> Option<&'a File<'a>> {
        let module = [file.module.as_slice(), &[name.to_owned()]].concat();
        self.0.get(module.as_slice()).copied()
    }
}

impl<'a> File<'a> {
    fn of(path: &'a str, text: &str) -> File<'a> {
        let folders = path.trim_end_matches(".rs").split('/');
        let mut module: Module = folders.map(str::to_owned).collect();
        let is_face = |last: &mut String| ["mod", "lib", "main"].contains(&last.as_str());
        module.pop_if(is_face);
        let mut file = File {
            path,
            module,
            uses: Vec::new(),
            paths: Vec::new(),
            names: BTreeSet::new(),
        };
        file.read(&without_tests(&tokens(text)));
        file
    }

    fn read(&mut self, tokens: &[&str]) {
        let mut rest = tokens;
        let mut before = "";
        while let [token, later @ ..] = rest {
            rest = later;
            if *token == "use" {
                let end = later.iter().position(|token| *token == ";");
                let (tree, later) = later.split_at(end.unwrap_or(later.len()));
                // `pub use`, or `pub(super) use`.
                self.bind(tree, &[], ["pub", ")"].contains(&before));
                rest = later;
            } else if is_name(token) {
                let mut path = vec![(*token).to_owned()];
                while let ["::", next, later @ ..] = rest
                    && is_name(next)
                {
                    path.push((*next).to_owned());
                    rest = later;
                }
                if before != "mod" {
                    self.names.extend(path.first().cloned());
                }
                self.paths.extend(Some(path).filter(|path| path.len() > 1));
            }
            before = token;
        }
    }

    /// Reads the names of a `use` behind a prefix.
    fn bind(&mut self, tree: &[&str], prefix: &[String], is_handed_on: bool) {
        let mut path = prefix.to_vec();
        let mut name = None;
        let mut rest = tree;
        while let [token, later @ ..] = rest {
            rest = later;
            match *token {
                "::" => {}
                "{" => {
                    let inside = later.split_last().map_or(later, |(_, inside)| inside);
                    for part in parts(inside) {
                        self.bind(part, &path, is_handed_on);
                    }
                    return;
                }
                "as" => {
                    name = later.first().map(|name| (*name).to_owned());
                    break;
                }
                // `module::{self, …}`
                "self" if !path.is_empty() => {}
                name => path.push(name.to_owned()),
            }
        }
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            self.uses.push(Use {
                path,
                name,
                is_handed_on,
            });
        }
    }
}

/// The parts between the outermost commas.
fn parts<'t, 'a>(tokens: &'t [&'a str]) -> impl Iterator<Item = &'t [&'a str]> {
    let mut depth = 0;
    let parts = tokens.split(move |token| {
        depth += i32::from(*token == "{") - i32::from(*token == "}");
        *token == "," && depth == 0
    });
    parts.filter(|part| !part.is_empty())
}

/// All tokens except the items behind `#[cfg(test)]`.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let [token, later @ ..] = rest {
        rest = match rest {
            ["#", "[", "cfg", "(", "test", ")", "]", item @ ..] => behind_item(item),
            _ => {
                kept.push(*token);
                later
            }
        };
    }
    kept
}

/// The tokens behind the item at their beginning.
fn behind_item<'t, 'a>(tokens: &'t [&'a str]) -> &'t [&'a str] {
    let mut depth = 0;
    let end = tokens.iter().position(|token| {
        depth += i32::from(*token == "{") - i32::from(*token == "}");
        depth == 0 && ["}", ";"].contains(token)
    });
    end.and_then(|end| tokens.get(end + 1..))
        .unwrap_or_default()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single marks, without comments, text literals and character literals.
fn tokens(text: &str) -> Vec<&str> {
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, later) = rest.split_at(match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if of_name(first) => rest.find(|c| !of_name(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        });
        rest = match token {
            "\"" => behind_text(later, '"'),
            "'" => behind_character(later),
            "r" | "br" if later.starts_with(['"', '#']) => behind_raw(later).unwrap_or(later),
            _ => later,
        };
        let is_code = !token.starts_with("//") && !first.is_whitespace();
        found.extend(Some(token).filter(|_| is_code));
    }
    found
}

/// The rest behind a text literal, which ends with `mark`.
fn behind_text(text: &str, mark: char) -> &str {
    let mut is_escaped = false;
    let end = text.find(|c| {
        let is_end = c == mark && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    end.and_then(|end| text.get(end + 1..)).unwrap_or_default()
}

/// The rest behind a character literal. A lifetime is not one.
fn behind_character(text: &str) -> &str {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => behind_text(text, '\''),
        _ => text,
    }
}

/// The rest behind a raw text literal; `None` for a raw name.
fn behind_raw(text: &str) -> Option<&str> {
    let hashes = text.len() - text.trim_start_matches('#').len();
    let inside = text.get(hashes..)?.strip_prefix('"')?;
    let (_, later) = inside.split_once(&format!("\"{}", "#".repeat(hashes)))?;
    Some(later)
}

#[test]
fn a_circle_is_found_through_a_face_and_none_where_names_are_only_handed_on() {
    let face = "mod above;\npub mod below;\npub use above::Above;\n#[cfg(test)]\nmod tests;\npub use below::{self as ground, Below};\n";
    let above = "use super::Below;\npub struct Above(Below, super::NUMBER);\n";
    let circles_with = |below: &str| {
        let files = [
            ("lib.rs", "pub mod rooms;"),
            ("rooms/above.rs", above),
            ("rooms/below.rs", below),
            ("rooms/mod.rs", face),
        ];
        circles(files.into_iter())
    };
    let circle = ["rooms/above.rs", "rooms/below.rs"].map(str::to_owned);
    for below in [
        "use super::Above;",
        "use crate::rooms::{Above as Other};",
        "fn of(_: crate::rooms::above::Above) {}",
        "fn quote() -> char { '\"' }\nuse super::super::rooms::{above::{self}};",
    ] {
        assert_eq!(
            circles_with(below),
            std::slice::from_ref(&circle),
            "{below}"
        );
    }
    for below in [
        "// use super::Above;",
        "const TEXT: &str = r#\"use super::Above;\"#;",
        "use std::rooms::Above;",
        "use super::ground::Below;",
        "#[cfg(test)]\nmod tests {\n    use super::super::Above;\n}",
    ] {
        assert_eq!(circles_with(below), [[""; 0]; 0], "{below}");
    }
}
