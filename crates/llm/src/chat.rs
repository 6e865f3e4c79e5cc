//! Chat templates: messages to the text that a model was trained on, in Jinja as transformers renders it.

use std::borrow::Cow;
use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde_json::Value as Json;

use crate::clock::{SystemTime, UNIX_EPOCH};
use crate::deep_stack;
use crate::error::{Error, Result};
use crate::python_json::to_json;
use crate::template_limits;

/// A chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
    /// Others that the template reads.
    variables: serde_json::Map<String, Json>,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
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

/// The name of the only template.
const NAME: &str = "chat template";

/// Steps after which a template is taken to be endless.
const FUEL: u64 = 1_000_000;

/// Maximum depth of a value that is written.
const MAX_DEPTH: usize = 64;

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// `Template` with the line.
    pub fn new(source: &str) -> Result<Self> {
        template_limits::check(source)?;
        let mut environment = Environment::new();
        // As transformers sets up Jinja.
        let syntax =
            SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|error| template(&error))?;
        environment.set_syntax(syntax);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(|out, state, value| {
            check_depth(value, MAX_DEPTH)?;
            minijinja::escape_formatter(out, state, value)
        });
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", |format: String| strftime(&format, seconds_now()));
        environment.add_filter("tojson", |value: &Value, options: Kwargs| {
            check_depth(value, MAX_DEPTH)?;
            to_json(value, &options)
        });
        environment.add_filter("escape", escape);
        environment.add_filter("e", escape);
        environment.add_test("iterable", |value: &Value| {
            value.as_str().is_some() || value.try_iter().is_ok() && !value.is_none()
        });
        environment.add_template_owned(NAME, without_generation_marks(source)).map_err(|error| template(&error))?;
        Ok(Self { environment, bos_token: String::new(), eos_token: String::new(), variables: serde_json::Map::new() })
    }

    /// Sets what the template knows as `bos_token` and `eos_token`.
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
    /// `Template`, with what the template says where it refuses the messages.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let messages = messages.iter().map(Message::json).collect();
        self.render_json(&Json::Array(messages), &Json::Null, add_generation_prompt)
    }

    /// As [`render`](Self::render), for messages with other fields, and with tools, as in OpenAI's requests.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_json(&self, messages: &Json, tools: &Json, add_generation_prompt: bool) -> Result<String> {
        self.render_with(messages, tools, add_generation_prompt, &serde_json::Map::new())
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
        variables: &serde_json::Map<String, Json>,
    ) -> Result<String> {
        let chat = self.environment.get_template(NAME).map_err(|error| template(&error))?;
        let messages = with_reasoning(messages);
        let context = minijinja::context! {
            messages => Value::from(Serde(&*messages)),
            tools => Value::from(Serde(tools)),
            documents => (),
            add_generation_prompt,
            bos_token => &self.bos_token,
            eos_token => &self.eos_token,
            ..minijinja::context! { ..Value::from(Serde(variables)), ..Value::from(Serde(&self.variables)) }
        };
        // An attribute of a namespace may be nested as deeply as a template has steps.
        let rendered = deep_stack::run(|| chat.render(context)).map_err(Error::Template)?;
        rendered.map_err(|error| template(&error))
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

fn template(error: &minijinja::Error) -> Error {
    let line = error.line().map_or_else(String::new, |line| format!("line {line}: "));
    let problem = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    Error::Template(format!("{line}{problem}"))
}

/// Fails if a value is nested too deeply.
fn check_depth(value: &Value, left: usize) -> std::result::Result<(), minijinja::Error> {
    use minijinja::value::ValueKind;
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Plain) {
        return Ok(());
    }
    let Some(left) = left.checked_sub(1) else {
        return Err(minijinja::Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply"));
    };
    if value.kind() == ValueKind::Iterable {
        // Reading it would take what is to be written.
        return Ok(());
    }
    for key in value.try_iter().into_iter().flatten() {
        match value.kind() {
            ValueKind::Seq => check_depth(&key, left)?,
            _ => value.get_item(&key).map_or(Ok(()), |item| check_depth(&item, left))?,
        }
    }
    Ok(())
}

fn raise_exception(message: String) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// Leaves out the marks around an assistant's answer, which are for training.
fn without_generation_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        text.push_str(before);
        let Some((tag, after)) = after.split_once("%}") else {
            text.push_str("{%");
            text.push_str(after);
            return text;
        };
        match tag.trim_matches(['-', '+']).trim() {
            // A comment trims the text around it as the mark does.
            "generation" | "endgeneration" => {
                let begin = if tag.starts_with('-') { "{#-" } else { "{#" };
                let end = if tag.ends_with('-') { "-#}" } else { "#}" };
                text.extend([begin, end]);
            }
            _ => text.extend(["{%", tag, "%}"]),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

/// HTML's special characters, as Jinja escapes them.
fn escape(text: &str) -> String {
    let rules = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ("\"", "&#34;")];
    rules.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn seconds_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A time in seconds after 1970 in UTC, as C's `strftime` writes it, for the fields that templates use.
fn strftime(format: &str, seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let name = |names: &[&'static str], index: i64| names.get(index as usize).copied().unwrap_or_default();
    let (month_name, day_name) = (name(&MONTHS, month - 1), name(&DAYS, days.rem_euclid(7)));
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            text.push(char);
            continue;
        }
        match chars.next() {
            Some('Y') => text.push_str(&year.to_string()),
            Some('y') => text.push_str(&format!("{:02}", year.rem_euclid(100))),
            Some('m') => text.push_str(&format!("{month:02}")),
            Some('d') => text.push_str(&format!("{day:02}")),
            Some('B') => text.push_str(month_name),
            Some('b') => text.extend(month_name.chars().take(3)),
            Some('A') => text.push_str(day_name),
            Some('a') => text.extend(day_name.chars().take(3)),
            Some('H') => text.push_str(&format!("{:02}", second / 3600)),
            Some('M') => text.push_str(&format!("{:02}", second / 60 % 60)),
            Some('S') => text.push_str(&format!("{:02}", second % 60)),
            Some('%') => text.push('%'),
            Some(other) => text.extend(['%', other]),
            None => text.push('%'),
        }
    }
    text
}

/// Year, month and day of a day after 1970 in the Gregorian calendar, by counting from the first of March of a year that 400
/// divides.
fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    // Days from March of year 0 to 1970.
    let days = days + 719_468;
    let era = days.div_euclid(DAYS_OF_400_YEARS);
    let of_era = days.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_c_does() {
        // 2024-02-29 was a Thursday, and 2000-12-31 a Sunday.
        assert_eq!(strftime("%d %b %Y %H:%M:%S %A", 1_709_210_096), "29 Feb 2024 12:34:56 Thursday");
        assert_eq!(strftime("%a %d %B %y %m %%", 978_220_800), "Sun 31 December 00 12 %");
        assert_eq!(strftime("%Y-%m-%d", -1), "1969-12-31");
    }

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
