//! Rushlight in a process of its own, as users have it: the facade's `Module`, and a `Session` of a language model. The commands
//! are those of the peers (`executorch/worker.cpp`), and `lowering`: how long that took, in nanoseconds.

use std::io::BufRead as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rushlight::{Module, ScalarType, Tensor, Value};
use rushlight_llm::Model;

use crate::interleaved::timed;
use crate::resident;

/// Answers commands until there are no more.
pub fn run() -> Result<()> {
    let mut session = None;
    for line in std::io::stdin().lock().lines() {
        match answer(&mut session, &line?) {
            Ok(answer) => println!("{answer}"),
            Err(reason) => refuse(&reason),
        }
    }
    Ok(())
}

/// Answers a command that failed.
pub fn refuse(reason: &anyhow::Error) {
    println!("error {}", format!("{reason:#}").replace('\n', " "));
}

fn answer(session: &mut Option<Session>, line: &str) -> Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if let ["open", program, threads, input, sizes] = words[..] {
        *session = None;
        let input = Input::read(input, sizes)?;
        resident::forget_peak()?;
        let before = resident::now()?;
        let start = Instant::now();
        let mut opened = Session::open(program, threads.parse()?, input)?;
        let loaded = start.elapsed();
        let executed = opened.time()?;
        *session = Some(opened);
        let added = resident::peak()?.saturating_sub(before);
        return Ok(format!("{} {} {added}", loaded.as_nanos(), executed.as_nanos()));
    }
    let session = session.as_mut().context("nothing is open")?;
    match words[..] {
        ["input", input, sizes] => session.set_input(Input::read(input, sizes)?)?,
        ["time", calls, at_least] => {
            let at_least = Duration::from_nanos(at_least.parse()?);
            return Ok(timed(calls.parse()?, at_least, || session.time())?.to_string());
        }
        ["outputs", file] => std::fs::write(file, session.outputs()?)?,
        ["lowering"] => return session.lowering(),
        _ => bail!("no command {line}"),
    }
    Ok("ok".to_owned())
}

/// The input of an execution.
enum Input {
    Tensor(Tensor),
    /// The tokens from a position on.
    Text {
        tokens: Vec<u32>,
        position: usize,
    },
}

impl Input {
    fn read(file: &str, sizes: &str) -> Result<Self> {
        let bytes = std::fs::read(Path::new(file)).with_context(|| file.to_owned())?;
        let Some((_, position)) = sizes.split_once('@') else {
            let sizes: Vec<usize> = sizes.split('x').map(str::parse).collect::<Result<_, _>>()?;
            return Ok(Self::Tensor(Tensor::from_bytes(ScalarType::Float, &sizes, &bytes).map_err(|e| error(&e))?));
        };
        let tokens = bytes.as_chunks().0.iter().map(|&token| u32::try_from(i64::from_le_bytes(token)));
        Ok(Self::Text { tokens: tokens.collect::<Result<_, _>>()?, position: position.parse()? })
    }
}

enum Session {
    Module(Box<Module>, Tensor),
    LanguageModel(Box<LanguageModel>),
}

struct LanguageModel {
    model: Model,
    session: rushlight_llm::Session,
    tokens: Vec<u32>,
    position: usize,
}

impl Session {
    fn open(program: &str, threads: usize, input: Input) -> Result<Self> {
        let mut module = Module::builder().threads(threads).load(program).map_err(|e| error(&e))?;
        match input {
            Input::Tensor(tensor) => {
                module.load_method("forward").map_err(|e| error(&e))?;
                Ok(Self::Module(Box::new(module), tensor))
            }
            Input::Text { tokens, position } => {
                let mut model = Model::new(module)?;
                let session = model.session()?;
                let mut opened = LanguageModel { model, session, tokens: Vec::new(), position: 0 };
                opened.set_text(tokens, position)?;
                Ok(Self::LanguageModel(Box::new(opened)))
            }
        }
    }

    fn set_input(&mut self, input: Input) -> Result<()> {
        match (self, input) {
            (Self::Module(_, old), Input::Tensor(tensor)) => *old = tensor,
            (Self::LanguageModel(model), Input::Text { tokens, position }) => model.set_text(tokens, position)?,
            _ => bail!("an input for another kind of program"),
        }
        Ok(())
    }

    fn time(&mut self) -> Result<Duration> {
        if let Self::LanguageModel(model) = self {
            model.session.rewind(&mut model.model, model.position)?;
        }
        let start = Instant::now();
        match self {
            Self::Module(module, input) => drop(execute(module, input)?),
            Self::LanguageModel(model) => drop(model.read()?),
        }
        Ok(start.elapsed())
    }

    fn outputs(&mut self) -> Result<Vec<u8>> {
        match self {
            Self::Module(module, input) => {
                Ok(execute(module, input)?.as_tensor().map_err(|e| error(&e))?.bytes().to_vec())
            }
            Self::LanguageModel(model) => {
                model.session.rewind(&mut model.model, model.position)?;
                Ok(model.read()?.iter().flat_map(|logit| logit.to_le_bytes()).collect())
            }
        }
    }

    /// Fails with the reason if the program runs on the reference operators.
    fn lowering(&mut self) -> Result<String> {
        let module = match self {
            Self::Module(module, _) => module,
            Self::LanguageModel(model) => model.model.module(),
        };
        if let Err(reason) = module.report() {
            bail!("it was not lowered: {reason}");
        }
        let time = module.lowering_time().context("it was not lowered")?;
        Ok(time.as_nanos().to_string())
    }
}

impl LanguageModel {
    /// Reads the tokens before the position, as far as they are others than those that were read.
    fn set_text(&mut self, tokens: Vec<u32>, position: usize) -> Result<()> {
        let kept = self.session.keep_common_prefix(&mut self.model, &tokens)?.min(position);
        self.session.rewind(&mut self.model, kept)?;
        let before = tokens.get(kept..position).context("a position after the text")?;
        if !before.is_empty() {
            self.session.prefill(&mut self.model, before)?;
        }
        (self.tokens, self.position) = (tokens, position);
        Ok(())
    }

    fn read(&mut self) -> Result<&[f32]> {
        Ok(self.session.prefill(&mut self.model, &self.tokens[self.position..])?)
    }
}

fn execute(module: &mut Module, input: &Tensor) -> Result<Value> {
    let outputs = module.forward(&[input.try_into().map_err(|e| error(&e))?]).map_err(|e| error(&e))?;
    outputs.into_iter().next().context("the program gives nothing")
}

fn error(error: &rushlight::Error) -> anyhow::Error {
    anyhow!("{error}")
}
