//! Generates `docs/bindings.md`, and the types of options in Python's stubs and JavaScript's declarations. They come from the
//! tables of options and from the exports of each binding. `UPDATE_DOCS=1` rewrites them.
//!
//! A language offers an option if it forwards all names of the table, or declares the option. It has a capability if it
//! exports the names of the capability. The test fails for a gap without a reason, for a reason without a gap, and for a
//! function of the C interface that is in no row.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use rushlight::Scheme;
use rushlight::compiler::quantization::WeightScales;
use rushlight::options::{CompilerOptions, Field, LoadOptions, OptionSpec, OptionValue, Options, camel_case};
use rushlight_llm::GenerationOptions;

use crate::generated::{read, root, settle};

/// The languages, in the order of the columns, with the files that declare what each exports.
const LANGUAGES: [(&str, &[&str]); 9] = [
    ("Command line", &["crates/cli/src", "crates/cli/src/llm"]),
    ("Server", &["crates/llm-server/src/api", "crates/llm-server/src/server.rs", "crates/cli/src/llm/serve.rs"]),
    ("Python", &["bindings/python/python/rushlight/__init__.pyi", "bindings/python/python/rushlight/llm/__init__.pyi"]),
    ("Node.js", &["bindings/js/package/index.d.ts"]),
    ("WebAssembly", &["bindings/js/package/index.d.ts"]),
    ("C", &["bindings/c/include/rushlight.h"]),
    ("C++", &["bindings/cpp/include/rushlight"]),
    ("Swift", &["bindings/swift/Sources/Rushlight"]),
    ("Java", &["bindings/jvm/java/org/pytorch/executorch", "bindings/jvm/java/org/pytorch/executorch/extension/llm"]),
];

const CLI: usize = 0;
const SERVER: usize = 1;
const PYTHON: usize = 2;
const NODE: usize = 3;
const WASM: usize = 4;
const C: usize = 5;
const CPP: usize = 6;
const SWIFT: usize = 7;
const JAVA: usize = 8;

/// The way in which a language offers the options of a table.
enum Offer {
    /// Forwards all names if `file` contains `text`, except the names of a list: `but` has its file and the text
    /// before it.
    Forwards {
        file: &'static str,
        text: &'static str,
        but: Option<(&'static str, &'static str)>,
    },
    /// Declares each name in the part of `file` that follows `after`, up to a `)`, `}` or `;` in the first column.
    Declares {
        file: &'static str,
        after: &'static str,
    },
    Nothing,
}

const fn forwards(file: &'static str, text: &'static str) -> Offer {
    Offer::Forwards { file, text, but: None }
}

/// A table of options.
struct Table {
    title: &'static str,
    /// Name, values, default and help of each option.
    rows: Vec<[String; 4]>,
    offers: [Offer; 9],
    /// Options (`*` is all), the languages that lack them, and the reason.
    gaps: &'static [(&'static [&'static str], &'static [usize], &'static str)],
}

fn rows<T: Options>() -> Vec<[String; 4]> {
    let row = |spec: &OptionSpec<T>| {
        let default = match spec.default() {
            OptionValue::None => String::new(),
            OptionValue::Texts(texts) if texts.is_empty() => String::new(),
            OptionValue::Biases(biases) if biases.is_empty() => String::new(),
            other => other.to_string(),
        };
        [spec.name.to_owned(), spec.field.expected(), default, spec.help.to_owned()]
    };
    T::table().iter().map(row).collect()
}

const JS_LLM: &str = "bindings/js/src/llm.rs";
const GENERATION_FILE: &str = "crates/cli/src/llm/generation.rs";

fn tables() -> [Table; 3] {
    [
        Table {
            title: "Options of generating text",
            rows: rows::<GenerationOptions>(),
            offers: [
                forwards(GENERATION_FILE, "OptionArgs::all()"),
                Offer::Forwards {
                    file: "crates/llm-server/src/api/sampling.rs",
                    text: "GenerationOptions::table().iter()",
                    but: Some(("crates/llm-server/src/api/sampling.rs", "const OTHERWISE")),
                },
                forwards("bindings/python/src/llm/generation.rs", "values.set(&name, option_value("),
                forwards("bindings/node/src/llm.rs", "options: GenerationOptions = read_options(&names, &texts)?"),
                forwards(JS_LLM, "options: GenerationOptions = plain::map(read_options(&names, &texts))?"),
                forwards("bindings/c/src/ffi/llm.rs", "set_named(&mut values, options.named, options.num_named)"),
                forwards("bindings/cpp/include/rushlight/llm.hpp", "raw.named = named.data();"),
                forwards("bindings/swift/Sources/Rushlight/LanguageModel.swift", "raw.named = named.baseAddress"),
                forwards("bindings/common/src/conversation.rs", "options.set_text(name, value)"),
            ],
            gaps: &[
                (
                    &["max_new_tokens", "logprobs", "json_schema", "regex", "grammar"],
                    &[SERVER],
                    "requests have OpenAI's fields: `max_tokens`, `logprobs`, `response_format`, and vLLM's `guided_...`",
                ),
                (
                    &["stop", "logit_bias", "seed"],
                    &[SERVER],
                    "a field of requests with OpenAI's range, or with its own limits because it costs time per token",
                ),
                (
                    &["dry_sequence_breaker"],
                    &[SERVER],
                    "it reads the whole vocabulary; set it on the command line for all requests",
                ),
                (&["speculate", "draft_max"], &[SERVER], "set it on the command line for all requests"),
                (
                    &["executorch_sampler"],
                    &[SERVER],
                    "it is for comparison with ExecuTorch's runner, which is no server",
                ),
                (
                    &["json_schema", "regex", "grammar"],
                    &[WASM],
                    "pages would download the grammar library with each model; use the server or Node.js",
                ),
            ],
        },
        Table {
            title: "Options of loading",
            rows: rows::<LoadOptions>(),
            offers: [
                forwards("crates/cli/src/arguments.rs", "OptionArgs::<LoadOptions>"),
                forwards("crates/cli/src/llm/serve.rs", "model: TextModel"),
                Offer::Declares { file: "bindings/python/python/rushlight/__init__.pyi", after: "def load(" },
                Offer::Forwards {
                    file: "bindings/node/src/module.rs",
                    text: "options: LoadOptions = read_options(&names, &texts)?",
                    but: Some(("bindings/js/package/lib/options.js", "const READING")),
                },
                Offer::Forwards {
                    file: "bindings/js/src/module.rs",
                    text: "options: LoadOptions = plain::map(read_options(names, texts))?",
                    but: Some(("bindings/js/package/lib/options.js", "const READING")),
                },
                forwards("bindings/c/src/ffi/module.rs", "set_named(&mut settings, given.named, given.num_named)"),
                forwards("bindings/cpp/include/rushlight/module.hpp", "raw_.named = named_.data();"),
                forwards("bindings/swift/Sources/Rushlight/Module.swift", "options.named = named.baseAddress"),
                forwards("bindings/jvm/src/ffi/module.rs", "options.set_text(name, value)"),
            ],
            gaps: &[
                (&["load_mode"], &[PYTHON], "`load` maps files, and copies objects with bytes"),
                (&["share_memory"], &[PYTHON], "programs compiled with `share_state` share it automatically"),
                (&["cache"], &[NODE, WASM], "`cache` stores downloaded files in the browser's cache"),
                (&["time_limit"], &[WASM], "WebAssembly has no clock; `dispose` ends a worker"),
            ],
        },
        Table {
            title: "Options of compiling",
            rows: rows::<CompilerOptions>(),
            offers: [
                forwards("crates/cli/src/compile.rs", "OptionArgs::<CompilerOptions>"),
                Offer::Nothing,
                Offer::Declares { file: "bindings/python/python/rushlight/llm/__init__.pyi", after: "def compile(" },
                forwards("bindings/node/src/compile.rs", "options: CompilerOptions = read_options(&names, &texts)?"),
                forwards(
                    "bindings/js/src/compile.rs",
                    "options: CompilerOptions = plain::map(read_options(&names, &texts))?",
                ),
                forwards("bindings/c/src/ffi/compile.rs", "set_named(&mut settings, options.named, options.num_named)"),
                forwards("bindings/cpp/include/rushlight/compile.hpp", "raw.named = named.data();"),
                Offer::Nothing,
                Offer::Nothing,
            ],
            gaps: &[
                (&["*"], &[SERVER], "it serves compiled programs"),
                (
                    &["share_state"],
                    &[PYTHON],
                    "a language model has one method; `rushlight.compile` has it for other models",
                ),
                (&["no_tokenizer"], &[PYTHON], "it is `tokenizer=False`"),
                (
                    &["observer", "weights", "keep", "min_snr", "no_bias_correction"],
                    &[PYTHON],
                    "a field of `rushlight.Quantization`, which is a value of `quantize`",
                ),
                (&["*"], &[SWIFT, JAVA], "apps on devices run compiled programs"),
            ],
        },
    ]
}

/// A capability, with the names that a language exports for it.
struct Capability {
    title: &'static str,
    /// For each language, names that must all be exported; empty for a gap.
    names: [&'static [&'static str]; 9],
    gaps: &'static [(&'static [usize], &'static str)],
}

/// Web pages, requests and apps have no folder of models to compile.
const RUNS_ONLY: &str = "apps on devices run compiled programs";
const ONE_COMMAND: &str = "a command is one call";
const OVER_HTTP: &str = "requests are text; for tensors, use the library";

const CAPABILITIES: &[Capability] = &[
    Capability {
        title: "Load and run a method",
        names: [
            &["run"],
            &[],
            &["load", "Module"],
            &["Module", "forward"],
            &["Module", "forward"],
            &["rl_module_load", "rl_module_run"],
            &["Module", "try_run"],
            &["Module", "forward"],
            &["load", "forward"],
        ],
        gaps: &[(&[SERVER], OVER_HTTP)],
    },
    Capability {
        title: "Outputs in arrays of the caller",
        names: [&[], &[], &["bind", "Binding"], &[], &[], &[], &[], &[], &[]],
        gaps: &[
            (&[CLI, SERVER], "results are printed or sent"),
            (&[NODE, WASM, C, CPP, SWIFT], "results are read where the program computes them, without a copy"),
            (&[JAVA], "ExecuTorch's interface returns new tensors"),
        ],
    },
    Capability {
        title: "Calls of one module at the same time",
        names: [&[], &[], &["instances", "Instances"], &[], &[], &[], &[], &[], &[]],
        gaps: &[
            (&[CLI], ONE_COMMAND),
            (&[SERVER], "answers take turns, a step each"),
            (&[NODE, WASM, C, CPP, SWIFT, JAVA], "load the file again for each call at the same time"),
        ],
    },
    Capability {
        title: "Inputs by name",
        names: [
            &["inputs"],
            &[],
            &["__call__"],
            &["forward"],
            &["forward"],
            &["input_names"],
            &["input_names"],
            &["names"],
            &[],
        ],
        gaps: &[(&[SERVER], OVER_HTTP), (&[JAVA], "ExecuTorch's interface takes a list of values")],
    },
    Capability {
        title: "Metadata of a method",
        names: [
            &["inspect"],
            &[],
            &["meta"],
            &["meta"],
            &["meta"],
            &["rl_module_meta", "rl_meta_input"],
            &["meta"],
            &[],
            &["getMethodMetadata"],
        ],
        gaps: &[(&[SERVER], OVER_HTTP), (&[SWIFT], "apps know their program; use the C interface")],
    },
    Capability {
        title: "Sessions of a module",
        names: [
            &[],
            &[],
            &[],
            &[],
            &[],
            &["rl_session_new", "rl_session_fork", "rl_session_rewind", "rl_session_clear"],
            &["Session", "try_fork"],
            &["Session", "fork"],
            &[],
        ],
        gaps: &[
            (&[CLI], ONE_COMMAND),
            (&[SERVER], OVER_HTTP),
            (&[PYTHON, NODE, WASM], "language models have sessions; load other programs with state once per user"),
            (&[JAVA], "ExecuTorch's interface has none; load a module once per user"),
        ],
    },
    Capability {
        title: "Cancel a call",
        names: [
            &["ctrlc"],
            &["timeout"],
            &[],
            &["dispose"],
            &["dispose"],
            &["rl_interrupt_set"],
            &["Interrupt"],
            &["Interrupt"],
            &["Interruption"],
        ],
        gaps: &[(&[PYTHON], "Ctrl-C, signals and `time_limit` end a call")],
    },
    Capability {
        title: "Time each step",
        names: [
            &["profile"],
            &["metrics"],
            &["profile"],
            &["profile"],
            &["profile"],
            &["rl_event_fn"],
            &["on_event"],
            &[],
            &[],
        ],
        gaps: &[(&[SWIFT, JAVA], "use `rushlight run --profile` on a similar machine")],
    },
    Capability {
        title: "Custom operators",
        names: [
            &[],
            &[],
            &["operator_names"],
            &[],
            &[],
            &["rl_registry_add_operator", "rl_kernel_argument"],
            &["Registry"],
            &[],
            &[],
        ],
        gaps: &[
            (&[CLI, SERVER], "a command loads no code; register operators in Rust or Python"),
            (&[NODE, WASM], "each step would call JavaScript; write it in Rust, or compose it in PyTorch"),
            (&[SWIFT, JAVA], "register it in C"),
        ],
    },
    Capability {
        title: "Custom backends",
        names: [
            &[],
            &[],
            &["Backend"],
            &[],
            &[],
            &["rl_registry_add_backend", "rl_delegate_input"],
            &["Registry"],
            &[],
            &[],
        ],
        gaps: &[
            (&[CLI, SERVER], "a command loads no code; register backends in Rust, Python or C"),
            (&[NODE, WASM, SWIFT, JAVA], "register it in C or Rust"),
        ],
    },
    Capability {
        title: "Compile exported models",
        names: [
            &["compile"],
            &[],
            &["compile"],
            &["compile"],
            &["compile"],
            &["rl_compile"],
            &["try_compile"],
            &[],
            &[],
        ],
        gaps: &[(&[SERVER], "it serves compiled programs"), (&[SWIFT, JAVA], RUNS_ONLY)],
    },
    Capability {
        title: "Streaming of an answer",
        names: [
            &["chat"],
            &["stream"],
            &["Stream"],
            &["Answer"],
            &["Answer"],
            &["rl_llm_generate", "rl_llm_text_fn"],
            &["generate"],
            &["generate"],
            &["LlmCallback"],
        ],
        gaps: &[],
    },
    Capability {
        title: "Chat templates",
        names: [
            &["chat"],
            &["chat"],
            &["apply_chat_template"],
            &["chatPrompt"],
            &["chatPrompt"],
            &["rl_llm_chat_prompt"],
            &["chat_prompt"],
            &["chat"],
            &[],
        ],
        gaps: &[(&[JAVA], "ExecuTorch's `LlmModule` takes a prompt as text")],
    },
    Capability {
        title: "Log probabilities of an answer",
        names: [
            &["logprobs"],
            &["logprobs"],
            &["TokenLogprob"],
            &["TokenLogprob"],
            &["TokenLogprob"],
            &["rl_llm_token_fn"],
            &["on_token"],
            &["onToken"],
            &[],
        ],
        gaps: &[(&[JAVA], "ExecuTorch's `LlmCallback` receives only text")],
    },
    Capability {
        title: "LoRA adapters",
        names: [
            &["lora"],
            &["lora_module"],
            &["Adapter"],
            &["lora"],
            &[],
            &["rl_llm_set_adapter"],
            &["set_adapter"],
            &["setAdapter"],
            &["loraPath"],
        ],
        gaps: &[(&[WASM], "an adapter is a folder, which pages cannot read")],
    },
    Capability {
        title: "A draft model",
        names: [&["draft_model"], &[], &["LLM"], &[], &[], &[], &[], &[], &[]],
        gaps: &[
            (&[SERVER], "answers take turns in their own sessions, and a draft model has one session"),
            (
                &[NODE, WASM, C, CPP, SWIFT, JAVA],
                "each call would need a second model; `speculate` with `lookup` does not",
            ),
        ],
    },
    Capability {
        title: "Sessions that fork and rewind",
        names: [
            &[],
            &[],
            &["fork", "rewind"],
            &["fork", "rewind"],
            &["fork", "rewind"],
            &["rl_llm_session_new", "rl_llm_session_fork", "rl_llm_session_rewind"],
            &["try_fork", "try_rewind"],
            &["fork", "rewind"],
            &[],
        ],
        gaps: &[
            (&[CLI], ONE_COMMAND),
            (&[SERVER], "it caches common prefixes of prompts automatically"),
            (&[JAVA], "ExecuTorch's `LlmModule` is one conversation"),
        ],
    },
    Capability {
        title: "Logits of a prompt",
        names: [
            &["perplexity"],
            &["echo"],
            &["logits"],
            &["prefill"],
            &["prefill"],
            &["rl_llm_prefill"],
            &["prefill"],
            &[],
            &[],
        ],
        gaps: &[(&[SWIFT], "use the C interface"), (&[JAVA], "ExecuTorch's `LlmModule` has none")],
    },
    Capability {
        title: "Tokens of a text",
        names: [
            &["tokenize"],
            &["tokenize"],
            &["encode", "decode"],
            &["encode", "decode"],
            &["encode", "decode"],
            &["rl_llm_encode", "rl_llm_decode"],
            &["encode", "decode"],
            &["encode", "decode"],
            &[],
        ],
        gaps: &[(&[JAVA], "ExecuTorch's `LlmModule` takes and returns text")],
    },
];

/// Prefixes of C functions that are parts of a capability above, of values or of errors.
const C_PARTS: &[&str] = &[
    "rl_compile",
    "rl_delegate_",
    "rl_dtype_",
    "rl_init_",
    "rl_interrupt_",
    "rl_kernel_",
    "rl_llm_free",
    "rl_llm_load",
    "rl_llm_session_",
    "rl_meta_",
    "rl_module_",
    "rl_program_",
    "rl_registry_",
    "rl_session_",
    "rl_status_",
    "rl_tensor_",
    "rl_value_",
    "rl_version",
];

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect()
}

/// The text of the files that declare what a language exports, without comments.
fn exported(language: usize) -> String {
    let mut text = String::new();
    for path in LANGUAGES[language].1 {
        let path = root().join(path);
        let files = match fs::read_dir(&path) {
            Ok(entries) => entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()).collect(),
            Err(_) => vec![path],
        };
        for file in files {
            text.push_str(&fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
        }
    }
    let is_comment = |line: &str| ["//", "/*", "*", "#"].iter().any(|begin| line.trim_start().starts_with(begin));
    text.lines().filter(|line| !is_comment(line) || line.contains("#[")).collect::<Vec<_>>().join("\n")
}

/// Returns the quoted names of the list that follows a text in a file.
fn listed(file: &str, after: &str) -> Vec<String> {
    let text = read(file);
    let (_, list) = text.split_once(after).unwrap_or_else(|| panic!("{file} has no `{after}`"));
    // The type of a constant may have brackets.
    let (_, list) = list.split_once("= [").unwrap_or_else(|| panic!("{file}: no list after `{after}`"));
    let (list, _) = list.split_once(']').unwrap_or_default();
    list.split(['"', '\'']).skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

/// Options that WebAssembly cannot have, as the code says.
fn absent_in_wasm() -> Vec<&'static str> {
    let mut absent = Vec::new();
    if read("crates/rushlight/src/clock.rs").contains("HAS_CLOCK: bool = !cfg!(all(target_family = \"wasm\"") {
        absent.push("time_limit");
    }
    if !read("bindings/js/Cargo.toml").contains("grammar") {
        absent.extend(["json_schema", "regex", "grammar"]);
    }
    absent
}

fn offers(offer: &Offer, language: usize, name: &str) -> bool {
    if language == WASM && absent_in_wasm().contains(&name) {
        return false;
    }
    match offer {
        Offer::Nothing => false,
        Offer::Forwards { file, text, but } => {
            assert!(read(file).contains(text), "{file} has no `{text}`, which passes the names of options on");
            !but.is_some_and(|(file, after)| listed(file, after).iter().any(|other| other == name))
        }
        Offer::Declares { file, after } => {
            let text = read(file);
            let (_, rest) = text.split_once(after).unwrap_or_else(|| panic!("{file} has no `{after}`"));
            let (part, _) = rest.split_once("\n)").unwrap_or((rest, ""));
            part.lines().any(|line| line.trim_start().split(':').next() == Some(name))
        }
    }
}

/// A row of the page: a mark for each language, and the numbers of reasons.
struct Page {
    text: String,
    reasons: Vec<String>,
    problems: Vec<String>,
}

impl Page {
    fn cell(&mut self, what: &str, language: usize, has: bool, reason: Option<&str>) -> String {
        let of = LANGUAGES[language].0;
        match (has, reason) {
            (true, None) => "✓".to_owned(),
            (true, Some(_)) => {
                self.problems.push(format!("{what}: {of} has it, and there is a reason why not"));
                String::new()
            }
            (false, None) => {
                self.problems.push(format!("{what}: {of} has it not, and there is no reason"));
                String::new()
            }
            (false, Some(reason)) => {
                let known = self.reasons.iter().position(|known| known == reason);
                let number = known.unwrap_or_else(|| {
                    self.reasons.push(reason.to_owned());
                    self.reasons.len() - 1
                });
                format!("[{}](#reasons)", number + 1)
            }
        }
    }

    fn heading(&mut self, title: &str, columns: &[&str]) {
        let names = columns.iter().copied().chain(LANGUAGES.map(|(name, _)| name));
        let names: Vec<&str> = names.collect();
        let _ = writeln!(self.text, "\n## {title}\n\n| {} |\n|{}", names.join(" | "), "---|".repeat(names.len()));
    }

    fn table(&mut self, table: &Table) {
        self.heading(table.title, &["option", "values", "default"]);
        for [name, values, default, _] in &table.rows {
            let what = format!("{}, `{name}`", table.title);
            let mut cells = Vec::new();
            for (language, offer) in table.offers.iter().enumerate() {
                let applies = |names: &[&str]| names.contains(&"*") || names.contains(&name.as_str());
                let gap = table.gaps.iter().find(|(names, of, _)| applies(names) && of.contains(&language));
                cells.push(self.cell(&what, language, offers(offer, language, name), gap.map(|(.., reason)| *reason)));
            }
            let values = values.replace('|', "\\|");
            let _ = writeln!(self.text, "| `{name}` | {values} | {default} | {} |", cells.join(" | "));
        }
        for [name, _, _, help] in &table.rows {
            let begin = if name == &table.rows[0][0] { "\n" } else { "" };
            let _ = writeln!(self.text, "{begin}- `{name}`: {help}.");
        }
    }
}

fn page() -> Page {
    let text = "\
# Bindings

`UPDATE_DOCS=1 cargo test -p rushlight-cli --test it bindings` writes this page. Without `UPDATE_DOCS`, the test checks it. Options are
the rows of the tables in `crates/llm/src/generation_options.rs` and `crates/rushlight/src/options`. All languages have the same defaults.
JavaScript and Swift write names in camel case, the command line with `-`. A number refers to the reason for a gap.
";
    let mut page = Page { text: text.to_owned(), reasons: Vec::new(), problems: Vec::new() };
    page.heading("Capabilities", &["capability"]);
    let exports: Vec<String> = (0..LANGUAGES.len()).map(exported).collect();
    for Capability { title, names, gaps } in CAPABILITIES {
        let mut cells = Vec::new();
        for (language, names) in names.iter().enumerate() {
            let known = words(&exports[language]);
            for name in names.iter().filter(|name| !known.contains(*name)) {
                page.problems.push(format!("{title}: {} does not export `{name}`", LANGUAGES[language].0));
            }
            let gap = gaps.iter().find(|(of, _)| of.contains(&language)).map(|(_, reason)| *reason);
            cells.push(page.cell(title, language, !names.is_empty(), gap));
        }
        let _ = writeln!(page.text, "| {title} | {} |", cells.join(" | "));
    }
    tables().iter().for_each(|table| page.table(table));
    page.text.push_str("\n## Reasons\n\n");
    for (number, reason) in page.reasons.iter().enumerate() {
        let _ = writeln!(page.text, "{}. {reason}", number + 1);
    }
    let named: BTreeSet<&str> = CAPABILITIES.iter().flat_map(|capability| capability.names[C]).copied().collect();
    for function in exports[C].split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(') {
        let Some(name) = function.strip_suffix('(').filter(|name| name.starts_with("rl_")) else { continue };
        if !named.contains(name) && !C_PARTS.iter().any(|begin| name.starts_with(begin)) {
            page.problems.push(format!("`{name}` of the C interface is in no row of `CAPABILITIES`"));
        }
    }
    page
}

#[test]
fn every_language_has_every_capability_or_a_reason() {
    let Page { text, problems, .. } = page();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    settle("docs/bindings.md", &text, "bindings");
}

/// The marks around generated lines of a file.
const BEGIN: &str =
    "Generated from the table of options by `UPDATE_DOCS=1 cargo test -p rushlight-cli --test it bindings`.\n";
const END: &str = "End of the generated options.";

/// Replaces the generated lines of a file: each region by the next text.
fn with_regions(path: &str, regions: &[String]) -> String {
    let text = read(path);
    let mut parts = text.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut regions = regions.iter();
    for part in parts {
        let region = regions.next().unwrap_or_else(|| panic!("{path} has more regions than there are tables"));
        let (old, rest) = part.split_once(END).unwrap_or_else(|| panic!("{path}: a region has no end"));
        // The comment marker before `END`.
        let comment = old.rsplit('\n').next().unwrap_or_default();
        let _ = write!(out, "{BEGIN}{region}{comment}{END}{rest}");
    }
    assert!(regions.next().is_none(), "{path} has fewer regions than there are tables");
    out
}

fn python<T: Options>() -> String {
    let row = |spec: &OptionSpec<T>| {
        let name = spec.name;
        let kind = match &spec.field {
            // Python takes an object as well as text.
            Field::Text(_) if name == "json_schema" => "Any".to_owned(),
            Field::Choice(..) if name == "speculate" => "Union[Literal[\"lookup\"], LLM, None]".to_owned(),
            Field::Flag(_) => "bool".to_owned(),
            Field::Number(..) => "float".to_owned(),
            Field::Bound(_) => "Optional[float]".to_owned(),
            Field::Count(..) => "int".to_owned(),
            Field::Limit(..) | Field::Size(_) | Field::Seed(_) => "Optional[int]".to_owned(),
            Field::FlagOrCount(_) => "Union[bool, int, None]".to_owned(),
            Field::Time(_) => "Optional[float]".to_owned(),
            Field::Version(known, _) => {
                format!("Literal[{}]", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
            Field::Choice(known, _) => {
                format!(
                    "Optional[Literal[{}]]",
                    known().iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
                )
            }
            Field::Text(_) => "Optional[str]".to_owned(),
            Field::Path(_) => "Optional[_Path]".to_owned(),
            Field::Texts(_) => "Union[str, Sequence[str], None]".to_owned(),
            Field::Biases(_) => "Optional[Mapping[int, float]]".to_owned(),
        };
        format!("    {name}: {kind}\n")
    };
    T::table().iter().map(row).collect()
}

/// The names of the options with their defaults, as entries of a dict.
fn python_defaults<T: Options>() -> String {
    let row = |spec: &OptionSpec<T>| {
        let default = match spec.default() {
            OptionValue::Flag(true) => "True".to_owned(),
            OptionValue::Flag(false) => "False".to_owned(),
            OptionValue::Number(_) | OptionValue::Integer(_) => spec.default().to_string(),
            OptionValue::Text(text) => format!("{text:?}"),
            _ => "None".to_owned(),
        };
        format!("    \"{}\": {default},\n", spec.name)
    };
    T::table().iter().map(row).collect()
}

fn typescript<T: Options>(without: &[&str]) -> String {
    let row = |spec: &OptionSpec<T>| {
        let kind = match &spec.field {
            Field::Text(_) if spec.name == "json_schema" => "string | object".to_owned(),
            Field::Flag(_) => "boolean".to_owned(),
            Field::Number(..)
            | Field::Bound(_)
            | Field::Count(..)
            | Field::Limit(..)
            | Field::Size(_)
            | Field::Time(_) => "number".to_owned(),
            Field::FlagOrCount(_) => "boolean | number".to_owned(),
            Field::Seed(_) => "number | bigint | 'random'".to_owned(),
            Field::Version(known, _) => known.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "),
            Field::Choice(known, _) => known().iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" | "),
            Field::Text(_) | Field::Path(_) => "string".to_owned(),
            Field::Texts(_) => "string | readonly string[]".to_owned(),
            Field::Biases(_) => "{ readonly [token: number]: number }".to_owned(),
        };
        let default = match spec.default() {
            OptionValue::Number(_) | OptionValue::Integer(_) => format!(" By default {}.", spec.default()),
            _ => String::new(),
        };
        format!("  /** {}.{default} */\n  {}?: {kind};\n", spec.help, camel_case(spec.name))
    };
    T::table().iter().filter(|spec| !without.contains(&spec.name)).map(row).collect()
}

/// The type of the names of schemes in Python.
fn scheme_names() -> String {
    let names = Scheme::ALL.map(|scheme| format!("\"{}\"", scheme.name));
    format!("_Scheme = Literal[{}]\n", names.join(", "))
}

/// The table of schemes of the guide.
fn scheme_table() -> String {
    let mut text = "-->\n| scheme | weights | activations | calibration | layers |\n|---|---|---|---|---|\n".to_owned();
    for scheme in Scheme::ALL {
        let groups = match scheme.weight.scales {
            WeightScales::PerGroup(size) => format!(" in groups of {size}"),
            WeightScales::PerChannel | WeightScales::PerTensor => String::new(),
        };
        let weights = format!("{} bits{groups}", scheme.weight.bits());
        let (is_static, bits) = (scheme.is_static(), scheme.activation.map(|spec| spec.bits()));
        let activations = bits.map_or("float".to_owned(), |bits| {
            format!("{bits} bits, {} scales", if is_static { "static" } else { "dynamic" })
        });
        let calibration = if is_static { "yes; without one, the example inputs of the export" } else { "none" };
        let layers = match (scheme.has_convolutions, is_static) {
            (true, true) => "convolutions, linear layers, and most operators between them",
            (true, false) => "linear layers and convolutions",
            (false, _) => "linear layers",
        };
        let name = scheme.name;
        let _ = writeln!(text, "| `{name}` | {weights} | {activations} | {calibration} | {layers} |");
    }
    text
}

#[test]
fn schemes_are_in_the_stubs_and_in_the_guide() {
    let stubs = "bindings/python/python/rushlight/__init__.pyi";
    settle(stubs, &with_regions(stubs, &[scheme_names()]), "bindings");
    let guide = "docs/how-to/quantize.md";
    settle(guide, &with_regions(guide, &[scheme_table()]), "bindings");
}

#[test]
fn stubs_and_declarations_have_the_types_of_options() {
    let stubs = "bindings/python/python/rushlight/llm/__init__.pyi";
    settle(stubs, &with_regions(stubs, &[python::<GenerationOptions>()]), "bindings");
    let signatures = "bindings/python/python/rushlight/llm/_options.py";
    settle(signatures, &with_regions(signatures, &[python_defaults::<GenerationOptions>()]), "bindings");
    let declarations = "bindings/js/package/index.d.ts";
    // `threads` and `cache` have other defaults or meanings in JavaScript.
    let loading = || typescript::<LoadOptions>(&["threads", "cache"]);
    let regions = [loading(), typescript::<CompilerOptions>(&[]), loading(), typescript::<GenerationOptions>(&[])];
    settle(declarations, &with_regions(declarations, &regions), "bindings");
}
