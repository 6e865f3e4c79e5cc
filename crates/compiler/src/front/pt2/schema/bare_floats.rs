//! Numbers that JSON lacks: torch 2.6 writes `Infinity`, `-Infinity` and `NaN` without quotes, later versions as strings.

/// The bare words. `-Infinity` comes before `Infinity`, which it ends with.
const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Quotes the bare words outside of strings. `None` if there are none.
pub(crate) fn quoted(text: &str) -> Option<String> {
    if !text.contains("Infinity") && !text.contains("NaN") {
        return None;
    }
    let mut result = String::new();
    let mut copied = 0;
    let mut rest = text;
    let at = |rest: &str| text.len() - rest.len();
    while let Some(start) = rest.find(['"', '-', 'I', 'N']) {
        rest = rest.get(start..)?;
        if let Some(string) = rest.strip_prefix('"') {
            rest = after_string(string);
            continue;
        }
        let Some(word) = WORDS.into_iter().find(|word| rest.starts_with(word)) else {
            rest = rest.get(1..)?;
            continue;
        };
        result.push_str(text.get(copied..at(rest))?);
        result.extend(["\"", word, "\""]);
        rest = rest.get(word.len()..)?;
        copied = at(rest);
    }
    if copied == 0 {
        return None;
    }
    result.push_str(text.get(copied..)?);
    Some(result)
}

/// Returns the text after the end of a string.
fn after_string(mut rest: &str) -> &str {
    while let Some(end) = rest.find(['"', '\\']) {
        let skipped = if rest.get(end..).is_some_and(|rest| rest.starts_with('"')) { 1 } else { 2 };
        let behind = rest.get(end + skipped..);
        match behind {
            Some(behind) if skipped == 1 => return behind,
            Some(behind) => rest = behind,
            // The escaped character has several bytes, which is no escape of JSON.
            None => rest = rest.get(end + 1..).unwrap_or_default(),
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_outside_of_strings_are_quoted() {
        let cases = [
            ("[Infinity, -Infinity,NaN, -1]", r#"["Infinity", "-Infinity","NaN", -1]"#),
            (r#"{"as_float": -Infinity}"#, r#"{"as_float": "-Infinity"}"#),
            (r#"["NaN", NaN]"#, r#"["NaN", "NaN"]"#),
            (r#"["a \" NaN", "\\", Infinity, "é\"NaN"]"#, r#"["a \" NaN", "\\", "Infinity", "é\"NaN"]"#),
        ];
        for (text, expected) in cases {
            assert_eq!(quoted(text).as_deref(), Some(expected), "{text}");
        }
        for text in [r#"{"a": "-Infinity"}"#, r#"["NaN\\", "Infinity"]"#, "[1, 2]", "", "\"NaN", "\"NaN\\", "\"NaN\\é"]
        {
            assert_eq!(quoted(text), None, "{text}");
        }
    }
}
