//! Parses the answer of a Prometheus target: the text format and OpenMetrics, one sample a line.
//!
//! An answer is taken whole or not at all, as Prometheus does it: the first malformed line refuses it. Stricter than
//! Prometheus, an answer must end with its last line, so that one that was cut short is refused.

use std::borrow::Cow;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Format {
    Text,
    /// Times are seconds, and `# EOF` ends it.
    OpenMetrics,
}

impl Format {
    /// The format of a content type; the text format unless it says otherwise.
    pub fn of_content_type(text: &str) -> Format {
        let kind = text.split(';').next().unwrap_or_default().trim();
        match kind.eq_ignore_ascii_case("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Text,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Sample<'a> {
    pub metric: &'a str,
    /// Labels without the metric's name.
    pub labels: Labels<'a>,
    pub value: f64,
    /// Milliseconds since the Unix epoch, if the target gives a time.
    pub time_ms: Option<i64>,
}

pub type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ExpositionError {
    /// Counted from 1.
    pub line: usize,
    pub what: &'static str,
}

/// The samples of an answer, in its order.
///
/// # Errors
/// A line is malformed, or the answer does not end as the format says.
pub fn parse(bytes: &[u8], format: Format) -> Result<Vec<Sample<'_>>, ExpositionError> {
    let at = |line, what| ExpositionError { line, what };
    let text = str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        at(line, "it is not UTF-8")
    })?;
    let mut samples = Vec::new();
    let mut lines = 0;
    let mut has_ended = false;
    for line in text.split_inclusive('\n') {
        lines += 1;
        if has_ended {
            return Err(at(lines, "it stands behind # EOF"));
        }
        let Some(line) = line.strip_suffix('\n') else {
            // Senders of OpenMetrics leave the last line feed out.
            has_ended = format == Format::OpenMetrics && line == "# EOF";
            match has_ended {
                true => continue,
                false => return Err(at(lines, "the answer ends within a line")),
            }
        };
        let rest = line.trim_start_matches(BLANKS);
        if rest.is_empty() {
            continue;
        }
        if rest.starts_with('#') {
            has_ended = format == Format::OpenMetrics && rest == "# EOF";
            continue;
        }
        samples.push(sample(rest, format).map_err(|what| at(lines, what))?);
    }
    if format == Format::OpenMetrics && !has_ended {
        return Err(at(lines + 1, "the answer ends without # EOF"));
    }
    Ok(samples)
}

const BLANKS: [char; 2] = [' ', '\t'];

fn sample(line: &str, format: Format) -> Result<Sample<'_>, &'static str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let (metric, rest) = split_while(line, is_name);
    if metric.is_empty() || metric.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("it does not begin with a metric's name");
    }
    let rest = rest.trim_start_matches(BLANKS);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    // An exemplar follows in OpenMetrics; it is another sample's.
    let rest = match (format, rest.split_once(" # ")) {
        (Format::OpenMetrics, Some((before, _))) => before,
        _ => rest,
    };
    let mut words = rest.split(BLANKS).filter(|word| !word.is_empty());
    let value = words.next().ok_or("it has no value")?;
    let value = number(value).ok_or("its value is not a number")?;
    let time_ms = words.next().map(|word| time_ms(word, format)).transpose()?;
    if words.next().is_some() {
        return Err("something stands behind its value and time");
    }
    Ok(Sample {
        metric,
        labels,
        value,
        time_ms,
    })
}

/// Parses labels behind a brace. Returns them and the text behind the other brace.
fn labels(mut rest: &str) -> Result<(Labels<'_>, &str), &'static str> {
    let mut found = Labels::new();
    loop {
        rest = rest.trim_start_matches(BLANKS);
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((found, rest));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, after) = split_while(rest, is_name);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err("a label has no name");
        }
        if found.iter().any(|(known, _)| *known == name) {
            return Err("a label stands twice");
        }
        let after = after.trim_start_matches(BLANKS);
        let after = after.strip_prefix('=').ok_or("a label has no value")?;
        let after = after.trim_start_matches(BLANKS).strip_prefix('"');
        let (value, after) = quoted(after.ok_or("a label's value has no quotes")?)?;
        found.push((name, value));
        let after = after.trim_start_matches(BLANKS);
        // A comma may stand behind the last label.
        rest = match after.strip_prefix(',') {
            Some(rest) => rest,
            None if after.starts_with('}') => after,
            None => return Err("a comma between two labels is missing"),
        };
    }
}

/// Parses a value up to its closing quote. Returns it and the text behind the quote.
fn quoted(text: &str) -> Result<(Cow<'_, str>, &str), &'static str> {
    const OPEN: &str = "a label's value does not end";
    let (plain, rest) = text.split_at(text.find(['"', '\\']).ok_or(OPEN)?);
    if let Some(rest) = rest.strip_prefix('"') {
        return Ok((Cow::Borrowed(plain), rest));
    }
    let mut value = plain.to_owned();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Ok((Cow::Owned(value), chars.as_str())),
            '\\' => match chars.next().ok_or(OPEN)? {
                'n' => value.push('\n'),
                c @ ('"' | '\\') => value.push(c),
                // Prometheus keeps it so.
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    Err(OPEN)
}

fn number(word: &str) -> Option<f64> {
    // Rust reads more words for them than the formats define.
    let bare = word.trim_start_matches(['+', '-']);
    let is_word = bare.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_known = ["nan", "inf", "infinity"]
        .iter()
        .any(|known| bare.eq_ignore_ascii_case(known));
    (!is_word || is_known).then(|| word.parse().ok()).flatten()
}

fn time_ms(word: &str, format: Format) -> Result<i64, &'static str> {
    const WRONG: &str = "its time is not a number";
    match format {
        Format::Text => word.parse().map_err(|_| WRONG),
        Format::OpenMetrics => {
            let seconds = number(word)
                .filter(|seconds| seconds.is_finite())
                .ok_or(WRONG)?;
            // It saturates beyond the ends of time, which the caller refuses.
            Ok((seconds * 1000.0) as i64)
        }
    }
}

/// Splits a text before the first other character.
fn split_while(text: &str, is_such: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !is_such(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, format: Format) -> Result<Vec<String>, String> {
        let samples = parse(text.as_bytes(), format).map_err(|error| error.to_string())?;
        let show = |sample: Sample<'_>| {
            let labels = sample
                .labels
                .iter()
                .map(|(name, value)| format!("{name}={value:?}"));
            let labels = labels.collect::<Vec<_>>().join(",");
            let time = sample.time_ms.map_or(String::new(), |ms| format!(" @{ms}"));
            format!("{}{{{labels}}} {:?}{time}", sample.metric, sample.value)
        };
        Ok(samples.into_iter().map(show).collect())
    }

    #[test]
    fn the_text_format_is_read_as_documented() {
        let text = "# HELP http_requests_total The total number of HTTP requests.\n\
                    # TYPE http_requests_total counter\n\
                    http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000\n\
                    \n\
                    msdos{path=\"C:\\\\DIR\\\\FILE.TXT\",error=\"Cannot find file:\\n\\\"FILE.TXT\\\"\"} 1.458255915e9\n\
                    metric_without_timestamp_and_labels 12.47\n\
                    weird{problem=\"division by zero\",} +Inf -3982045\n\
                    \t spaced { a = \"}\" , b = \"\\x\" } \t NaN \n\
                    bucket:a{le=\"-Inf\"}3e-7\n";
        let wanted = [
            "http_requests_total{method=\"post\",code=\"200\"} 1027.0 @1395066363000",
            "msdos{path=\"C:\\\\DIR\\\\FILE.TXT\",error=\"Cannot find file:\\n\\\"FILE.TXT\\\"\"} 1458255915.0",
            "metric_without_timestamp_and_labels{} 12.47",
            "weird{problem=\"division by zero\"} inf @-3982045",
            "spaced{a=\"}\",b=\"\\\\x\"} NaN",
            "bucket:a{le=\"-Inf\"} 3e-7",
        ];
        assert_eq!(shown(text, Format::Text).unwrap(), wanted);
        assert_eq!(shown("", Format::Text).unwrap(), [""; 0]);
    }

    #[test]
    fn openmetrics_has_seconds_exemplars_and_an_end() {
        let text = "# TYPE foo histogram\n# UNIT foo seconds\n\
                    foo_bucket{le=\"0.01\"} 0 1520879607.789 # {trace_id=\"a # b\"} 0.0054\n\
                    foo_sum 3.5\n";
        let wanted = [
            "foo_bucket{le=\"0.01\"} 0.0 @1520879607789",
            "foo_sum{} 3.5",
        ];
        for end in ["# EOF\n", "# EOF"] {
            assert_eq!(
                shown(&format!("{text}{end}"), Format::OpenMetrics).unwrap(),
                wanted
            );
        }
        let cut = shown(text, Format::OpenMetrics).unwrap_err();
        assert_eq!(cut, "line 5: the answer ends without # EOF");
        let behind = shown("# EOF\na 1\n", Format::OpenMetrics).unwrap_err();
        assert_eq!(behind, "line 2: it stands behind # EOF");
        assert_eq!(shown("a 1\n# EOF\nb 2\n", Format::Text).unwrap().len(), 2);
        let of = Format::of_content_type;
        assert_eq!(
            of("application/openmetrics-text; version=1.0.0; charset=utf-8"),
            Format::OpenMetrics
        );
        assert_eq!(of("text/plain; version=0.0.4"), Format::Text);
    }

    // case Metrics: targets that answer nothing, half a line, without end, or something else
    #[test]
    fn each_mistake_is_named_with_its_line() {
        for (line, word) in [
            ("1a 2", "metric's name"),
            ("{a=\"b\"} 2", "metric's name"),
            ("a", "no value"),
            ("a b", "not a number"),
            ("a infinit", "not a number"),
            ("a 0x10", "not a number"),
            ("a 1 x", "time is not"),
            ("a 1 1.5", "time is not"),
            ("a 1 2 3", "behind its value"),
            ("a{b} 1", "no value"),
            ("a{b=c} 1", "no quotes"),
            ("a{b=\"c} 1", "does not end"),
            ("a{b=\"c\\", "does not end"),
            ("a{b=\"\\\"} 1", "does not end"),
            ("a{=\"c\"} 1", "has no name"),
            ("a{,} 1", "has no name"),
            ("a{b=\"c\" d=\"e\"} 1", "comma between two labels"),
            ("a{b=\"c\",b=\"d\"} 1", "twice"),
        ] {
            let error = shown(&format!("ok 1\n{line}\n"), Format::Text).unwrap_err();
            assert!(
                error.starts_with("line 2: ") && error.contains(word),
                "{line}: {error}"
            );
        }
        let half = shown("a 1\nb 12", Format::Text).unwrap_err();
        assert_eq!(half, "line 2: the answer ends within a line");
        let bytes = parse(b"a 1\nb{c=\"\xff\"} 1\n", Format::Text).unwrap_err();
        assert_eq!(bytes.to_string(), "line 2: it is not UTF-8");
    }
}
