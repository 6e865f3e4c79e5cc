//! The calls of `operators.txt`, as cases with random values.

use anyhow::{Context, Result, anyhow, bail};
use half::{bf16, f16};
use rushlight::ScalarType;
use rushlight_testing::cases::{Arg, Case, Check, TensorData};

/// One line of the table.
#[derive(Debug)]
pub struct Call {
    pub family: String,
    pub case: Case,
    /// The arguments as they are written.
    pub arguments: String,
}

impl Call {
    /// True if the values of the outputs say nothing.
    pub fn is_unspecified(&self) -> bool {
        self.case.check == Check::Shape
    }
}

/// The calls whose line contains `filter`, in the file's order.
pub fn all(filter: Option<&str>) -> Result<Vec<Call>> {
    let mut family = String::new();
    let mut calls = Vec::new();
    for (number, line) in include_str!("../operators.txt").lines().enumerate() {
        if let Some(comment) = line.strip_prefix("# ") {
            comment.clone_into(&mut family);
        } else if !line.is_empty() && !line.starts_with('#') && filter.is_none_or(|filter| line.contains(filter)) {
            calls.push(call(line, &family).with_context(|| format!("operators.txt:{}", number + 1))?);
        }
    }
    Ok(calls)
}

fn call(line: &str, family: &str) -> Result<Call> {
    let (op, rest) = line.split_once(' ').context("a name and arguments")?;
    let (arguments, outputs) = rest.split_once("->").context("`->` and outputs")?;
    let arguments = arguments.trim();
    // Any seed will do, as long as both runtimes get the same values.
    let mut random = Random(line.len() as u64);
    let (mut args, mut expect) = (Vec::new(), Vec::new());
    for word in words(arguments)? {
        args.push(match word.strip_prefix('!') {
            None => argument(word, &mut random)?,
            Some(word) => {
                let updated = tensor(word, &mut random)?;
                expect.push(Arg::Tensor(updated.clone()));
                Arg::InOut(updated, expect.len() - 1)
            }
        });
    }
    let mut check = Check::Values;
    for word in words(outputs)? {
        match word {
            "~" => check = Check::Shape,
            "=" => {
                let first = args.iter().find_map(|arg| match arg {
                    Arg::Tensor(t) => Some(t.clone()),
                    _ => None,
                });
                expect.push(Arg::Tensor(first.context("`=` without a tensor")?));
                args.push(Arg::Out(expect.len() - 1));
            }
            word => match argument(word, &mut random)? {
                Arg::TensorList(items) => {
                    let start = expect.len();
                    expect.extend(items.into_iter().map(Arg::Tensor));
                    args.push(Arg::OutList((start..expect.len()).collect()));
                }
                output => {
                    expect.push(output);
                    args.push(Arg::Out(expect.len() - 1));
                }
            },
        }
    }
    let case = Case {
        op: op.to_owned(),
        name: line.to_owned(),
        args,
        expect,
        check,
        magnitude: None,
        tolerance: None,
        unspecified: Vec::new(),
    };
    Ok(Call { family: family.to_owned(), case, arguments: arguments.to_owned() })
}

/// Splits at spaces outside braces.
fn words(text: &str) -> Result<Vec<&str>> {
    let mut words = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = match rest.find(['{', ' ']) {
            Some(at) if rest[at..].starts_with('{') => rest.find('}').context("`{` without `}`")? + 1,
            Some(at) => at,
            None => rest.len(),
        };
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    Ok(words)
}

fn argument(word: &str, random: &mut Random) -> Result<Arg> {
    let inside = |word: &'_ str, open: &str, close: char| -> Option<String> {
        Some(word.strip_prefix(open)?.strip_suffix(close)?.to_owned())
    };
    if let Some(items) = inside(word, "?{", '}') {
        let item = |word: &str| if word == "none" { Ok(None) } else { tensor(word, random).map(Some) };
        return Ok(Arg::OptionalTensorList(items.split(' ').map(item).collect::<Result<_>>()?));
    }
    if let Some(items) = inside(word, "{", '}') {
        return Ok(Arg::TensorList(items.split(' ').map(|word| tensor(word, random)).collect::<Result<_>>()?));
    }
    if let Some(items) = inside(word, "[", ']') {
        let items: Vec<&str> = items.split(',').filter(|item| !item.is_empty()).collect();
        return Ok(match items.first() {
            Some(first) if first.contains('.') => {
                Arg::DoubleList(items.iter().map(|item| item.parse()).collect::<Result<_, _>>()?)
            }
            Some(first) if first.parse::<bool>().is_ok() => {
                Arg::BoolList(items.iter().map(|item| item.parse()).collect::<Result<_, _>>()?)
            }
            _ => Arg::IntList(items.iter().map(|item| item.parse()).collect::<Result<_, _>>()?),
        });
    }
    if let Some(text) = inside(word, "\"", '"') {
        return Ok(Arg::Str(text));
    }
    Ok(match word {
        "none" => Arg::None,
        "true" => Arg::Bool(true),
        "false" => Arg::Bool(false),
        _ if word.contains('[') => Arg::Tensor(tensor(word, random)?),
        _ if word.contains('.') => Arg::Double(word.parse().with_context(|| word.to_owned())?),
        _ => Arg::Int(word.parse().with_context(|| word.to_owned())?),
    })
}

fn tensor(word: &str, random: &mut Random) -> Result<TensorData> {
    let malformed = || anyhow!("no tensor: {word}");
    let (name, rest) = word.split_once('[').ok_or_else(malformed)?;
    let (sizes, rest) = rest.split_once(']').ok_or_else(malformed)?;
    let dtype = ScalarType::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(malformed)?;
    let sizes: Vec<usize> =
        sizes.split(',').filter(|size| !size.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
    let (order, range) = match rest.split_once(':') {
        Some((order, range)) => (order, Some(range.split_once("..").ok_or_else(malformed)?)),
        None => (rest, None),
    };
    let dim_order = match order.strip_prefix('@') {
        Some(order) => order.bytes().map(|digit| digit.wrapping_sub(b'0')).collect(),
        None => (0..sizes.len() as u8).collect(),
    };
    let numel: usize = sizes.iter().product();
    let mut uniform = |low: f64, high: f64| (0..numel).map(|_| low + (high - low) * random.uniform()).collect();
    let values: Vec<f64> = match range {
        Some((low, high)) => match high.split_once('/') {
            Some((high, step)) => {
                let (low, high, step): (usize, usize, usize) = (low.parse()?, high.parse()?, step.parse()?);
                (low..high).step_by(step).cycle().take(numel).map(|value| value as f64).collect()
            }
            None => uniform(low.parse()?, high.parse()?),
        },
        None if dtype.is_floating() || dtype.is_complex() => uniform(-1.0, 1.0),
        None if dtype == ScalarType::Bool => uniform(0.0, 2.0),
        None => uniform(0.0, 100.0),
    };
    let bytes = bytes_of(dtype, &values)?;
    Ok(TensorData { dtype, sizes, dim_order, bytes })
}

/// The values in memory; complex numbers have the imaginary part 0.5.
fn bytes_of(dtype: ScalarType, values: &[f64]) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(values.len() * dtype.size());
    for &value in values {
        let integer = value.floor() as i64;
        match dtype {
            ScalarType::Float => bytes.extend((value as f32).to_le_bytes()),
            ScalarType::Double => bytes.extend(value.to_le_bytes()),
            ScalarType::Half => bytes.extend(f16::from_f64(value).to_le_bytes()),
            ScalarType::BFloat16 => bytes.extend(bf16::from_f64(value).to_le_bytes()),
            ScalarType::ComplexFloat => {
                bytes.extend((value as f32).to_le_bytes());
                bytes.extend(0.5f32.to_le_bytes());
            }
            ScalarType::Bool | ScalarType::Byte | ScalarType::Char => bytes.push(integer as u8),
            ScalarType::Short => bytes.extend((integer as i16).to_le_bytes()),
            ScalarType::Int => bytes.extend((integer as i32).to_le_bytes()),
            ScalarType::Long => bytes.extend(integer.to_le_bytes()),
            other => bail!("no values of type {}", other.name()),
        }
    }
    Ok(bytes)
}

/// Sebastiano Vigna's splitmix64.
struct Random(u64);

impl Random {
    /// Uniform on [0, 1).
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use rushlight_testing::program::write;

    use super::*;
    use crate::operators::PLACEMENT;
    use crate::ours::with_session;

    #[test]
    fn the_program_of_every_call_loads() {
        for call in all(None).unwrap() {
            let program = write(&call.case, PLACEMENT).unwrap();
            let inputs: Vec<_> = program.inputs.iter().map(|&t| t.into()).collect();
            with_session(&program.bytes, &inputs, |_| Ok(())).unwrap_or_else(|e| panic!("{}: {e:#}", call.case.name));
        }
    }
}
