//! A model that answers: what `run` and `chat` have in common.

use std::ops::ControlFlow;

use clap::Args;
use rushlight_llm::{Draft, Generation, Generator, Model, Result, Session, Step, Tokenizer, Usage};

#[cfg(feature = "grammar")]
use super::form::Form;
use super::generation::{Options, TextModel};
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
}

/// A model in one session.
pub struct Speaker {
    pub model: Model,
    pub session: Session,
    pub tokenizer: Tokenizer,
    options: Generation,
    draft: Option<Box<dyn Draft>>,
    /// The form of each answer at its beginning.
    #[cfg(feature = "grammar")]
    constraint: Option<rushlight_llm::Constraint>,
}

impl Arguments {
    pub fn load(&self, tokenizer: Tokenizer) -> std::result::Result<Speaker, Failure> {
        let mut model = self.model.load()?;
        let session = model.session()?;
        let options = self.options.generation(&tokenizer)?;
        Ok(Speaker {
            session,
            draft: self.options.draft(&options, &model, &self.model)?,
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

    /// Adds tokens to the session and answers. `on_step` gets each step. The answer ends if standard output is closed, or
    /// `is_stopped` says so.
    pub fn answer(
        &mut self,
        tokens: &[u32],
        is_stopped: impl Fn() -> bool,
        mut on_step: impl FnMut(&Step),
    ) -> Result<Usage> {
        let Self { model, session, tokenizer, .. } = self;
        let goes_on =
            || if is_stopped() || output::is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let mut generator = Generator::start_while(model, session, tokenizer, tokens, self.options.clone(), goes_on)?;
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
            on_step(&step);
        }
        let usage = generator.usage();
        if let Some(reason) = usage.no_speculation {
            output::warn(&format!("tokens are not guessed: {reason}"));
        }
        Ok(usage)
    }
}
