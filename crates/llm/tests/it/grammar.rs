//! Constrained answers from random logits: they have the given form, whatever the logits are.

use rushlight_llm::{Constraint, Error, Grammar, GrammarCompiler, Limits, Sampler, Sampling, SpecialTokens, Tokenizer};
use serde_json::{Map, Value as Json, json};

use crate::folder;

/// A small generator of numbers (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    /// Returns a schema whose values are short.
    fn schema(&mut self, depth: usize) -> Json {
        let kinds = if depth == 0 { 6 } else { 9 };
        match self.below(kinds) {
            0 => json!({ "type": "boolean" }),
            1 => json!({ "type": "null" }),
            2 => json!({ "enum": ["red", 7, null, "ge\"lb", [1]] }),
            3 => json!({ "const": format!("c{}", self.below(100)) }),
            4 => {
                let minimum = self.below(50) as i64 - 25;
                json!({ "type": "integer", "minimum": minimum, "maximum": minimum + self.below(1000) as i64 })
            }
            5 => json!({ "type": "string", "minLength": self.below(3), "maxLength": 3 + self.below(6) }),
            6 => {
                let min = self.below(3);
                json!({ "type": "array", "items": self.schema(depth - 1), "minItems": min, "maxItems": min + self.below(3) })
            }
            7 => json!({ "anyOf": [self.schema(depth - 1), self.schema(depth - 1)] }),
            _ => {
                let count = self.below(4);
                let properties: Map<String, Json> =
                    (0..count).map(|index| (format!("p{index}"), self.schema(depth - 1))).collect();
                let required: Vec<String> =
                    (0..count).filter(|_| self.below(2) == 0).map(|index| format!("p{index}")).collect();
                json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
            }
        }
    }
}

/// True if a value matches a schema of [`Random::schema`].
fn is_valid(schema: &Json, value: &Json) -> bool {
    let number = |name: &str| schema[name].as_i64().expect("a number");
    if let Some(all) = schema["enum"].as_array() {
        return all.contains(value);
    }
    if let Some(only) = schema.get("const") {
        return only == value;
    }
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|schema| is_valid(schema, value));
    }
    match schema["type"].as_str().expect("a type") {
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.as_i64().is_some_and(|it| (number("minimum")..=number("maximum")).contains(&it)),
        "string" => {
            let len = value.as_str().map(|text| text.chars().count() as i64);
            len.is_some_and(|len| (number("minLength")..=number("maxLength")).contains(&len))
        }
        "array" => value.as_array().is_some_and(|items| {
            (number("minItems")..=number("maxItems")).contains(&(items.len() as i64))
                && items.iter().all(|item| is_valid(&schema["items"], item))
        }),
        _ => value.as_object().is_some_and(|object| {
            let properties = schema["properties"].as_object().expect("properties");
            let is_known =
                |(name, value): (&String, &Json)| properties.get(name).is_some_and(|schema| is_valid(schema, value));
            let required = schema["required"].as_array().expect("names");
            object.iter().all(is_known)
                && required.iter().all(|name| object.contains_key(name.as_str().expect("a name")))
        }),
    }
}

fn compiler(tokenizer: &Tokenizer, end: u32) -> GrammarCompiler {
    let limits = Limits { vocab_size: tokenizer.vocab_size(), eos: vec![end], ..Limits::default() };
    GrammarCompiler::new(tokenizer, &limits).expect("a compiler")
}

/// Returns the tokens of an answer from random logits; `None` if it does not end within many tokens.
fn answer(
    compiler: &GrammarCompiler,
    grammar: &Grammar,
    vocab_size: usize,
    end: u32,
    random: &mut Random,
) -> Option<Vec<u32>> {
    let mut constraint = compiler.compile(grammar).unwrap_or_else(|error| panic!("{error}: {grammar:?}"));
    let mut sampler = Sampler::new(Sampling { temperature: 1.0, seed: random.next(), ..Sampling::GREEDY }).unwrap();
    let mut tokens = Vec::new();
    for _ in 0..10_000 {
        let mut logits: Vec<f32> = (0..vocab_size).map(|_| random.below(1000) as f32 / 250.0).collect();
        let elsewhere = (tokens.len() % 16 == 3).then(|| masked_elsewhere(&constraint, &logits));
        constraint.mask(&mut logits).expect("something may come");
        assert!(elsewhere.is_none_or(|elsewhere| elsewhere == logits));
        let token = sampler.sample(&logits).unwrap().token;
        if token == end {
            return Some(tokens);
        }
        tokens.push(token);
        if constraint.accept(token).expect("it was allowed") {
            return Some(tokens);
        }
    }
    None
}

/// The logits that a copy of the constraint allows. Another thread prepares the copy.
fn masked_elsewhere(constraint: &Constraint, logits: &[f32]) -> Vec<f32> {
    let mut copy = constraint.clone();
    let prepare = move || {
        copy.prepare();
        copy
    };
    let mut copy = std::thread::spawn(prepare).join().expect("a mask");
    assert!(copy.preparation().is_some());
    let mut logits = logits.to_vec();
    copy.mask(&mut logits).expect("something may come");
    logits
}

#[test]
fn json_is_of_its_schema() {
    let mut random = Random(0x2026_1126);
    // These tokenizers have tokens for all bytes.
    for (name, count) in [("byte_level", 600), ("tekken", 200), ("tiktoken_llama3", 200)] {
        let tokenizer = Tokenizer::open(folder("llm/tokenizers").join(name)).unwrap();
        let end = end_of(&tokenizer);
        let compiler = compiler(&tokenizer, end);
        for _ in 0..count {
            let schema = random.schema(3);
            let grammar = Grammar::JsonSchema(schema.clone());
            let tokens = answer(&compiler, &grammar, tokenizer.vocab_size(), end, &mut random).expect("an end");
            let text = tokenizer.decode(&tokens, true).unwrap();
            let value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text:?} of {schema}"));
            assert!(is_valid(&schema, &value), "{name}: {text} of {schema}");
        }
    }
}

/// Returns the length of the longest white space between the values of a JSON text.
fn longest_space(json: &str) -> usize {
    let (mut longest, mut len, mut is_text, mut is_escaped) = (0, 0, false, false);
    for char in json.chars() {
        len = if !is_text && char.is_ascii_whitespace() { len + 1 } else { 0 };
        longest = longest.max(len);
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_text,
            '"' => is_text = !is_text,
            _ => {}
        }
    }
    longest
}

/// A model may prefer white space over all other tokens.
#[test]
fn white_space_of_json_has_an_end() {
    let mut random = Random(0x2026_1129);
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/byte_level")).unwrap();
    let (end, vocab_size) = (end_of(&tokenizer), tokenizer.vocab_size());
    let compiler = compiler(&tokenizer, end);
    let is_space = |token: u32| {
        let bytes = tokenizer.token_bytes(token).unwrap();
        !bytes.is_empty() && bytes.iter().all(u8::is_ascii_whitespace)
    };
    let spaces: Vec<bool> = (0..vocab_size as u32).map(is_space).collect();
    assert!(spaces.iter().any(|is_space| *is_space));
    let with_own_options = |mut schema: Json| {
        schema["x-guidance"] = json!({ "whitespace_flexible": true, "whitespace_pattern": "[ ]*" });
        schema
    };
    for number in 0..200 {
        let schema = random.schema(3);
        let schema = if number % 4 == 0 { with_own_options(schema) } else { schema };
        let grammar = Grammar::JsonSchema(schema.clone());
        let mut constraint = compiler.compile(&grammar).unwrap_or_else(|error| panic!("{error}: {schema}"));
        let mut tokens = Vec::new();
        loop {
            assert!(tokens.len() < 3000, "no end: {:?} of {schema}", tokenizer.decode(&tokens, true));
            let mut logits: Vec<f32> = (0..vocab_size).map(|_| random.below(1000) as f32 / 250.0).collect();
            logits.iter_mut().zip(&spaces).for_each(|(logit, is_space)| *logit += if *is_space { 100.0 } else { 0.0 });
            constraint.mask(&mut logits).expect("something may come");
            let best = (0..vocab_size).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32;
            if best == end {
                break;
            }
            tokens.push(best);
            if constraint.accept(best).expect("it was allowed") {
                break;
            }
        }
        let text = tokenizer.decode(&tokens, true).unwrap();
        let value: Json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?} of {schema}"));
        assert!(is_valid(&schema, &value), "{text} of {schema}");
        // Two new lines of two characters each, and the indentation of the next value.
        assert!(longest_space(&text) <= 24, "{text:?} of {schema}");
    }
    // A schema that allows any value.
    assert!(compiler.compile(&Grammar::JsonSchema(json!(true))).is_ok());
}

fn end_of(tokenizer: &Tokenizer) -> u32 {
    let SpecialTokens { eos, .. } = tokenizer.special_tokens();
    eos.first().copied().unwrap_or_else(|| tokenizer.vocab_size() as u32 - 1)
}

#[test]
fn texts_are_of_their_expression_and_grammar() {
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/byte_level")).unwrap();
    let end = end_of(&tokenizer);
    let compiler = compiler(&tokenizer, end);
    let mut random = Random(7);
    for _ in 0..50 {
        let regex = Grammar::Regex("[a-c]{2,5}(x|é|🙂)[0-9]+\\.".into());
        let tokens = answer(&compiler, &regex, tokenizer.vocab_size(), end, &mut random).expect("an end");
        let text = tokenizer.decode(&tokens, true).unwrap();
        let rest = text.trim_start_matches(['a', 'b', 'c']);
        assert!(
            (2..=5).contains(&(text.len() - rest.len())) && rest.starts_with(['x', 'é', '🙂']) && rest.ends_with('.'),
            "{text}"
        );
        let lark = Grammar::Lark("start: \"(\" (start | \"x\") \")\"".into());
        let tokens = answer(&compiler, &lark, tokenizer.vocab_size(), end, &mut random).expect("an end");
        let text = tokenizer.decode(&tokens, true).unwrap();
        let depth = text.matches('(').count();
        assert_eq!(text, "(".repeat(depth) + "x" + &")".repeat(depth));
    }
}

#[test]
fn regular_expressions_are_anchored_and_whole() {
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/byte_level")).unwrap();
    let end = end_of(&tokenizer);
    let compiler = compiler(&tokenizer, end);
    for (regex, answers, others) in [
        ("", &[""][..], &["a"][..]),
        ("(a|)", &["", "a"], &["aa"]),
        ("a/b\\/", &["a/b/"], &["a", "a/b"]),
        ("a\nb\r\t\n", &["a\nb\r\t\n"], &["a b"]),
        (r"\\\.\x41", &[r"\.A"], &[r"\aA"]),
        ("^ab$", &["ab"], &["b", "abc"]),
        ("(?i)ab", &["ab", "Ab", "AB"], &["a"]),
        ("(?s:.)[^b]", &["\na", "éa"], &["ab"]),
        (r"\d{2}\w\s", &["12é ", "00_\u{a0}"], &["1a ", "12- "]),
        ("\"#//[ ]'", &["\"#// '"], &["\"#//'"]),
    ] {
        let grammar = Grammar::Regex(regex.into());
        let is = |text: &str| is_answer(&compiler, &tokenizer, &grammar, end, text);
        assert_eq!(answers.iter().find(|text| !is(text)), None, "{regex:?}");
        assert_eq!(others.iter().find(|text| is(text)), None, "{regex:?}");
    }
}

#[test]
fn grammars_that_cannot_be_are_errors() {
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/byte_level")).unwrap();
    let compiler = compiler(&tokenizer, end_of(&tokenizer));
    for grammar in [
        Grammar::JsonSchema(json!({ "type": "nonsense" })),
        Grammar::JsonSchema(json!(5)),
        Grammar::JsonSchema(json!({ "$ref": "http://example.com/schema" })),
        Grammar::Regex("(".into()),
        Grammar::Regex("(?=a)b".into()),
        Grammar::Regex("a\\".into()),
        Grammar::Lark("start: missing".into()),
        Grammar::Lark(String::new()),
    ] {
        let error = compiler.compile(&grammar).expect_err("it is no grammar");
        assert!(matches!(&error, Error::Grammar(problem) if !problem.is_empty()), "{error}");
    }
}

/// The grammar of JSON in GBNF.
const JSON_GBNF: &str = r#"
root   ::= object # an object alone
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::= "[" ws ( value ("," ws value)* )? "]" ws

string ::= "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Not endless.
ws ::= | " " | "\n" [ \t]{0,20}
"#;

/// True if the grammar allows a text, token by token.
fn is_answer(compiler: &GrammarCompiler, tokenizer: &Tokenizer, grammar: &Grammar, end: u32, text: &str) -> bool {
    let mut constraint = compiler.compile(grammar).unwrap_or_else(|error| panic!("{error}: {grammar:?}"));
    let mut is_over = false;
    for token in tokenizer.encode(text, false).unwrap().into_iter().chain([end]) {
        if is_over {
            return token == end;
        }
        let mut logits = vec![0.0; tokenizer.vocab_size()];
        if constraint.mask(&mut logits).is_err() || logits[token as usize] != 0.0 {
            return false;
        }
        is_over = token == end || constraint.accept(token).unwrap();
    }
    true
}

#[test]
fn gbnf_is_what_llama_cpp_takes() {
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/byte_level")).unwrap();
    let end = end_of(&tokenizer);
    let compiler = compiler(&tokenizer, end);
    for (gbnf, answers, others) in [
        ("root ::= \"ab\" | \"c\"", &["ab", "c"][..], &["", "a", "abc", "b"][..]),
        ("# first\nroot ::= x-1 x-1? # two\nx-1 ::= [a-c_-]", &["a", "b-", "_c"], &["", "abc", "d"]),
        // Rules consist of characters: other prefixes than the longest one match, too.
        ("root ::= [a-z]* \"x\"", &["x", "axx", "ax"], &["a", "xa"]),
        ("root ::= (\"ab\" | \"abc\") \"cd\"", &["abcd", "abccd"], &["abc", "abd"]),
        ("root ::= \"(\" root \")\" | [a-z]* \"x\"", &["x", "((axx))", "(ax)"], &["(x", "a", "xa"]),
        (
            "root ::= list\nlist ::= item | list \",\" item\nitem ::= \"a\" | \"ab\" | \"b\"",
            &["a,ab,b"],
            &["a,", "abb"],
        ),
        ("root ::= \"\\x41\\u00e9\\U0001F642\\t\\n\\\\\\\"[\\[\\]\"", &["A\u{e9}🙂\t\n\\\"[[]"], &["A"]),
        ("root ::= [^a-y\\]\\\\\\n] .", &["zz", "é🙂", "Z\n"], &["az", "]z", "\\z", "\nz", "z"]),
        ("root ::= ( \"a\"\n | \"b\" ){2,3} \"\"", &["ab", "bab"], &["a", "abab"]),
        ("root ::= \"ab\"{2} \"c\"{1,} (\"d\"+)? ((\"e\"*){2})+", &["ababc", "ababccdde", "ababce"], &["abc", "abab"]),
        ("root ::= a{0,0} | \"x\" |\n  \"y\"\na ::= \"a\"", &["", "x", "y"], &["a"]),
        ("root ::= (\"a\" | )\r\n\r\nunused ::= root", &["a", ""], &["aa"]),
    ] {
        let grammar = Grammar::of_text(gbnf);
        assert!(matches!(grammar, Grammar::Gbnf(_)), "{gbnf}");
        let is = |text: &str| is_answer(&compiler, &tokenizer, &grammar, end, text);
        assert_eq!(answers.iter().find(|text| !is(text)), None, "{gbnf}");
        assert_eq!(others.iter().find(|text| is(text)), None, "{gbnf}");
    }
    assert!(matches!(Grammar::of_text("// Lark\nstart: \"::=\""), Grammar::Lark(_)));
    let json = Grammar::of_text(JSON_GBNF);
    let mut random = Random(11);
    let mut count = 0;
    while count < 20 {
        let Some(tokens) = answer(&compiler, &json, tokenizer.vocab_size(), end, &mut random) else { continue };
        let text = tokenizer.decode(&tokens, true).unwrap();
        // Unlike llama.cpp's, this grammar allows no escapes and numbers beyond JSON's, except for surrogates.
        if !text.contains("\\u") && !text.contains(['e', 'E']) {
            let value: Json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
            assert!(value.is_object(), "{text}");
        }
        count += 1;
    }
}

/// As one lexeme, and as rules over characters.
#[test]
fn gbnf_repeats_as_often_as_it_says() {
    const COUNTS: [u32; 8] = [0, 1, 4, 8, 9, 12, 13, 37];
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/byte_level")).unwrap();
    let end = end_of(&tokenizer);
    let compiler = compiler(&tokenizer, end);
    for min in COUNTS {
        for max in COUNTS.map(Some).into_iter().chain([None]).filter(|max| max.is_none_or(|max| max >= min)) {
            let counts = max.map_or(format!("{{{min},}}"), |max| format!("{{{min},{max}}}"));
            for (piece, recursion) in
                [("a", ""), ("ab", ""), ("a", " | \"(\" root \")\""), ("ab", " | \"(\" root \")\"")]
            {
                let grammar = Grammar::Gbnf(format!("root ::= \"{piece}\"{counts} \".\"{recursion}"));
                let around = max.unwrap_or(41);
                for count in [0, min.saturating_sub(1), min, around, around + 1] {
                    let is_of = count >= min && max.is_none_or(|max| count <= max);
                    let text = piece.repeat(count as usize) + ".";
                    assert_eq!(is_answer(&compiler, &tokenizer, &grammar, end, &text), is_of, "{grammar:?}: {text}");
                }
            }
        }
    }
}

#[test]
fn gbnf_that_is_wrong_is_an_error_with_its_place() {
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/byte_level")).unwrap();
    let compiler = compiler(&tokenizer, end_of(&tokenizer));
    for (gbnf, expected) in [
        ("", "no rule `root`"),
        ("x ::= \"a\"", "no rule `root`"),
        ("root ::= a\n\nb ::= \"b\"", "line 1, column 10: there is no rule `a`"),
        ("root ::= \"é\" \"a", "line 1, column 16: expected the end `\"`"),
        ("root ::= \"a\n\"", "line 1, column 12: expected the end `\"`"),
        ("root ::= [a", "line 1, column 12: expected the end `]`"),
        ("root ::= []", "line 1, column 10: there are no characters"),
        ("root ::= \"a\"\nb ::= [z-a]", "line 2, column 8: the range from 'z' to 'a' is empty"),
        ("root ::= (\"a\"\n", "line 2, column 1: expected `)`, for the `(` of line 1, column 10"),
        ("root ::= \"a\")", "line 1, column 13: expected the end of the line"),
        ("root ::= *", "line 1, column 10: expected the end of the line"),
        ("root ::= \"\\q\"", "line 1, column 11: there is no escape"),
        ("root ::= \"\\xq0\"", "line 1, column 11: expected 2 hexadecimal digits"),
        ("root ::= \"\\uD800\"", "line 1, column 11: there is no character U+D800"),
        ("root ::= \"a\"{3,2}", "line 1, column 13: the maximum of repetitions"),
        ("root ::= \"a\"{9999999999}", "line 1, column 14: expected a number of repetitions"),
        ("root ::= \"a\"{1", "line 1, column 15: expected `}`"),
        ("root ::= <think>", "line 1, column 10: tokens"),
        ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: the rule `root` is there twice"),
        ("root = \"a\"", "line 1, column 6: expected `::=`"),
        ("root ::= \"a\"\n= b", "line 2, column 1: expected the name"),
    ] {
        let error = compiler.compile(&Grammar::Gbnf(gbnf.to_owned())).expect_err(gbnf).to_string();
        assert!(error.contains(expected), "{gbnf}: {error}");
    }
}

#[test]
fn hostile_grammars_end() {
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/byte_level")).unwrap();
    let compiler = compiler(&tokenizer, end_of(&tokenizer));
    let chain = |count: usize, end: &str| {
        let rules = (0..count).map(|rule| format!("r{rule} ::= r{}\n", rule + 1));
        format!("root ::= r0\n{}r{count} ::= {end}\n", rules.collect::<String>())
    };
    let lark_chain = |count: usize| {
        let rules = (0..count).map(|rule| format!("r{rule}: r{} | start\n", rule + 1));
        format!("start: r0\n{}r{count}: \"a\"\n", rules.collect::<String>())
    };
    let schema_chain = |count: usize| {
        let one = |of: usize| (format!("r{of}"), json!({ "$ref": format!("#/$defs/r{}", of + 1) }));
        let mut rules: Map<String, Json> = (0..count).map(one).collect();
        rules.insert(format!("r{count}"), json!({ "type": "null" }));
        Grammar::JsonSchema(json!({ "$defs": rules, "$ref": "#/$defs/r0" }))
    };
    let doubling = |count: usize| {
        let rules = (0..count).map(|rule| format!("r{rule} ::= r{0} r{0}\n", rule + 1));
        format!("root ::= r0\n{}r{count} ::= \"a\"\n", rules.collect::<String>())
    };
    for grammar in [
        format!("root ::= {}", "(".repeat(30_000)),
        format!("root ::= {}\"a\"{}", "(".repeat(30_000), ")".repeat(30_000)),
        format!("root ::= {}\"a\"{}", "(".repeat(190), ")".repeat(190)),
        format!("root ::= \"a\"{}", "*".repeat(30_000)),
        format!("root ::= {}", "\"a\" ".repeat(12_000)),
        format!("root ::= {}", "\"a\" | ".repeat(9_000)),
        format!("root ::= \"{}\"", "a".repeat(60_000)),
        format!("root ::= \"(\" root \")\" | \"{}\"", "a".repeat(60_000)),
        "root ::= \"a\"{2000}{2000}{2000}".to_owned(),
        "root ::= \"(\" root \")\" | [a-z]{2000}{2000}{2000}".to_owned(),
        "root ::= root".to_owned(),
        "root ::= root root | \"\"".to_owned(),
        "root ::= (root*)*".to_owned(),
        "root ::= .{0,2000} .{0,2000} .{0,2000} \"x\"".to_owned(),
        "root ::= root \"x\" | .{0,2000} .{0,2000} .{0,2000}".to_owned(),
        chain(900, "\"a\""),
        chain(900, "\"a\" | root"),
        chain(20_000, "\"a\""),
        doubling(50),
        doubling(50).replace("\"a\"", "root | \"a\""),
    ]
    .map(Grammar::Gbnf)
    .into_iter()
    .chain([
        Grammar::Lark(lark_chain(1000)),
        Grammar::Lark(format!("start: {}\"a\"{}", "(".repeat(30_000), ")".repeat(30_000))),
        Grammar::Regex(format!("{}a{}", "(".repeat(30_000), ")".repeat(30_000))),
        schema_chain(7900),
        schema_chain(30_000),
    ]) {
        // Compiling fails, or the first mask is found or given up.
        if let Ok(mut constraint) = compiler.compile(&grammar) {
            let _ = constraint.mask(&mut vec![0.0; tokenizer.vocab_size()]);
        }
    }
}
