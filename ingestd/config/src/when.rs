//! Parses the condition of a rule, such as `p99_99 > 5ms AND count >= 100 OR max > 1s`, and evaluates it over the aggregates of a window.
//!
//! The engine provides the aggregates as an [`AggregateRow`]. Numbers are compared as written, durations in the unit of the values. AND binds more
//! tightly than OR; there are no parentheses. If the bins of an index leave a quantile open, the answer is open too, until the row has the exact
//! value.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use loom_engine::query::{AggregateRow, Quantile};
use loom_engine::schema::{Domain, Number, Op, RangeSet};
use loom_engine::{Key, Sum};
use serde::{Deserialize, Deserializer, de};

use super::units::{Span, Unit};

/// The length limit of a condition.
const TEXT_BYTES_MAX: usize = 4096;
/// The possible first words of a comparison, for messages.
const TERMS: &str = "count, rate, sum, min, max, avg or a percentile such as p99_99";
const ORDER: &str = "AND binds more tightly than OR";

/// A condition over a window.
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    text: String,
    /// It holds if all comparisons of one of these lists hold.
    any: Vec<Vec<Comparison>>,
    quantiles: Vec<Quantile>,
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    term: Term,
    op: Op,
    threshold: Threshold,
}

/// The right side of a comparison.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Threshold {
    Number(Number),
    Duration(Duration),
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Term {
    Count,
    /// Records per second.
    Rate,
    Sum,
    Min,
    Max,
    Avg,
    /// The quantile at this place of [`When::quantiles`].
    Quantile(usize),
}

/// The aggregates of a window, and the meaning of its keys.
#[derive(Copy, Clone, Debug)]
pub struct Window<'a> {
    pub row: &'a AggregateRow,
    pub domain: Domain,
    /// The unit of the values; known if the condition has a duration.
    pub unit: Option<Unit>,
    pub over: Duration,
    /// The window begins with the rule and is shorter than `over`. Then a small count, rate or sum means nothing.
    pub is_cut: bool,
}

/// A comparison for an alert. The value is `None` if the window has no records.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Shown {
    pub value: Option<f64>,
    pub threshold: f64,
}

impl When {
    /// The quantiles that decide the condition, in the order in which a row must have them.
    pub fn quantiles(&self) -> &[Quantile] {
        &self.quantiles
    }

    /// The first duration in the condition.
    pub fn duration(&self) -> Option<Duration> {
        let thresholds = self.any.iter().flatten().map(|one| one.threshold);
        thresholds
            .into_iter()
            .find_map(|threshold| match threshold {
                Threshold::Duration(duration) => Some(duration),
                Threshold::Number(_) => None,
            })
    }

    /// Whether the condition holds; `None` if the exact value of a quantile is needed.
    pub fn holds(&self, window: Window<'_>) -> Option<bool> {
        let mut answer = Some(false);
        for all in &self.any {
            match every(all.iter().map(|comparison| comparison.holds(window))) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => answer = None,
            }
        }
        answer
    }

    /// The comparison for an alert: the first of those that hold together, or else the first of all.
    pub fn shown(&self, window: Window<'_>) -> Shown {
        let holds = |all: &&Vec<Comparison>| {
            every(all.iter().map(|comparison| comparison.holds(window))) == Some(true)
        };
        let all = self.any.iter().find(holds).or(self.any.first());
        let comparison = all
            .and_then(|all| all.first())
            .expect("a condition has a comparison");
        Shown {
            value: comparison.value(window),
            threshold: comparison.number(window).to_f64(),
        }
    }
}

/// Whether all hold; `None` if that is open.
fn every(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut all = Some(true);
    for answer in answers {
        match answer {
            Some(true) => {}
            Some(false) => return Some(false),
            None => all = None,
        }
    }
    all
}

impl Comparison {
    /// In an empty window, comparisons with values are false.
    fn holds(&self, window: Window<'_>) -> Option<bool> {
        let is_empty = window.row.count == 0;
        self.answer(window).or(is_empty.then_some(false))
    }

    /// The right side, in the unit of the values.
    fn number(&self, window: Window<'_>) -> Number {
        match self.threshold {
            Threshold::Number(number) => number,
            Threshold::Duration(duration) => {
                let unit = window.unit;
                let unit =
                    unit.expect("a rule with a duration is evaluated over a field with a unit");
                unit.count(duration)
            }
        }
    }

    fn answer(&self, window: Window<'_>) -> Option<bool> {
        let row = window.row;
        let number = self.number(window);
        let grows = matches!(self.term, Term::Count | Term::Rate | Term::Sum);
        if window.is_cut && grows && !matches!(self.op, Op::Gt | Op::Ge) {
            return Some(false);
        }
        let ratio = |numerator: i128, denominator: u128| {
            Some(self.op.holds(compare(numerator, denominator, number)))
        };
        match self.term {
            Term::Count => ratio(row.count.into(), 1),
            Term::Rate => ratio(
                i128::from(row.count) * 1_000_000_000,
                window.over.as_nanos(),
            ),
            Term::Sum => Some(self.of_sum(row.sum, 1, number)),
            Term::Avg if row.count == 0 => Some(false),
            Term::Avg => Some(self.of_sum(row.sum, row.count, number)),
            Term::Min => within(&window.domain.keys(self.op, number), row.min?, row.min?),
            Term::Max => within(&window.domain.keys(self.op, number), row.max?, row.max?),
            Term::Quantile(place) => {
                let bounds = row.bounds.get(place).copied().flatten()?;
                within(&window.domain.keys(self.op, number), bounds.min, bounds.max)
            }
        }
    }

    fn of_sum(&self, sum: Sum, count: u64, number: Number) -> bool {
        match sum {
            Sum::Int(sum) => self.op.holds(compare(sum, count.into(), number)),
            Sum::Float { .. } => {
                let value = Key::from_f64(sum.to_f64() / count as f64);
                Domain::F64.keys(self.op, number).contains(value)
            }
        }
    }

    fn value(&self, window: Window<'_>) -> Option<f64> {
        let row = window.row;
        let of_key = |key: Key| match window.domain {
            Domain::Unsigned { .. } => key.to_u64() as f64,
            Domain::Signed { .. } => key.to_i64() as f64,
            Domain::F32 | Domain::F64 => key.to_f64(),
        };
        match self.term {
            Term::Count => Some(row.count as f64),
            Term::Rate => Some(row.count as f64 / window.over.as_secs_f64()),
            Term::Sum => Some(row.sum.to_f64()),
            Term::Avg => (row.count > 0).then(|| row.sum.to_f64() / row.count as f64),
            Term::Min => row.min.map(of_key),
            Term::Max => row.max.map(of_key),
            Term::Quantile(place) => row.quantiles.get(place).copied().flatten().map(of_key),
        }
    }
}

/// Compares an unknown value from `min` to `max`: the answer is open if only some of these are among the keys.
fn within(keys: &RangeSet<Key>, min: Key, max: Key) -> Option<bool> {
    match keys.overlaps(min, max) {
        false => Some(false),
        true => keys.covers(min, max).then_some(true),
    }
}

/// Compares `numerator / denominator` with a number exactly.
fn compare(numerator: i128, denominator: u128, number: Number) -> Ordering {
    let denominator = i128::try_from(denominator).expect("counts and windows are below 128 bits");
    let (value, unit) = match number {
        Number::Int(value) => (value, 1),
        Number::Decimal { value, scale } => (value, 10i128.pow(scale.into())),
        // Such a number exceeds every sum, or is nearer to zero than every fraction, so only its side counts.
        Number::Float(value) => {
            let quotient = numerator as f64 / denominator as f64;
            return quotient.partial_cmp(&value).unwrap_or(Ordering::Less);
        }
    };
    compare_fractions((numerator, denominator), (value, unit))
}

/// Compares fractions with positive denominators by their whole parts, and then by the reciprocals of the rests, so that no product can overflow.
fn compare_fractions(mut left: (i128, i128), mut right: (i128, i128)) -> Ordering {
    loop {
        let whole = |(numerator, denominator): (i128, i128)| {
            (
                numerator.div_euclid(denominator),
                numerator.rem_euclid(denominator),
            )
        };
        let ((left_whole, left_rest), (right_whole, right_rest)) = (whole(left), whole(right));
        if left_whole != right_whole {
            return left_whole.cmp(&right_whole);
        }
        if left_rest == 0 || right_rest == 0 {
            return left_rest.cmp(&right_rest);
        }
        (left, right) = ((right.1, right_rest), (left.1, left_rest));
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<When, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!(
                "the condition has {} bytes; the limit is {TEXT_BYTES_MAX}",
                text.len()
            ));
        }
        let mut when = When {
            text: text.to_owned(),
            any: Vec::new(),
            quantiles: Vec::new(),
        };
        if text.contains(['(', ')']) {
            return Err(format!(
                "there are no parentheses; {ORDER}, so write a AND c OR b AND c for (a OR b) AND c"
            ));
        }
        let mut words = words(text).into_iter();
        let mut all = Vec::new();
        loop {
            let comparison = when.comparison(&mut words)?;
            all.push(comparison);
            match words.next() {
                None => break,
                Some(word) if word.eq_ignore_ascii_case("and") => {}
                Some(word) if word.eq_ignore_ascii_case("or") => {
                    when.any.push(std::mem::take(&mut all));
                }
                Some(word) if is_unit(word) => {
                    return Err(format!(
                        "there is a space before the unit '{word}'; remove it, as in 5{word}"
                    ));
                }
                Some(word) => {
                    return Err(format!("expected AND, OR or the end, found '{word}'"));
                }
            }
        }
        when.any.push(all);
        Ok(when)
    }
}

impl When {
    fn comparison<'a>(
        &mut self,
        words: &mut impl Iterator<Item = &'a str>,
    ) -> Result<Comparison, String> {
        let found = |word: Option<&str>| word.map_or("the end".to_owned(), |w| format!("'{w}'"));
        let word = words.next();
        let term = word.and_then(|word| self.term(&word.to_ascii_lowercase()));
        let term = term.ok_or_else(|| match word {
            Some(word) if is_percentile(word) => {
                format!(
                    "'{word}' is not a percentile from p0 to p100; use p50, p99 or, for 99.9, p99_9"
                )
            }
            _ => format!("expected {TERMS}, found {}", found(word)),
        })?;
        let word = words.next();
        let op = match word {
            Some("=" | "==") => Op::Eq,
            Some("<>" | "!=") => Op::Ne,
            Some("<") => Op::Lt,
            Some("<=") => Op::Le,
            Some(">") => Op::Gt,
            Some(">=") => Op::Ge,
            _ => {
                return Err(format!(
                    "expected a comparison such as >, found {}",
                    found(word)
                ));
            }
        };
        let word = words.next();
        let threshold = threshold(word.unwrap_or_default()).ok_or_else(|| match word {
            Some(word) if word.parse::<f64>().is_ok() && !is_spelt(word) => format!(
                "the number '{word}' has more than 38 digits, or is out of the range of a double; round it"
            ),
            _ => format!(
                "expected a number or a duration such as 5ms, found {}",
                found(word)
            ),
        })?;
        let has_unit = matches!(threshold, Threshold::Duration(_));
        if has_unit && matches!(term, Term::Count | Term::Rate) {
            let word = word.unwrap_or_default();
            return Err(format!(
                "count and rate are compared with a plain number, not with '{word}'"
            ));
        }
        Ok(Comparison {
            term,
            op,
            threshold,
        })
    }

    fn term(&mut self, word: &str) -> Option<Term> {
        Some(match word {
            "count" => Term::Count,
            "rate" => Term::Rate,
            "sum" => Term::Sum,
            "min" => Term::Min,
            "max" => Term::Max,
            "avg" => Term::Avg,
            _ => {
                let quantile = quantile(word)?;
                let known = self.quantiles.iter().position(|known| *known == quantile);
                Term::Quantile(known.unwrap_or_else(|| {
                    self.quantiles.push(quantile);
                    self.quantiles.len() - 1
                }))
            }
        })
    }
}

/// Parses a percentile: `p99_99` is the quantile 0.9999.
fn quantile(word: &str) -> Option<Quantile> {
    let percent = word.strip_prefix('p')?;
    let (whole, decimals) = percent.split_once('_').unwrap_or((percent, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || !is_number(whole) || !is_number(decimals) {
        return None;
    }
    let digits = format!("{whole:0>3}{decimals}");
    let (ones, rest) = digits.split_at_checked(1)?;
    format!("{ones}.{rest}").parse().ok()
}

/// Whether an invalid word was meant as a percentile: `p101`, `p99.9`.
fn is_percentile(word: &str) -> bool {
    let rest = word.strip_prefix(['p', 'P']);
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a word is a unit of durations.
fn is_unit(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic()) && format!("1{word}").parse::<Span>().is_ok()
}

/// Parses a plain number or a duration.
fn threshold(word: &str) -> Option<Threshold> {
    if let Ok(nearest) = word.parse::<f64>() {
        let is_held =
            |number: &Number| nearest.is_finite() && (nearest != 0.0 || *number == Number::Int(0));
        let number = Number::exact(word).filter(is_held);
        return number.map(Threshold::Number);
    }
    let span: Span = word.parse().ok()?;
    Some(Threshold::Duration(span.0))
}

fn is_spelt(word: &str) -> bool {
    word.contains(['n', 'N'])
}

/// Splits a condition into words and operators, at white space and between the two kinds.
fn words(text: &str) -> Vec<&str> {
    let is_operator = |c: char| matches!(c, '<' | '>' | '=' | '!');
    let mut words = Vec::new();
    for part in text.split_whitespace() {
        let mut rest = part;
        while let Some(first) = rest.chars().next() {
            let end = rest
                .find(|c| is_operator(c) != is_operator(first))
                .unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            words.push(word);
            rest = after;
        }
    }
    words
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|why| {
            de::Error::custom(format!("when = \"{text}\" is not a condition: {why}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use loom_engine::ValueRange;
    use proptest::prelude::*;

    use super::*;

    const U64: Domain = Domain::Unsigned { greatest: u64::MAX };

    /// The engine's aggregates of these values.
    fn row(when: &When, values: &[u64]) -> AggregateRow {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let key = |value: &u64| Key::from_u64(*value);
        let quantiles: Vec<Option<Key>> = (when.quantiles().iter())
            .map(|quantile| {
                let rank = quantile.rank(sorted.len() as u64) as usize;
                sorted.get(rank.wrapping_sub(1)).map(key)
            })
            .collect();
        AggregateRow {
            bucket: None,
            count: values.len() as u64,
            sum: Sum::Int(values.iter().map(|value| i128::from(*value)).sum()),
            min: sorted.first().map(key),
            max: sorted.last().map(key),
            bounds: (quantiles.iter())
                .map(|key| key.map(|key| ValueRange { min: key, max: key }))
                .collect(),
            quantiles,
        }
    }

    fn holds(text: &str, values: &[u64]) -> bool {
        let when: When = text.parse().unwrap();
        when.holds(window(&row(&when, values))).unwrap()
    }

    fn window(row: &AggregateRow) -> Window<'_> {
        Window {
            row,
            domain: U64,
            unit: Some(Unit::Ns),
            over: Duration::from_secs(10),
            is_cut: false,
        }
    }

    #[test]
    fn each_term_is_compared_with_its_number() {
        let values = [1, 2, 3, 4];
        for (text, wanted) in [
            ("count = 4", true),
            ("rate >= 0.4", true),
            ("rate>0.4", false),
            ("sum <> 10", false),
            ("min < 2 AND max >= 4", true),
            ("avg = 2.5", true),
            ("avg > 2.5", false),
            ("p50 = 2", true),
            ("p100 = 4", true),
            ("max > 1us or max = 4", true),
            ("max > 3ns and count > 100", false),
            ("count > 100 AND max > 3 OR min = 1 AND p25 <= 1", true),
        ] {
            assert_eq!(holds(text, &values), wanted, "{text}");
        }
    }

    // case Rules: a condition over a window
    #[test]
    fn a_threshold_is_compared_as_it_is_written() {
        let of_float = |text: &str, value: f64| {
            let when: When = text.parse().unwrap();
            let key = Some(Key::from_f64(value));
            let row = AggregateRow {
                min: key,
                max: key,
                sum: Sum::Float {
                    sum: value,
                    compensation: 0.0,
                },
                ..row(&when, &[1])
            };
            when.holds(Window {
                domain: Domain::F64,
                unit: Some(Unit::S),
                ..window(&row)
            })
        };
        for (text, value, wanted) in [
            ("max >= 1e308", 1e40, false),
            ("max >= 1e308", 1e308, true),
            ("min < -1e200", -1e40, false),
            ("min < -1e200", f64::NEG_INFINITY, true),
            ("max > 1e-300", 1e-100, true),
            ("max > 1e-300", 1e-301, false),
            ("sum > 1e300", 1e301, true),
            ("avg = 9007199254740993", 9_007_199_254_740_992.0, false),
            ("max > 5ms", 0.0051, true),
            ("max >= 5ms", 0.0049, false),
            ("max > 1e308", f64::NAN, true),
        ] {
            assert_eq!(of_float(text, value), Some(wanted), "{text} of {value}");
        }
        for (text, values, wanted) in [
            ("max > 4.5", [4, 5], true),
            ("min >= 4.5", [4, 5], false),
            ("max = 4.5", [4, 5], false),
            ("max >= 18446744073709551615", [0, u64::MAX], true),
            ("max > 18446744073709551614.5", [0, u64::MAX], true),
            ("max > 18446744073709551615", [0, u64::MAX], false),
            ("max < 1e300", [0, u64::MAX], true),
            ("min > -1e300", [0, 1], true),
            ("min > 1e-300", [0, 1], false),
            ("max > 9007199254740992", [0, 9_007_199_254_740_993], true),
            (
                "sum > 18446744073709551615.99999999999999999",
                [1, u64::MAX],
                true,
            ),
            (
                "avg = 0.50000000000000000000000000000000000001",
                [0, 1],
                false,
            ),
            (
                "avg < 0.50000000000000000000000000000000000001",
                [0, 1],
                true,
            ),
            ("count > 1e-300", [0, 1], true),
        ] {
            assert_eq!(holds(text, &values), wanted, "{text} of {values:?}");
        }
    }

    #[test]
    fn an_empty_window_has_a_count_and_no_values() {
        assert!(holds("count = 0", &[]) && holds("rate < 1", &[]) && holds("sum = 0", &[]));
        for text in ["min < 5", "max <> 5", "avg = 0", "p99 >= 0", "p99 < 1"] {
            assert!(!holds(text, &[]), "{text}");
        }
    }

    #[test]
    fn a_window_that_begins_with_its_rule_is_no_silence() {
        let holds = |text: &str, is_cut: bool| {
            let when: When = text.parse().unwrap();
            let row = row(&when, &[7, 8]);
            let cut = Window {
                is_cut,
                ..window(&row)
            };
            when.holds(cut).unwrap()
        };
        for text in ["count < 5", "rate <= 1", "sum = 15", "count <> 9"] {
            assert!(holds(text, false) && !holds(text, true), "{text}");
        }
        for text in ["count > 1", "rate >= 0.2", "max < 9", "p50 = 7", "avg < 8"] {
            assert!(holds(text, false) && holds(text, true), "{text}");
        }
    }

    #[test]
    fn a_quantile_is_open_where_its_bin_holds_the_threshold() {
        let when: When = "p99_99 > 5ms".parse().unwrap();
        let mut row = row(&when, &[1]);
        let mut answer = |min, max| {
            let [min, max] = [min, max].map(Key::from_u64);
            row.bounds = vec![Some(ValueRange { min, max })];
            when.holds(window(&row))
        };
        assert_eq!(answer(5_000_001, 5_100_000), Some(true));
        assert_eq!(answer(4_900_000, 5_000_000), Some(false));
        assert_eq!(answer(4_900_000, 5_100_000), None);
    }

    #[test]
    fn what_is_not_a_condition_is_refused_with_what_was_expected() {
        for (text, word) in [
            ("", "expected count"),
            ("latency > 5", "found 'latency'"),
            ("p101 > 5", "'p101' is not a percentile from p0 to p100"),
            ("p99.9 > 5", "'p99.9' is not a percentile"),
            ("max > 5 ms", "as in 5ms"),
            ("max > 5 ms AND count > 1", "before the unit 'ms'"),
            ("(max > 5 OR count > 1) AND min < 3", "parentheses"),
            ("max", "found the end"),
            ("max >", "expected a number"),
            ("max > soon", "found 'soon'"),
            ("max > nan", "found 'nan'"),
            ("max < -infinity", "found '-infinity'"),
            (
                "max > 1e309",
                "'1e309' has more than 38 digits, or is out of the range",
            ),
            ("max > 1e-400", "out of the range of a double"),
            ("max > 0.0000000001s", "expected a number or a duration"),
            ("max => 5", "found '=>'"),
            ("max > 5 6", "expected AND"),
            ("count > 5ms", "a plain number, not with '5ms'"),
            ("rate > 5s", "a plain number"),
            ("max > 5 and", "found the end"),
        ] {
            let error = text.parse::<When>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!("max > 5 or ".repeat(1000).parse::<When>().is_err());
    }

    #[test]
    fn an_alert_shows_the_comparison_that_broke() {
        let when: When = "count > 100 OR max > 3".parse().unwrap();
        let shown = |values: &[u64]| when.shown(window(&row(&when, values)));
        let max = Shown {
            value: Some(9.0),
            threshold: 3.0,
        };
        let count = Shown {
            value: Some(1.0),
            threshold: 100.0,
        };
        assert_eq!((shown(&[9]), shown(&[1])), (max, count));
    }

    proptest! {
        // case Rules: a condition over a window
        #[test]
        fn a_mean_compares_as_the_fraction_that_it_is(
            values in prop::collection::vec(0..1000u64, 1..50), tenths in 0..10_000u64,
        ) {
            let (sum, count): (u64, u64) = (values.iter().sum(), values.len() as u64);
            let text = format!("avg > {}.{}", tenths / 10, tenths % 10);
            prop_assert_eq!(holds(&text, &values), sum * 10 > tenths * count);
        }

        #[test]
        fn fractions_compare_as_their_cross_products(
            a in -1000i128..1000, b in 1i128..1000, c in -1000i128..1000, d in 1i128..1000,
        ) {
            prop_assert_eq!(compare_fractions((a, b), (c, d)), (a * d).cmp(&(c * b)));
        }

        #[test]
        fn any_text_is_a_condition_or_refused(text in "(count|p[0-9_]{0,6}|max|>|<=|and|OR| |[0-9.eE+-]{1,8}|ms){0,12}") {
            if let Ok(when) = text.parse::<When>() {
                prop_assert!(when.holds(window(&row(&when, &[3, 7]))).is_some());
            }
        }
    }
}
