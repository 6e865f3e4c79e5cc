//! Answers of a form, from logits that are random: whatever a model wants, the form is kept.

use rushlight_llm::{Error, Grammar, GrammarCompiler, Limits, Sampler, Sampling, SpecialTokens, Tokenizer};
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

    /// A schema whose values are not long.
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

/// True if a value is of a schema of [`Random::schema`].
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

/// Tokens of an answer, from random logits; `None` if it has no end within many.
fn answer(
    compiler: &GrammarCompiler,
    grammar: &Grammar,
    vocab_size: usize,
    end: u32,
    random: &mut Random,
) -> Option<Vec<u32>> {
    let mut constraint = compiler.compile(grammar).unwrap_or_else(|error| panic!("{error}: {grammar:?}"));
    let mut sampler = Sampler::new(Sampling { temperature: 1.0, seed: random.next(), ..Sampling::default() }).unwrap();
    let mut tokens = Vec::new();
    for _ in 0..10_000 {
        let mut logits: Vec<f32> = (0..vocab_size).map(|_| random.below(1000) as f32 / 250.0).collect();
        constraint.mask(&mut logits).expect("something may come");
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

#[test]
fn json_is_of_its_schema() {
    let mut random = Random(0x2026_1126);
    // Tokenizers that have all bytes.
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
fn grammars_that_cannot_be_are_errors() {
    let tokenizer = Tokenizer::open(folder("llm/tokenizers/byte_level")).unwrap();
    let compiler = compiler(&tokenizer, end_of(&tokenizer));
    for grammar in [
        Grammar::JsonSchema(json!({ "type": "nonsense" })),
        Grammar::JsonSchema(json!(5)),
        Grammar::JsonSchema(json!({ "$ref": "http://example.com/schema" })),
        Grammar::Regex("(".into()),
        Grammar::Regex("(?=a)b".into()),
        Grammar::Lark("start: missing".into()),
        Grammar::Lark(String::new()),
    ] {
        let error = compiler.compile(&grammar).expect_err("it is no grammar");
        assert!(matches!(&error, Error::Grammar(problem) if !problem.is_empty()), "{error}");
    }
}
