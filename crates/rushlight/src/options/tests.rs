//! Tests of tables and values.

use std::time::Duration;

use super::*;

struct Row {
    flag: bool,
    number: f32,
    count: usize,
    limit: Option<usize>,
    bound: Option<f64>,
    scores: Option<usize>,
    seed: u64,
    version: usize,
    choice: Option<String>,
    texts: Vec<String>,
    biases: Vec<(u32, f32)>,
    time: Option<Duration>,
    size: Option<usize>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            flag: false,
            number: 1.0,
            count: 1,
            limit: None,
            bound: None,
            scores: None,
            seed: 0,
            version: 0,
            choice: None,
            texts: Vec::new(),
            biases: Vec::new(),
            time: None,
            size: None,
        }
    }
}

static TABLE: &[OptionSpec<Row>] = &[
    OptionSpec::new("flag", Field::Flag(|row| &mut row.flag), "", "A flag"),
    OptionSpec::new("number", Field::Number(Range::above(0.0).at_most(1.0), |row| &mut row.number), "P", "A number"),
    OptionSpec::new("count", Field::Count(1, 9, |row| &mut row.count), "N", "A count"),
    OptionSpec::new("limit", Field::Limit(0, usize::MAX, |row| &mut row.limit), "N", "A limit"),
    OptionSpec::new("bound", Field::Bound(|row| &mut row.bound), "DB", "A bound"),
    OptionSpec::new("scores", Field::FlagOrCount(|row| &mut row.scores), "N", "Scores"),
    OptionSpec::new("seed", Field::Seed(|row| &mut row.seed), "N", "A seed"),
    OptionSpec::new("version", Field::Version(&[0, 2], |row| &mut row.version), "N", "A version"),
    OptionSpec::new("choice", Field::Choice(|| vec!["one", "two"], |row| &mut row.choice), "NAME", "A choice"),
    OptionSpec::new("texts", Field::Texts(|row| &mut row.texts), "TEXT", "Texts"),
    OptionSpec::new("biases", Field::Biases(|row| &mut row.biases), "TOKEN=X", "Biases"),
    OptionSpec::new("time", Field::Time(|row| &mut row.time), "TIME", "A time"),
    OptionSpec::new("size", Field::Size(|row| &mut row.size), "SIZE", "A size"),
];

impl Options for Row {
    fn table() -> &'static [OptionSpec<Self>] {
        TABLE
    }
}

#[test]
fn values_are_stored() {
    let mut row = Row::default();
    row.set("flag", true).unwrap();
    row.set("number", 0.5).unwrap();
    row.set("number", 1).unwrap();
    row.set("count", 3).unwrap();
    row.set("limit", 7_u64).unwrap();
    row.set("bound", 2).unwrap();
    assert_eq!(row.bound, Some(2.0));
    row.set("bound", -1.5).unwrap();
    row.set("scores", true).unwrap();
    row.set("seed", u64::MAX).unwrap();
    row.set("version", 2).unwrap();
    row.set("choice", "two").unwrap();
    row.set("texts", "a").unwrap();
    row.set("biases", OptionValue::Biases(vec![(3, f32::NEG_INFINITY)])).unwrap();
    row.set("time", 0.25).unwrap();
    row.set("size", 12).unwrap();
    assert_eq!((row.flag, row.number, row.count, row.limit), (true, 1.0, 3, Some(7)));
    assert_eq!((row.scores, row.seed, row.version, row.choice.as_deref()), (Some(0), u64::MAX, 2, Some("two")));
    assert_eq!((row.texts.as_slice(), row.biases.as_slice()), (&["a".to_owned()][..], &[(3, f32::NEG_INFINITY)][..]));
    assert_eq!((row.time, row.size, row.bound), (Some(Duration::from_millis(250)), Some(12), Some(-1.5)));
    // No value is the default, and another seed each time.
    for spec in TABLE {
        spec.set(&mut row, OptionValue::None).unwrap();
    }
    assert!(!row.flag && row.number == 1.0 && row.limit.is_none() && row.texts.is_empty() && row.time.is_none());
}

#[test]
fn names_of_other_libraries_are_known() {
    let near = |name: &str| LoadOptions::spec(name).unwrap_err().nearest().map(ToOwned::to_owned);
    assert_eq!(near("intra_op_num_threads").as_deref(), Some("threads"));
    // Only names of the same table are suggested.
    assert_ne!(near("max_tokens").as_deref(), Some("max_new_tokens"));
}

#[test]
fn text_is_read_as_the_field_needs_it() {
    let mut row = Row::default();
    for (name, text) in [
        ("flag", "true"),
        ("number", "0.5"),
        ("count", "9"),
        ("scores", "4"),
        ("seed", "12"),
        ("texts", "a"),
        ("texts", "b"),
        ("biases", "3=-1.5,4=inf"),
        ("biases", "5=1"),
        ("bound", "-30.5"),
        ("time", "1.5min"),
        ("size", "64MiB"),
    ] {
        row.set_text(name, text).unwrap();
    }
    assert_eq!((row.number, row.count, row.scores, row.seed), (0.5, 9, Some(4), 12));
    assert_eq!(row.texts, ["a", "b"]);
    assert_eq!(row.biases, [(3, -1.5), (4, f32::INFINITY), (5, 1.0)]);
    assert_eq!((row.time, row.size, row.bound), (Some(Duration::from_secs(90)), Some(64 << 20), Some(-30.5)));
    row.set_text("seed", "-1").unwrap();
    assert_ne!(row.seed, 12);
    row.set_text("seed", "random").unwrap();
}

#[test]
fn wrong_values_name_the_option_and_what_it_takes() {
    let mut row = Row::default();
    for (name, value, text, is_type) in [
        ("number", OptionValue::Number(0.0), "number must be more than 0, at most 1, got 0", false),
        ("number", OptionValue::Number(f64::NAN), "number must be more than 0, at most 1, got NaN", false),
        ("number", "x".into(), "number must be more than 0, at most 1, got \"x\"", true),
        ("count", 10.into(), "count must be from 1 to 9, got 10", false),
        ("limit", (-1).into(), "limit must be 0 or more, got -1", false),
        ("seed", (-1).into(), "seed must be from 0 to 18446744073709551615, got -1", false),
        ("version", 1.into(), "version must be 0 or 2, got 1", false),
        ("choice", "six".into(), "choice must be \"one\" or \"two\", got \"six\"", false),
        ("flag", 1.into(), "flag must be true or false, got 1", true),
        ("texts", 5.into(), "texts must be a text or a list of texts, got 5", true),
        ("biases", OptionValue::Biases(vec![(0, f32::NAN)]), "biases must be finite or infinite numbers", false),
    ] {
        let error = row.set(name, value).unwrap_err();
        assert!(error.to_string().starts_with(text), "{error}");
        assert_eq!((error.name(), error.is_type(), error.is_unknown()), (name, is_type, false));
    }
    for (name, text) in [("count", "many"), ("biases", "3"), ("time", "0"), ("size", "12XB"), ("flag", "yes")] {
        let error = row.set_text(name, text).unwrap_err();
        assert_eq!((error.got(), error.name()), (text, name), "{error}");
    }
}

#[test]
fn unknown_names_are_told_the_nearest() {
    let error = Row::default().set("nunber", 1).unwrap_err();
    assert!(error.is_unknown() && error.nearest() == Some("number"), "{error}");
    let error = crate::Error::from(error);
    assert_eq!(error.hint(), Some("did you mean `number`?"));
    assert!(error.what_was_expected().is_some_and(|known| known.starts_with("one of: flag, number, ")), "{error}");
    assert_eq!(Row::default().set("zzz", 1).unwrap_err().nearest(), None);
}

#[test]
fn names_of_other_languages_are_converted() {
    for (snake, camel) in [("top_k", "topK"), ("dry_penalty_last_n", "dryPenaltyLastN"), ("seed", "seed")] {
        assert_eq!((snake_case(camel), camel_case(snake)), (snake.to_owned(), camel.to_owned()));
    }
    assert_eq!(snake_case("top_k"), "top_k");
    let error = Row::default().set("biase", 1).unwrap_err().renamed(str::to_uppercase);
    assert_eq!((error.name(), error.nearest()), ("biase", Some("BIASES")));
    assert_eq!(Row::default().set("count", 0).unwrap_err().renamed(str::to_uppercase).name(), "COUNT");
}

#[test]
fn options_of_loading_are_a_builder() {
    let mut options = LoadOptions::default();
    options.set("memory_limit", 1).unwrap();
    options.set_text("time_limit", "500ms").unwrap();
    options.set("load_mode", "file").unwrap();
    assert!(options.builder().is_ok());
    options.memory_limit = Some(0);
    let error = options.builder().unwrap_err();
    assert_eq!(error.message(), "the option `memory_limit` has no such value");
}

#[test]
fn every_row_has_help_and_a_name_of_its_own() {
    fn check<T: Options>() {
        for (index, spec) in T::table().iter().enumerate() {
            assert!(!spec.help.is_empty() && !spec.help.ends_with('.'), "{}", spec.name);
            assert!(T::table()[..index].iter().all(|other| other.name != spec.name), "{}", spec.name);
            // A default is a value that the option takes.
            spec.check(&mut T::default()).unwrap();
        }
    }
    check::<LoadOptions>();
    #[cfg(feature = "pt2")]
    check::<CompilerOptions>();
}

#[test]
#[cfg(all(feature = "pt2", feature = "llm", feature = "_backends"))]
fn options_of_compiling_are_applied_once_they_agree() {
    use crate::Compiler;

    let mut options = CompilerOptions::default();
    options.set_text("backend", "cpu").unwrap();
    options.set("kv_cache", "int8").unwrap();
    options.set("max_context_len", 64).unwrap();
    assert!(options.apply(Compiler::new()).is_ok());
    assert_eq!(options.language_model().unwrap().max_context_len, Some(64));
    assert_eq!(options.set("kv_cache", "int7").unwrap_err().name(), "kv_cache");
    options.embeddings = 4;
    let error = options.apply(Compiler::new()).unwrap_err();
    assert_eq!(error.message(), "the option `embeddings` has no such value");
    options.set("quantize", "int4").unwrap();
    assert!(options.apply(Compiler::new()).is_ok());
    (options.full_logits, options.hidden_states) = (true, true);
    assert!(options.language_model().is_err());
}
