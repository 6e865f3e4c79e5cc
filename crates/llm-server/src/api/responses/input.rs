//! Input items of a response, as messages that chat templates read.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::{Refusal, shown};

/// The input of a response.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of messages")]
pub enum Input {
    Text(String),
    Items(Vec<Value>),
}

/// The messages of an input, after the instructions. Templates expect one system message, so the instructions and the system
/// messages right after them are joined.
pub fn messages(input: Input, instructions: Option<&str>) -> Result<Vec<Value>, Refusal> {
    let mut messages = Messages::default();
    if let Some(instructions) = instructions.filter(|text| !text.is_empty()) {
        messages.add(json!({ "role": "system", "content": instructions }));
    }
    match input {
        Input::Text(text) => messages.add(json!({ "role": "user", "content": text })),
        Input::Items(items) => items.iter().try_for_each(|item| messages.add_item(item))?,
    }
    if messages.0.iter().all(|message| is_of(message, "system")) {
        return Err(Refusal::of("input", "expected at least one message"));
    }
    Ok(messages.0)
}

#[derive(Default)]
struct Messages(Vec<Value>);

impl Messages {
    fn add_item(&mut self, item: &Value) -> Result<(), Refusal> {
        let wrong = |what: &str, item: &Value| Refusal::of("input", format!("expected {what}, got {}", shown(item)));
        let text = |name: &str| match item.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            _ => Err(wrong(&format!("a text as `{name}`"), item)),
        };
        match item.get("type").and_then(Value::as_str) {
            None | Some("message") => self.add(chat_message(item)?),
            // The thoughts of an earlier answer: templates leave them out.
            Some("reasoning") => {}
            Some("function_call") => {
                let arguments = text("arguments")?;
                // Templates read an object.
                let arguments = serde_json::from_str::<Map<_, _>>(&arguments).map_or(arguments.into(), Value::Object);
                let function = json!({ "name": text("name")?, "arguments": arguments });
                self.add_call(json!({ "id": text("call_id")?, "type": "function", "function": function }));
            }
            Some("function_call_output") => {
                let output = content(item.get("output")).ok_or_else(|| wrong("an output of texts alone", item))?;
                self.add(json!({ "role": "tool", "tool_call_id": text("call_id")?, "content": output }));
            }
            Some("item_reference") => {
                return Err(Refusal::of("input", "items are not kept: send the item itself in place of its reference"));
            }
            Some(_) => return Err(wrong("messages, function calls and their outputs", item)),
        }
        Ok(())
    }

    fn add(&mut self, message: Value) {
        if let ([first], Some(text)) = (&mut self.0[..], system_text(&message))
            && system_text(first).is_some()
            && let Some(Value::String(before)) = first.get_mut("content")
        {
            before.push_str("\n\n");
            before.push_str(text);
            return;
        }
        self.0.push(message);
    }

    /// Adds a call to the answer that it belongs to: the last message, if that is the model's.
    fn add_call(&mut self, call: Value) {
        if !self.0.last().is_some_and(|last| is_of(last, "assistant")) {
            self.0.push(json!({ "role": "assistant", "content": "" }));
        }
        let Some(Value::Object(answer)) = self.0.last_mut() else { return };
        match answer.get_mut("tool_calls").and_then(Value::as_array_mut) {
            Some(calls) => calls.push(call),
            None => drop(answer.insert("tool_calls".to_owned(), json!([call]))),
        }
    }
}

fn is_of(message: &Value, role: &str) -> bool {
    message.get("role").is_some_and(|of| of == role)
}

fn system_text(message: &Value) -> Option<&str> {
    message.get("content").and_then(Value::as_str).filter(|_| is_of(message, "system"))
}

/// A message, without the fields of items. A developer is what templates call the system.
fn chat_message(item: &Value) -> Result<Value, Refusal> {
    let wrong = |what: &str| Refusal::of("input", format!("expected {what}, got {}", shown(item)));
    let role = match item.get("role").and_then(Value::as_str) {
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant")) => role,
        _ => return Err(wrong("messages with the role `user`, `assistant`, `system` or `developer`")),
    };
    let text = content(item.get("content"))
        .ok_or_else(|| wrong("content of texts alone, as images, audio and files are not supported"))?;
    Ok(json!({ "role": role, "content": text }))
}

/// The text of a content: a text, or parts that are texts.
fn content(content: Option<&Value>) -> Option<String> {
    let part = |part: &Value| match part.get("type").and_then(Value::as_str) {
        Some("input_text" | "output_text" | "text") => part.get("text").and_then(Value::as_str).map(str::to_owned),
        Some("refusal") => part.get("refusal").and_then(Value::as_str).map(str::to_owned),
        _ => None,
    };
    match content? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages() {
        let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{\"x\": 1}" });
        let called =
            |id: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": { "x": 1 } } });
        let system = |text: &str| json!({ "role": "system", "content": text });
        let user = |text: &str| json!({ "role": "user", "content": text });
        let part = |kind: &str, text: &str| json!({ "type": kind, "text": text });
        for (instructions, input, expected) in [
            (None, json!("a"), json!([user("a")])),
            (Some("i"), json!("a"), json!([system("i"), user("a")])),
            (
                Some("i"),
                json!([{ "role": "developer", "content": "d" }, { "role": "system", "content": "s" }, user("a"), system("t")]),
                json!([system("i\n\nd\n\ns"), user("a"), system("t")]),
            ),
            (
                None,
                json!([
                    { "type": "message", "role": "user", "content": [part("input_text", "a"), part("input_text", "b")] },
                    { "type": "reasoning", "id": "rs_1", "summary": [] },
                    { "type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                      "content": [{ "type": "output_text", "text": "c", "annotations": [] }] },
                    user("d"),
                ]),
                json!([user("ab"), { "role": "assistant", "content": "c" }, user("d")]),
            ),
            (
                None,
                json!([
                    user("a"), call("1"), call("2"),
                    { "type": "function_call_output", "call_id": "1", "output": "o" },
                    { "type": "function_call_output", "call_id": "2", "output": [part("input_text", "p")] },
                ]),
                json!([
                    user("a"),
                    { "role": "assistant", "content": "", "tool_calls": [called("1"), called("2")] },
                    { "role": "tool", "tool_call_id": "1", "content": "o" },
                    { "role": "tool", "tool_call_id": "2", "content": "p" },
                ]),
            ),
        ] {
            let parsed = serde_json::from_value(input.clone()).expect("an input");
            let found = messages(parsed, instructions).unwrap_or_else(|refusal| panic!("{input}: {refusal:?}"));
            assert_eq!(Value::from(found), expected, "{input}");
        }
    }

    #[test]
    fn other_items_are_refused() {
        for (input, what) in [
            (json!([]), "at least one message"),
            (json!([{ "role": "system", "content": "a" }]), "at least one message"),
            (json!([{ "role": "tool", "content": "a" }]), "the role"),
            (json!([{ "role": "user" }]), "texts alone"),
            (json!([{ "role": "user", "content": [{ "type": "input_image", "image_url": "x" }] }]), "texts alone"),
            (json!([{ "type": "item_reference", "id": "msg_1" }]), "not kept"),
            (json!([{ "type": "web_search_call" }]), "function calls"),
            (json!([{ "type": "function_call", "name": "f", "arguments": "{}" }]), "`call_id`"),
            (json!([{ "type": "function_call_output", "call_id": "1", "output": 7 }]), "texts alone"),
        ] {
            let parsed = serde_json::from_value(input.clone()).expect("an input");
            let refusal = messages(parsed, None).expect_err("a refusal");
            assert!(refusal.message.contains(what) && refusal.param == Some("input"), "{input}: {refusal:?}");
        }
    }
}
