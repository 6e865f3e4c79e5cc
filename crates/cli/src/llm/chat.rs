//! `rushlight llm chat`.

use std::io::{self, BufRead, IsTerminal};
use std::ops::ControlFlow;

use clap::Args;
use rushlight_llm::{Message, generate};

use super::generation::{Options, TextModel};
use crate::failure::Failure;
use crate::output;

/// Talks to a model, line by line.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight llm chat llama.pte
  rushlight llm chat llama.pte --system \"Answer in one sentence.\"
  echo \"What is a quark?\" | rushlight llm chat llama.pte

Lines that begin with a slash are commands: /reset forgets the conversation, /exit ends it.")]
pub struct Chat {
    #[command(flatten)]
    model: TextModel,

    /// What the model is told first
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    #[command(flatten)]
    options: Options,
}

impl Chat {
    pub fn run(self) -> Result<(), Failure> {
        let tokenizer = self.model.tokenizer()?;
        let Some(template) = tokenizer.chat_template()? else {
            return Err(Failure::Arguments(
                "the tokenizer has no chat template\n  help      a `tokenizer_config.json` or `chat_template.jinja` beside the \
                 tokenizer has it; `rushlight llm run` does without"
                    .to_owned(),
            ));
        };
        let mut model = self.model.load()?;
        let mut session = model.session()?;
        let system = || self.system.iter().map(|text| Message::new("system", text)).collect::<Vec<_>>();
        let mut messages = system();
        let options = self.options.generation();
        let is_watched = io::stdin().is_terminal() && io::stdout().is_terminal();
        let mut lines = io::stdin().lock().lines();
        loop {
            if is_watched {
                output::print_piece("> ");
            }
            let Some(line) = lines.next() else { break };
            let line = line.map_err(|error| Failure::File { what: "cannot read standard input".to_owned(), error })?;
            match line.trim() {
                "" => continue,
                "/exit" => break,
                "/reset" => {
                    messages = system();
                    session.reset(&mut model)?;
                    continue;
                }
                command if command.starts_with('/') => {
                    output::warn(&format!("unknown command `{command}`: /reset, /exit"));
                    continue;
                }
                _ => messages.push(Message::new("user", &line)),
            }
            // The template has the special tokens.
            let tokens = tokenizer.encode(&template.render(&messages, true)?, false)?;
            let known = session.keep_common_prefix(&mut model, &tokens)?;
            let mut answer = String::new();
            let usage = generate(&mut model, &mut session, &tokenizer, &tokens[known..], &options, |piece| {
                answer.push_str(piece);
                output::print_piece(piece);
                ControlFlow::Continue(())
            })?;
            output::print("");
            if is_watched {
                output::to_stderr(&usage.to_string());
            }
            messages.push(Message::new("assistant", &answer));
        }
        Ok(())
    }
}
