//! Tools that an answer may call.

use rushlight_llm::Grammar;
use serde_json::{Value, json};

use crate::error::{Refusal, shown};

/// Maximum number of tools, as OpenAI has it.
const MAX_TOOLS: usize = 128;

/// The tools that the template is shown, null for none; and the form of the answer if it must call one. `choice` is the field
/// `tool_choice` of the request.
pub fn tools(tools: &[Value], choice: Option<&Value>) -> Result<(Value, Option<Grammar>), Refusal> {
    if tools.len() > MAX_TOOLS {
        return Err(Refusal::of("tools", format!("expected at most {MAX_TOOLS} tools, got {}", tools.len())));
    }
    let name = |tool: &Value| tool.pointer("/function/name").and_then(Value::as_str).map(str::to_owned);
    if let Some(tool) = tools.iter().find(|tool| name(tool).is_none()) {
        return Err(Refusal::of("tools", format!("expected functions with a name, got {}", shown(tool))));
    }
    let is_wanted: Box<dyn Fn(&str) -> bool> = match choice {
        None | Some(Value::Null) => return Ok((if tools.is_empty() { Value::Null } else { tools.into() }, None)),
        Some(Value::String(choice)) => match choice.as_str() {
            "none" => return Ok((Value::Null, None)),
            "auto" => return Ok((if tools.is_empty() { Value::Null } else { tools.into() }, None)),
            "required" => Box::new(|_| true),
            _ => {
                return Err(Refusal::of(
                    "tool_choice",
                    format!("expected `auto`, `none`, `required` or a function, got `{}`", shown(choice)),
                ));
            }
        },
        Some(choice) => match choice.pointer("/function/name").and_then(Value::as_str) {
            Some(wanted) => Box::new(move |name| name == wanted),
            None => {
                let message = format!("expected a function with a name, got {}", shown(choice));
                return Err(Refusal::of("tool_choice", message));
            }
        },
    };
    let calls: Vec<Value> = tools
        .iter()
        .filter(|tool| name(tool).is_some_and(|name| is_wanted(&name)))
        .map(|tool| {
            let parameters = tool.pointer("/function/parameters").filter(|schema| schema.is_object());
            json!({
                "type": "object",
                "properties": {
                    "name": { "const": name(tool) },
                    "arguments": parameters.cloned().unwrap_or_else(|| json!({ "type": "object" })),
                },
                "required": ["name", "arguments"],
                "additionalProperties": false,
            })
        })
        .collect();
    if calls.is_empty() {
        let known: Vec<String> = tools.iter().filter_map(name).collect();
        let expected = if known.is_empty() { "at least one of `tools`".to_owned() } else { known.join(", ") };
        return Err(Refusal::of("tool_choice", format!("there is no such function in `tools`, expected {expected}")));
    }
    Ok((tools.into(), Some(Grammar::JsonSchema(json!({ "anyOf": calls })))))
}

/// The names of tools that [`tools`] returned.
pub fn names_of(tools: &Value) -> Vec<String> {
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |tool: &Value| tool.pointer("/function/name").and_then(Value::as_str).map(str::to_owned);
    tools.iter().filter_map(name).collect()
}
