//! Overhead of text generation beside the model's calls: sampler, grammar, tokenizer and chat template, for a vocabulary of 200,000
//! tokens.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rushlight_llm::{
    ChatTemplate, Dry, Grammar, GrammarCompiler, Limits, Mirostat, Sampler, Sampling, TextStream, Tokenizer,
};
use serde_json::{Value as Json, json};

use crate::document::{conditions, microseconds};
use crate::interleaved::median;

/// The time of a token at 30 tokens a second, in nanoseconds.
const TOKEN: f64 = 1e9 / 30.0;

/// Steps that are timed; their median counts.
const STEPS: usize = 200;

const TEMPLATE: &str = "{% if tools %}{{ '<|im_start|>system\\n' }}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{{ '<|im_end|>\\n' }}\
    {% endif %}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Logits of a vocabulary, another one each step.
struct Logits {
    values: Vec<f32>,
    state: u64,
    /// Probabilities fall with about this power of a token's rank; 0 has none that stand out.
    power: f32,
}

impl Logits {
    fn new(size: usize, power: f32) -> Self {
        Self { values: vec![0.0; size], state: 1, power }
    }

    fn next(&mut self) -> &[f32] {
        for value in &mut self.values {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The rank of a uniform number is in proportion to it.
            let uniform = ((self.state >> 40) as f32 + 1.0) / (1u64 << 24) as f32;
            *value = -self.power * uniform.ln() + uniform;
        }
        &self.values
    }
}

/// The section of the document. `vocabulary` is a tokenizer's file.
pub fn run(vocabulary: &Path) -> Result<String> {
    let tokenizer = Tokenizer::open(vocabulary)?;
    let size = tokenizer.vocab_size();
    let mut text = conditions("cargo xtask bench text");
    let _ = write!(
        text,
        "\n\nThe cost of a token of an answer besides the model's call, for o200k ({size} tokens), on one thread. \
         Times are microseconds: the median of {STEPS} steps. Shares are of the time of a token at 30 tokens per \
         second. Logits that fall off have probabilities like words in texts (in proportion to the rank to the power \
         of -1.5). Flat logits have no maximum that stands out, as with random weights.\n\n\
         | step | us | of a token |\n|---|---|---|\n"
    );
    let mut row = |name: &str, nanoseconds: f64| {
        let _ = writeln!(text, "| {name} | {} | {:.2} % |", microseconds(nanoseconds), 100.0 * nanoseconds / TOKEN);
    };
    for (name, options) in samplings() {
        for (kind, power) in [("fall off", 1.5), ("are flat", 0.0)] {
            row(&format!("sampler: {name}; logits {kind}"), sampler(options.clone(), &mut Logits::new(size, power))?);
        }
    }
    row("grammar: JSON schema, its mask and the sampler by default; logits fall off", grammar(&tokenizer)?);
    row("text of a token", stream(&tokenizer)?);
    let (template, encode) = conversation(&tokenizer)?;
    row("chat template: 8 messages and 4 tools, once an answer", template);
    row("tokenizer: these 8 messages (4 kB), once an answer", encode);
    Ok(text)
}

fn samplings() -> Vec<(&'static str, Sampling)> {
    let warm = |temperature| Sampling { temperature, ..Sampling::GREEDY };
    vec![
        ("greedy", Sampling::GREEDY),
        ("by default (top-k 40, top-p 0.95, min-p 0.05)", Sampling::RANDOM),
        ("temperature 1", warm(1.0)),
        ("top-p 0.95", Sampling { top_p: 0.95, ..warm(0.8) }),
        ("min-p 0.05", Sampling { min_p: 0.05, ..warm(0.8) }),
        ("typical-p 0.9", Sampling { typical_p: 0.9, ..warm(0.8) }),
        ("mirostat 2", Sampling { mirostat: Some(Mirostat::DEFAULT), ..warm(0.8) }),
        (
            "by default, all penalties and DRY",
            Sampling {
                repetition_penalty: 1.1,
                presence_penalty: 0.1,
                frequency_penalty: 0.1,
                dry: Some(Dry { multiplier: 0.8, ..Dry::default() }),
                ..Sampling::RANDOM
            },
        ),
    ]
}

/// Median of a step in nanoseconds.
fn sampler(options: Sampling, logits: &mut Logits) -> Result<f64> {
    let mut sampler = Sampler::new(options)?;
    sampler.observe_prompt(&(0..2000).map(|index| index * 37 % 1000).collect::<Vec<u32>>());
    steps(|| {
        let logits = logits.next();
        let start = Instant::now();
        sampler.sample(logits)?;
        Ok(start.elapsed())
    })
}

fn grammar(tokenizer: &Tokenizer) -> Result<f64> {
    let size = tokenizer.vocab_size();
    let end = tokenizer.token_to_id("<|endoftext|>").context("the end of a text")?;
    let limits = Limits { vocab_size: size, eos: vec![end], ..Limits::default() };
    let schema = json!({ "type": "object", "additionalProperties": false, "required": ["name", "age", "tags"], "properties": {
        "name": { "type": "string", "maxLength": 200 }, "age": { "type": "integer" }, "tags": { "type": "array", "items": { "type": "string" } } } });
    let form = GrammarCompiler::new(tokenizer, &limits)?.compile(&Grammar::JsonSchema(schema))?;
    let (mut answer, mut sampler, mut logits) = (form.clone(), Sampler::new(Sampling::RANDOM)?, Logits::new(size, 1.5));
    let mut allowed = Vec::new();
    steps(|| {
        let logits = logits.next();
        let start = Instant::now();
        allowed.clear();
        allowed.extend_from_slice(logits);
        answer.mask(&mut allowed)?;
        let is_over = answer.accept(sampler.sample(&allowed)?.token)?;
        let time = start.elapsed();
        if is_over {
            answer = form.clone();
        }
        Ok(time)
    })
}

const MESSAGE: &str = "The committee met again on Thursday (14:30, room 7) and agreed, after some discussion, that 1,250 kg of grain \
    would be enough; nobody had asked what `cargo build --release` prints, nor why naïve cafés need façades. ";

fn stream(tokenizer: &Tokenizer) -> Result<f64> {
    let tokens = tokenizer.encode(&MESSAGE.repeat(STEPS / 20), false)?;
    let mut stream = TextStream::new();
    let mut at = tokens.iter().cycle();
    steps(|| {
        let token = *at.next().context("a token")?;
        let start = Instant::now();
        stream.push(tokenizer, token)?;
        Ok(start.elapsed())
    })
}

/// Rendering a conversation, and encoding what was rendered.
fn conversation(tokenizer: &Tokenizer) -> Result<(f64, f64)> {
    let template = ChatTemplate::new(TEMPLATE)?;
    let content = MESSAGE.repeat(2);
    let message = |index: usize| json!({ "role": (["user", "assistant"][index % 2]), "content": content });
    let messages: Json = (0..8).map(message).collect();
    let parameters =
        json!({ "type": "object", "properties": { "place": { "type": "string" }, "days": { "type": "integer" } } });
    let tool = json!({ "type": "function", "function": { "name": "weather", "description": "Weather of a place", "parameters": parameters } });
    let tools = json!([tool, tool, tool, tool]);
    let mut text = String::new();
    let rendered = steps(|| {
        let start = Instant::now();
        text = template.render_json(&messages, &tools, true)?;
        Ok(start.elapsed())
    })?;
    let encoded = steps(|| {
        let start = Instant::now();
        tokenizer.encode(&text, false)?;
        Ok(start.elapsed())
    })?;
    Ok((rendered, encoded))
}

fn steps(mut step: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let mut times = (0..STEPS).map(|_| Ok(step()?.as_secs_f64() * 1e9)).collect::<Result<Vec<f64>>>()?;
    Ok(median(&mut times))
}
