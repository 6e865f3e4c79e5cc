//! The recorded calls of `tests/corpus` as lines of text, which the tests in Java read. `tools/jvm_programs.py` says what the lines are.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use crate::command::root;

pub fn lines() -> Result<String> {
    let root = root();
    let mut paths = Vec::new();
    for generation in fs::read_dir(root.join("tests/corpus"))? {
        let files = fs::read_dir(generation?.path())?;
        paths.extend(files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?);
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut lines = String::new();
    for path in paths {
        let json: Json = serde_json::from_slice(&fs::read(&path)?)?;
        // Bundled programs are of the command line.
        if json["bundled"].is_null() {
            let folder = path.parent().unwrap_or(&root).strip_prefix(&root)?;
            program(&json, folder, &mut lines).with_context(|| path.display().to_string())?;
        }
    }
    Ok(lines)
}

fn program(json: &Json, folder: &Path, lines: &mut String) -> Result<()> {
    let text = |json: &Json| json.as_str().map(str::to_owned).context("a text is missing");
    writeln!(lines, "program {}/{}", folder.display(), text(&json["program"])?)?;
    for data in json["data"].as_array().into_iter().flatten() {
        writeln!(lines, "data {}/{}", folder.display(), text(data)?)?;
    }
    if !json["backends"].is_null() {
        lines.push_str("lowered\n");
    }
    for call in json["calls"].as_array().context("no calls")? {
        let side = |name: &str| call[name].as_array().with_context(|| format!("no {name}"));
        let (inputs, outputs) = (side("inputs")?, side("outputs")?);
        let method = text(&call["method"])?;
        writeln!(lines, "call {method} {} {} {}", call["tolerance"], inputs.len(), outputs.len())?;
        for value in inputs.iter().chain(outputs) {
            let kind = text(&value["kind"])?;
            if kind == "tensor" {
                let sizes: Vec<String> = value["shape"].as_array().into_iter().flatten().map(Json::to_string).collect();
                let sizes = if sizes.is_empty() { "-".to_owned() } else { sizes.join(",") };
                writeln!(lines, "tensor {} {sizes} {}", text(&value["dtype"])?, text(&value["base64"])?)?;
            } else {
                writeln!(lines, "{kind} {}", value["value"])?;
            }
        }
    }
    Ok(())
}
