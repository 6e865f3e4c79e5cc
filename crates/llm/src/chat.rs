//! Chat templates: messages to the text that a model was trained on, in Jinja as transformers renders it.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value as Json};

use crate::deep_stack;
use crate::error::{Error, Result};
use crate::jinja::{Failure, Template};

/// A chat template.
pub struct ChatTemplate {
    template: Template,
    bos_token: String,
    eos_token: String,
    /// Others that the template reads.
    variables: Map<String, Json>,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant`, or another role of the template.
    pub role: String,
    pub content: String,
}

impl Message {
    pub fn new(role: &str, content: &str) -> Self {
        Self { role: role.to_owned(), content: content.to_owned() }
    }

    fn json(&self) -> Json {
        serde_json::json!({ "role": self.role, "content": self.content })
    }
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// `Template` with the line.
    pub fn new(source: &str) -> Result<Self> {
        let template = Template::parse(source).map_err(|failure| failed(&failure))?;
        Ok(Self { template, bos_token: String::new(), eos_token: String::new(), variables: Map::new() })
    }

    /// Sets the variables `bos_token` and `eos_token` of the template.
    #[must_use]
    pub fn with_special_tokens(mut self, bos_token: &str, eos_token: &str) -> Self {
        (self.bos_token, self.eos_token) = (bos_token.to_owned(), eos_token.to_owned());
        self
    }

    /// Sets another variable that the template reads, such as `enable_thinking`.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: Json) -> Self {
        self.variables.insert(name.to_owned(), value);
        self
    }

    /// The text of messages, with the beginning of an answer if `add_generation_prompt`.
    ///
    /// # Errors
    /// `Template`, with the message of a template that refuses the messages.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let messages = messages.iter().map(Message::json).collect();
        self.render_json(&Json::Array(messages), &Json::Null, add_generation_prompt)
    }

    /// As [`render`](Self::render), for messages with other fields, and with tools, as in OpenAI's requests.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_json(&self, messages: &Json, tools: &Json, add_generation_prompt: bool) -> Result<String> {
        self.render_with(messages, tools, add_generation_prompt, &Map::new())
    }

    /// As [`render_json`](Self::render_json), with variables for this text alone, which replace those of the same name.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_with(
        &self,
        messages: &Json,
        tools: &Json,
        add_generation_prompt: bool,
        variables: &Map<String, Json>,
    ) -> Result<String> {
        let messages = with_reasoning(messages);
        let (bos, eos) = (Json::from(self.bos_token.as_str()), Json::from(self.eos_token.as_str()));
        let prompt = Json::from(add_generation_prompt);
        // Later ones replace earlier ones.
        let mut all: Vec<(&str, &Json)> = Vec::new();
        all.extend(self.variables.iter().chain(variables).map(|(name, value)| (name.as_str(), value)));
        all.extend([("messages", &*messages), ("tools", tools), ("documents", &Json::Null)]);
        all.extend([("add_generation_prompt", &prompt), ("bos_token", &bos), ("eos_token", &eos)]);
        // A template may render deeply nested values.
        let rendered = deep_stack::run(|| self.template.render(&all)).map_err(Error::Template)?;
        rendered.map_err(|failure| failed(&failure))
    }
}

/// Messages whose reasoning has the names that templates read, whichever of its names it was given by, as in transformers.
fn with_reasoning(messages: &Json) -> Cow<'_, Json> {
    const NAMES: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
    let reasoning = |message: &Json| {
        let given = NAMES.iter().filter_map(|name| message.get(name)).find(|text| !text.is_null());
        given.cloned()
    };
    let mut messages = Cow::Borrowed(messages);
    if messages.as_array().is_some_and(|messages| messages.iter().any(|message| reasoning(message).is_some())) {
        for message in messages.to_mut().as_array_mut().into_iter().flatten() {
            if let (Some(text), Some(fields)) = (reasoning(message), message.as_object_mut()) {
                fields.entry("thinking").or_insert_with(|| text.clone());
                fields.insert("reasoning_content".to_owned(), text);
            }
        }
    }
    messages
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}

fn failed(failure: &Failure) -> Error {
    let line = failure.line.map_or_else(String::new, |line| format!("line {line}: "));
    Error::Template(format!("{line}{}", failure.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_for_training_are_left_out() {
        let template =
            ChatTemplate::new("a {%- generation -%} b {% endgeneration %}{% if true %}c{% endif %}").unwrap();
        assert_eq!(template.render(&[], false).unwrap(), "ab c");
    }

    #[test]
    fn templates_refuse_with_their_own_words() {
        let template = ChatTemplate::new("{{ raise_exception('no system') }}").unwrap();
        let error = template.render(&[], false).unwrap_err();
        assert_eq!(error.to_string(), "chat template: line 1: no system");
        let error = ChatTemplate::new("{% if %}").unwrap_err();
        assert!(error.to_string().starts_with("chat template: line 1: "), "{error}");
    }

    #[test]
    fn endless_templates_end() {
        let source = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}x{% endfor %}{% endfor %}{% endfor %}";
        assert!(ChatTemplate::new(source).unwrap().render(&[], false).is_err());
    }
}
