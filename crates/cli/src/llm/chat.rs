//! `rushlight llm chat`.

use std::io::{self, BufRead, IsTerminal};
use std::ops::ControlFlow;

use clap::Args;
use rushlight_llm::{Draft, Message, generate_with_draft};
use serde_json::Value as Json;

use super::generation::{Options, TextModel};
use super::run::warn_without_drafts;
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

    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// A variable of the chat template, such as `enable_thinking=false`; may be repeated. What is no JSON is a text
    #[arg(long = "template-arg", value_name = "NAME=VALUE", value_parser = template_arg)]
    template_args: Vec<(String, Json)>,

    #[command(flatten)]
    options: Options,
}

fn template_arg(text: &str) -> Result<(String, Json), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((name.to_owned(), value))
}

impl Chat {
    pub fn run(self) -> Result<(), Failure> {
        let tokenizer = self.model.tokenizer()?;
        let Some(mut template) = tokenizer.chat_template()? else {
            return Err(Failure::Arguments(
                "the tokenizer has no chat template\n  help      a `tokenizer_config.json` or `chat_template.jinja` beside the \
                 tokenizer has it; `rushlight llm run` does without"
                    .to_owned(),
            ));
        };
        for (name, value) in &self.template_args {
            template = template.with_variable(name, value.clone());
        }
        let mut model = self.model.load()?;
        let mut session = model.session()?;
        let system = || self.system.iter().map(|text| Message::new("system", text)).collect::<Vec<_>>();
        let mut messages = system();
        let options = self.options.generation(&tokenizer)?;
        let mut draft = self.options.draft(&model, &self.model)?;
        let is_watched = io::stdin().is_terminal() && io::stdout().is_terminal();
        let mut lines = io::stdin().lock().lines();
        loop {
            if is_watched {
                output::print_piece("> ");
            }
            let Some(line) = lines.next() else { break };
            let line = line.map_err(Failure::stdin)?;
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
            let draft = draft.as_mut().map(|draft| &mut **draft as &mut dyn Draft);
            let new = &tokens[known..];
            let generated = generate_with_draft(&mut model, &mut session, &tokenizer, new, &options, draft, |piece| {
                // Tokenizers put a space before a word.
                let piece = if answer.is_empty() { piece.trim_start() } else { piece };
                answer.push_str(piece);
                output::print_piece(piece);
                if output::is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let usage = match generated {
                Ok(usage) => usage,
                // A person can begin anew.
                Err(error @ rushlight_llm::Error::ContextFull { .. }) if is_watched => {
                    output::warn(&format!("{error}, or /reset"));
                    messages.pop();
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            output::print("");
            if is_watched {
                output::to_stderr(&usage.to_string());
            }
            warn_without_drafts(&usage);
            messages.push(Message::new("assistant", &answer));
        }
        Ok(())
    }
}
