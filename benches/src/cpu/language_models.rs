//! Language models with 4-bit weights.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rushlight::{Compiler, KvCache, LanguageModelOptions, Module, Quantization, Scheme};
use serde_json::Value as Json;

use super::engines::{EXECUTORCH_LANGUAGE_MODEL, Engine, Engines, LLAMA_CPP_LANGUAGE_MODEL, ours_language_model};
use super::loading;
use super::machine::Machine;
use super::sides::{ROUNDS, Sides, Turns};
use super::{Missing, THREADS, cell, header, ours, ratio, row, threads_of};
use crate::agreement;
use crate::compile::{Taken, save, taken};
use crate::document::{conditions, milliseconds, significant};

/// Models of `tools/models/language_models.py`; their names end with their number of layers.
const MODELS: [&str; 3] = ["llama_3_2_1b-16", "qwen3_0_6b-28", "phi_4_mini-4"];
/// The model with a hidden size of 256.
const TINY: &str = "tiny-4";

/// Shapes of these models: the key, and the name and number of layers of the published model.
const SHAPES: [(&str, &str, &str); 3] =
    [("llama_3_2_1b", "Llama-3.2-1B", "16"), ("qwen3_0_6b", "Qwen3-0.6B", "28"), ("phi_4_mini", "Phi-4-mini", "32")];

/// Positions of the caches, and maximum tokens of a call, as in `tools/models/language_models.py`.
const POSITIONS: usize = 2176;
const LONGEST_CALL: usize = 1024;

/// Bits of a weight in a group of 32, including its share of the 16-bit scale.
const BITS: f64 = 4.5;

/// Number of new processes that load a model.
const LOADS: usize = 3;

/// A model as our compiler writes it, and the engine that runs it.
struct Variant {
    engine: Engine,
    scheme: Scheme,
    kv_cache: KvCache,
    positions: usize,
}

const fn variant(name: &'static str, file: &'static str) -> Variant {
    let engine = ours_language_model(name, file);
    Variant { engine, scheme: Scheme::FOUR_BIT_DYNAMIC, kv_cache: KvCache::F32, positions: POSITIONS }
}

static OURS: Variant = variant("Rushlight", "8da4w.pte");
static INT4: Variant = Variant { scheme: Scheme::INT4, ..variant("int4", "int4.pte") };
static INT8_CACHE: Variant = Variant { kv_cache: KvCache::Int8, ..variant("int8 cache", "int8_cache.pte") };
static SMALL: Variant = Variant { positions: 128, ..variant("128 positions", "positions_128.pte") };
static LARGE: Variant = Variant { positions: 2048, ..variant("2048 positions", "positions_2048.pte") };

static VARIANTS: [&Variant; 5] = [&OURS, &INT4, &INT8_CACHE, &SMALL, &LARGE];

/// The peers, and Rushlight.
static COLUMNS: [&Engine; 3] = [&EXECUTORCH, &LLAMA_CPP, &OURS.engine];
static EXECUTORCH: Engine = EXECUTORCH_LANGUAGE_MODEL;
static LLAMA_CPP: Engine = LLAMA_CPP_LANGUAGE_MODEL;

/// Tokens that a model reads in one call.
#[derive(Clone, Copy)]
struct Call {
    count: usize,
    position: usize,
}

const fn prefill(count: usize) -> Call {
    Call { count, position: 0 }
}

const fn decode(position: usize) -> Call {
    Call { count: 1, position }
}

/// The first call after loading.
const FIRST: Call = decode(0);
const CALLS: [Call; 5] = [prefill(128), prefill(512), decode(128), decode(512), decode(2048)];

/// Turns of a prefill, each of which takes seconds.
const PREFILL: Turns = Turns { rounds: 3, warm_up: None, calls: 1, at_least: Duration::ZERO };

impl Call {
    /// The name of the call in the workers' commands.
    fn sizes(self) -> String {
        format!("{}@{}", self.count, self.position)
    }

    fn name(self) -> String {
        if self.count > 1 {
            format!("prefill of {}, tokens/s", self.count)
        } else {
            format!("decode at {}, ms", self.position)
        }
    }

    /// Converts a time in nanoseconds to the unit of the name.
    fn show(self, time: f64) -> String {
        if self.count > 1 { significant(self.count as f64 / time * 1e9) } else { milliseconds(time) }
    }

    const fn turns(self) -> &'static Turns {
        if self.count > 1 { &PREFILL } else { &Turns::SHORT }
    }
}

/// Bytes that one decode step reads.
struct Reads {
    weights: f64,
    /// Bytes of the cache, for each position.
    position: f64,
}

impl Reads {
    /// Computes the bytes from the matrices in a model's folder, and from a file that was compiled from it.
    fn of(folder: &Path, file: &Path) -> Result<Self> {
        let config: Json = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
        let number = |key: &str| config[key].as_f64().with_context(|| format!("{key} in {}", folder.display()));
        let (hidden, heads, kv) =
            (number("hidden_size")?, number("num_attention_heads")?, number("num_key_value_heads")?);
        let head = number("head_dim").unwrap_or(hidden / heads);
        let layer = 2.0 * hidden * head * (heads + kv) + 3.0 * hidden * number("intermediate_size")?;
        let count = number("num_hidden_layers")? * layer + number("vocab_size")? * hidden;
        Ok(Self { weights: count * BITS / 8.0, position: cache_bytes(file)? / POSITIONS as f64 })
    }

    fn bytes(&self, position: usize) -> f64 {
        self.weights + self.position * (position + 1) as f64
    }
}

/// Bytes of the caches of a compiled model.
fn cache_bytes(file: &Path) -> Result<f64> {
    let mut module = Module::load(file).map_err(|e| anyhow::anyhow!("{e}"))?;
    Ok(module.session().map_err(|e| anyhow::anyhow!("{e}"))?.size() as f64)
}

/// Measures all tables.
pub fn run() -> Result<String> {
    let (engines, mut missing) = (Engines::of_environment()?, Missing::default());
    let machines = THREADS.map(Machine::measure).into_iter().collect::<Result<Vec<_>>>()?;
    let mut text = conditions("cargo xtask bench llm");
    let _ = write!(
        text,
        "\n\nArchitectures of published models with random 4-bit weights in groups of 32, the same for all engines. \
         Rushlight runs the output of `rushlight compile FOLDER --quantize 8da4w --embeddings 4 --backend cpu` for the \
         bf16 checkpoint. ExecuTorch runs the output of its `export_llama` (8da4w, 4-bit embeddings, its own SDPA, \
         XNNPACK). The third engine, llama.cpp, runs a Q4_0 file. It is compiled for the native architecture without \
         AMX, with which it segfaults. The KV cache is f32 in Rushlight and ExecuTorch and f16 in llama.cpp: their defaults. Times are \
         medians of {ROUNDS} rounds for decode and {} for prefill. All engines take turns, with one thread and with \
         two, each in its own process. Decode reads one token at a position, prefill all tokens in one call. All \
         logits were first compared with those of eager PyTorch: they differ by less than half of the largest logit. \
         Logits of another text differ by all of it. *Ratio* is Rushlight's time over that of the fastest peer; above \
         1, Rushlight is slower. *GB/s* is Rushlight's memory traffic for a token: weights ({BITS} bits each, with \
         16-bit scales) and the KV cache up to the position, once each. The column *of memory* is its share of the \
         bandwidth of \
         sequential reads without prefetching in the same run. *Other work* is the number of cores that other programs \
         kept busy.\n",
        PREFILL.rounds,
    );
    machines.iter().for_each(|machine| text.push_str(&machine.line()));
    let mut compiled = Vec::with_capacity(MODELS.len());
    for model in MODELS {
        compiled.push(missing.unless(&format!("{model}, compiling"), compile(&engines, model, &OURS)));
        text.push_str(&beside_peers(&engines, model, &machines, &mut missing)?);
    }
    text.push_str(&tiny(&engines, &mut missing)?);
    text.push_str(&variants(&engines, &mut missing)?);
    text.push_str(&making(&engines, &compiled)?);
    text.push_str(&loads(&engines, &mut missing));
    text.push_str(&missing.text());
    Ok(text)
}

/// Measures the table of one model.
pub fn run_one(model: &str) -> Result<String> {
    let (engines, mut missing) = (Engines::of_environment()?, Missing::default());
    let machines = THREADS.map(Machine::measure).into_iter().collect::<Result<Vec<_>>>()?;
    missing.unless(&format!("{model}, compiling"), compile(&engines, model, &OURS));
    let mut text = beside_peers(&engines, model, &machines, &mut missing)?;
    text.push_str(&missing.text());
    Ok(text)
}

/// Compiles a variant of a model in its own process.
fn compile(engines: &Engines, model: &str, variant: &Variant) -> Result<Taken> {
    let mut command = Command::new(std::env::current_exe()?);
    taken(command.arg("compile-language-model").arg(engines.models.join(model)).arg(variant.engine.file))
}

/// Compiles the variant of this file in this process, and prints its time and memory. An earlier file is removed even
/// if that fails.
pub fn compile_once(folder: &Path, file: &str) -> Result<()> {
    let variant = VARIANTS.iter().find(|variant| variant.engine.file == file).context("no such file")?;
    let (file, positions) = (folder.join(file), Some(variant.positions));
    if file.exists() {
        std::fs::remove_file(&file)?;
    }
    let max_seq_len = Some(LONGEST_CALL.min(variant.positions));
    let options = LanguageModelOptions { max_context_len: positions, max_seq_len, ..LanguageModelOptions::default() };
    let quantization = Quantization::new(variant.scheme).embeddings(4);
    let compiler = Compiler::new().language_model(folder, options).kv_cache(variant.kv_cache);
    save(compiler.quantize(quantization).backend("cpu"), &file)
}

/// A call's times in nanoseconds, by number of threads and engine.
struct Measured {
    times: [Vec<Option<f64>>; THREADS.len()],
    others: f64,
}

/// Times calls of the engines in turns.
fn measure(
    engines: &Engines,
    model: &str,
    columns: &[&'static Engine],
    calls: &[Call],
    missing: &mut Missing,
) -> Result<Vec<Measured>> {
    println!("{model}");
    let mut sides = Sides::none();
    for (number, threads) in THREADS.into_iter().enumerate() {
        for (column, engine) in columns.iter().enumerate() {
            let opened = engines.open(engine, model, threads, &FIRST.sizes());
            let name = format!("{model}, {}, {}", engine.name, threads_of(threads));
            if let Some(session) = missing.unless(&name, opened) {
                sides.add((number, column), session);
            }
        }
    }
    let folder = engines.models.join(model);
    let mut measured = Vec::with_capacity(calls.len());
    for call in calls {
        let mut agree = Vec::new();
        for session in sides.sessions() {
            let name = format!("{model}, {}, {}", session.engine.name, call.name());
            agree.push(missing.unless(&name, session.input(&folder, &call.sizes())).is_some());
        }
        let (medians, others) = sides.measure_in(call.turns())?;
        let mut times = THREADS.map(|_| vec![None; columns.len()]);
        for (((number, column), median), agrees) in medians.into_iter().zip(agree) {
            let (engine, threads) = (columns[column].name, threads_of(THREADS[number]));
            println!("{engine}, {threads}, {}: {}", call.name(), call.show(median));
            times[number][column] = agrees.then_some(median);
        }
        measured.push(Measured { times, others });
    }
    Ok(measured)
}

/// The ratio of our time to the fastest peer's. The last column is ours, the others are the peers'.
fn compared(times: &[Option<f64>]) -> Option<f64> {
    let peers = times.split_last().map_or(times, |(_, peers)| peers);
    let fastest = peers.iter().flatten().copied().min_by(f64::total_cmp);
    ours(times).zip(fastest).map(|(ours, theirs)| ours / theirs)
}

fn beside_peers(engines: &Engines, model: &str, machines: &[Machine], missing: &mut Missing) -> Result<String> {
    let folder = engines.models.join(model);
    let reads = missing.unless(&format!("{model}, its sizes"), Reads::of(&folder, &folder.join(OURS.engine.file)));
    let measured = measure(engines, model, &COLUMNS, &CALLS, missing)?;
    let mut text = String::new();
    for (number, machine) in machines.iter().enumerate() {
        let _ = write!(text, "\n### {}, {}\n", title(model), threads_of(machine.threads));
        let names = COLUMNS.iter().map(|engine| engine.name);
        let titles = ["", "ratio", "GB/s", "of memory", "other work"];
        text.push_str(&header(titles[..1].iter().copied().chain(names).chain(titles[1..].iter().copied())));
        for (call, measured) in CALLS.into_iter().zip(&measured) {
            let times = &measured.times[number];
            let cells = times.iter().map(|&time| cell(time, |time| call.show(time)));
            let decoding = ours(times).zip(reads.as_ref()).filter(|_| call.count == 1);
            let rate = decoding.map(|(time, reads)| reads.bytes(call.position) / time * 1e9);
            let rates = [
                rate.map_or_else(String::new, |rate| significant(rate / 1e9)),
                rate.map_or_else(String::new, |rate| format!("{:.0} %", rate / machine.bytes * 100.0)),
            ];
            let rest = [cell(compared(times), ratio)].into_iter().chain(rates).chain([ratio(measured.others)]);
            row(&mut text, [call.name()].into_iter().chain(cells).chain(rest));
        }
    }
    Ok(text)
}

/// The name of the model with this shape, and its number of layers.
fn title(model: &str) -> String {
    let Some((shape, layers)) = model.rsplit_once('-') else { return model.to_owned() };
    match SHAPES.iter().find(|(known, ..)| *known == shape) {
        Some((_, name, all)) if *all == layers => format!("{name}, all {all} layers"),
        Some((_, name, all)) => format!("{name}, {layers} of {all} layers"),
        None => format!("{shape}, {layers} layers"),
    }
}

fn tiny(engines: &Engines, missing: &mut Missing) -> Result<String> {
    const CALL: Call = decode(1);
    let mut text = "\n### 4 layers of 256 elements\n\nA Llama with a vocabulary of 1024 tokens: the cost of a call \
                    besides reading weights.\n"
        .to_owned();
    missing.unless(&format!("{TINY}, compiling"), compile(engines, TINY, &OURS));
    let measured = measure(engines, TINY, &COLUMNS, &[CALL], missing)?;
    let names = COLUMNS.iter().map(|engine| engine.name);
    text.push_str(&header([""].into_iter().chain(names).chain(["ratio", "other work"])));
    for (number, threads) in THREADS.into_iter().enumerate() {
        for measured in &measured {
            let times = &measured.times[number];
            let name = format!("{}, {}", CALL.name(), threads_of(threads));
            let cells = times.iter().map(|&time| cell(time, |time| CALL.show(time)));
            let rest = [cell(compared(times), ratio), ratio(measured.others)];
            row(&mut text, [name].into_iter().chain(cells).chain(rest));
        }
    }
    Ok(text)
}

/// Compares Rushlight's variants of the first model.
fn variants(engines: &Engines, missing: &mut Missing) -> Result<String> {
    let model = MODELS[0];
    for variant in VARIANTS.iter().filter(|variant| variant.engine.file != OURS.engine.file) {
        missing.unless(&format!("{model}, compiling {}", variant.engine.name), compile(engines, model, variant));
    }
    let mut text = format!(
        "\n### Forms of {}\n\nThe same weights in other formats of Rushlight. *8da4w* is the format above. `int4` is \
         `--quantize int4`, which rounds activations to 16 bits. Programs of `--max-context-len 128` and `2048` differ \
         only in the capacity of the cache. `int8` is `--kv-cache int8`. The ratio is that of times.\n",
        title(model)
    );
    let tables: [(&str, [&'static Variant; 2], &[Call]); 3] = [
        ("8da4w and int4", [&OURS, &INT4], &[prefill(128), prefill(512), decode(128)]),
        ("128 positions and 2048", [&SMALL, &LARGE], &[decode(100)]),
        ("f32 cache and int8", [&OURS, &INT8_CACHE], &[decode(128), decode(512), decode(2048)]),
    ];
    for (names, [first, second], calls) in tables {
        let (one, other) = names.split_once(" and ").context("two names")?;
        text.push_str(&header(["", one, other, "ratio", "other work"]));
        let measured = measure(engines, model, &[&first.engine, &second.engine], calls, missing)?;
        for (number, threads) in THREADS.into_iter().enumerate() {
            for (call, measured) in calls.iter().zip(&measured) {
                let times = &measured.times[number];
                let name = format!("{}, {}", call.name(), threads_of(threads));
                let compared = times[0].zip(times[1]).map(|(first, second)| second / first);
                let cells = times.iter().map(|&time| cell(time, |time| call.show(time)));
                let rest = [cell(compared, ratio), ratio(measured.others)];
                row(&mut text, [name].into_iter().chain(cells).chain(rest));
            }
        }
    }
    let file = |variant: &Variant| engines.models.join(model).join(variant.engine.file);
    let sizes = [&OURS, &INT8_CACHE].map(|variant| {
        missing.unless(&format!("{model}, the size of the cache, {}", variant.engine.name), cache_bytes(&file(variant)))
    });
    let [floats, integers] = sizes.map(|bytes| cell(bytes, |bytes| significant(bytes / 1e6)));
    let error = missing.unless(&format!("{model}, the error of int8 caches"), cache_error(engines, model));
    let error = cell(error, |error| format!("{:.2} %", error * 100.0));
    let _ = write!(
        text,
        "\nThe cache of {POSITIONS} positions takes {floats} MB in f32 and {integers} MB in int8. At position 2048, \
         logits with int8 caches differ from those with f32 caches by at most {error} of the largest.\n"
    );
    Ok(text)
}

/// The deviation of logits with int8 caches from those with f32 caches.
fn cache_error(engines: &Engines, model: &str) -> Result<f64> {
    let outputs = |variant: &'static Variant| -> Result<Vec<u8>> {
        let call = decode(2048);
        engines.open(&variant.engine, model, THREADS[1], &call.sizes())?.peer.outputs()
    };
    agreement::relative_error(&outputs(&OURS)?, &outputs(&INT8_CACHE)?).context("logits of another number")
}

fn making(engines: &Engines, compiled: &[Option<Taken>]) -> Result<String> {
    let mut text = "\n### Compiling\n\nFrom the folder in bf16 to the `.pte` file, once, in its own process. The peak \
                    is the maximum resident size of the process, including pages of the mapped folder.\n"
        .to_owned();
    text.push_str(&header(["model", "weights, MB", "`.pte`, MB", "seconds", "peak, MB"]));
    for (model, taken) in MODELS.into_iter().zip(compiled) {
        let folder = engines.models.join(model);
        let megabytes = |file: PathBuf| std::fs::metadata(file).ok().map(|file| file.len() as f64 / 1e6);
        let cells = [
            megabytes(folder.join("model.safetensors")),
            megabytes(folder.join(OURS.engine.file)),
            taken.as_ref().map(|taken| taken.seconds),
            taken.as_ref().map(|taken| taken.peak_bytes / 1e6),
        ];
        row(&mut text, [title(model)].into_iter().chain(cells.map(|value| cell(value, significant))));
    }
    Ok(text)
}

fn loads(engines: &Engines, missing: &mut Missing) -> String {
    let mut text = format!(
        "\n### Loading\n\nThe time from opening the file to the logits after the first token, and the memory that this \
         adds to the process. Medians of {LOADS} fresh processes with one thread. All libraries are loaded, and the \
         files are in the page cache. Pages of mapped files count.\n"
    );
    let names = || COLUMNS.iter().map(|engine| engine.name);
    let units = ["ms", "MB"].map(|unit| names().map(move |name| format!("{name}, {unit}")));
    let titles: Vec<String> = units.into_iter().flatten().collect();
    text.push_str(&header(["model"].into_iter().chain(titles.iter().map(String::as_str))));
    for model in MODELS {
        let opened = loading::measured(engines, model, &COLUMNS, &FIRST.sizes(), LOADS, missing);
        let times = opened.iter().map(|opened| cell(opened.map(|opened| opened.load + opened.first), milliseconds));
        let added = opened.iter().map(|opened| cell(opened.map(|opened| opened.added / 1e6), significant));
        row(&mut text, [title(model)].into_iter().chain(times).chain(added));
    }
    text
}
