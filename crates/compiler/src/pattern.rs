//! Patterns of names.

/// True if a name matches a pattern, in which `*` matches any text.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        // The first match leaves the longest rest.
        let Some(at) = rest.find(piece) else { return false };
        rest = rest.get(at + piece.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

/// True if a pattern matches the path of a module, or of a module that contains it.
pub fn is_within(pattern: &str, path: &str) -> bool {
    matches(pattern, path) || matches(&format!("{pattern}.*"), path)
}

/// Maximum number of names in the error about a pattern that matches none.
const LISTED: usize = 5;

/// Returns the names that are nearest to a pattern, each in backticks: by edit distance to the whole name, or to its last parts
/// if the pattern has fewer.
pub fn near<'n>(pattern: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let wanted: String = pattern.chars().filter(|c| *c != '*').collect();
    let parts = wanted.trim_matches('.').split('.').count();
    let distance = |name: &str| {
        let start = name.rmatch_indices('.').nth(parts - 1).map_or(0, |(at, _)| at + 1);
        let last = name.get(start..).unwrap_or_default();
        edits(&wanted, name).min(edits(&wanted, last))
    };
    let mut found: Vec<(usize, &str)> = names.into_iter().map(|name| (distance(name), name)).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(LISTED).map(|(_, name)| format!("`{name}`")).collect()
}

/// Returns the edit distance of two texts: characters inserted, deleted or replaced (Levenshtein 1966).
fn edits(one: &str, two: &str) -> usize {
    let mut row: Vec<usize> = (0..=two.chars().count()).collect();
    for (at, a) in one.chars().enumerate() {
        let mut diagonal = at;
        let mut left = at + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(two.chars()) {
            let exchanged = diagonal + usize::from(a != b);
            diagonal = *cell;
            left = exchanged.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = at + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_hold_any_text_where_they_have_a_star() {
        for (pattern, name) in [("*", ""), ("*", "a"), ("a*", "a"), ("*.weight", "fc.weight"), ("a*b*c", "abbc")] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a", "ab"), ("*.weight", "fc.bias"), ("a*a", "a"), ("a*b*c", "acb")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn modules_are_within_their_own_path_and_those_above() {
        for path in ["layers.0", "layers.0.attention.query"] {
            assert!(is_within("layers.0", path) && is_within("layers.*", path) && !is_within("layers", "layer.0"));
        }
    }

    #[test]
    fn the_nearest_names_have_the_fewest_edits() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!((edits("", "ab"), edits("ab", ""), edits("ab", "ab")), (2, 2, 0));
        let names = ["conv1", "conv2", "classifier", "layers.0.attention.query", "layers.0.attention.key"];
        assert_eq!(near("classifer", names)[0], "`classifier`");
        assert_eq!(near("cnv1*", names)[0], "`conv1`");
        assert_eq!(near("attention.qery", names)[0], "`layers.0.attention.query`");
        assert!(near("x", []).is_empty());
    }
}
