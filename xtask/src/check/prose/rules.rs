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

/// Phrases that documents replace, and their replacement.
pub const BANNED_IN_DOCUMENTS: &[(&str, &str)] = &[
    ("is said", "`reports` or `states`, with a subject"),
    ("are said", "`reports` or `states`, with a subject"),
    ("numbers part", "`results diverge`"),
    ("what came", "`what was given`"),
    ("that pays", "`that saves time`"),
    ("from a stranger", "`untrusted`"),
    ("from strangers", "`untrusted`"),
    ("of one's own", "`custom`"),
    ("of your own", "`custom` or `your`"),
    ("of our own", "`Rushlight's`"),
    ("of its own", "`its own` before the noun"),
    ("of their own", "`their own` before the noun"),
    ("by channel", "`per channel`"),
    ("in floats", "`in float`"),
    ("becomes floats", "`is converted to float`"),
    ("become floats", "`are converted to float`"),
    ("anew", "`again`"),
    ("is left out", "`is omitted`"),
    ("are left out", "`are omitted`"),
    ("leaves out", "`omits`"),
    ("and sound", "`and audio`"),
    ("no sound", "`no audio`"),
    ("google's kit", "`the Android NDK`"),
    ("is no number", "`is not a number`"),
    ("are no numbers", "`are not numbers`"),
    ("as they come", "the event"),
    ("where it can", "`if possible`"),
    ("who runs", "`the backends that run`"),
];

/// First words of inverted sentences.
pub const INVERTED: &[&str] = &["Behind", "Beside", "Of", "Where"];

/// Beginnings of words that are spelled with `z`, as in the names of the field.
const SPELLED_WITH_Z: &[&str] =
    &["initialis", "minimis", "normalis", "optimis", "quantis", "recognis", "serialis", "vectoris"];

/// The banned phrases and spellings of a sentence of a document or a comment, with what to write.
pub fn banned(sentence: &str, is_document: bool) -> Vec<(String, String)> {
    let words: Vec<String> = sentence
        .split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '`')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    let lists = BANNED.iter().chain(BANNED_IN_DOCUMENTS.iter().filter(|_| is_document));
    let phrases = lists.filter(|(phrase, _)| text.contains(&format!(" {phrase} ")));
    let spellings = words.iter().filter_map(|word| {
        let stem = SPELLED_WITH_Z.iter().find(|stem| word.starts_with(**stem))?;
        let (before, after) = (stem.strip_suffix('s')?, word.strip_prefix(stem)?);
        Some((word.clone(), format!("`{before}z{after}`")))
    });
    let made = made_of_it(&words).filter(|_| is_document).map(|made| (made, "`converts it to …`".to_owned()));
    phrases
        .map(|(phrase, instead)| ((*phrase).to_owned(), (*instead).to_owned()))
        .chain(spellings)
        .chain(made)
        .collect()
}

/// The phrase `makes X of it`, with one or two words for X.
fn made_of_it(words: &[String]) -> Option<String> {
    let is = |word: Option<&String>, one_of: &[&str]| word.is_some_and(|word| one_of.contains(&word.as_str()));
    (0..words.len()).find_map(|at| {
        let rest = words.get(at..)?;
        let end = (2..=3).find(|end| is(rest.get(*end), &["of"]) && is(rest.get(end + 1), &["it", "them"]))?;
        is(rest.first(), &["make", "makes", "made"]).then(|| rest.get(..end + 2).unwrap_or_default().join(" "))
    })
}

/// The first word of a sentence that is in [`INVERTED`]. A question and `Of N …` may begin so.
pub fn inverted(sentence: &str) -> Option<&str> {
    let mut words = sentence.split_whitespace();
    let (first, second) = (words.next()?, words.next().unwrap_or_default());
    let is_count = first == "Of" && second.starts_with(|c: char| c.is_ascii_digit() || c == '`');
    (INVERTED.contains(&first) && !is_count && !sentence.ends_with('?')).then_some(first)
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
        assert_eq!(banned("Each back end, in turn.", false).len(), 1);
        assert_eq!(banned("Each backend has a feedback ending.", true).len(), 0);
        assert_eq!(banned("A Back-End.", false).len(), 1);
        let spelling = ("optimised".to_owned(), "`optimized`".to_owned());
        assert_eq!(banned("It is optimised.", false), [spelling]);
    }

    #[test]
    fn documents_are_held_to_more_phrases_than_comments() {
        let sentence = "What could not be compared is said, and rushlight makes integers of it.";
        let found: Vec<String> = banned(sentence, true).into_iter().map(|(phrase, _)| phrase).collect();
        assert_eq!(found, ["makes integers of", "is said", "makes integers of it"]);
        assert_eq!(banned("It makes a graph of them.", true).len(), 1);
        assert_eq!(banned("It makes a graph of them.", false).len(), 0);
        assert_eq!(banned("It makes use of the cache.", true).len(), 0);
    }

    #[test]
    fn inverted_sentences_are_no_counts_and_no_questions() {
        assert_eq!(inverted("Where that is all of the result, PyTorch's stands in for it."), Some("Where"));
        assert_eq!(inverted("Of what the part copies, it uses what that uses."), Some("Of"));
        assert_eq!(inverted("Of 289 calls, 12 are slower."), None);
        assert_eq!(inverted("Where is the cache?"), None);
        assert_eq!(inverted("The cache is where it was."), None);
    }

    #[test]
    fn code_counts_as_one_word() {
        assert_eq!(count_words("Run ` twice - and stop."), 5);
    }
}
