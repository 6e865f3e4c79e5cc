//! The rules of a sentence.

/// Phrases that have a plain or a usual form, and that form.
pub const BANNED: &[(&str, &str)] = &[
    ("back end", "`backend`"),
    ("back ends", "`backends`"),
    ("whole numbers", "`integers`"),
    ("makes integers of", "`quantizes` or `converts to int8`"),
    ("make integers of", "`quantize` or `convert to int8`"),
    ("makes floats of", "`converts to float`"),
    ("make floats of", "`convert to float`"),
    ("products of bytes", "`int8 GEMM`"),
    ("numbers of bytes", "`quantized tensor`"),
    ("ends of sums", "`epilogue`"),
    ("tails of products", "`epilogues`"),
    ("lies in memory as", "`is stored as`"),
    ("put in another form", "`legalize` or `canonicalize`"),
    ("functions of one tensor", "`unary operators`"),
    ("where a person watches", "`on a terminal`"),
    ("as many as there are", "the count"),
    ("such as have", "the noun"),
    ("such as has", "the noun"),
    ("what others", "the noun"),
    ("of what", "the noun"),
    ("all that is", "`everything that is`"),
    ("is to be", "`must be`"),
    ("are to be", "`must be`"),
    ("is wanted", "what to do"),
    ("has to be", "`must be`"),
    ("have to be", "`must be`"),
];

/// Beginnings of words that are spelled with `z`, as in the names of the field.
const SPELLED_WITH_Z: &[&str] =
    &["initialis", "minimis", "normalis", "optimis", "quantis", "recognis", "serialis", "vectoris"];

/// The banned phrases and spellings of a sentence, with what to write.
pub fn banned(sentence: &str) -> Vec<(String, String)> {
    let words: Vec<String> = sentence
        .split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '`')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    let phrases = BANNED.iter().filter(|(phrase, _)| text.contains(&format!(" {phrase} ")));
    let spellings = words.iter().filter_map(|word| {
        let stem = SPELLED_WITH_Z.iter().find(|stem| word.starts_with(**stem))?;
        let (before, after) = (stem.strip_suffix('s')?, word.strip_prefix(stem)?);
        Some((word.clone(), format!("`{before}z{after}`")))
    });
    phrases.map(|(phrase, instead)| ((*phrase).to_owned(), (*instead).to_owned())).chain(spellings).collect()
}

/// The first word of a sentence that begins with a noun clause: `What it writes is …`. A question begins with one, too, and is
/// none.
pub fn noun_clause(sentence: &str) -> Option<&str> {
    if sentence.ends_with('?') {
        return None;
    }
    let mut words = sentence.split_whitespace();
    let (first, second) = (words.next()?, words.next().unwrap_or_default());
    let is_clause = match first {
        "What" | "Whatever" | "Whether" | "Who" | "Whoever" => true,
        "How" => second != "to",
        // `That is …` and `That page …` have a subject.
        "That" => ["a", "an", "the", "no", "it", "they", "each", "every", "one", "nothing", "nobody"].contains(&second),
        _ => false,
    };
    is_clause.then_some(first)
}

/// Number of words; a word has a letter or a digit, or stands for code.
pub fn count_words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.chars().any(|c| c.is_alphanumeric() || c == '`')).count()
}

/// The sentences of a text without line breaks: they end with `.`, `?` or `!` before a space and a capital letter or code.
pub fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(['.', '?', '!']) {
        let rest = text.get(at + 1..).unwrap_or_default();
        let rest = rest.trim_start_matches(['"', ')', '\'']);
        let next = rest.trim_start();
        let is_end = rest.len() > next.len()
            && next.chars().next().is_some_and(|c| c.is_uppercase() || c.is_numeric() || "`([\"".contains(c));
        if is_end {
            let end = text.len() - rest.len();
            sentences.push(text.get(start..end).unwrap_or_default().trim());
            start = end;
        }
    }
    sentences.push(text.get(start..).unwrap_or_default().trim());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_before_capitals_and_code() {
        let text = "One is 1.5 MB. Two, e.g. this. `Three` ends. (Four.) Five?";
        let expected = ["One is 1.5 MB.", "Two, e.g. this.", "`Three` ends.", "(Four.)", "Five?"];
        assert_eq!(sentences(text), expected);
    }

    #[test]
    fn a_noun_clause_is_no_question_and_no_demonstrative() {
        assert_eq!(noun_clause("What it writes is kept."), Some("What"));
        assert_eq!(noun_clause("Whether it may hold bf16."), Some("Whether"));
        assert_eq!(noun_clause("That a file is damaged is said."), Some("That"));
        assert_eq!(noun_clause("What is a state?"), None);
        assert_eq!(noun_clause("That is a state."), None);
        assert_eq!(noun_clause("How to run a model."), None);
        assert_eq!(noun_clause("The state is what it is."), None);
    }

    #[test]
    fn banned_phrases_are_whole_words() {
        assert_eq!(banned("Each back end, in turn.").len(), 1);
        assert_eq!(banned("Each backend has a feedback ending.").len(), 0);
        assert_eq!(banned("A Back-End.").len(), 1);
        let spelling = ("optimised".to_owned(), "`optimized`".to_owned());
        assert_eq!(banned("It is optimised."), [spelling]);
    }

    #[test]
    fn code_counts_as_one_word() {
        assert_eq!(count_words("Run ` twice - and stop."), 5);
    }
}
