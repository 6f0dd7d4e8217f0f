//! Finds the source and the field of each series of a target.
//!
//! A group is a source; its fields are series, all nullable: a scrape without a series leaves its field NULL. A series keeps its field for as long as the
//! catalog has its group, so a restart needs the catalog alone. A new series takes the next field of the last group that takes any, or begins
//! a new group. A group without retained records is forgotten: it is empty, and takes series again.
//! Two limits bound the additions of a target: the series of one scrape, and the new ones within a day.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use loom_engine::schema::{
    Catalog, FIELDS_MAX, FieldDef, FieldType, NAME_BYTES_MAX, Overload, SERIES_BYTES_MAX, Source,
    SourceDef, TimeKind, is_reserved_field,
};

use crate::metrics::names::{Series, holds_series, shown};

const DAY: Duration = Duration::from_secs(86_400);
/// The longest name of a field, so that a number still fits behind it.
const FIELD_NAME_BYTES: usize = NAME_BYTES_MAX - 8;
/// The size of a record: `TIME_BYTES` has its time and the padding of the null bits; each field takes a number and a null bit.
const TIME_BYTES: usize = 16;
const FIELD_BITS: usize = 65;
/// The approximate room of a group's series in the catalog, which keeps it while one of them goes on.
const GROUP_BYTES: u64 = 512 << 10;
/// The most layouts of a group: the catalog holds all fields of each layout, and has a limit.
const LAYOUTS_MAX: usize = 32;
/// The most groups of a target.
const GROUPS_MAX: usize = 10_000;

/// The place of a series' values.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::metrics) struct Slot {
    pub(in crate::metrics) group: usize,
    pub(in crate::metrics) field: usize,
}

/// The reason why a series has no place.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::metrics) enum NoPlace {
    TooLong,
    /// Too many series are new within the day.
    Churn,
    /// No new series is taken now.
    NotNow,
}

pub(in crate::metrics) struct Groups {
    /// The name of the first group; the others have a number behind it.
    name: String,
    groups: Vec<Group>,
    slots: HashMap<Series, Slot>,
    fields_max: usize,
    new_max: usize,
    /// The labels that all series of the target have.
    shared: Vec<String>,
    /// The treatment of records while the log is full.
    on_overload: Overload,
    /// The begin of the count of new series, and the count.
    day: Option<(Instant, usize)>,
}

pub(in crate::metrics) struct Group {
    pub(in crate::metrics) def: SourceDef,
    /// The names of the fields in lower case, because SQL ignores case.
    names: HashSet<String>,
    /// The approximate room of its series in the catalog.
    bytes: u64,
    is_closed: bool,
    layouts: usize,
    /// This scrape adds fields.
    is_growing: bool,
}

impl Groups {
    /// Reads the groups of the catalog. `payload_bytes_max` limits the fields of a group, `new_max` the new series of a day; those of the first
    /// scrape of a new target are not counted. The count goes on from `day`.
    ///
    /// # Errors
    /// A source of that name holds something else.
    pub(in crate::metrics) fn load(
        catalog: &Catalog,
        name: &str,
        payload_bytes_max: usize,
        new_max: usize,
        shared: Vec<String>,
        on_overload: Overload,
        day: Option<(Instant, usize)>,
    ) -> Result<Groups, String> {
        let fields_max = payload_bytes_max.saturating_sub(TIME_BYTES) * 8 / FIELD_BITS;
        let fields_max = fields_max.clamp(1, FIELDS_MAX);
        let mut found = Groups {
            name: name.to_owned(),
            groups: Vec::new(),
            slots: HashMap::new(),
            fields_max,
            new_max,
            shared,
            on_overload,
            day,
        };
        while let Some(source) = catalog.find_even_forgotten(&found.group_name(found.groups.len()))
        {
            found.add(source)?;
        }
        if !found.groups.is_empty() {
            found.day.get_or_insert((Instant::now(), 0));
        }
        Ok(found)
    }

    fn add(&mut self, source: &Source) -> Result<(), String> {
        if !holds_series(source) {
            return Err(format!(
                "source '{}' exists and does not hold series; give the job another name",
                source.name
            ));
        }
        let group = self.groups.len();
        if source.is_open() {
            for (field, def) in source.fields.iter().enumerate() {
                let slot = Slot { group, field };
                self.slots.insert(def.series.clone(), slot);
            }
        }
        let names = source.fields.iter();
        let names = names.map(|field| field.name.to_ascii_lowercase());
        self.groups.push(Group {
            names: names.collect(),
            bytes: source.definition_bytes(),
            is_closed: !source.is_open() && !source.is_forgotten(),
            layouts: source.layouts.len(),
            is_growing: false,
            def: SourceDef {
                on_overload: self.on_overload,
                ..source.def()
            },
        });
        Ok(())
    }

    /// The begin of the count of new series, and the count.
    pub(super) fn day(&self) -> Option<(Instant, usize)> {
        self.day
    }

    pub(in crate::metrics) fn shared(&self) -> &[String] {
        &self.shared
    }

    fn group_name(&self, group: usize) -> String {
        match group {
            0 => self.name.clone(),
            more => format!("{}#{}", self.name, more + 1),
        }
    }

    pub(super) fn known(&self, series: &Series) -> Option<Slot> {
        self.slots.get(series).copied()
    }

    pub(in crate::metrics) fn group(&self, group: usize) -> &Group {
        loom_engine::proven::at(&self.groups, group)
    }

    /// The groups that have new series since the last scrape.
    pub(super) fn growing(&self) -> impl Iterator<Item = usize> {
        let groups = self.groups.iter().enumerate();
        groups.filter_map(|(at, group)| group.is_growing.then_some(at))
    }

    /// Returns the slot of a series; a new series gets a free one.
    pub(in crate::metrics) fn place(
        &mut self,
        series: &Series,
        takes_new: bool,
    ) -> Result<Slot, NoPlace> {
        if let Some(slot) = self.slots.get(series) {
            return Ok(*slot);
        }
        let lengths = series.iter().map(|(name, value)| name.len() + value.len());
        if lengths.sum::<usize>() > SERIES_BYTES_MAX {
            return Err(NoPlace::TooLong);
        }
        if !takes_new {
            return Err(NoPlace::NotNow);
        }
        if let Some((_, new)) = &mut self.day {
            if *new >= self.new_max {
                return Err(NoPlace::Churn);
            }
            *new += 1;
        }
        let takes_more = |group: &Group| !group.is_over(self.fields_max);
        let group = match self.groups.iter().rposition(takes_more) {
            Some(group) => group,
            None if self.groups.len() >= GROUPS_MAX => return Err(NoPlace::Churn),
            None => {
                self.begin_group();
                self.groups.len() - 1
            }
        };
        let last = loom_engine::proven::at_mut(&mut self.groups, group);
        let slot = Slot {
            group,
            field: last.def.fields.len(),
        };
        let name = last.free_name(shown(series, &self.shared));
        last.names.insert(name.to_ascii_lowercase());
        let field = FieldDef {
            nullable: true,
            series: series.clone(),
            ..FieldDef::new(name, FieldType::F64)
        };
        last.bytes += field.line_bytes();
        last.def.fields.push(field);
        last.is_growing = true;
        self.slots.insert(series.clone(), slot);
        Ok(slot)
    }

    fn begin_group(&mut self) {
        let def = SourceDef {
            time: TimeKind::Own,
            on_overload: self.on_overload,
            ..SourceDef::new(self.group_name(self.groups.len()))
        };
        self.groups.push(Group {
            def,
            names: HashSet::new(),
            bytes: 0,
            is_closed: false,
            layouts: 0,
            is_growing: true,
        });
    }

    /// Ends a scrape: from the second scrape on, new series are counted.
    pub(in crate::metrics) fn scraped(&mut self, now: Instant) {
        for group in &mut self.groups {
            group.layouts += usize::from(group.is_growing);
            group.is_growing = false;
        }
        match &self.day {
            Some((since, _)) if now.duration_since(*since) < DAY => {}
            _ => self.day = Some((now, 0)),
        }
    }
}

impl Group {
    /// The greatest size of a record.
    pub(super) fn record_bytes(&self) -> usize {
        TIME_BYTES + self.def.fields.len() * FIELD_BITS / 8
    }

    /// True if it takes no more series.
    fn is_over(&self, fields_max: usize) -> bool {
        let has_changed_enough = self.layouts >= LAYOUTS_MAX && !self.is_growing;
        let is_full = self.def.fields.len() >= fields_max || self.bytes >= GROUP_BYTES;
        self.is_closed || is_full || has_changed_enough
    }

    /// A name for a field like this one that no other field of the group has.
    fn free_name(&self, mut name: String) -> String {
        if is_reserved_field(&name) {
            name.push_str("{}");
        }
        name.truncate(name.floor_char_boundary(FIELD_NAME_BYTES));
        let mut free = name.clone();
        let mut number = 1;
        while self.names.contains(&free.to_ascii_lowercase()) {
            number += 1;
            free = format!("{name}~{number}");
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom_engine::Address;
    use loom_engine::schema::decode_catalog;

    use crate::metrics::is_forgettable;

    fn series(text: &str) -> Series {
        let labels = text.split(',').map(|label| label.split_once('=').unwrap());
        labels
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn define(groups: &Groups, catalog: &mut Catalog) {
        for group in &groups.groups {
            catalog.define_source(&group.def, Address(0)).unwrap();
        }
    }

    const LONG: usize = 60_000;
    const THREE_FIELDS: usize = 16 + 3 * 9;

    fn load(catalog: &Catalog, payload_bytes_max: usize, new_max: usize) -> Result<Groups, String> {
        let shared = ["job", "instance"].map(str::to_owned).into();
        let name = "metrics/j/a:1";
        Groups::load(
            catalog,
            name,
            payload_bytes_max,
            new_max,
            shared,
            Overload::DropNew,
            None,
        )
    }

    fn groups(catalog: &Catalog, new_max: usize) -> Groups {
        load(catalog, THREE_FIELDS, new_max).unwrap()
    }

    // case Metrics: a scrape
    #[test]
    fn a_series_keeps_its_field_across_restarts() {
        let mut catalog = Catalog::new();
        let mut first = groups(&catalog, 100);
        let up = series("__name__=up,job=j,instance=a:1");
        let many: Vec<Series> = (0..7)
            .map(|n| series(&format!("__name__=m,n={n}")))
            .collect();
        assert_eq!(first.place(&up, true), Ok(Slot { group: 0, field: 0 }));
        let slots: Vec<_> = many
            .iter()
            .map(|series| first.place(series, true).unwrap())
            .collect();
        assert_eq!(slots[2], Slot { group: 1, field: 0 });
        define(&first, &mut catalog);
        assert!(catalog.find("metrics/j/a:1#3").is_some());
        assert!(catalog.find("metrics/j/a:1#4").is_none());
        let field = &catalog.find("metrics/j/a:1").unwrap().fields[1];
        assert_eq!(field.name, "m{n=\"0\"}");
        assert_eq!(field.series, many[0]);

        let mut second = groups(&catalog, 100);
        for (series, slot) in many.iter().zip(&slots) {
            assert_eq!(second.place(series, false), Ok(*slot));
        }
        assert_eq!(
            second.place(&series("__name__=n"), false),
            Err(NoPlace::NotNow)
        );
        let next = second.place(&series("__name__=n"), true).unwrap();
        assert_eq!(next, Slot { group: 2, field: 2 });
        define(&second, &mut catalog);
    }

    // case Metrics: a scrape
    #[test]
    fn names_of_fields_are_free_and_short() {
        let mut catalog = Catalog::new();
        let mut found = load(&catalog, LONG, 10).unwrap();
        let long = format!("__name__=m,l={}", "ä".repeat(500));
        for text in [
            "__name__=m,l=a",
            "__name__=m,l=A",
            "__name__=ts",
            "__name__=m,l=a\nb",
            &long,
            &format!("{long}x"),
        ] {
            found.place(&series(text), true).unwrap();
        }
        define(&found, &mut catalog);
        let fields = &catalog.find("metrics/j/a:1").unwrap().fields;
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(
            names[..4],
            ["m{l=\"a\"}", "m{l=\"A\"}~2", "ts{}", "m{l=\"a b\"}"]
        );
        assert!(names[5].ends_with("~2"), "{names:?}");
        let huge = format!("__name__=m,l={}", "x".repeat(SERIES_BYTES_MAX));
        assert_eq!(found.place(&series(&huge), true), Err(NoPlace::TooLong));
    }

    // case Metrics: series that are always new
    #[test]
    fn churn_is_limited_after_the_first_scrape() {
        let mut found = groups(&Catalog::new(), 2);
        let place =
            |found: &mut Groups, n: usize| found.place(&series(&format!("__name__=m{n}")), true);
        for n in 0..10 {
            place(&mut found, n).unwrap();
        }
        let now = Instant::now();
        found.scraped(now);
        assert!(place(&mut found, 10).is_ok() && place(&mut found, 11).is_ok());
        assert_eq!(place(&mut found, 12), Err(NoPlace::Churn));
        assert!(place(&mut found, 3).is_ok());
        found.scraped(now + DAY / 2);
        assert_eq!(place(&mut found, 12), Err(NoPlace::Churn));
        found.scraped(now + DAY);
        assert!(place(&mut found, 12).is_ok());
    }

    // case Metrics: series that are always new
    #[test]
    fn a_group_that_grew_often_is_followed_by_another() {
        let mut catalog = Catalog::new();
        let mut found = load(&catalog, LONG, 1000).unwrap();
        for scrape in 0..2 * LAYOUTS_MAX {
            for n in 0..2 {
                let series = series(&format!("__name__=m,n={n},scrape={scrape}"));
                let slot = found.place(&series, true).unwrap();
                assert_eq!(slot.group, scrape / LAYOUTS_MAX);
            }
            define(&found, &mut catalog);
            found.scraped(Instant::now());
        }
        let sources = catalog.sources().map(|source| source.layouts.len());
        assert_eq!(sources.collect::<Vec<_>>(), [LAYOUTS_MAX; 2]);
        let mut again = load(&catalog, LONG, 1000).unwrap();
        let slot = again.place(&series("__name__=n"), true).unwrap();
        assert_eq!(slot, Slot { group: 2, field: 0 });
    }

    // case Metrics: series that are always new
    #[test]
    fn a_group_that_is_forgotten_takes_series_again_under_its_name_and_id() {
        let mut catalog = Catalog::new();
        let mut first = groups(&catalog, 100);
        for n in 0..9 {
            first
                .place(&series(&format!("__name__=m,n={n}")), true)
                .unwrap();
        }
        define(&first, &mut catalog);
        let names = ["metrics/j/a:1", "metrics/j/a:1#2", "metrics/j/a:1#3"];
        assert!(catalog.sources().all(|source| is_forgettable(source)));
        let ids = names.map(|name| catalog.find(name).unwrap().id);
        let uuid = [7; 16];
        let is_gone = |source: &Source| source.name == names[1];
        let text = catalog.rewritten_text(&uuid, 0, Address(64), is_gone);
        let (mut catalog, ..) = decode_catalog(&uuid, text.as_bytes()).unwrap();
        assert!(catalog.find(names[1]).is_none());

        let mut second = groups(&catalog, 100);
        let slots: Vec<Slot> = (4..8)
            .map(|n| {
                second
                    .place(&series(&format!("__name__=m,n={n}")), true)
                    .unwrap()
            })
            .collect();
        let slot = |group, field| Slot { group, field };
        assert_eq!(slots, [slot(1, 0), slot(1, 1), slot(2, 0), slot(2, 1)]);
        second.place(&series("__name__=m,n=new"), true).unwrap();
        let more = second.place(&series("__name__=m,n=more"), true).unwrap();
        assert_eq!(more, slot(3, 0));
        define(&second, &mut catalog);
        assert_eq!(names.map(|name| catalog.find(name).unwrap().id), ids);
        let again = catalog.find(names[1]).unwrap();
        assert_eq!(again.fields[0].series, series("__name__=m,n=4"));
    }

    // case Metrics: series that are always new
    #[test]
    fn a_group_is_full_when_its_labels_are_long() {
        let mut found = load(&Catalog::new(), LONG, 1000).unwrap();
        let long = "x".repeat(4000);
        let groups: Vec<usize> = (0..300)
            .map(|n| series(&format!("__name__=m,n={n},l={long}")))
            .map(|series| found.place(&series, true).unwrap().group)
            .collect();
        assert_eq!((groups[100], groups[299]), (0, 2));
    }

    // case Metrics: a scrape
    #[test]
    fn a_source_that_holds_something_else_is_refused() {
        let mut catalog = Catalog::new();
        let def = SourceDef::new("metrics/j/a:1");
        catalog.define_source(&def, Address(0)).unwrap();
        assert!(load(&catalog, LONG, 10).is_err());
    }

    // case Metrics: a scrape
    #[test]
    fn a_closed_group_stays_closed() {
        let mut catalog = Catalog::new();
        let mut first = groups(&catalog, 100);
        first.place(&series("__name__=m"), true).unwrap();
        define(&first, &mut catalog);
        let id = catalog.find("metrics/j/a:1").unwrap().id;
        catalog.close_source(id, Address(0)).unwrap();
        let mut second = groups(&catalog, 100);
        let slot = second.place(&series("__name__=m"), true).unwrap();
        assert_eq!(slot, Slot { group: 1, field: 0 });
    }
}
