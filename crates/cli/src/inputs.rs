//! Inputs from files, literals, or the method's metadata.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use rushlight::{Input, MethodMeta, Tensor, TensorInfo, Value, ValueInfo};
use rushlight_devtools::images;
use rushlight_devtools::inputs::{Fill, generate, tensor};
use rushlight_devtools::npy;

use crate::failure::Failure;
use crate::output;

/// Where inputs come from.
#[derive(Args)]
pub struct Inputs {
    /// An input, in order: a .npy, .png, .jpg or raw .bin file, a number, true, false or none; of a .npz file, all arrays in the
    /// order that they have there, whatever they are called
    #[arg(long = "input", short, value_name = "FILE|VALUE", allow_hyphen_values = true)]
    pub inputs: Vec<String>,

    /// What inputs that are not given are filled with
    #[arg(long, value_enum, default_value = "random")]
    pub fill: FillKind,

    /// Seed of random inputs
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Shape of a generated input with dynamic dimensions, such as 0=1x3x64x64; may be repeated
    #[arg(long, value_name = "INPUT=SHAPE")]
    pub shape: Vec<String>,

    /// How the values of images are scaled after the division by 255
    #[arg(long, value_enum, default_value = "none")]
    pub normalize: Normalize,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum FillKind {
    Random,
    Ones,
    Zeros,
}

impl FillKind {
    fn what(self) -> &'static str {
        match self {
            Self::Random => "random numbers",
            Self::Ones => "ones",
            Self::Zeros => "zeros",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Normalize {
    /// Leave them in 0..1
    None,
    /// Mean and deviation of ImageNet, as torchvision's classifiers expect
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
    /// The files that values come from.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.inputs.iter().map(PathBuf::from)
    }

    /// The values for a method's inputs.
    pub fn values(&self, meta: &MethodMeta) -> Result<Vec<Value>, Failure> {
        let mut values = Vec::new();
        for text in &self.inputs {
            self.read(text, meta, &mut values)?;
        }
        if values.len() > meta.inputs.len() {
            let (name, expected, got) = (&meta.name, meta.inputs.len(), values.len());
            let s = if expected == 1 { "" } else { "s" };
            return Err(Failure::Input(format!("`{name}` takes {expected} input{s}, {got} were given")));
        }
        let fill = match self.fill {
            FillKind::Random => Fill::Random(self.seed),
            FillKind::Ones => Fill::Ones,
            FillKind::Zeros => Fill::Zeros,
        };
        if !values.is_empty() && values.len() < meta.inputs.len() {
            let (name, first, filled) = (&meta.name, values.len(), self.fill.what());
            output::warn(&format!("input {first} of `{name}` and those behind it are not given: they are {filled}"));
        }
        let shapes = self.shapes()?;
        for ((index, _), text) in shapes.iter().zip(&self.shape) {
            let (name, count) = (&meta.name, meta.inputs.len());
            let wrong = |what: String| Err(Failure::Input(format!("--shape {text}: {what}")));
            match meta.inputs.get(*index) {
                _ if *index < values.len() => return wrong(format!("input {index} of `{name}` is given by --input")),
                Some(ValueInfo::Tensor(_)) => {}
                Some(_) => return wrong(format!("input {index} of `{name}` is not a tensor")),
                None => return wrong(format!("`{name}` has {count} inputs, counted from 0")),
            }
        }
        for (index, info) in meta.inputs.iter().enumerate().skip(values.len()) {
            let shape = shapes.iter().find(|(i, _)| *i == index).map(|(_, shape)| shape);
            values.push(match (info, shape) {
                (ValueInfo::Tensor(info), Some(shape)) => Value::Tensor(tensor(info, shape, fill)?),
                _ => generate(info, fill)?,
            });
        }
        Ok(values)
    }

    fn shapes(&self) -> Result<Vec<(usize, Vec<usize>)>, Failure> {
        let parse = |text: &String| {
            let (index, shape) = text.split_once('=')?;
            let shape: Option<Vec<usize>> =
                shape.split('x').filter(|s| !s.is_empty()).map(|size| size.parse().ok()).collect();
            Some((index.parse().ok()?, shape?))
        };
        let wrong = |text| Failure::Input(format!("--shape {text}: expected INPUT=SIZExSIZE, such as 0=1x3x64x64"));
        self.shape.iter().map(|text| parse(text).ok_or_else(|| wrong(text))).collect()
    }

    fn read(&self, text: &str, meta: &MethodMeta, values: &mut Vec<Value>) -> Result<(), Failure> {
        let path = Path::new(text);
        let bytes = || read(path);
        let broken = |error: npy::NpyError| Failure::Input(format!("`{text}`: {error}"));
        let index = values.len();
        let info = meta.inputs.get(index);
        let declared = || match info {
            Some(ValueInfo::Tensor(info)) => Ok(info),
            _ => Err(Failure::Input(format!("input {index} of `{}` is not a tensor, got `{text}`", meta.name))),
        };
        match extension(path).as_str() {
            "npy" => {
                let array = npy::read(&bytes()?).map_err(broken)?;
                values.push(Value::Tensor(as_declared(array, info)?));
            }
            "npz" => {
                let arrays = npy::read_archive(&bytes()?).map_err(broken)?;
                if arrays.is_empty() {
                    return Err(Failure::Input(format!("`{text}` has no arrays")));
                }
                for (_, array) in arrays {
                    let info = meta.inputs.get(values.len());
                    values.push(Value::Tensor(as_declared(array, info)?));
                }
            }
            _ if is_image(path) => {
                values.push(Value::Tensor(image(path, &bytes()?, declared()?, self.normalize)?));
            }
            _ if path.is_dir() => {
                return Err(Failure::Input(format!("cannot read the input `{text}`: it is a folder")));
            }
            "bin" | "raw" => values.push(Value::Tensor(raw(text, &bytes()?, declared()?)?)),
            _ => values.push(literal(text)?),
        }
        Ok(())
    }
}

/// The bytes of a file, or of a pipe: a device may never end.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    #[cfg(unix)]
    if fs::metadata(path).is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_char_device(&file.file_type())) {
        return Err(Failure::Input(format!("cannot read the input `{}`: it is a device", path.display())));
    }
    fs::read(path).map_err(|error| Failure::read(path, error))
}

/// The ending of a file's name, in small letters; empty if it has none.
pub fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Whether a file's name is that of an image.
pub fn is_image(path: &Path) -> bool {
    matches!(extension(path).as_str(), "png" | "jpg" | "jpeg")
}

/// An image as a `[1, C, H, W]` or `[C, H, W]` tensor of floats, resized to the input's size.
pub fn image(path: &Path, bytes: &[u8], info: &TensorInfo, normalize: Normalize) -> Result<Tensor, Failure> {
    images::tensor(bytes, info, normalize.into())
        .map_err(|error| Failure::Input(format!("`{}`: {error}", path.display())))
}

/// bfloat16 is stored as `uint16` in NumPy's files; gives it its type back where the method wants bfloat16.
fn as_declared(array: Tensor, info: Option<&ValueInfo>) -> Result<Tensor, Failure> {
    let wanted = info.and_then(ValueInfo::as_tensor).map(|info| info.dtype);
    if wanted == Some(rushlight::ScalarType::BFloat16) && array.dtype() == rushlight::ScalarType::UInt16 {
        return Ok(Tensor::from_bytes(rushlight::ScalarType::BFloat16, array.shape(), array.bytes())?);
    }
    Ok(array)
}

/// The bytes of a tensor as declared; the first dimension of a dynamic one follows from the length.
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
        Failure::Input(format!("`{text}` has {got} bytes; the input {info} takes {expected}"))
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

/// The values as a method takes them.
pub fn borrow(values: &[Value]) -> Result<Vec<Input<'_>>, Failure> {
    Ok(values.iter().map(Input::try_from).collect::<Result<_, _>>()?)
}
