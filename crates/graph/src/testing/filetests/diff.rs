//! Differences of two texts.

/// Unchanged lines around each change.
const CONTEXT: usize = 3;

/// The lines of two texts, those of the first alone after `-` and those of the second alone after `+`.
pub fn lines(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let edits = edits(&before, &after);
    let near = |at: usize| {
        let range = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(edits.len());
        edits[range].iter().any(|(mark, _)| *mark != ' ')
    };
    let mut text = String::new();
    let mut skipped = false;
    for (at, (mark, line)) in edits.iter().enumerate() {
        if near(at) {
            text.push_str(&format!("{}{mark} {line}\n", if skipped { "  …\n" } else { "" }));
        }
        skipped = !near(at);
    }
    text
}

/// The shortest list of kept (` `), removed (`-`) and added (`+`) lines: a longest common subsequence.
fn edits<'t>(before: &[&'t str], after: &[&'t str]) -> Vec<(char, &'t str)> {
    // `common[i][j]`: length of the longest common subsequence of `before[i..]` and `after[j..]`.
    let mut common = vec![vec![0usize; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            common[i][j] =
                if before[i] == after[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut edits) = (0, 0, Vec::new());
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            edits.push((' ', before[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == after.len() || (i < before.len() && common[i + 1][j] >= common[i][j + 1]) {
            edits.push(('-', before[i]));
            i += 1;
        } else {
            edits.push(('+', after[j]));
            j += 1;
        }
    }
    edits
}

#[test]
fn changed_lines_stand_between_what_stays() {
    let got = lines("a\nb\nc\nd\ne\nf\ng\n", "a\nb\nc\nd\ne\nx\ng\nh\n");
    assert_eq!(got, "  …\n  c\n  d\n  e\n- f\n+ x\n  g\n+ h\n");
    assert_eq!(lines("same\n", "same\n"), "");
}
