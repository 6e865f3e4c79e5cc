//! A model that answers: what `run` and `chat` have in common.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use rushlight_llm::{Draft, Generation, Generator, Model, Result, Session, Step, Tokenizer, Usage};

#[cfg(feature = "grammar")]
use super::form::Form;
use super::generation::{Options, TextModel};
use super::saved;
use crate::failure::Failure;
use crate::output;

/// The arguments of a model that answers.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    pub model: TextModel,

    #[command(flatten)]
    pub options: Options,

    #[cfg(feature = "grammar")]
    #[command(flatten)]
    form: Form,

    /// Keep what the model has read in this file, and read no beginning again that is the same in the next run: the prompt of
    /// `run`, the conversation of `chat`
    #[arg(long, value_name = "FILE")]
    pub prompt_cache: Option<PathBuf>,
}

/// A model in one session.
pub struct Speaker {
    pub model: Model,
    pub session: Session,
    pub tokenizer: Tokenizer,
    /// The last token of an answer, if it has not been added to the session.
    pub unread: Option<u32>,
    options: Generation,
    draft: Option<Box<dyn Draft>>,
    /// The form of each answer at its beginning.
    #[cfg(feature = "grammar")]
    constraint: Option<rushlight_llm::Constraint>,
}

impl Arguments {
    pub fn load(&self, tokenizer: Tokenizer) -> std::result::Result<Speaker, Failure> {
        let mut model = self.model.load()?;
        let mut session = model.session()?;
        if let Some(path) = &self.prompt_cache {
            saved::restore_cache(path, &model, &mut session)?;
        }
        let options = self.options.generation(&tokenizer)?;
        Ok(Speaker {
            session,
            unread: None,
            draft: self.options.draft(&options, &model, &tokenizer, &self.model)?,
            options,
            #[cfg(feature = "grammar")]
            constraint: self.form.constraint(&model, &tokenizer)?,
            model,
            tokenizer,
        })
    }
}

impl Speaker {
    /// Answers otherwise from here on, but for the most likely tokens.
    pub fn next_seed(&mut self) {
        let seed = &mut self.options.sampling.seed;
        *seed = seed.wrapping_add(1);
    }

    /// Adds tokens to the session and answers. `on_start` gets the session with these tokens, and `on_step` each step. The
    /// answer ends if standard output is closed, or `is_stopped` says so.
    pub fn answer(
        &mut self,
        tokens: &[u32],
        is_stopped: impl Fn() -> bool,
        on_start: impl FnOnce(&mut Session),
        mut on_step: impl FnMut(&Step),
    ) -> Result<Usage> {
        let Self { model, session, tokenizer, .. } = self;
        let goes_on =
            || if is_stopped() || output::is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let mut generator = Generator::start_while(model, session, tokenizer, tokens, self.options.clone(), goes_on)?;
        on_start(session);
        let (start, mut count) = (session.position(), 0);
        self.unread = None;
        #[cfg(feature = "grammar")]
        if let Some(constraint) = &self.constraint {
            generator.constrain(constraint.clone());
        }
        while goes_on().is_continue() {
            let step = match &mut self.draft {
                Some(draft) => generator.step_with_draft(model, session, tokenizer, &mut **draft)?,
                None => generator.step(model, session, tokenizer)?,
            };
            let Some(step) = step else { break };
            count += usize::from(step.token.is_some());
            // The model reads a token when the next one is asked for.
            self.unread = step.token.filter(|_| session.position() < start + count);
            on_step(&step);
        }
        let usage = generator.usage();
        if let Some(reason) = usage.no_speculation {
            output::warn(&format!("tokens are not guessed: {reason}"));
        }
        Ok(usage)
    }
}
