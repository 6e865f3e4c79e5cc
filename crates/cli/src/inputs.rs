//! Inputs from files, literals, or the method's metadata.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use clap::Args;
use rushlight::{Input, MethodMeta, Tensor, TensorInfo, Value, ValueInfo};
use rushlight_devtools::images;
use rushlight_devtools::inputs::{Fill, generate, tensor};
use rushlight_devtools::npy;

use crate::failure::Failure;
use crate::output;

/// The sources of inputs.
#[derive(Args)]
pub struct Inputs {
    /// An input, in order or by its name: a .npy, .png, .jpg or raw .bin file, a number, true, false or none. A .npz
    /// file gives all of its arrays: by name if they have the inputs' names, else in their order in the file
    #[arg(long = "input", short, value_name = "[NAME=]FILE|VALUE", allow_hyphen_values = true)]
    pub inputs: Vec<String>,

    /// Values of inputs that are not given [default: random]
    #[arg(long, value_enum)]
    pub fill: Option<FillKind>,

    /// Seed of random inputs [default: 0]
    #[arg(long)]
    pub seed: Option<u64>,

    /// Shape of a generated input with dynamic dimensions, by name or position, such as image=1x3x64x64 or 0=1x3x64x64.
    /// May be repeated
    #[arg(long, value_name = "INPUT=SHAPE")]
    pub shape: Vec<String>,

    /// Normalization of images after the division by 255
    #[arg(long, value_enum, default_value = "none")]
    pub normalize: Normalize,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum FillKind {
    Random,
    Ones,
    Zeros,
}

/// The name of the values that fill inputs.
fn named(fill: Fill) -> String {
    match fill {
        Fill::Random(seed) => format!("random numbers, of the seed {seed}"),
        Fill::Ones => "ones".to_owned(),
        Fill::Zeros => "zeros".to_owned(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Normalize {
    /// Leave the values in 0..1
    None,
    /// Use the mean and deviation of ImageNet, as torchvision's classifiers expect
    Imagenet,
}

impl From<Normalize> for images::Normalize {
    fn from(normalize: Normalize) -> Self {
        match normalize {
            Normalize::None => Self::None,
            Normalize::Imagenet => Self::Imagenet,
        }
    }
}

impl Inputs {
    /// The files of values, with or without names before them.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let without_name = self.inputs.iter().flat_map(|text| splits(text).map(|(_, value)| value));
        self.inputs.iter().map(String::as_str).chain(without_name).map(PathBuf::from)
    }

    /// True if no input is given.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// The values of a method's inputs. Without any option, these are the result of `example` for the number of inputs, if it
    /// has one.
    pub fn values_or(
        &self,
        meta: &MethodMeta,
        example: impl FnOnce(usize) -> Option<Vec<Value>>,
    ) -> Result<Vec<Value>, Failure> {
        let is_chosen = self.fill.is_some() || self.seed.is_some() || !self.shape.is_empty();
        if !self.is_empty() || is_chosen || meta.inputs.is_empty() {
            return self.values(meta);
        }
        let Some(values) = example(meta.inputs.len()) else { return self.values(meta) };
        output::note(&format!("no inputs of `{}` are given: using the example inputs of the export", meta.name));
        Ok(values)
    }

    /// The values of a method's inputs.
    pub fn values(&self, meta: &MethodMeta) -> Result<Vec<Value>, Failure> {
        let mut given = Given { meta, values: meta.inputs.iter().map(|_| None).collect(), next: 0 };
        for text in &self.inputs {
            self.read(text, &mut given)?;
        }
        let fill = match self.fill {
            None | Some(FillKind::Random) => Fill::Random(self.seed.unwrap_or(0)),
            Some(FillKind::Ones) => Fill::Ones,
            Some(FillKind::Zeros) => Fill::Zeros,
        };
        given.tell_of_missing(&named(fill));
        let shapes = self.shapes(&given)?;
        let made = |(index, value): (usize, Option<Value>)| match (value, meta.inputs.get(index), shapes.get(&index)) {
            (Some(value), ..) => Ok(value),
            (None, Some(ValueInfo::Tensor(info)), Some(shape)) => Ok(Value::Tensor(tensor(info, shape, fill)?)),
            (None, info, _) => Ok(generate(info.unwrap_or(&ValueInfo::None), fill)?),
        };
        given.values.into_iter().enumerate().map(made).collect()
    }

    /// The shapes of generated inputs, by position.
    fn shapes(&self, given: &Given<'_>) -> Result<HashMap<usize, Vec<usize>>, Failure> {
        let mut shapes = HashMap::new();
        for text in &self.shape {
            let wrong = |what: String| Failure::Input(format!("--shape {text}: {what}"));
            let parsed =
                known_name(text, &given.meta.input_names).or_else(|| text.split_once('=')).and_then(|(name, shape)| {
                    let sizes = shape.split('x').filter(|size| !size.is_empty()).map(|size| size.parse().ok());
                    Some((name, sizes.collect::<Option<Vec<usize>>>()?))
                });
            let expected = || wrong("expected INPUT=SIZExSIZE, such as 0=1x3x64x64".to_owned());
            let (name, shape) = parsed.ok_or_else(expected)?;
            let meta = given.meta;
            let index = match (meta.input_index(name), name.parse::<usize>()) {
                (Ok(index), _) | (_, Ok(index)) => index,
                // Without input names, only a position is valid.
                (Err(_), _) if meta.input_names.is_empty() => return Err(expected()),
                (Err(error), _) => return Err(error.into()),
            };
            let (label, method) = (meta.input_label(index), &meta.name);
            match (meta.inputs.get(index), given.values.get(index)) {
                (_, Some(Some(_))) => return Err(wrong(format!("{label} of `{method}` is given by --input"))),
                (Some(ValueInfo::Tensor(_)), _) => {}
                (Some(_), _) => return Err(wrong(format!("{label} of `{method}` is not a tensor"))),
                (None, _) => {
                    let count = meta.inputs.len();
                    return Err(wrong(format!("`{method}` has {count} inputs, counted from 0")));
                }
            }
            shapes.entry(index).or_insert(shape);
        }
        Ok(shapes)
    }

    fn read(&self, text: &str, given: &mut Given<'_>) -> Result<(), Failure> {
        let meta = given.meta;
        // A file name may contain `=`.
        let unknown = || text.split_once('=').filter(|_| !Path::new(text).exists());
        if let Some((name, text)) = known_name(text, &meta.input_names).or_else(unknown) {
            let index = meta.input_index(name)?;
            let value = self.value(text, &meta.input_label(index), meta.inputs.get(index), meta)?;
            return given.set(index, value);
        }
        let path = Path::new(text);
        if extension(path) != "npz" {
            let index = given.next;
            let value = self.value(text, &meta.input_label(index), meta.inputs.get(index), meta)?;
            return given.push(value);
        }
        let arrays = archive(text)?;
        let is_input = |(name, _): &(String, Tensor)| meta.input_names.iter().any(|known| known == name);
        let by_name = arrays.iter().any(is_input);
        for (name, array) in arrays {
            let index = if by_name { meta.input_index(&name)? } else { given.next };
            let value = Value::Tensor(as_declared(array, meta.inputs.get(index))?);
            if by_name { given.set(index, value)? } else { given.push(value)? }
        }
        Ok(())
    }

    /// Reads the value of one input.
    fn value(&self, text: &str, label: &str, info: Option<&ValueInfo>, meta: &MethodMeta) -> Result<Value, Failure> {
        let path = Path::new(text);
        let declared = || match info {
            Some(ValueInfo::Tensor(info)) => Ok(info),
            _ => {
                let what = format!("{label} of `{}` is not a tensor, got `{text}`", meta.name);
                Err(Failure::input(
                    what,
                    format!("give its value, or leave it out: {}", info.map_or_else(String::new, ToString::to_string)),
                ))
            }
        };
        Ok(match extension(path).as_str() {
            "npy" => {
                let array = npy::read(&read(path)?).map_err(|error| Failure::Input(format!("`{text}`: {error}")))?;
                Value::Tensor(as_declared(array, info)?)
            }
            "npz" => Value::Tensor(as_declared(Self::only_array(text, label)?, info)?),
            _ if is_image(path) => Value::Tensor(image(path, &read(path)?, declared()?, self.normalize)?),
            _ if path.is_dir() => {
                let what = format!("cannot read the input `{text}`: it is a folder");
                return Err(Failure::input(
                    what,
                    "give one file of it; `rushlight quantize --calibrate` takes folders of images",
                ));
            }
            "bin" | "raw" => Value::Tensor(raw(text, &read(path)?, declared()?)?),
            _ => literal(text)?,
        })
    }

    /// Reads the only array of a .npz file, for an input with this label.
    fn only_array(text: &str, label: &str) -> Result<Tensor, Failure> {
        let mut arrays = archive(text)?;
        match arrays.pop() {
            Some((_, array)) if arrays.is_empty() => Ok(array),
            last => {
                let names: Vec<String> = arrays.into_iter().chain(last).map(|(name, _)| format!("`{name}`")).collect();
                let what = format!("`{text}` has several arrays, and {label} is one tensor: {}", names.join(", "));
                Err(Failure::input(
                    what,
                    format!("give the file without a name, and each array is one input: `--input {text}`"),
                ))
            }
        }
    }
}

/// The arrays of a .npz file: at least one.
fn archive(text: &str) -> Result<Vec<(String, Tensor)>, Failure> {
    let arrays = npy::read_archive(&read(Path::new(text))?);
    let arrays = arrays.map_err(|error| Failure::Input(format!("`{text}`: {error}")))?;
    if arrays.is_empty() {
        return Err(Failure::input(format!("`{text}` has no arrays"), "write it with `numpy.savez(file, name=array)`"));
    }
    Ok(arrays)
}

/// The name of an input and the text after its `=`. Names may contain `=` too.
fn known_name<'t>(text: &'t str, names: &[String]) -> Option<(&'t str, &'t str)> {
    splits(text).rev().find(|(name, _)| names.iter().any(|known| known == name))
}

/// Splits a text at each of its `=`.
fn splits(text: &str) -> impl DoubleEndedIterator<Item = (&str, &str)> {
    text.match_indices('=').map(|(end, _)| (&text[..end], &text[end + 1..]))
}

/// The inputs of a method that were given so far.
struct Given<'m> {
    meta: &'m MethodMeta,
    /// The values by position.
    values: Vec<Option<Value>>,
    /// The position of the next input without a name.
    next: usize,
}

impl Given<'_> {
    fn push(&mut self, value: Value) -> Result<(), Failure> {
        let index = self.next;
        self.next += 1;
        self.set(index, value)
    }

    fn set(&mut self, index: usize, value: Value) -> Result<(), Failure> {
        let Self { meta, values, .. } = self;
        let name = &meta.name;
        match values.get_mut(index) {
            Some(slot @ None) => *slot = Some(value),
            Some(Some(_)) => {
                let what = format!("{} of `{name}` is given twice", meta.input_label(index));
                return Err(Failure::input(what, "leave out one `--input`, or give each a name: `--input NAME=FILE`"));
            }
            None => {
                let count = meta.inputs.len();
                let s = if count == 1 { "" } else { "s" };
                let labels: Vec<String> = (0..count).map(|index| meta.input_label(index)).collect();
                let what = format!("`{name}` takes {count} input{s}, more were given");
                return Err(Failure::input(what, format!("give one `--input` for each: {}", labels.join(", "))));
            }
        }
        Ok(())
    }

    /// Reports generated inputs: a warning if other inputs are given, a note if none is.
    fn tell_of_missing(&self, filled: &str) {
        let missing = self.values.iter().zip(&self.meta.inputs).enumerate();
        let missing: Vec<String> = missing
            .filter(|(_, (value, info))| value.is_none() && info.as_tensor().is_some())
            .map(|(index, _)| self.meta.input_label(index))
            .collect();
        if missing.is_empty() {
            return;
        }
        let name = &self.meta.name;
        if self.values.iter().all(Option::is_none) {
            output::note(&format!("no inputs of `{name}` are given: filled with {filled}"));
        } else {
            output::warn(&format!("not given of `{name}`: {}; filled with {filled}", missing.join(", ")));
        }
    }
}

/// Reads a file or a pipe. Refuses a device, which may never end.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    #[cfg(unix)]
    if fs::metadata(path).is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_char_device(&file.file_type())) {
        let what = format!("cannot read the input `{}`: it is a device", path.display());
        return Err(Failure::input(what, "copy what it gives to a file first, such as with `head -c`"));
    }
    fs::read(path).map_err(|error| Failure::read(path, error))
}

/// The extension of a file's name, in lower case; empty if it has none.
pub fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// True if a file has the extension of an image.
pub fn is_image(path: &Path) -> bool {
    matches!(extension(path).as_str(), "png" | "jpg" | "jpeg")
}

/// An image as a `[1, C, H, W]` or `[C, H, W]` tensor of floats, resized to the input's size.
pub fn image(path: &Path, bytes: &[u8], info: &TensorInfo, normalize: Normalize) -> Result<Tensor, Failure> {
    let wrong = |error| Failure::Input(format!("`{}`: {error}", path.display()));
    let (tensor, [width, height]) = images::tensor(bytes, info, normalize.into()).map_err(wrong)?;
    if let &[.., rows, columns] = tensor.shape()
        && [columns, rows] != [width, height]
    {
        note_resized(path, [width, height], [columns, rows]);
    }
    Ok(tensor)
}

/// Notes that an image is resized. A folder may have thousands: only the first one is noted.
fn note_resized(path: &Path, from: [usize; 2], to: [usize; 2]) {
    static NOTED: Once = Once::new();
    let [width, height] = from;
    let [columns, rows] = to;
    NOTED.call_once(|| {
        output::note(&format!(
            "`{}` is resized from {width} x {height} to {columns} x {rows}, without a crop; so are other images of another size",
            path.display()
        ));
    });
}

/// Reinterprets `uint16`, as which NumPy's files store bfloat16, if the method declares bfloat16.
fn as_declared(array: Tensor, info: Option<&ValueInfo>) -> Result<Tensor, Failure> {
    let wanted = info.and_then(ValueInfo::as_tensor).map(|info| info.dtype);
    if wanted == Some(rushlight::ScalarType::BFloat16) && array.dtype() == rushlight::ScalarType::UInt16 {
        return Ok(Tensor::from_bytes(rushlight::ScalarType::BFloat16, array.shape(), array.bytes())?);
    }
    Ok(array)
}

/// Reads raw bytes as the declared tensor. The first dimension of a dynamic one follows from the length.
fn raw(text: &str, bytes: &[u8], info: &TensorInfo) -> Result<Tensor, Failure> {
    let mut shape = info.sizes.clone();
    let row: usize = shape.iter().skip(1).product::<usize>() * info.dtype.size();
    if info.is_dynamic
        && let Some(first) = shape.first_mut()
        && row > 0
        && bytes.len().is_multiple_of(row)
    {
        *first = bytes.len() / row;
    }
    Tensor::from_bytes(info.dtype, &shape, bytes).map_err(|_| {
        let (expected, got) = (info.nbytes, bytes.len());
        let what = format!("`{text}` has {got} bytes; the input {info} takes {expected}");
        Failure::input(
            what,
            "write its elements in row-major order, without a header; a .npy file keeps shape and type",
        )
    })
}

fn literal(text: &str) -> Result<Value, Failure> {
    Ok(match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "none" => Value::None,
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(v), _) => Value::Int(v),
            (_, Ok(v)) => Value::Double(v),
            _ => {
                let help = "expected a .npy, .npz, .png, .jpg, .bin or .raw file, a number, true, false or none";
                return Err(Failure::Input(format!("cannot read the input `{text}`: {help}")));
            }
        },
    })
}

/// Borrows the values as a method's inputs.
pub fn borrow(values: &[Value]) -> Result<Vec<Input<'_>>, Failure> {
    Ok(values.iter().map(Input::try_from).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::known_name;

    #[test]
    fn names_may_have_equals_signs() {
        let names = ["batch", "batch.a", "batch.a=b"].map(str::to_owned);
        assert_eq!(known_name("batch.a=b=x=y.npy", &names), Some(("batch.a=b", "x=y.npy")));
        assert_eq!(known_name("batch.a=c.npy", &names), Some(("batch.a", "c.npy")));
        assert_eq!(known_name("x=batch=1", &names), None);
    }
}
