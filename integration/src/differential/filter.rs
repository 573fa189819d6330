//! Topic Filters: the ten lines everything cleverer is compared with.

/// MQTT 3.1.1 §4.7. A shared filter matches by its own filter.
pub(super) fn matches(filter: &str, topic: &str) -> bool {
    let filter = match filter.strip_prefix("$share/") {
        Some(rest) => rest.split_once('/').map_or(rest, |(_, filter)| filter),
        None => filter,
    };
    if topic.starts_with('$') && !filter.starts_with('$') {
        return false;
    }
    let mut levels = topic.split('/');
    for level in filter.split('/') {
        match (level, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (level, Some(other)) if level == other => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_mqtt_says() {
        for (filter, topic) in [("#", "a"), ("a/#", "a"), ("+/+", "/a"), ("$share/g/a", "a")] {
            assert!(matches(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in [("#", "$dev/a"), ("+", "a/b"), ("a/b", "a"), ("a", "a/b")] {
            assert!(!matches(filter, topic), "{filter} {topic}");
        }
    }
}
