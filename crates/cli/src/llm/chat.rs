//! `rushlight llm chat`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use serde_json::Value as Json;

use super::conversation::Conversation;
use super::generation::Template;
use super::lines::{self, Line, Lines};
use super::run::given;
use super::{saved, speaker};
use crate::failure::Failure;
use crate::output;

/// Talks to a model, line by line.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight llm chat llama.pte
  rushlight llm chat qwen3-0.6b-q8_0.gguf --ctx 4096             compiled once
  rushlight llm chat llama.pte --system \"Answer in one sentence.\"
  rushlight llm chat llama.pte --load talk.json --save talk.json    continues a conversation
  echo \"What is a quark?\" | rushlight llm chat llama.pte

In a terminal, Ctrl-C stops an answer, Ctrl-D ends the program, and a line that ends with a backslash continues. Lines
that begin with a slash are commands: /reset clears the conversation, /regenerate answers the last message again, /save FILE
writes the messages as JSON, /load FILE continues such messages, /help lists the commands, /exit ends the program.")]
pub struct Chat {
    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// The first message; `-` reads it from standard input
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,

    /// A file with the first message
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    file: Option<PathBuf>,

    /// Continue the messages of this file, which `--save` or `/save` wrote: a JSON list of messages with `role` and
    /// `content`
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,

    /// Write the messages to this file after each answer
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// A variable of the chat template, such as `enable_thinking=false`; may be repeated. A value that is not JSON is a
    /// text
    #[arg(long = "template-arg", value_name = "NAME=VALUE", value_parser = template_arg)]
    template_args: Vec<(String, Json)>,

    #[command(flatten)]
    chat_template: Template,

    #[command(flatten)]
    speaker: speaker::Arguments,
}

fn template_arg(text: &str) -> Result<(String, Json), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((name.to_owned(), value))
}

impl Chat {
    pub fn run(self) -> Result<(), Failure> {
        self.speaker.model.source.check_generates()?;
        let tokenizer = self.chat_template.apply(self.speaker.model.tokenizer()?)?;
        let Some(mut template) = tokenizer.chat_template()? else {
            return Err(Failure::Arguments(
                "the tokenizer has no chat template\n  help      name a file with one (`--chat-template`), or use \
                 `rushlight llm run`, which needs none"
                    .to_owned(),
            ));
        };
        for (name, value) in &self.template_args {
            template = template.with_variable(name, value.clone());
        }
        let first = given(self.file.as_deref(), self.prompt.as_deref())?;
        let loaded = self.load.as_deref().map(saved::read_messages).transpose()?;
        let mut conversation = Conversation {
            speaker: self.speaker.load(tokenizer)?,
            template,
            system: None,
            messages: Vec::new(),
            forgotten: 0,
            unanswered: 0,
            is_watched: io::stdin().is_terminal() && io::stdout().is_terminal(),
            save: self.save,
        };
        conversation.load(loaded.unwrap_or_default());
        conversation.system = self.system.or(conversation.system);
        let mut lines = if conversation.is_watched { Lines::terminal()? } else { Lines::pipe() };
        if let Some(text) = first {
            lines::answering(|| conversation.say(&text, lines::is_stopped))?;
        }
        while let Some(line) = lines.next()? {
            let Line::Text(line) = line else {
                output::warn("the message is not answered: it is not UTF-8");
                conversation.unanswered += 1;
                continue;
            };
            if !lines::answering(|| conversation.take(&line, lines::is_stopped))? {
                break;
            }
        }
        if let Some(path) = &self.speaker.prompt_cache {
            saved::save(path, &mut conversation.speaker.session)?;
        }
        match conversation.unanswered {
            // A person has seen it.
            0 => Ok(()),
            _ if conversation.is_watched => Ok(()),
            1 => Err(Failure::Input("1 message was not answered".to_owned())),
            count => Err(Failure::Input(format!("{count} messages were not answered"))),
        }
    }
}
