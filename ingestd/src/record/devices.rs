//! Names block devices in the labels of the field `device`.
//!
//! The kernel gives a disk any free number, so the name of a number may change at each boot. A label never changes, so that earlier records stay
//! correct; a changed name is reported.

use std::collections::BTreeMap;
use std::path::Path;

use loom_engine::schema::SourceDef;

use crate::sink;

/// The kernel lists block devices here by their numbers, each a link to the folder with the name.
const DEVICES: &str = "/sys/dev/block";
/// The field with the number of a device: the major number · 2²⁰ + the minor number.
const FIELD: &str = "device";

type Labels = BTreeMap<i128, String>;

/// Gives the field `device` the current names of this host, as far as they agree with those in the existing source.
pub(super) fn with_names(mut source: SourceDef, dir: &Path) -> anyhow::Result<SourceDef> {
    let known = sink::existing(dir, &source.name)?.unwrap_or_else(|| source.clone());
    let mut known = known.fields.into_iter();
    let known = known.find(|field| field.name == FIELD);
    let (labels, odd) = agreeing(
        names(Path::new(DEVICES)),
        &known.map(|field| field.labels).unwrap_or_default(),
    );
    for odd in odd {
        tracing::warn!("source '{}': {odd}", source.name);
    }
    for field in &mut source.fields {
        if field.name == FIELD {
            field.labels = labels;
            break;
        }
    }
    Ok(source)
}

fn names(folder: &Path) -> Labels {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of_entry = |entry: std::fs::DirEntry| {
        let numbers = entry.file_name();
        let (major, minor) = numbers.to_str()?.split_once(':')?;
        let number = major.parse::<i128>().ok()? << 20 | minor.parse::<i128>().ok()?;
        let target = std::fs::read_link(entry.path()).ok()?;
        // The kernel writes `!` for a slash.
        let name = target.file_name()?.to_str()?.replace('!', "/");
        Some((number, name))
    };
    entries.filter_map(of_entry).collect()
}

/// The names that do not contradict known ones, and messages about the others.
fn agreeing(names: Labels, known: &Labels) -> (Labels, Vec<String>) {
    let mut odd = Vec::new();
    let agrees = |number: &i128, name: &mut String| {
        let shown = match known.get(number) {
            Some(earlier) if earlier == name => return true,
            Some(earlier) => earlier.clone(),
            None if known.values().any(|earlier| earlier == name) => number.to_string(),
            None => return true,
        };
        let (major, minor) = (number >> 20, number & 0xf_ffff);
        odd.push(format!(
            "device {major}:{minor} is '{name}' now, earlier records name devices otherwise, and it is shown as '{shown}'; record into another source with --source NAME"
        ));
        false
    };
    let mut names = names;
    names.retain(agrees);
    (names, odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_the_names_of_the_folders_that_their_numbers_link_to() {
        let folder = tempfile::tempdir().unwrap();
        let link = |name: &str, to: &str| {
            std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
        };
        link("8:17", "../../devices/pci0000:00/block/sdb/sdb1");
        link("104:0", "../../devices/block/cciss!c0d0");
        link("nonsense", "../sda");
        let found = names(folder.path());
        let expected = [(8 << 20 | 17, "sdb1"), (104 << 20, "cciss/c0d0")];
        assert_eq!(found, expected.map(|(n, name)| (n, name.to_owned())).into());
        assert!(names(&folder.path().join("none")).is_empty());
    }

    #[test]
    fn a_name_that_contradicts_an_earlier_one_is_left_out_and_reported() {
        let labels = |all: &[(i128, &str)]| -> Labels {
            all.iter()
                .map(|(n, name)| (*n, (*name).to_owned()))
                .collect()
        };
        let known = labels(&[(1 << 20, "a"), (2 << 20, "b")]);
        let now = labels(&[
            (1 << 20, "a"),
            (2 << 20, "c"),
            (3 << 20, "b"),
            (4 << 20, "d"),
        ]);
        let (kept, odd) = agreeing(now, &known);
        assert_eq!(kept, labels(&[(1 << 20, "a"), (4 << 20, "d")]));
        let [second, third] = odd.as_slice() else {
            panic!("{odd:?}")
        };
        assert!(second.contains("2:0 is 'c' now") && second.contains("as 'b';"));
        assert!(third.contains("3:0 is 'b' now") && third.contains("as '3145728';"));
    }
}
