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
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let main = unit_word(main, &UNITS);
    let per = Some(unit_word(per, &PER_UNITS)).filter(|per| !per.is_empty());
    for suffix in [
        main,
        per.map_or_else(String::new, |per| format!("per_{per}")),
    ] {
        if !suffix.is_empty() && !all.contains(&suffix) {
            all.push(suffix);
        }
    }
    let last = match instrument {
        Instrument::Counter => Some("total"),
        // Counters and histograms of things have this unit too, by mistake.
        Instrument::Gauge if unit == "1" => Some("ratio"),
        Instrument::Gauge | Instrument::Other => None,
    };
    if let Some(last) = last {
        all.retain(|word| word != last);
        all.push(last.to_owned());
    }
    let name = all.join("_");
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// What a part of a unit adds to a name: nothing if it is a remark in braces, or 1.
fn unit_word(unit: &str, known: &[(&str, &str)]) -> String {
    let unit = unit.trim();
    if unit.contains(['{', '}']) || unit == "1" {
        return String::new();
    }
    match known.iter().find(|(short, _)| *short == unit) {
        Some((_, word)) => (*word).to_owned(),
        None => words(unit).collect::<Vec<_>>().join("_"),
    }
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

    // case Metrics: data points over OTLP
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
    fn units_are_named_as_prometheus_names_them() {
        let of = |unit: &str, instrument| metric("x", unit, instrument);
        for (unit, word) in UNITS {
            assert_eq!(of(unit, Instrument::Gauge), format!("x_{word}"));
            assert_eq!(
                of(&format!("{unit}/s"), Instrument::Gauge),
                format!("x_{word}_per_second")
            );
        }
        for (unit, word) in PER_UNITS {
            assert_eq!(
                of(&format!("1/{unit}"), Instrument::Counter),
                format!("x_per_{word}_total")
            );
        }
        for (unit, wanted) in [
            ("1/s", "x_per_second"),
            ("/s", "x_per_second"),
            (" s ", "x_seconds"),
            ("{req}/s", "x_per_second"),
            ("By/{req}", "x_bytes"),
            ("{a}/{b}", "x"),
            ("By{transmitted}", "x"),
            ("By/", "x_bytes"),
            ("/", "x"),
            ("requests/m", "x_requests_per_minute"),
            ("1/custom", "x_per_custom"),
            ("By/_custom__unit_", "x_bytes_per_custom_unit"),
            ("unit@with#special/chars", "x_unit_with_special_per_chars"),
            ("@#$", "x"),
            ("kBy", "x_kBy"),
        ] {
            assert_eq!(of(unit, Instrument::Gauge), wanted, "{unit}");
        }
        for (name, unit, instrument, wanted) in [
            ("cpu_ratio_of", "1", Instrument::Gauge, "cpu_of_ratio"),
            (
                "response_time_seconds",
                "s",
                Instrument::Gauge,
                "response_time_seconds",
            ),
            (
                "bytes.in.time",
                "By",
                Instrument::Counter,
                "bytes_in_time_total",
            ),
            (
                "per.host.io",
                "By/s",
                Instrument::Gauge,
                "per_host_io_bytes_per_second",
            ),
            (
                "cpu_seconds_total",
                "s",
                Instrument::Counter,
                "cpu_seconds_total",
            ),
            (
                "active_connections",
                "1",
                Instrument::Other,
                "active_connections",
            ),
        ] {
            assert_eq!(metric(name, unit, instrument), wanted, "{name} {unit}");
        }
    }

    // case Metrics: data points over OTLP
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
