//! The valid word most like a wrong one.

/// More changes than this and the words have nothing to do with each other.
const DISTANCE_MAX: usize = 4;

/// The valid word that needs the fewest changes, if that are few.
pub(super) fn of(word: &str, valid: &[&'static str]) -> Option<&'static str> {
    let word = word.replace('-', "_");
    let nearest = valid.iter().map(|candidate| (distance(&word, candidate), *candidate)).min()?;
    // A word of which more than half is changed is another word.
    let length = word.len().max(nearest.1.len());
    let is_alike = nearest.0 <= DISTANCE_MAX && nearest.0 * 2 <= length;
    is_alike.then_some(nearest.1)
}

/// The end of a sentence that names it.
pub(super) fn hint(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest:?}?"))
}

/// Insertions, removals and replacements between two words (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_changes() {
        for (a, b, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("trust", "trust", 0),
            ("trsut", "trust", 2),
            ("log", "logs", 1),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_dash_is_an_underscore_and_nonsense_is_like_nothing() {
        let valid = ["session_group", "log"];
        assert_eq!(of("session-group", &valid), Some("session_group"));
        assert_eq!(of("logs", &valid), Some("log"));
        assert_eq!(of("xyz", &valid), None);
        assert_eq!(of("config", &valid), None);
        assert_eq!(of("completely_different", &valid), None);
    }
}
