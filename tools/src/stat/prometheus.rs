//! Reads metrics in Prometheus' text format, as far as dpu-server writes it.
//!
//! A line is `name{label="value",…} number` or a comment. Escapes in label values are `\\`, `\"` and `\n`. Time stamps,
//! exemplars and histograms' meaning are not looked at. A line that does not parse is skipped.

/// One series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Metric name.
    pub(crate) name: String,
    /// Labels in the order they came.
    pub(crate) labels: Vec<(String, String)>,
    /// Value.
    pub(crate) value: f64,
}

impl Sample {
    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// A scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    /// Reads a whole page.
    pub(crate) fn parse(text: &str) -> Samples {
        Samples(text.lines().filter_map(parse_line).collect())
    }

    /// Every series of a metric.
    pub(crate) fn of(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }

    /// Sum over the series of a metric whose labels include all of `labels`; `None` if there are none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |sample: &&Sample| labels.iter().all(|(l, v)| sample.label(l) == Some(v));
        let mut found = self.of(name).filter(fits).peekable();
        found.peek()?;
        Some(found.map(|sample| sample.value).sum())
    }
}

fn parse_line(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let name_end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = parse_labels(inside, &mut labels)?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Reads `a="b",c="d"}`; returns what follows the brace.
fn parse_labels<'a>(mut text: &'a str, labels: &mut Vec<(String, String)>) -> Option<&'a str> {
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some(rest);
        }
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.char_indices();
        loop {
            match characters.next()? {
                (at, '"') => {
                    text = &rest[at + 1..];
                    break;
                }
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        }
        labels.push((name.to_owned(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_and_series_are_summed() {
        let text = "# HELP m Help.\n# TYPE m counter\nm{by=\"card\",reason=\"a\"} 3\n\
                    m{by=\"card\",reason=\"b\"} 4.5\nm{by=\"broker\",reason=\"a\"} 1 1700000000\nplain 7\n";
        let samples = Samples::parse(text);
        assert_eq!(samples.0.len(), 4);
        assert_eq!(samples.sum("m", &[("by", "card")]), Some(7.5));
        assert_eq!(samples.sum("m", &[]), Some(8.5));
        assert_eq!(samples.sum("plain", &[]), Some(7.0));
        assert_eq!(samples.sum("missing", &[]), None);
    }

    #[test]
    fn escapes_in_labels_are_undone() {
        let samples = Samples::parse("m{a=\"q\\\"b\\\\s\\nn}\",} 1");
        assert_eq!(samples.0[0].label("a"), Some("q\"b\\s\nn}"));
    }

    #[test]
    fn what_does_not_parse_is_skipped() {
        let samples = Samples::parse("m{a=\"open 1\nm{ 1\n= \nm x\nm\n\nok 1");
        assert_eq!(samples.0.len(), 1);
    }
}
