//! The operator cases: one JSON object per line in `cases/<family>.jsonl.gz`, written by `tools/op_cases`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use rushlight_format::ScalarType;
use serde_json::Value as Json;

/// One call of one operator with its expected results.
#[derive(Clone, Debug)]
pub struct Case {
    /// The operator's name in a program, for example `aten::add.out`.
    pub op: String,
    /// Name of the case, unique within the operator.
    pub name: String,
    /// The arguments in schema order with the outputs at the end. The return value of the call is not among them.
    pub args: Vec<Arg>,
    /// The expected results that [`Arg::Out`], [`Arg::OutList`] and [`Arg::InOut`] refer to.
    pub expect: Vec<Arg>,
    /// The kind of comparison.
    pub check: Check,
    /// Largest sum of magnitudes that an element accumulates. Rounding errors are proportional to it.
    pub magnitude: Option<f64>,
    /// (relative, absolute) tolerance of this case, in place of its operator's.
    pub tolerance: Option<(f64, f64)>,
    /// Indices of the results whose sizes and values are not compared.
    pub unspecified: Vec<usize>,
}

/// An argument or an expected result.
#[derive(Clone, Debug)]
pub enum Arg {
    None,
    Int(i64),
    Double(f64),
    Bool(bool),
    Str(String),
    IntList(Vec<i64>),
    DoubleList(Vec<f64>),
    BoolList(Vec<bool>),
    Tensor(TensorData),
    TensorList(Vec<TensorData>),
    OptionalTensorList(Vec<Option<TensorData>>),
    /// An output: the expected result of this index states its dtype, sizes and dim order.
    Out(usize),
    /// A list of output tensors.
    OutList(Vec<usize>),
    /// A tensor that the operator reads and writes; its contents afterwards are an expected result.
    InOut(TensorData, usize),
}

/// A dense tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorData {
    pub dtype: ScalarType,
    pub sizes: Vec<usize>,
    /// Dimensions from the outermost to the innermost in memory.
    pub dim_order: Vec<u8>,
    /// Little-endian elements in memory order.
    pub bytes: Vec<u8>,
}

/// The meaning of an expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The values are compared.
    Values,
    /// Only dtype and sizes are compared: the values are unspecified.
    Shape,
    /// Samples of the uniform distribution on [0, 1).
    Uniform,
    /// Samples of the standard normal distribution.
    Normal,
    /// Input elements kept with a probability and scaled, with the mask of the kept ones.
    Dropout,
    /// A permutation of 0..n.
    Permutation,
    /// Singular values and vectors of the input.
    Svd,
    /// Eigenvalues and eigenvectors of the input, which is symmetric.
    Eigh,
    /// Complex eigenvalues and eigenvectors of the input.
    Eig,
}

/// The reason why a file of cases cannot be read: the file, the line and the error.
#[derive(Debug)]
pub struct BadCase(String);

impl fmt::Display for BadCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadCase {}

/// The folder that holds the case files.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// Prefix of the families of composite operators, which programs do not contain.
pub const COMPOSITES: &str = "composites_";

/// The families of operators that programs contain and that have a file, sorted.
pub fn families() -> Result<Vec<String>, BadCase> {
    let listing = std::fs::read_dir(directory()).map_err(|e| BadCase(format!("{}: {e}", directory().display())))?;
    let mut names: Vec<String> = listing
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".jsonl.gz").map(str::to_owned))
        .filter(|name| !name.starts_with(COMPOSITES))
        .collect();
    names.sort();
    Ok(names)
}

/// All cases of a family, in the file's order.
pub fn read(family: &str) -> Result<Vec<Case>, BadCase> {
    let path = directory().join(format!("{family}.jsonl.gz"));
    let at = |line: usize, what: &dyn fmt::Display| BadCase(format!("{}:{line}: {what}", path.display()));
    let file = File::open(&path).map_err(|e| at(0, &e))?;
    let mut cases = Vec::new();
    for (number, line) in BufReader::new(GzDecoder::new(file)).lines().enumerate() {
        let line = line.map_err(|e| at(number + 1, &e))?;
        let json: Json = serde_json::from_str(&line).map_err(|e| at(number + 1, &e))?;
        cases.push(case(&json).map_err(|e| at(number + 1, &e))?);
    }
    Ok(cases)
}

/// The contents of `manifest.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Number of cases of each operator.
    pub operators: BTreeMap<String, usize>,
    /// Operators without cases, each with the reason.
    pub skipped: BTreeMap<String, String>,
}

/// Reads `manifest.json`.
pub fn manifest() -> Result<Manifest, BadCase> {
    let path = directory().join("manifest.json");
    let bad = |what: &dyn fmt::Display| BadCase(format!("{}: {what}", path.display()));
    let json: Json = serde_json::from_reader(File::open(&path).map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
    let entries = |key: &str| json[key].as_object().into_iter().flatten().map(|(name, row)| (name.clone(), row));
    let counts = entries("operators").map(|(name, row)| Ok((name, index(&row["cases"])?)));
    let reasons = entries("skipped").map(|(name, why)| Ok((name, text(why)?.to_owned())));
    Ok(Manifest {
        operators: counts.collect::<Result<_, String>>().map_err(|e| bad(&e))?,
        skipped: reasons.collect::<Result<_, String>>().map_err(|e| bad(&e))?,
    })
}

fn case(json: &Json) -> Result<Case, String> {
    let list = |key: &str| array(&json[key])?.iter().map(arg).collect::<Result<Vec<_>, _>>();
    let tolerance = match &json["tol"] {
        Json::Null => None,
        pair => Some((number(&pair[0])?, number(&pair[1])?)),
    };
    Ok(Case {
        op: text(&json["op"])?.to_owned(),
        name: text(&json["name"])?.to_owned(),
        args: list("args")?,
        expect: list("expect")?,
        check: check(&json["check"])?,
        magnitude: json["mag"].as_f64(),
        tolerance,
        unspecified: if json["unspecified"].is_null() { Vec::new() } else { items(&json["unspecified"], index)? },
    })
}

fn check(json: &Json) -> Result<Check, String> {
    Ok(match json.as_str() {
        None => Check::Values,
        Some("shape") => Check::Shape,
        Some("uniform") => Check::Uniform,
        Some("normal") => Check::Normal,
        Some("dropout") => Check::Dropout,
        Some("permutation") => Check::Permutation,
        Some("svd") => Check::Svd,
        Some("eigh") => Check::Eigh,
        Some("eig") => Check::Eig,
        Some(other) => return Err(format!("unknown check {other:?}")),
    })
}

fn arg(json: &Json) -> Result<Arg, String> {
    if json.is_null() {
        return Ok(Arg::None);
    }
    if let Some(inout) = json.get("inout") {
        return Ok(Arg::InOut(tensor(inout)?, index(&json["expect"])?));
    }
    let (key, value) = json.as_object().and_then(|o| o.iter().next()).ok_or("an argument must be an object")?;
    if json.get("t").is_some() {
        return Ok(Arg::Tensor(tensor(json)?));
    }
    Ok(match key.as_str() {
        "i" => Arg::Int(value.as_i64().ok_or("expected an integer")?),
        "f" => Arg::Double(number(value)?),
        "b" => Arg::Bool(value.as_bool().ok_or("expected a boolean")?),
        "str" => Arg::Str(text(value)?.to_owned()),
        "il" => Arg::IntList(items(value, |v| v.as_i64().ok_or_else(|| format!("{v} is not an integer")))?),
        "dl" => Arg::DoubleList(items(value, number)?),
        "bl" => Arg::BoolList(items(value, |v| v.as_bool().ok_or_else(|| format!("{v} is no boolean")))?),
        "tl" => Arg::TensorList(items(value, tensor)?),
        "otl" => Arg::OptionalTensorList(items(value, |v| if v.is_null() { Ok(None) } else { tensor(v).map(Some) })?),
        "out" => Arg::Out(index(value)?),
        "outl" => Arg::OutList(items(value, index)?),
        other => return Err(format!("unknown argument kind {other:?}")),
    })
}

fn tensor(json: &Json) -> Result<TensorData, String> {
    let name = text(&json["t"])?;
    let dtype = ScalarType::ALL.into_iter().find(|t| t.name() == name).ok_or(format!("unknown dtype {name:?}"))?;
    let sizes = items(&json["s"], index)?;
    let identity = (0..sizes.len() as u8).collect();
    let dim_order = match &json["o"] {
        Json::Null => identity,
        order => items(order, |v| index(v).map(|d| d as u8))?,
    };
    let bytes = STANDARD.decode(text(&json["d"])?).map_err(|e| e.to_string())?;
    let expected = sizes.iter().product::<usize>() * dtype.size();
    if bytes.len() != expected {
        return Err(format!("{} bytes of data for {expected}", bytes.len()));
    }
    Ok(TensorData { dtype, sizes, dim_order, bytes })
}

fn array(json: &Json) -> Result<&Vec<Json>, String> {
    json.as_array().ok_or_else(|| format!("expected a list, got {json}"))
}

fn items<T>(json: &Json, item: impl Fn(&Json) -> Result<T, String>) -> Result<Vec<T>, String> {
    array(json)?.iter().map(item).collect()
}

fn text(json: &Json) -> Result<&str, String> {
    json.as_str().ok_or_else(|| format!("expected a string, got {json}"))
}

fn index(json: &Json) -> Result<usize, String> {
    json.as_u64().map(|v| v as usize).ok_or_else(|| format!("expected an index, got {json}"))
}

/// Reads a number, or the text of one: JSON has no NaN and no infinities.
fn number(json: &Json) -> Result<f64, String> {
    match json {
        Json::String(text) => text.parse().map_err(|_| format!("{text:?} is not a number")),
        other => other.as_f64().ok_or_else(|| format!("{other} is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_counts_the_cases_of_every_file() {
        let mut counts = BTreeMap::new();
        for family in families().unwrap() {
            for case in read(&family).unwrap_or_else(|e| panic!("{e}")) {
                *counts.entry(case.op).or_insert(0) += 1;
            }
        }
        assert_eq!(counts, manifest().unwrap().operators);
        assert!(counts.values().sum::<usize>() > 23_000);
    }
}
