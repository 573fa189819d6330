//! Topic Names and Topic Filters (MQTT 3.1.1 and 5, §4.7).
//!
//! ```text
//! $share/group/sport/+/#      text: all of it      path: sport/+/#      is_shared
//! ```
//!
//! Matching itself is the trie's. `$share` is recognised in every version: mosquitto honours it in 3.1.1 too. `$queue`
//! and `$exclusive` mean something of that kind to EMQX and NanoMQ; treating them alike costs a broker without them
//! speed only.

use super::packet::Malformed;

/// A Topic Name has no wildcards [MQTT-4.7.1-1]. UTF-8 and U+0000 were checked when it was read.
pub(crate) fn validate_name(topic: &str) -> Result<(), Malformed> {
    if topic.bytes().any(|byte| byte == b'+' || byte == b'#') {
        Err(Malformed::TopicName)
    } else {
        Ok(())
    }
}

/// Levels of a name or filter: one more than its separators.
pub(crate) fn levels(text: &str) -> usize {
    1 + text.bytes().filter(|&byte| byte == b'/').count()
}

/// A well-formed Topic Filter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Filter<'a> {
    text: &'a str,
    /// What topics are matched against: the text without a sharing prefix.
    path: &'a str,
}

impl<'a> Filter<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, Malformed> {
        let path = strip_sharing(text)?;
        if path.is_empty() {
            return Err(Malformed::TopicFilter);
        }
        let mut rest = path.split('/').peekable();
        while let Some(level) = rest.next() {
            let well_placed = match level {
                "+" => true,
                "#" => rest.peek().is_none(),
                _ => !level.contains(['+', '#']),
            };
            if !well_placed {
                return Err(Malformed::TopicFilter);
            }
        }
        Ok(Self { text, path })
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    pub(crate) fn path(&self) -> &'a str {
        self.path
    }

    /// Whether one of several subscribers, not each, gets a message.
    pub(crate) fn is_shared(&self) -> bool {
        self.path.len() != self.text.len()
    }
}

fn strip_sharing(text: &str) -> Result<&str, Malformed> {
    for prefix in ["$queue/", "$exclusive/"] {
        if let Some(path) = text.strip_prefix(prefix) {
            return Ok(path);
        }
    }
    let Some(rest) = text.strip_prefix("$share/") else { return Ok(text) };
    // [MQTT-4.8.2-1], [MQTT-4.8.2-2]: a ShareName of at least one character, without wildcards, then a filter.
    let (group, path) = rest.split_once('/').ok_or(Malformed::TopicFilter)?;
    if group.is_empty() || group.contains(['+', '#']) {
        return Err(Malformed::TopicFilter);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_alone_and_hash_stands_last() {
        for good in ["#", "+", "a", "/", "a/+/b", "a/#", "+/#", "$SYS/#", "a//b", " "] {
            assert!(Filter::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a#", "#/a", "a/#/b", "a+", "+a/b", "a/b+", "##"] {
            assert_eq!(Filter::parse(bad), Err(Malformed::TopicFilter), "{bad}");
        }
    }

    #[test]
    fn shared_filters_match_what_stands_behind_the_group() {
        let filter = Filter::parse("$share/g/a/+").unwrap();
        assert_eq!((filter.text(), filter.path()), ("$share/g/a/+", "a/+"));
        assert!(filter.is_shared());
        assert!(Filter::parse("$queue/a").unwrap().is_shared());
        assert!(!Filter::parse("$SYS/a").unwrap().is_shared());
        for bad in ["$share/g", "$share//a", "$share/+/a", "$share/g/"] {
            assert_eq!(Filter::parse(bad), Err(Malformed::TopicFilter), "{bad}");
        }
    }

    #[test]
    fn names_have_no_wildcards() {
        assert!(validate_name("a/b").is_ok());
        assert!(validate_name("a/+").is_err());
        assert!(validate_name("a#").is_err());
    }

    #[test]
    fn levels_are_counted_by_separators() {
        assert_eq!((levels("a"), levels("a/b"), levels("/"), levels("a//b")), (1, 2, 2, 3));
    }
}
