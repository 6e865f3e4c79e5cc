//! Recorded calls of whole programs: inputs and the results of eager PyTorch. `tools/cases.py` describes the files.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use half::{bf16, f16};
use rushlight::{Input, LoadMode, Module, ScalarType, Tensor, TensorView, Value};
use rushlight_devtools::npy;
use rushlight_format::pte::{self, Plan, Program, TensorStorage};
use serde_json::Value as Json;

/// The recorded calls of one program file.
#[derive(Debug)]
pub struct Recording {
    pub name: String,
    folder: PathBuf,
    json: Json,
}

/// Models whose results differ on the CPU backend: name, part of the failure, and the reason.
const DIFFERS_ON_CPU: &[(&str, &str, &str)] = &[(
    "mixed_precision",
    "output 2 of `forward`",
    "the mean of normalised rows is zero but for roundings to bfloat16 between operators, which the backend leaves out",
)];

/// The inputs and outputs of a program that have planned memory.
#[derive(Clone, Copy, Debug)]
pub struct Planning {
    pub inputs: bool,
    pub outputs: bool,
}

/// The folder in an environment variable, or else the one of this name in `target`.
pub fn folder(variable: &str, name: &str) -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(name);
    std::env::var_os(variable).map_or(default, PathBuf::from)
}

/// The recordings of generated models, sorted. They are in the folder in an environment variable, or else in the one of
/// this name in `target`.
///
/// # Panics
/// If there is no such folder, because the models were not generated.
pub fn generated(variable: &str, folder: &str) -> Vec<PathBuf> {
    let models = self::folder(variable, folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(&models)
        .unwrap_or_else(|error| panic!("{}: {error}; make the models first", models.display()))
        .flatten()
        .map(|folder| folder.path().join("cases.json"))
        .filter(|path| path.exists())
        .collect();
    paths.sort();
    paths
}

/// The names in RUSHLIGHT_ONLY, which are separated by commas; `None` without it.
pub fn only() -> Option<Vec<String>> {
    let names = std::env::var("RUSHLIGHT_ONLY").ok().filter(|names| !names.is_empty())?;
    Some(names.split(',').map(str::to_owned).collect())
}

/// The recordings of [`generated`] that RUSHLIGHT_ONLY names, by their folders; all of them without it.
///
/// # Panics
/// Like [`generated`].
pub fn wanted_paths(variable: &str, folder: &str) -> Vec<PathBuf> {
    let mut paths = generated(variable, folder);
    if let Some(names) = only() {
        paths.retain(|path| names.iter().any(|name| path.parent().is_some_and(|folder| folder.ends_with(name))));
    }
    paths
}

/// The recordings at [`wanted_paths`].
///
/// # Panics
/// Like [`generated`], and if a recording cannot be read.
pub fn wanted(variable: &str, folder: &str) -> Vec<Recording> {
    let open = |path: &PathBuf| Recording::open(path).unwrap_or_else(|failure| panic!("{failure}"));
    wanted_paths(variable, folder).iter().map(open).collect()
}

/// The reason why a recording did not pass: the call, and the difference.
pub type Failure = String;

impl Recording {
    /// Reads a recording.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let json: Json = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let name = json["name"].as_str().unwrap_or_default().to_owned();
        Ok(Self { name, folder: path.parent().unwrap_or(Path::new("")).to_owned(), json })
    }

    /// True if there is a program. ExecuTorch's compiler cannot compile every exported model.
    pub fn has_program(&self) -> bool {
        self.json["program"].is_string()
    }

    /// The program file.
    pub fn program(&self) -> PathBuf {
        self.folder.join(self.json["program"].as_str().unwrap_or_default())
    }

    /// The exported programs of each method: the exporter's own output, and its decomposition.
    pub fn exported(&self) -> Vec<(&str, [PathBuf; 2])> {
        let methods = self.json["exported"].as_object().into_iter().flatten();
        let file = |files: &Json, index: usize| self.folder.join(files[index].as_str().unwrap_or_default());
        methods.map(|(method, files)| (method.as_str(), [file(files, 0), file(files, 1)])).collect()
    }

    /// Methods that are called and were not exported, with the constants that they return.
    pub fn constant_methods(&self) -> Result<Vec<(String, Value)>, Failure> {
        let mut found: Vec<(String, Value)> = Vec::new();
        for call in self.json["calls"].as_array().into_iter().flatten() {
            let method = call["method"].as_str().unwrap_or_default();
            if !self.json["exported"][method].is_null() || found.iter().any(|(known, _)| known == method) {
                continue;
            }
            for value in self.values(&call["outputs"])? {
                found.push((method.to_owned(), value.into_value()));
            }
        }
        Ok(found)
    }

    /// Part of the error message of a model that cannot be compiled.
    pub fn unsupported(&self) -> Option<&str> {
        self.json["unsupported"].as_str()
    }

    /// The version of a package that made the files.
    pub fn made_with(&self, package: &str) -> &str {
        self.json["made_with"][package].as_str().unwrap_or_default()
    }

    /// The folder of the recording.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes that ExecuTorch's own compiler plans for each method, if it could compile the model.
    pub fn planned_by_executorch(&self) -> Option<Vec<(String, u64)>> {
        let text = fs::read_to_string(self.folder.join("wheel.json")).ok()?;
        let json: Json = serde_json::from_str(&text).ok()?;
        let bytes = |arenas: &Json| arenas.as_array().into_iter().flatten().filter_map(Json::as_u64).sum();
        Some(
            json["planned_bytes"].as_object()?.iter().map(|(method, arenas)| (method.clone(), bytes(arenas))).collect(),
        )
    }

    /// Returns the inputs and outputs for which ExecuTorch's compiler planned memory in the recorded program. `None` if
    /// there is no program of ExecuTorch's compiler.
    ///
    /// # Errors
    /// If the program cannot be read.
    pub fn planning_by_executorch(&self) -> Result<Option<Planning>, Failure> {
        if !self.has_program() || self.planned_by_executorch().is_none() {
            return Ok(None);
        }
        let file = fs::read(self.program()).map_err(|e| format!("{}: {e}", self.program().display()))?;
        let program = Program::parse(&file).map_err(|e| e.to_string())?;
        let is_planned = |plan: &Plan<'_>, value: u32| match plan.value(value as usize) {
            pte::ValueSpec::Tensor(tensor) => !matches!(tensor.storage, TensorStorage::Unplanned),
            _ => true,
        };
        let inputs = program.methods().all(|plan| plan.inputs().iter().all(|value| is_planned(&plan, value)));
        let outputs = program.methods().all(|plan| plan.outputs().iter().all(|value| is_planned(&plan, value)));
        Ok(Some(Planning { inputs, outputs }))
    }

    /// The reason why this failure is expected on the CPU backend; `None` if it is not.
    pub fn differs_on_cpu(&self, failure: &str) -> Option<&'static str> {
        let known = DIFFERS_ON_CPU.iter().find(|(name, site, _)| self.name == *name && failure.contains(site));
        known.map(|(_, _, reason)| *reason)
    }

    /// Backends that the program needs.
    pub fn backends(&self) -> Vec<&str> {
        self.json["backends"].as_array().into_iter().flatten().filter_map(Json::as_str).collect()
    }

    /// The files with the program's external tensors.
    pub fn data(&self) -> Vec<PathBuf> {
        let names = self.json["data"].as_array().into_iter().flatten().filter_map(Json::as_str);
        names.map(|name| self.folder.join(name)).collect()
    }

    /// Loads the program with its data files, on the reference operators or lowered.
    pub fn load(&self, lower: &str) -> Result<Module, Failure> {
        // Miri cannot map files.
        let mode = if cfg!(miri) { LoadMode::File } else { LoadMode::default() };
        let mut builder = Module::builder().lower(lower).mode(mode);
        for data in self.data() {
            builder = builder.external_data(data);
        }
        builder.load(self.program()).map_err(|e| e.to_string())
    }

    /// Makes every call on one module and compares the outputs. Returns the number of calls.
    pub fn run(&self, module: &mut Module) -> Result<usize, Failure> {
        self.run_with(module, None)
    }

    /// Like [`run`](Self::run), with a tolerance in place of the recorded one. With an infinite one, elements may have
    /// any value but NaN, and everything else must be as recorded.
    pub fn run_with(&self, module: &mut Module, tolerance: Option<f64>) -> Result<usize, Failure> {
        for (i, call) in self.recorded_calls().iter().enumerate() {
            self.call(module, call, tolerance).map_err(|e| format!("call {i}: {e}"))?;
        }
        Ok(self.recorded_calls().len())
    }

    /// The inputs of all calls of exported methods, each with the name of its method.
    pub fn inputs(&self) -> Result<Vec<(String, Vec<Value>)>, Failure> {
        let mut all = Vec::new();
        for call in self.recorded_calls() {
            let method = call["method"].as_str().ok_or("the call names no method")?;
            if !self.json["exported"][method].is_null() {
                let values = self.values(&call["inputs"])?.into_iter().map(Recorded::into_value);
                all.push((method.to_owned(), values.collect()));
            }
        }
        Ok(all)
    }

    fn recorded_calls(&self) -> &[Json] {
        self.json["calls"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// Like [`run`](Self::run). Returns the largest difference, relative to the scale of its output.
    pub fn run_within(&self, module: &mut Module) -> Result<f64, Failure> {
        let calls = self.recorded_calls().iter().enumerate();
        let differences = calls.map(|(i, call)| self.call(module, call, None).map_err(|e| format!("call {i}: {e}")));
        differences.collect::<Result<Vec<_>, _>>().map(|all| all.into_iter().fold(0.0, f64::max))
    }

    /// Like [`run_within`](Self::run_within), with a tolerance in place of the recorded ones.
    pub fn run_within_tolerance(&self, module: &mut Module, tolerance: f64) -> Result<f64, Failure> {
        let mut largest = 0.0f64;
        for (i, call) in self.recorded_calls().iter().enumerate() {
            largest = largest.max(self.call(module, call, Some(tolerance)).map_err(|e| format!("call {i}: {e}"))?);
        }
        Ok(largest)
    }

    /// The signal-to-noise ratio of the worst floating-point output over all calls, in dB; infinite without noise.
    pub fn signal_to_noise(&self, module: &mut Module) -> Result<f64, Failure> {
        let mut powers: Vec<(f64, f64)> = Vec::new();
        for call in self.recorded_calls() {
            let method = call["method"].as_str().ok_or("the call names no method")?;
            let (inputs, expected) = (self.values(&call["inputs"])?, self.values(&call["outputs"])?);
            let views: Vec<Input<'_>> = inputs.iter().map(Recorded::input).collect::<Result<_, _>>()?;
            let outputs = module.run(method, &views).map_err(|e| e.to_string())?;
            if outputs.len() != expected.len() {
                return Err(format!("{} outputs, expected {}", outputs.len(), expected.len()));
            }
            powers.resize(outputs.len(), (0.0, 0.0));
            for (i, (got, want)) in outputs.iter().zip(&expected).enumerate() {
                let (Value::Tensor(got), Recorded::Tensor { tensor: want, .. }) = (got, want) else { continue };
                if (got.dtype(), got.shape()) != (want.dtype(), want.shape()) {
                    return Err(format!("output {i}: got {got:?}, expected {want:?}"));
                }
                if want.dtype().is_floating() {
                    for (got, want) in doubles(got)?.into_iter().zip(doubles(want)?) {
                        powers[i].0 += want * want;
                        powers[i].1 += (got - want) * (got - want);
                    }
                }
            }
        }
        let ratios = powers.iter().filter(|(signal, _)| *signal > 0.0).map(|(signal, noise)| signal / noise);
        // A NaN counts as the worst ratio.
        let worst = ratios.fold(f64::INFINITY, |worst, ratio| if ratio >= worst { worst } else { ratio });
        if worst.is_nan() { Err("the outputs are NaN".to_owned()) } else { Ok(10.0 * worst.log10()) }
    }

    /// The family of a zoo model's architecture.
    pub fn family(&self) -> &str {
        self.json["family"].as_str().unwrap_or_default()
    }

    /// A JSON file beside the recording.
    pub fn beside(&self, file: &str) -> Result<Json, Failure> {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// A figure of the file with the calls.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.json[name].as_f64()
    }

    /// The tolerance of the first call.
    pub fn tolerance(&self) -> Option<f64> {
        self.json["calls"][0]["tolerance"].as_f64()
    }

    /// Makes a call and compares its results. Returns the largest difference, relative to the scale of its output.
    fn call(&self, module: &mut Module, call: &Json, tolerance: Option<f64>) -> Result<f64, Failure> {
        let method = call["method"].as_str().ok_or("the call names no method")?;
        let inputs: Vec<Recorded> = self.values(&call["inputs"])?;
        let expected: Vec<Recorded> = self.values(&call["outputs"])?;
        let tolerance = tolerance.or_else(|| call["tolerance"].as_f64()).ok_or("the call has no tolerance")?;
        let views: Result<Vec<Input<'_>>, Failure> = inputs.iter().map(Recorded::input).collect();
        let outputs = module.run(method, &views?).map_err(|e| e.to_string())?;
        if outputs.len() != expected.len() {
            return Err(format!("{} outputs, expected {}", outputs.len(), expected.len()));
        }
        let mut largest = 0.0f64;
        for (i, (got, want)) in outputs.iter().zip(&expected).enumerate() {
            let difference = want.compare(got, tolerance).map_err(|e| format!("output {i} of `{method}`: {e}"))?;
            largest = largest.max(difference);
        }
        Ok(largest)
    }

    fn values(&self, list: &Json) -> Result<Vec<Recorded>, Failure> {
        list.as_array().into_iter().flatten().map(|value| self.value(value)).collect()
    }

    fn value(&self, value: &Json) -> Result<Recorded, Failure> {
        Ok(match value["kind"].as_str() {
            Some("tensor") => return self.tensor(value),
            Some("int") => Recorded::Int(value["value"].as_i64().ok_or("an int without a value")?),
            Some("float") => Recorded::Double(value["value"].as_f64().ok_or("a float without a value")?),
            Some("bool") => Recorded::Bool(value["value"].as_bool().ok_or("a bool without a value")?),
            Some("none") => Recorded::None,
            other => return Err(format!("a value of kind {other:?}")),
        })
    }

    fn tensor(&self, value: &Json) -> Result<Recorded, Failure> {
        let dtype = dtype(value["dtype"].as_str().unwrap_or_default())?;
        let sizes = |key: &str| -> Vec<usize> {
            value[key].as_array().into_iter().flatten().filter_map(Json::as_u64).map(|v| v as usize).collect()
        };
        let shape = sizes("shape");
        let bytes = if let Some(text) = value["base64"].as_str() {
            base64::engine::general_purpose::STANDARD.decode(text).map_err(|e| e.to_string())?
        } else {
            let file = self.folder.join(value["file"].as_str().unwrap_or_default());
            let archive = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let arrays = npy::read_archive(&archive).map_err(|e| e.to_string())?;
            let name = value["array"].as_str().unwrap_or_default();
            let (_, array) = arrays.iter().find(|(n, _)| n == name).ok_or_else(|| format!("no array {name}"))?;
            array.bytes().to_vec()
        };
        let tensor = Tensor::from_bytes(dtype, &shape, &bytes).map_err(|e| e.to_string())?;
        let dim_order = Some(sizes("dim_order")).filter(|order| !order.is_empty());
        Ok(Recorded::Tensor { tensor, laid_out: dim_order.map(|order| lay_out(dtype, &shape, &bytes, &order)) })
    }
}

/// Reorders the elements for another dimension order; returns strides and bytes.
fn lay_out(dtype: ScalarType, shape: &[usize], bytes: &[u8], order: &[usize]) -> (Vec<usize>, Vec<u8>) {
    let mut strides = vec![1; shape.len()];
    rushlight::runtime::dense_strides(shape, order.iter().copied(), &mut strides);
    let width = dtype.size();
    let mut data = vec![0; bytes.len()];
    for (i, element) in bytes.chunks_exact(width).enumerate() {
        let (mut rest, mut at) = (i, 0);
        for (&size, &stride) in shape.iter().zip(&strides).rev() {
            at += rest % size * stride;
            rest /= size;
        }
        data[at * width..(at + 1) * width].copy_from_slice(element);
    }
    (strides, data)
}

fn dtype(name: &str) -> Result<ScalarType, Failure> {
    Ok(match name {
        "float32" => ScalarType::Float,
        "float64" => ScalarType::Double,
        "float16" => ScalarType::Half,
        "bfloat16" => ScalarType::BFloat16,
        "bool" => ScalarType::Bool,
        "uint8" => ScalarType::Byte,
        "int8" => ScalarType::Char,
        "int16" => ScalarType::Short,
        "int32" => ScalarType::Int,
        "int64" => ScalarType::Long,
        other => return Err(format!("element type {other}")),
    })
}

enum Recorded {
    Tensor { tensor: Tensor, laid_out: Option<(Vec<usize>, Vec<u8>)> },
    Int(i64),
    Double(f64),
    Bool(bool),
    None,
}

impl Recorded {
    fn into_value(self) -> Value {
        match self {
            Self::Tensor { tensor, .. } => Value::Tensor(tensor),
            Self::Int(v) => Value::Int(v),
            Self::Double(v) => Value::Double(v),
            Self::Bool(v) => Value::Bool(v),
            Self::None => Value::None,
        }
    }

    fn input(&self) -> Result<Input<'_>, Failure> {
        Ok(match self {
            Self::Tensor { tensor, laid_out: None } => tensor.view().map_err(|e| e.to_string())?.into(),
            Self::Tensor { tensor, laid_out: Some((strides, data)) } => {
                TensorView::strided(tensor.dtype(), tensor.shape(), strides, data).map_err(|e| e.to_string())?.into()
            }
            Self::Int(v) => Input::Int(*v),
            Self::Double(v) => Input::Double(*v),
            Self::Bool(v) => Input::Bool(*v),
            Self::None => Input::None,
        })
    }

    fn compare(&self, got: &Value, tolerance: f64) -> Result<f64, Failure> {
        let same = match (self, got) {
            (Self::Tensor { tensor: want, .. }, Value::Tensor(got)) => return compare(got, want, tolerance),
            (Self::Int(want), Value::Int(got)) => want == got,
            (Self::Double(want), Value::Double(got)) => want == got,
            (Self::Bool(want), Value::Bool(got)) => want == got,
            (Self::None, Value::None) => true,
            _ => false,
        };
        if same { Ok(0.0) } else { Err(format!("got {got:?}")) }
    }
}

/// Elements as doubles. Exact for all types but the largest 64-bit integers.
fn doubles(tensor: &Tensor) -> Result<Vec<f64>, Failure> {
    fn of<T: rushlight::runtime::Element>(tensor: &Tensor, to: impl Fn(T) -> f64) -> Result<Vec<f64>, Failure> {
        Ok(tensor.as_slice::<T>().map_err(|e| e.to_string())?.iter().map(|&v| to(v)).collect())
    }
    match tensor.dtype() {
        ScalarType::Float => of::<f32>(tensor, f64::from),
        ScalarType::Double => of::<f64>(tensor, |v| v),
        ScalarType::Half => of::<f16>(tensor, f64::from),
        ScalarType::BFloat16 => of::<bf16>(tensor, f64::from),
        ScalarType::Bool => of::<rushlight::runtime::Bool8>(tensor, |v| f64::from(u8::from(v.get()))),
        ScalarType::Byte => of::<u8>(tensor, f64::from),
        ScalarType::Char => of::<i8>(tensor, f64::from),
        ScalarType::Short => of::<i16>(tensor, f64::from),
        ScalarType::Int => of::<i32>(tensor, f64::from),
        ScalarType::Long => of::<i64>(tensor, |v| v as f64),
        other => Err(format!("cannot compare {other}")),
    }
}

/// Returns the largest difference relative to the scale of the expected values. Fails if an element is out of
/// tolerance.
fn compare(got: &Tensor, want: &Tensor, tolerance: f64) -> Result<f64, Failure> {
    if (got.dtype(), got.shape()) != (want.dtype(), want.shape()) {
        return Err(format!("got {got:?}, expected {want:?}"));
    }
    if tolerance == 0.0 && !want.dtype().is_floating() {
        return if got.bytes() == want.bytes() { Ok(0.0) } else { Err("the elements differ".to_owned()) };
    }
    let (got, want) = (doubles(got)?, doubles(want)?);
    let scale = want.iter().filter(|v| v.is_finite()).fold(0.0f64, |scale, v| scale.max(v.abs()));
    let scale = if scale == 0.0 { 1.0 } else { scale };
    let close =
        |got: f64, want: f64| (got.is_nan() && want.is_nan()) || got == want || (got - want).abs() <= tolerance * scale;
    let mut wrong = got.iter().zip(&want).enumerate().filter(|(_, (got, want))| !close(**got, **want));
    let Some((at, (first_got, first_want))) = wrong.next() else {
        let distances = got.iter().zip(&want).map(|(got, want)| (got - want).abs() / scale);
        return Ok(distances.filter(|distance| distance.is_finite()).fold(0.0, f64::max));
    };
    let mut message = String::new();
    let _ = write!(message, "{} of {} elements differ, the first at {at}: ", wrong.count() + 1, got.len());
    let _ = write!(message, "got {first_got}, expected {first_want} (scale {scale}, tolerance {tolerance})");
    Err(message)
}
