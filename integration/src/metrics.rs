//! The numbers a card publishes, read as a scraper would.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);

/// One reading: lines of Prometheus text.
#[derive(Clone, Debug, Default)]
pub struct Metrics(String);

impl Metrics {
    /// Reads them from `port` of this machine.
    ///
    /// # Errors
    /// If nobody serves them there.
    pub fn read(port: u16) -> io::Result<Metrics> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: card\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        if !text.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(text.lines().next().unwrap_or_default().to_owned()));
        }
        Ok(Metrics(text))
    }

    /// The sum of all series of `name` whose labels include every one of `labels`, written `key="value"`.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.0
            .lines()
            .filter_map(|line| line.rsplit_once(' '))
            .filter(|(series, _)| {
                let (family, rest) = series.split_once('{').unwrap_or((series, ""));
                family == name && labels.iter().all(|label| rest.contains(label))
            })
            .filter_map(|(_, value)| value.parse::<f64>().ok())
            .sum()
    }

    /// PUBLISHes the card distributed.
    #[must_use]
    pub fn by_card(&self) -> f64 {
        self.sum("mqttshim_publish_total", &["decision=\"card\""])
    }

    /// PUBLISHes the broker distributed.
    #[must_use]
    pub fn by_broker(&self) -> f64 {
        self.sum("mqttshim_publish_total", &["decision=\"broker\""])
    }

    /// The lines of all series of `name`.
    #[must_use]
    pub fn text_of(&self, name: &str) -> String {
        self.0.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>().join("\n")
    }

    /// Every series that is not zero, for messages of failing tests.
    #[must_use]
    pub fn text(&self) -> String {
        let is_worth_it = |line: &&str| line.starts_with("mqttshim_") && !line.ends_with(" 0");
        self.0.lines().filter(is_worth_it).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_name_are_summed_by_label() {
        let text =
            "# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"1\",y=\"3\"} 4\nab{x=\"1\"} 9\na 1\n";
        let metrics = Metrics(text.to_owned());
        assert!((metrics.sum("a", &["x=\"1\""]) - 7.0).abs() < f64::EPSILON);
        assert!((metrics.sum("a", &["x=\"1\"", "y=\"3\""]) - 4.0).abs() < f64::EPSILON);
        assert!((metrics.sum("a", &[]) - 8.0).abs() < f64::EPSILON);
    }
}
