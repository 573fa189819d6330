//! Lines of a trace, ours or strace's, made comparable: what may differ by right is masked, and lines that threads cut in two
//! are put together again.

use std::collections::BTreeMap;

/// What a process or thread did, in its own order, by the order in which they first appear.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Trace {
    /// The lines of each, without who and when.
    pub threads: Vec<Vec<String>>,
}

/// The suffix that only our lines have: who answered.
#[must_use]
pub fn suffix(line: &str) -> Option<&str> {
    line.strip_suffix('}')?.rsplit_once("> {").map(|(_, suffix)| suffix)
}

impl Trace {
    /// Reads the lines a program wrote between its calls `close(-100)` and `close(-101)`.
    ///
    /// # Panics
    /// If a line does not begin with an id and a time.
    #[must_use]
    #[track_caller]
    pub fn parse(text: &str) -> Trace {
        let mut trace = Trace::default();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        // A signal handler may begin another call before a thread has ended one.
        let mut begun: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let from =
            text.find("close(-100)").map_or(0, |at| text[..at].rfind('\n').map_or(0, |at| at + 1));
        for line in text[from..].lines() {
            let mut parts = line.splitn(2, char::is_whitespace);
            let (thread, rest) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            assert!(thread.bytes().all(|byte| byte.is_ascii_digit()), "no id: {line}");
            let (time, call) = rest.trim_start().split_once(' ').expect("a time");
            assert!(is_time(time), "no time: {line}");
            if let Some(start) = call.strip_suffix(" <unfinished ...>") {
                begun.entry(thread).or_default().push(start);
                continue;
            }
            let call = match call.split_once(" resumed>") {
                Some((_, end)) if call.starts_with("<... ") => {
                    let start =
                        begun.entry(thread).or_default().pop().expect("what is resumed began");
                    start.to_owned() + end
                }
                _ => call.to_owned(),
            };
            let next = places.len();
            let place = *places.entry(thread).or_insert(next);
            if place == trace.threads.len() {
                trace.threads.push(Vec::new());
            }
            trace.threads[place].push(call);
            if place == 0 && rest.contains("close(-101)") {
                break;
            }
        }
        trace
    }

    /// The same with everything masked that two runs may differ in: times, addresses of memory, ports the kernel picked. Our
    /// suffix is dropped.
    #[must_use]
    pub fn masked(&self) -> Trace {
        let mask = |lines: &Vec<String>| lines.iter().map(|line| masked(line)).collect();
        Trace { threads: self.threads.iter().map(mask).collect() }
    }
}

fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    shape == "99:99:99.999999"
}

fn masked(line: &str) -> String {
    let line = match suffix(line) {
        Some(suffix) => &line[..line.len() - suffix.len() - "{} ".len()],
        None => line,
    };
    let line = line.rsplit_once(" <").map_or(line, |(call, _)| call);
    let (call, result) = line.rsplit_once(" = ").unwrap_or((line, ""));
    let mut text = mask(call.trim_end(), "0x", 6, |c| c.is_ascii_hexdigit());
    text = mask(&text, "htons(", 4, |c| c.is_ascii_digit());
    // As mkstemp(3) completes a template.
    text = mask(&text, "/temporary", 6, |c| c.is_ascii_alphanumeric());
    if let Some((value, _)) = result.split_once("left {") {
        return format!("{text} = {value}left TIME");
    }
    format!("{text} = {result}")
}

/// Masks what follows `prefix`, if it is at least `length_min` of these characters.
fn mask(text: &str, prefix: &str, length_min: usize, is_masked: fn(char) -> bool) -> String {
    let mut parts = text.split(prefix);
    let mut masked = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let end = part.find(|c| !is_masked(c)).unwrap_or(part.len());
        masked.push_str(prefix);
        masked.push_str(if end >= length_min { "MASKED" } else { &part[..end] });
        masked.push_str(&part[end..]);
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_threads_are_put_together_and_masked() {
        let text = "\
7     12:00:00.000001 close(1) = 0 <0.000001>
7     12:00:00.000001 close(-100)       = -1 EBADF (Bad file descriptor) <0.000001>
7     12:00:00.000001 accept(3,  <unfinished ...>
8     12:00:00.000002 read(5, 0x7ffd0001, 4) = -1 EAGAIN (Resource temporarily unavailable) <0.000003>
7     12:00:00.000004 <... accept resumed>{sin_port=htons(40000)}, [16]) = 5 <0.000002> {rpc 7us}
7     12:00:00.000005 close(-101)       = -1 EBADF (Bad file descriptor) <0.000001> {kernel: not offloaded}
7     12:00:00.000006 close(9) = 0 <0.000001>
";
        let trace = Trace::parse(text);
        assert_eq!(trace.threads.len(), 2);
        assert_eq!(suffix(&trace.threads[0][1]), Some("rpc 7us"));
        let masked = trace.masked();
        assert_eq!(masked.threads[0].len(), 3);
        assert_eq!(masked.threads[0][1], "accept(3, {sin_port=htons(MASKED)}, [16]) = 5");
        assert_eq!(
            masked.threads[1],
            ["read(5, 0xMASKED, 4) = -1 EAGAIN (Resource temporarily unavailable)"]
        );
    }
}
