//! A conversation with a model: its messages, and the commands of the user on them.

use std::path::{Path, PathBuf};

use rushlight_llm::{ChatTemplate, Error, FinishReason, Message, Step};

use super::saved;
use super::speaker::Speaker;
use crate::failure::Failure;
use crate::output;

/// The commands, which begin with a slash.
pub const COMMANDS: &str = "/reset clears the conversation, /regenerate answers the last message again, /save FILE writes the messages \
                            as JSON, /load FILE continues such messages, /help lists the commands, /exit ends the program";

/// The part of the context that stays free for an answer: one of this many.
const ANSWER: usize = 8;

/// Messages, and the model that answers them.
pub struct Conversation {
    pub speaker: Speaker,
    pub template: ChatTemplate,
    /// The system prompt, if there is one.
    pub system: Option<String>,
    /// Those after the system prompt.
    pub messages: Vec<Message>,
    /// Number of the first messages that the model no longer sees, because the context is full.
    pub forgotten: usize,
    /// Number of messages that could not be answered.
    pub unanswered: usize,
    /// True if a person reads the answers.
    pub is_watched: bool,
    /// The file that the messages are written to after each answer.
    pub save: Option<PathBuf>,
}

impl Conversation {
    /// Answers a line, or executes the command in it. Returns false if it ends the conversation.
    pub fn take(&mut self, line: &str, is_stopped: impl Fn() -> bool) -> Result<bool, Failure> {
        let (command, argument) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        match command {
            "" => {}
            "/exit" | "/quit" => return Ok(false),
            "/help" => output::to_stderr(&COMMANDS.replace(", ", "\n")),
            "/reset" => {
                self.messages.clear();
                self.forgotten = 0;
                let Speaker { model, session, .. } = &mut self.speaker;
                session.reset(model)?;
            }
            "/regenerate" => {
                let is_answered = self.messages.pop_if(|last| last.role == "assistant").is_some();
                if is_answered {
                    self.speaker.next_seed();
                }
                if self.messages.is_empty() {
                    output::warn("there is no message to answer");
                } else {
                    self.answer(is_stopped)?;
                }
            }
            "/save" if argument.trim().is_empty() => output::warn("expected the name of a file: /save FILE"),
            "/save" => match self.save(Path::new(argument.trim())) {
                Ok(()) => {}
                Err(error) => output::warn(&error.to_string()),
            },
            "/load" if argument.trim().is_empty() => output::warn("expected the name of a file: /load FILE"),
            "/load" => match saved::read_messages(Path::new(argument.trim())) {
                Ok(messages) => {
                    output::note(&format!("the conversation has {} messages", messages.len()));
                    self.load(messages);
                }
                Err(failure) => failure.report(),
            },
            unknown if unknown.starts_with('/') => {
                output::warn(&format!("unknown command `{unknown}`: {COMMANDS}"));
            }
            _ => self.say(line, is_stopped)?,
        }
        Ok(true)
    }

    /// Answers a message.
    pub fn say(&mut self, text: &str, is_stopped: impl Fn() -> bool) -> Result<(), Failure> {
        self.messages.push(Message::new("user", text));
        self.answer(is_stopped)
    }

    /// Goes on with other messages, whose first may be the system prompt. The model reads those that it does not know with
    /// the next message.
    pub fn load(&mut self, mut messages: Vec<Message>) {
        let has_system = messages.first().is_some_and(|first| first.role == "system");
        self.system = has_system.then(|| messages.remove(0).content);
        self.messages = messages;
        self.forgotten = 0;
    }

    /// Answers the messages.
    fn answer(&mut self, is_stopped: impl Fn() -> bool) -> Result<(), Failure> {
        let forgotten = self.forgotten;
        let tokens = self.tokens_that_fit()?;
        let Speaker { model, session, .. } = &mut self.speaker;
        let known = session.keep_common_prefix(model, &tokens)?;
        let mut answer = String::new();
        let on_step = |step: &Step| {
            // Tokenizers put a space before a word.
            let piece = if answer.is_empty() { step.text.trim_start() } else { &step.text };
            if !piece.is_empty() {
                answer.push_str(piece);
                output::print_foreign(piece);
            }
        };
        let answered = self.speaker.answer(tokens.get(known..).unwrap_or_default(), is_stopped, |_| {}, on_step);
        let usage = match answered {
            Ok(usage) => usage,
            // Other messages may be shorter.
            Err(error @ Error::ContextFull { .. }) => {
                output::warn(&format!("the message is not answered: {error}"));
                self.messages.pop();
                self.forgotten = forgotten;
                self.unanswered += 1;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        output::print("");
        if usage.finish_reason == FinishReason::Cancelled && answer.is_empty() {
            self.messages.pop();
            self.forgotten = forgotten;
            return Ok(());
        }
        if self.forgotten > forgotten {
            let count = self.forgotten;
            output::note(&format!("the context was full: the model no longer sees the first {count} messages"));
        }
        let is_full = self.speaker.session.position() >= self.speaker.model.limits().max_context_len;
        if usage.finish_reason == FinishReason::Length && is_full {
            output::note("the answer ends here because the context is full");
        }
        if self.is_watched {
            output::to_stderr(&format!("\x1b[2m{usage}\x1b[0m"));
        }
        self.messages.push(Message::new("assistant", &answer));
        match self.save.as_ref().map_or(Ok(()), |path| self.save(path)) {
            // A person can save the messages elsewhere.
            Err(error) if self.is_watched => output::warn(&error.to_string()),
            saved => saved?,
        }
        Ok(())
    }

    /// The tokens of the messages that the model sees. If they leave too little room for an answer, the model forgets the oldest: a
    /// message of the user with its answer.
    fn tokens_that_fit(&mut self) -> Result<Vec<u32>, Failure> {
        let room = self.speaker.model.limits().max_context_len / ANSWER;
        loop {
            let tokens = self.tokens()?;
            let fits = tokens.len().saturating_add(room) <= self.speaker.model.limits().max_context_len;
            let next = self.messages.iter().skip(self.forgotten + 1).position(|message| message.role == "user");
            match next {
                Some(next) if !fits => self.forgotten += 1 + next,
                _ => return Ok(tokens),
            }
        }
    }

    /// The tokens of the system prompt and the messages that are not forgotten.
    fn tokens(&self) -> Result<Vec<u32>, Failure> {
        let system = self.system.iter().map(|text| Message::new("system", text));
        let seen = self.messages.iter().skip(self.forgotten).cloned();
        let messages: Vec<Message> = system.chain(seen).collect();
        // The template has the special tokens.
        Ok(self.speaker.tokenizer.encode(&self.template.render(&messages, true)?, false)?)
    }

    /// Writes the messages. On failure, the file keeps its old contents.
    fn save(&self, path: &Path) -> Result<(), rushlight::Error> {
        let system = self.system.as_ref().map(|text| Message::new("system", text));
        saved::write_messages(path, system.iter().chain(&self.messages))
    }
}
