//! Calls of tools in the text of an answer.
//!
//! Models write them as they were trained to: Hermes and Qwen as JSON between `<tool_call>` and `</tool_call>`, Mistral as a list
//! after `[TOOL_CALLS]`, Llama 3 as an answer that is one JSON object, also after `<|python_tag|>`.

use serde_json::{Map, Value};

/// A call of a function.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCall {
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// Separates calls from an answer's text as it comes.
#[derive(Debug)]
pub(crate) struct ToolCalls {
    /// The names of the tools: other JSON is text.
    names: Vec<String>,
    /// Text that may be the beginning of a call.
    held: String,
    /// True once a character of the answer was text.
    has_text: bool,
}

/// The part of an answer that a piece of text adds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Parsed {
    pub text: String,
    pub calls: Vec<ToolCall>,
}

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const MISTRAL: &str = "[TOOL_CALLS]";
const PYTHON: &str = "<|python_tag|>";

impl ToolCalls {
    pub fn new(names: Vec<String>) -> Self {
        Self { names, held: String::new(), has_text: false }
    }

    pub fn push(&mut self, piece: &str) -> Parsed {
        self.held.push_str(piece);
        let mut parsed = Parsed::default();
        while self.advance(&mut parsed) {}
        parsed
    }

    /// Takes the next call or the text before it. False if more is needed.
    fn advance(&mut self, parsed: &mut Parsed) -> bool {
        if let Some((before, rest)) = self.held.split_once(OPEN) {
            let Some((inside, after)) = rest.split_once(CLOSE) else {
                let before = before.to_owned();
                self.held.drain(..before.len());
                self.release(&before, parsed);
                return false;
            };
            let (before, inside, after) = (before.to_owned(), inside.to_owned(), after.to_owned());
            self.release(&before, parsed);
            match self.calls_of(&inside) {
                Some(calls) => parsed.calls.extend(calls),
                None => self.release(&format!("{OPEN}{inside}{CLOSE}"), parsed),
            }
            self.held = after;
            return !self.held.is_empty();
        }
        // The whole answer may be a call, which is known when it ends.
        let start = self.held.trim_start();
        let may_be_whole = |mark: &str| start.starts_with(mark) || mark.starts_with(start);
        if !self.has_text && (start.starts_with(['{', '[']) || may_be_whole(MISTRAL) || may_be_whole(PYTHON)) {
            return false;
        }
        let certain = self
            .held
            .char_indices()
            .map(|(at, _)| at)
            .find(|at| self.held.get(*at..).is_some_and(|rest| OPEN.starts_with(rest)));
        let text: String = self.held.drain(..certain.unwrap_or(self.held.len())).collect();
        self.release(&text, parsed);
        false
    }

    fn release(&mut self, text: &str, parsed: &mut Parsed) {
        // Only space between calls is no text of the answer.
        if !self.has_text && text.trim().is_empty() {
            return;
        }
        self.has_text = true;
        parsed.text.push_str(text);
    }

    /// Takes the text that was held back, at the end of the answer.
    pub fn finish(&mut self) -> Parsed {
        let held = std::mem::take(&mut self.held);
        let start = held.trim();
        let start = start.strip_prefix(PYTHON).or_else(|| start.strip_prefix(MISTRAL)).unwrap_or(start);
        let inside = start.strip_prefix(OPEN).unwrap_or(start);
        let calls = if self.has_text && inside == start { None } else { self.calls_of(inside) };
        match calls {
            Some(calls) => Parsed { text: String::new(), calls },
            None if self.has_text || !held.trim().is_empty() => Parsed { text: held, calls: Vec::new() },
            None => Parsed::default(),
        }
    }

    /// Reads calls of the tools: an object with a name and arguments, or a list of such.
    fn calls_of(&self, text: &str) -> Option<Vec<ToolCall>> {
        let calls = match serde_json::from_str(text.trim()).ok()? {
            Value::Array(calls) if !calls.is_empty() => calls,
            call @ Value::Object(_) => vec![call],
            _ => return None,
        };
        let calls = calls.iter().map(call_of).collect::<Option<Vec<_>>>()?;
        calls.iter().all(|call| self.names.contains(&call.name)).then_some(calls)
    }
}

fn call_of(call: &Value) -> Option<ToolCall> {
    let call = call.get("function").filter(|function| function.is_object()).unwrap_or(call);
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        Some(Value::String(text)) => {
            serde_json::from_str::<Map<String, Value>>(text).ok()?;
            text.clone()
        }
        Some(arguments @ Value::Object(_)) => arguments.to_string(),
        None | Some(Value::Null) => "{}".to_owned(),
        Some(_) => return None,
    };
    Some(ToolCall { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text and the calls of an answer that comes in pieces of a length.
    fn parsed(answer: &str, len: usize) -> (String, Vec<(String, String)>) {
        let characters: Vec<char> = answer.chars().collect();
        let mut calls = ToolCalls::new(["add", "f", "g"].map(str::to_owned).to_vec());
        let mut pieces: Vec<Parsed> =
            characters.chunks(len).map(|piece| calls.push(&piece.iter().collect::<String>())).collect();
        pieces.push(calls.finish());
        let text = pieces.iter().map(|piece| piece.text.as_str()).collect();
        (text, pieces.into_iter().flat_map(|piece| piece.calls).map(|call| (call.name, call.arguments)).collect())
    }

    #[test]
    fn calls_are_found_whatever_the_pieces() {
        let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
        for (answer, text, calls) in [
            ("Hello <b>world</b>", "Hello <b>world</b>", vec![]),
            ("a < b", "a < b", vec![]),
            (
                "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
                "",
                vec![call("add", "{\"a\":1}")],
            ),
            (
                "Let me see.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>",
                "Let me see.\n\n",
                vec![call("f", "{}"), call("g", "{}")],
            ),
            ("{\"name\": \"f\", \"parameters\": {\"x\": \"y\"}}", "", vec![call("f", "{\"x\":\"y\"}")]),
            ("<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "", vec![call("f", "{}")]),
            ("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "", vec![call("f", "{}")]),
            ("{\"answer\": 42}", "{\"answer\": 42}", vec![]),
            ("{\"name\": \"Bob\"}", "{\"name\": \"Bob\"}", vec![]),
            ("{\"name\": \"f\", \"arguments\": \"no JSON\"}", "{\"name\": \"f\", \"arguments\": \"no JSON\"}", vec![]),
            ("[{\"name\": \"f\", \"arguments\": {}}]", "", vec![call("f", "{}")]),
            ("[1, 2]", "[1, 2]", vec![]),
            ("<tool_call>nonsense</tool_call>", "<tool_call>nonsense</tool_call>", vec![]),
            ("<tool_call>{\"name\": \"cut", "<tool_call>{\"name\": \"cut", vec![]),
            ("text <tool_c", "text <tool_c", vec![]),
        ] {
            for len in 1..=answer.chars().count() {
                assert_eq!(parsed(answer, len), (text.to_owned(), calls.clone()), "{answer} by {len}");
            }
        }
    }
}
