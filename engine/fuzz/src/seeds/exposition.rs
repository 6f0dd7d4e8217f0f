//! What targets of Prometheus answer: both formats, and each mistake.

use super::{Seeds, seed};

pub fn all() -> Vec<(&'static str, Seeds)> {
    vec![("exposition", answers())]
}

const SOUND: &str = "# TYPE a counter\na{b=\"c\",d=\"e\\n\\\"\\\\\",} 1 1395066363000\n\n \tf 1.5e3\ng NaN -5\nh:i{}+Inf\n";
const OPEN: &str = "# TYPE a histogram\na_bucket{le=\"0.1\"} 1 1520879607.789 # {trace=\"x # y\"} 0.05\na_sum 3.5\n# EOF\n";

fn answers() -> Seeds {
    let mut seeds: Seeds = [
        ("sound", SOUND),
        ("open", OPEN),
        ("open_without_feed", "a 1\n# EOF"),
        ("behind_the_end", "# EOF\na 1\n"),
        ("half", "a 1\nb 12"),
        ("no_name", "{a=\"b\"} 1\n"),
        ("no_value", "a\n"),
        ("value", "a b\n"),
        ("time", "a 1 b\n"),
        ("behind", "a 1 2 3\n"),
        ("label_name", "a{=\"b\"} 1\n"),
        ("label_value", "a{b} 1\n"),
        ("label_quotes", "a{b=c} 1\n"),
        ("label_open", "a{b=\"c\n"),
        ("label_comma", "a{b=\"c\"d=\"e\"} 1\n"),
        ("label_twice", "a{b=\"c\",b=\"d\"} 1\n"),
    ]
    .iter()
    .map(|(name, text)| seed(name, &[text.as_bytes()]))
    .collect();
    seeds.push(seed("not_utf8", &[b"a{b=\"\xff\"} 1\n"]));
    seeds
}
