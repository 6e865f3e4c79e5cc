//! A conversation with a language model, as in ExecuTorch's runner.

use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use rushlight::{Code, Module, ModuleBuilder};
use rushlight_llm::options::Options as _;
use rushlight_llm::{Adapter, GenerationOptions, Generator, GrammarCompiler, Model, Sampling, Session, Tokenizer};

use crate::error::{Problem, Result};

/// Top-p of ExecuTorch's runner, which has no option for it.
const TOP_P: f32 = 0.9;

/// A model with its tokenizer and the conversation so far.
#[derive(Debug)]
pub struct Conversation {
    model: Model,
    tokenizer: Tokenizer,
    session: Session,
    /// Made for the first answer of a form.
    grammars: Option<GrammarCompiler>,
    load_start_ms: u128,
    load_end_ms: u128,
}

/// A prompt, with the options of its answer.
#[derive(Debug)]
pub struct Request {
    pub prompt: String,
    /// Maximum number of tokens of the conversation and the answer; negative for as many as fit.
    pub seq_len: i32,
    /// Maximum number of tokens of the answer; negative for as many as fit.
    pub max_new_tokens: i32,
    pub echo: bool,
    pub temperature: f32,
    /// Number of BOS and EOS tokens before and after the prompt.
    pub num_bos: i32,
    pub num_eos: i32,
    /// Options of the answer by name, with their values as text. They replace those of ExecuTorch's runner.
    pub options: Vec<(String, String)>,
}

/// Listener of an answer.
pub trait Listener {
    /// Receives text as it is generated. An error ends the answer.
    fn on_text(&mut self, text: &str) -> Result<()>;

    /// Called before each token and before each part of the prompt. False ends the answer.
    fn goes_on(&mut self) -> bool;
}

impl Conversation {
    /// Loads a model with its tokenizer, and the folder of a LoRA adapter.
    pub fn load(builder: ModuleBuilder, path: &str, tokenizer: &str, lora: Option<&str>) -> Result<Self> {
        let load_start_ms = now();
        let module: Module = builder.load(path)?;
        let tokenizer = Tokenizer::open(tokenizer)?;
        let mut model = Model::new(module)?;
        if let Some(folder) = lora {
            let adapter = Adapter::open(&model, folder, 1.0)?;
            model.set_adapter(Some(adapter))?;
        }
        let session = model.session()?;
        Ok(Self { model, tokenizer, session, grammars: None, load_start_ms, load_end_ms: now() })
    }

    /// Removes the conversation.
    pub fn reset(&mut self) -> Result<()> {
        Ok(self.session.reset(&mut self.model)?)
    }

    /// Adds a text without an answer.
    pub fn prefill(&mut self, prompt: &str, num_bos: i32, num_eos: i32) -> Result<()> {
        let tokens = self.encoded(prompt, num_bos, num_eos)?;
        self.session.prefill(&mut self.model, &tokens)?;
        Ok(())
    }

    /// Adds a prompt and answers it. Returns the statistics in the format of ExecuTorch's observers.
    pub fn answer(&mut self, request: &Request, listener: &mut impl Listener) -> Result<String> {
        let start_ms = now();
        let tokens = self.encoded(&request.prompt, request.num_bos, request.num_eos)?;
        let occupied = self.session.position() + tokens.len();
        let options = self.options(request, occupied)?;
        let constraint = options.constraint(&self.tokenizer, self.model.limits(), &mut self.grammars)?;
        let generation = options.generation(&self.tokenizer)?;
        if request.echo && !request.prompt.is_empty() {
            listener.on_text(&request.prompt)?;
        }
        let asked = || if listener.goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let Self { model, tokenizer, session, .. } = self;
        let mut generator = Generator::start_while(model, session, tokenizer, &tokens, generation, asked)?;
        if let Some(constraint) = constraint {
            generator.constrain(constraint);
        }
        let prompt_end_ms = now();
        let mut first_token_ms = 0;
        // The generator reads its last token only in the next step.
        let mut unread = None;
        let mut heard = Ok(());
        while heard.is_ok() && listener.goes_on() {
            let Some(step) = generator.step(model, session, tokenizer)? else { break };
            unread = step.token.or(step.end);
            if first_token_ms == 0 {
                first_token_ms = now();
            }
            if !step.text.is_empty() {
                heard = listener.on_text(&step.text);
            }
        }
        let times = [start_ms, prompt_end_ms, first_token_ms, now()];
        if let Some(token) = unread {
            // The next prompt comes after this token.
            session.prefill(model, &[token])?;
        }
        heard?;
        let usage = generator.usage();
        Ok(self.statistics(usage.prompt_tokens, usage.generated_tokens, times, usage.decode.as_millis()))
    }

    /// Returns the options of an answer after `occupied` tokens: those of ExecuTorch's runner, with a seed of its own, and
    /// then those of the request.
    fn options(&self, request: &Request, occupied: usize) -> Result<GenerationOptions> {
        let sampling =
            Sampling { temperature: request.temperature, top_p: TOP_P, seed: now() as u64, ..Sampling::GREEDY };
        let mut options = GenerationOptions::of(sampling);
        options.set("max_new_tokens", self.room(request, occupied)?)?;
        request.options.iter().try_for_each(|(name, value)| options.set_text(name, value))?;
        Ok(options)
    }

    /// Returns the maximum number of tokens of an answer after `occupied` tokens.
    fn room(&self, request: &Request, occupied: usize) -> Result<usize> {
        let context = self.model.limits().max_context_len;
        let capacity = usize::try_from(request.seq_len).map_or(context, |seq_len| seq_len.min(context));
        let room = capacity.saturating_sub(occupied);
        if room == 0 {
            return Err(Problem::with_parts(
                Code::OutOfResources,
                "the conversation has no room for an answer",
                format!("fewer than {capacity} tokens"),
                format!("{occupied} tokens with those of the prompt"),
                "raise `seqLen`, or forget the conversation with resetContext()".to_owned(),
            ));
        }
        Ok(usize::try_from(request.max_new_tokens).map_or(room, |most| most.min(room)))
    }

    fn encoded(&self, prompt: &str, num_bos: i32, num_eos: i32) -> Result<Vec<u32>> {
        // More tokens than the context has room for are refused for that, however many more they are.
        let times = |count: i32| usize::try_from(count).unwrap_or(0).min(self.model.limits().max_context_len + 1);
        let (special, limits) = (self.tokenizer.special_tokens(), self.model.limits());
        let bos = special.bos.or(limits.bos).map_or_else(Vec::new, |bos| vec![bos; times(num_bos)]);
        let eos = special.eos.first().or(limits.eos.first()).map_or_else(Vec::new, |eos| vec![*eos; times(num_eos)]);
        Ok([bos, self.tokenizer.encode(prompt, false)?, eos].concat())
    }

    fn statistics(&self, prompt: usize, generated: usize, times: [u128; 4], executed_ms: u128) -> String {
        let [start, prompt_end, first_token, end] = times;
        // A rate is left out if its time is 0.
        let rate = |name: &str, count: usize, from: u128, to: u128| match to.saturating_sub(from) {
            0 => String::new(),
            milliseconds => format!("\"{name}\":{:.3},", count as f64 * 1000.0 / milliseconds as f64),
        };
        format!(
            "{{{}{}\"prompt_tokens\":{prompt},\"generated_tokens\":{generated},\"model_load_start_ms\":{},\"model_load_end_ms\":{},\
             \"inference_start_ms\":{start},\"inference_end_ms\":{end},\"prompt_eval_end_ms\":{prompt_end},\
             \"first_token_ms\":{first_token},\"aggregate_sampling_time_ms\":0,\
             \"aggregate_model_execution_time_ms\":{executed_ms},\"SCALING_FACTOR_UNITS_PER_SECOND\":1000}}",
            rate("prefill_token_per_sec", prompt, start, prompt_end),
            rate("decode_token_per_sec", generated, prompt_end, end),
            self.load_start_ms,
            self.load_end_ms,
        )
    }
}

/// Milliseconds since the epoch.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis())
}
