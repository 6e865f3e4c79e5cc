//! The recorded calls of `tests/corpus` as a C header.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine as _;
use serde_json::Value as Json;

use crate::command::root;

/// The generations of ExecuTorch whose programs are in the header.
const GENERATIONS: &[&str] = &["0.2.0", "0.7.0", "1.5.1"];

const TYPES: &str = "\
/* Recorded of PyTorch: made of tests/corpus. */
#include <rushlight.h>

struct recorded_tensor {
  uint32_t dtype;
  size_t rank;
  int64_t sizes[4];
  size_t nbytes;
  const void *data;
};

struct recorded_call {
  const char *method;
  size_t num_inputs, num_outputs;
  struct recorded_tensor inputs[4], outputs[4];
  double tolerance;
};

struct recorded_program {
  const char *path, *data;
  size_t num_calls;
  const struct recorded_call *calls;
};

";

/// Programs whose inputs and outputs are tensors and that need no operators of ours; and the answer of a small Llama.
pub fn header() -> Result<String> {
    let mut header = TYPES.to_owned();
    let mut programs = String::new();
    let mut blobs = 0;
    for generation in GENERATIONS {
        let folder = root().join("tests/corpus").join(generation);
        let mut paths: Vec<_> = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        for path in paths {
            let json: Json = serde_json::from_slice(&fs::read(&path)?)?;
            let Some(calls) = plain_calls(&json) else { continue };
            let mut text = String::new();
            for call in calls {
                let mut sides = Vec::new();
                for side in ["inputs", "outputs"] {
                    let tensors = call[side].as_array().context("a recording has inputs and outputs")?;
                    let tensors = tensors.iter().map(|tensor| described(tensor, &mut blobs, &mut header));
                    sides.push(tensors.collect::<Result<Vec<_>>>()?);
                }
                let method = call["method"].as_str().context("a recording names its methods")?;
                let (inputs, outputs) = (&sides[0], &sides[1]);
                writeln!(
                    text,
                    "  {{\"{method}\", {}, {}, {{{}}}, {{{}}}, {}}},",
                    inputs.len(),
                    outputs.len(),
                    filled(inputs),
                    filled(outputs),
                    call["tolerance"]
                )?;
            }
            let name = format!("calls_{}", programs.lines().count());
            writeln!(header, "static const struct recorded_call {name}[] = {{\n{text}}};")?;
            let file = |name: &Json| name.as_str().map(|name| format!("\"tests/corpus/{generation}/{name}\""));
            let program = file(&json["program"]).context("a recording names its program")?;
            let data = file(&json["data"][0]).unwrap_or_else(|| "NULL".to_owned());
            writeln!(programs, "  {{{program}, {data}, sizeof {name} / sizeof *{name}, {name}}},")?;
        }
    }
    writeln!(
        header,
        "\nstatic const struct recorded_program recorded[] = {{\n{programs}  {{NULL, NULL, 0, NULL}},\n}};\n"
    )?;
    let read = |name: &str| -> Result<Json> {
        Ok(serde_json::from_slice(&fs::read(root().join("tests/decoders/llama").join(name))?)?)
    };
    let (tokens, text) = (read("expected.json")?, read("text.json")?);
    for name in ["prompt", "greedy"] {
        let list: Vec<String> = tokens[name].as_array().into_iter().flatten().map(Json::to_string).collect();
        writeln!(header, "static const uint32_t llama_{name}[] = {{{}}};", list.join(", "))?;
        writeln!(header, "#define LLAMA_{} {}", name.to_uppercase(), text[name])?;
    }
    let logits: Vec<String> = tokens["logits"].as_array().into_iter().flatten().map(Json::to_string).collect();
    writeln!(header, "static const double llama_logits[] = {{{}}};", logits.join(", "))?;
    Ok(header)
}

/// The calls of a program, unless it needs more than tensors.
fn plain_calls(json: &Json) -> Option<Vec<&Json>> {
    let program = json["program"].as_str().map(Path::new)?;
    if program.extension().is_none_or(|extension| extension != "pte") || !json["backends"].is_null() {
        return None;
    }
    let is_tensor = |value: &Json| value["kind"] == "tensor" && value["shape"].as_array().is_some_and(|s| s.len() <= 4);
    let tensors = |call: &Json, side: &str| {
        call[side].as_array().is_some_and(|values| (1..=4).contains(&values.len()) && values.iter().all(is_tensor))
    };
    let calls: Vec<&Json> = json["calls"].as_array()?.iter().collect();
    let is_plain = |call: &&Json| tensors(call, "inputs") && tensors(call, "outputs") && call["error"].is_null();
    calls.iter().all(is_plain).then_some(calls)
}

fn filled(tensors: &[String]) -> String {
    const NONE: &str = "{0, 0, {0, 0, 0, 0}, 0, NULL}";
    let rest = (tensors.len()..4).map(|_| NONE.to_owned());
    tensors.iter().cloned().chain(rest).collect::<Vec<_>>().join(", ")
}

/// Writes the bytes of a tensor, and returns its description.
fn described(tensor: &Json, blobs: &mut usize, header: &mut String) -> Result<String> {
    let dtype = tensor["dtype"].as_str().context("a recorded tensor has a type")?;
    let encoded = tensor["base64"].as_str().context("a recorded tensor has data")?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded)?;
    let (name, count) = (format!("blob_{blobs}"), bytes.len());
    *blobs += 1;
    // As words, so that it is aligned.
    let word = |word: &[u8]| {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        format!("{}u", u64::from_le_bytes(padded))
    };
    let words: Vec<String> = bytes.chunks(8).map(word).chain(["0".to_owned()]).collect();
    writeln!(header, "static const uint64_t {name}[] = {{{}}};", words.join(", "))?;
    let mut sizes: Vec<String> = tensor["shape"].as_array().into_iter().flatten().map(Json::to_string).collect();
    let rank = sizes.len();
    sizes.resize(4, "0".to_owned());
    Ok(format!("{{RL_DTYPE_{}, {rank}, {{{}}}, {count}, {name}}}", dtype.to_uppercase(), sizes.join(", ")))
}
