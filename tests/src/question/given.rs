//! The named parameters of a call, and the same conditions as predicates for plain DuckDB.

use crate::seed::Seed;
use crate::table::{Column, Index, Table, instant};

#[derive(Default)]
pub struct Given {
    parameters: Vec<String>,
    predicates: Vec<String>,
}

impl Given {
    pub fn say(&mut self, parameter: String, predicate: String) {
        self.parameters.push(parameter);
        self.predicates.push(predicate);
    }

    /// The named parameters, to be appended to the arguments of a call.
    pub fn arguments(&self) -> String {
        self.parameters
            .iter()
            .map(|parameter| format!(", {parameter}"))
            .collect()
    }

    /// The value of a named parameter, or NULL.
    pub fn value(&self, name: &str) -> &str {
        let mut values = self.parameters.iter();
        let value = values.find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix(" := "));
        value.unwrap_or("NULL")
    }

    pub fn condition(&self) -> String {
        if self.predicates.is_empty() {
            "true".to_owned()
        } else {
            self.predicates.join(" AND ")
        }
    }

    pub fn times(&mut self, seed: &mut Seed, table: &Table) {
        let (from, to) = table.times.window(seed);
        if seed.chance(60) {
            self.say(
                format!("t_from := {}", instant(from)),
                format!("ts_ns >= {from}"),
            );
        }
        if seed.chance(60) {
            self.say(format!("t_to := {}", instant(to)), format!("ts_ns < {to}"));
        }
    }

    pub fn windows(&mut self, seed: &mut Seed, table: &Table) {
        let width_us = 1 << seed.between(3, 22);
        let centres: Vec<i64> = (0..seed.between(1, 6))
            .map(|_| table.times.window(seed).0)
            .collect();
        let list: Vec<String> = centres.iter().map(|at| instant(*at)).collect();
        let windows: Vec<String> = centres
            .iter()
            .map(|at| {
                let [from, to] = [-1, 1].map(|sign| i128::from(*at) + sign * width_us * 1000);
                format!("ts_ns >= {from} AND ts_ns < {to}")
            })
            .collect();
        self.say(
            format!(
                "around := [{}], width := INTERVAL {width_us} MICROSECOND",
                list.join(", ")
            ),
            format!("(({}))", windows.join(") OR (")),
        );
    }

    /// Now and then adds a filter, which only matching rows pass.
    pub fn matching(&mut self, seed: &mut Seed, table: &Table) {
        if !table.filters.is_empty() && seed.chance(40) {
            let filter = seed.pick(&table.filters.iter().collect::<Vec<_>>());
            let text = filter.replace('\'', "''");
            self.say(format!("filter := '{text}'"), format!("({filter})"));
        }
    }

    /// Adds an index, whose filter must hold.
    pub fn index(&mut self, index: &Index) {
        self.parameters.push(format!("index := '{}'", index.name));
        self.filter(index);
    }

    pub fn filter(&mut self, index: &Index) {
        self.predicates
            .extend(index.filter.iter().map(|filter| format!("({filter})")));
    }

    /// Adds one or both bounds on `column`.
    pub fn values(&mut self, seed: &mut Seed, column: &Column) {
        let [low, high] = [(column.value)(seed), (column.value)(seed)];
        let which = seed.between(0, 3);
        if which != 1 {
            self.say(
                format!("v_min := {low}"),
                format!("{} >= {low}", column.name),
            );
        }
        if which != 0 {
            self.say(
                format!("v_max := {high}"),
                format!("{} <= {high}", column.name),
            );
        }
    }
}
