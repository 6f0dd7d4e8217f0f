//! Names of metrics and labels as Prometheus has them, by OpenTelemetry's rules of compatibility: a unit and `_total` stand at the end.

/// What an instrument is, as far as its name goes.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Instrument {
    Gauge,
    /// A sum that only grows.
    Counter,
    Other,
}

/// Units of UCUM that have a word; any other stands as it is.
const UNITS: [(&str, &str); 25] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("%", "percent"),
];

/// What a unit is counted by, behind a slash.
const PER_UNITS: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// The name of a metric; empty if it has none.
pub(crate) fn metric(name: &str, unit: &str, instrument: Instrument) -> String {
    let mut all: Vec<String> = words(name).collect();
    if all.is_empty() {
        return String::new();
    }
    for word in unit_words(unit, instrument) {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    if instrument == Instrument::Counter {
        all.retain(|word| word != "total");
        all.push("total".to_owned());
    }
    let name = all.join("_");
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// What a unit adds to a name: `By/s` adds `bytes`, `per` and `second`.
fn unit_words(unit: &str, instrument: Instrument) -> Vec<String> {
    if unit == "1" {
        return match instrument {
            Instrument::Gauge => vec!["ratio".to_owned()],
            Instrument::Counter | Instrument::Other => Vec::new(),
        };
    }
    let (unit, per) = unit.split_once('/').unwrap_or((unit, ""));
    let of = |unit: &str, known: &[(&str, &str)]| -> Vec<String> {
        // What stands in braces is a remark.
        let unit = unit.split('{').next().unwrap_or_default().trim();
        let word = known.iter().find(|(short, _)| *short == unit);
        word.map_or_else(
            || words(unit).collect(),
            |(_, word)| vec![(*word).to_owned()],
        )
    };
    let mut found = of(unit, &UNITS);
    let per = of(per, &PER_UNITS);
    if !per.is_empty() {
        found.push("per".to_owned());
        found.extend(per);
    }
    found
}

/// The parts of a name between what cannot stand in one.
fn words(name: &str) -> impl Iterator<Item = String> {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric() && c != ':');
    parts.filter(|part| !part.is_empty()).map(str::to_owned)
}

/// The name of a label; empty if it has none.
pub(crate) fn label(name: &str) -> String {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fit: String = name
        .chars()
        .map(|c| if is_fit(c) { c } else { '_' })
        .collect();
    // Two in front are Prometheus' own.
    let fit = match fit.strip_prefix("__") {
        Some(rest) => format!("key_{}", rest.trim_start_matches('_')),
        None => fit,
    };
    match fit.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("key_{fit}"),
        false => fit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_named_as_the_rules_of_compatibility_say() {
        use Instrument::*;
        for (name, unit, instrument, wanted) in [
            (
                "http.server.duration",
                "ms",
                Other,
                "http_server_duration_milliseconds",
            ),
            (
                "system.cpu.time",
                "s",
                Counter,
                "system_cpu_time_seconds_total",
            ),
            (
                "system.cpu.utilization",
                "1",
                Gauge,
                "system_cpu_utilization_ratio",
            ),
            ("process.seconds", "s", Other, "process_seconds"),
            ("requests_total", "{request}", Counter, "requests_total"),
            ("total_requests", "1", Counter, "requests_total"),
            ("net.io", "By/s", Gauge, "net_io_bytes_per_second"),
            ("a..b--c", "", Other, "a_b_c"),
            ("2xx", "", Counter, "_2xx_total"),
            ("own", "furlong", Gauge, "own_furlong"),
            ("job:rate", "", Gauge, "job:rate"),
            ("", "s", Counter, ""),
            ("ü", "s", Counter, ""),
        ] {
            assert_eq!(metric(name, unit, instrument), wanted, "{name} {unit}");
        }
    }

    #[test]
    fn labels_hold_what_prometheus_takes() {
        for (name, wanted) in [
            ("http.method", "http_method"),
            ("2", "key_2"),
            ("__name__", "key_name__"),
            ("_private", "_private"),
            ("größe", "gr__e"),
        ] {
            assert_eq!(label(name), wanted, "{name}");
        }
    }
}
