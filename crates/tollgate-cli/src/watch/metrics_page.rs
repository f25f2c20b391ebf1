//! A page of metrics, as Prometheus reads it: taken apart.

use std::collections::BTreeMap;

use crate::{failure::Failure, watch::page::Page};

/// Where it is.
const PAGE: Page = Page {
    option: "--metrics",
    example: "http://127.0.0.1:3000/metrics",
    what: "its metrics",
};

/// One series and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Fetches a page and reads it.
pub(crate) async fn fetch(url: &str) -> Result<Vec<Sample>, Failure> {
    Ok(samples(&PAGE.fetch(url).await?))
}

/// The samples of a page. A line that cannot be read is left out.
pub(crate) fn samples(text: &str) -> Vec<Sample> {
    text.lines().filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, value) = rest.split_once("=\"")?;
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => text.push(match chars.next()?.1 {
                    'n' => '\n',
                    escaped => escaped,
                }),
                (_, c) => text.push(c),
            }
        };
        labels.insert(name.trim().to_owned(), text);
        rest = &value[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_with_all_that_labels_may_hold() {
        let page = "\
# HELP a_total What it is.
# TYPE a_total counter
a_total{rule=\"api\",decision=\"denied\"} 12
a_total{rule=\"q\\\"u\\\\o\\nte, }\",} 3.5 1395066363000
b 1e3
nothing
broken{rule=\"x} 1
c{} NaN
";
        let samples = samples(page);
        let shown: Vec<_> = samples
            .iter()
            .map(|sample| (&*sample.name, sample.labels.len()))
            .collect();
        assert_eq!(shown, [("a_total", 2), ("a_total", 1), ("b", 0), ("c", 0)]);
        assert_eq!(samples[0].labels["decision"], "denied");
        assert_eq!(samples[1].labels["rule"], "q\"u\\o\nte, }");
        assert_eq!(
            (samples[0].value, samples[1].value, samples[2].value),
            (12.0, 3.5, 1_000.0)
        );
        assert!(samples[3].value.is_nan());
    }
}
