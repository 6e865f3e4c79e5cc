//! The values of parameters, buffers and constants.

use indexmap::IndexMap;
use serde::Deserialize;

use super::error::{Error, ErrorKind};
use super::pickle::{self, Object, PickleValue, Subclass};
use super::schema::{Layout, SymInt, TensorMeta, Text};
use super::stored_tensor::{Storage, StorageData, StoredTensor};
use super::zip::Zip;

/// Values by their path in the model. Each is looked at when it is asked for, so that values which the program does not
/// use cannot be at fault.
#[derive(Debug)]
pub struct Weights<'z> {
    zip: &'z Zip,
    source: Source,
}

/// A value as the archive holds it.
#[derive(Clone, Debug, PartialEq)]
pub enum Weight {
    Tensor(StoredTensor),
    /// A tensor of a class that wraps others; the program reads those by `access_subclass_inner_tensor`.
    Subclass(Subclass),
    /// An object of another allowed class.
    Object(Object),
}

#[derive(Debug)]
enum Source {
    /// An entry for each storage, in a folder.
    Payloads { folder: &'static str, config: String, payloads: IndexMap<String, Payload> },
    /// One pickle for all, which torch wrote until 2.8.
    Pickle { entry: String, values: IndexMap<String, PickleValue> },
}

#[derive(Clone, Debug)]
struct Payload {
    path: String,
    is_param: bool,
    use_pickle: bool,
    /// `None` if it is not a tensor; an error in it matters only to who uses it.
    meta: Option<Result<Meta, ErrorKind>>,
}

#[derive(Clone, Debug)]
struct Meta {
    dtype: rushlight_format::ScalarType,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    storage_offset: i64,
}

impl<'z> Weights<'z> {
    pub(super) const WEIGHTS: &'static str = "data/weights/";
    pub(super) const CONSTANTS: &'static str = "data/constants/";

    /// Reads `config`, which describes entries of `folder`.
    pub(super) fn from_config(zip: &'z Zip, folder: &'static str, config: &str) -> Result<Self, Error> {
        let text = zip.get_text(config)?;
        let text = std::str::from_utf8(&text).unwrap_or_default();
        let parsed =
            serde_json::from_str::<PayloadConfig<'_>>(text).map_err(|error| Error::json(config, text, &error))?;
        let payloads = parsed.config.into_iter().map(|(name, payload)| (name.to_string(), payload.into())).collect();
        Ok(Self { zip, source: Source::Payloads { folder, config: config.to_owned(), payloads } })
    }

    /// Reads `entry`, a file of `torch.save` with a dictionary.
    pub(super) fn from_pickle(zip: &'z Zip, entry: &str) -> Result<Self, Error> {
        let mut values = IndexMap::new();
        let file = zip.get(entry)?;
        // Without constants, older versions write an empty entry.
        if !file.is_empty() {
            let PickleValue::Dict(entries) = pickle::load(file, entry)? else {
                return Err(Error::new(entry, ErrorKind::CustomObject));
            };
            for (key, value) in entries {
                if let PickleValue::String(key) = key {
                    values.insert(key.to_string(), value);
                }
            }
        }
        Ok(Self { zip, source: Source::Pickle { entry: entry.to_owned(), values } })
    }

    /// No values at all.
    pub(super) fn empty(zip: &'z Zip) -> Self {
        Self { zip, source: Source::Pickle { entry: String::new(), values: IndexMap::new() } }
    }

    /// Paths in the model, in the order of the archive.
    pub fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match &self.source {
            Source::Payloads { payloads, .. } => Box::new(payloads.keys().map(String::as_str)),
            Source::Pickle { values, .. } => Box::new(values.keys().map(String::as_str)),
        }
    }

    pub fn contains(&self, name: &str) -> bool {
        match &self.source {
            Source::Payloads { payloads, .. } => payloads.contains_key(name),
            Source::Pickle { values, .. } => values.contains_key(name),
        }
    }

    /// True if the archive calls it a parameter; `None` where it does not say.
    pub fn is_parameter(&self, name: &str) -> Option<bool> {
        match &self.source {
            Source::Payloads { payloads, .. } => payloads.get(name).map(|payload| payload.is_param),
            Source::Pickle { .. } => None,
        }
    }

    /// The archive's entry for the storage of a value; `None` where all values are in one.
    pub fn storage(&self, name: &str) -> Option<&str> {
        match &self.source {
            Source::Payloads { payloads, .. } => payloads.get(name).map(|payload| payload.path.as_str()),
            Source::Pickle { .. } => None,
        }
    }

    /// The value at a path. Elements of tensors are not copied.
    pub fn get(&self, name: &str) -> Result<Weight, Error> {
        match &self.source {
            Source::Payloads { folder, config, payloads } => {
                let missing = || Error::new(config, ErrorKind::UnknownWeight { name: name.to_owned() });
                let payload = payloads.get(name).ok_or_else(missing)?;
                self.payload(&format!("{folder}{}", payload.path), payload).map_err(|error| error.for_tensor(name))
            }
            Source::Pickle { entry, values } => {
                let missing = || Error::new(entry, ErrorKind::UnknownWeight { name: name.to_owned() });
                weight(entry, values.get(name).ok_or_else(missing)?.clone()).map_err(|error| error.for_tensor(name))
            }
        }
    }

    fn payload(&self, entry: &str, payload: &Payload) -> Result<Weight, Error> {
        let file = self.zip.get(entry)?;
        if payload.path.starts_with("custom_obj_") || payload.path.starts_with("opaque_obj_") {
            return Err(Error::new(entry, ErrorKind::CustomObject));
        }
        if payload.use_pickle {
            return weight(entry, pickle::load(file, entry)?);
        }
        let new = |kind| Error::new(entry, kind);
        let meta = payload.meta.as_ref().ok_or_else(|| new(ErrorKind::CustomObject))?;
        let Meta { dtype, sizes, strides, storage_offset } = meta.as_ref().map_err(|kind| new(kind.clone()))?;
        let is_fake = file.is_empty() && !sizes.contains(&0);
        let data = if is_fake { StorageData::Zeros } else { StorageData::Bytes(file) };
        let storage = Storage { name: entry.to_owned(), data };
        StoredTensor::new(*dtype, sizes, strides, *storage_offset, storage).map(Weight::Tensor).map_err(new)
    }
}

fn weight(entry: &str, value: PickleValue) -> Result<Weight, Error> {
    match value {
        PickleValue::Tensor(tensor) => Ok(Weight::Tensor(*tensor)),
        PickleValue::Subclass(subclass) => Ok(Weight::Subclass(*subclass)),
        PickleValue::Object(object) => Ok(Weight::Object(*object)),
        _ => Err(Error::new(entry, ErrorKind::CustomObject)),
    }
}

#[derive(Deserialize)]
struct PayloadConfig<'a> {
    #[serde(borrow)]
    config: IndexMap<Text<'a>, PayloadMeta<'a>>,
}

#[derive(Deserialize)]
struct PayloadMeta<'a> {
    #[serde(borrow)]
    path_name: Text<'a>,
    #[serde(default)]
    is_param: bool,
    #[serde(default)]
    use_pickle: bool,
    #[serde(default)]
    tensor_meta: Option<TensorMeta<'a>>,
}

impl From<PayloadMeta<'_>> for Payload {
    fn from(payload: PayloadMeta<'_>) -> Self {
        let PayloadMeta { path_name, is_param, use_pickle, tensor_meta } = payload;
        Self { path: path_name.to_string(), is_param, use_pickle, meta: tensor_meta.as_ref().map(Meta::new) }
    }
}

impl Meta {
    fn new(meta: &TensorMeta<'_>) -> Result<Self, ErrorKind> {
        if meta.layout != Layout::STRIDED {
            return Err(ErrorKind::Layout { code: meta.layout.0 });
        }
        let dtype = meta.dtype.scalar_type().ok_or(ErrorKind::ScalarType { code: meta.dtype.0 })?;
        let ints = |list: &[SymInt<'_>]| list.iter().map(SymInt::as_int).collect::<Option<Vec<_>>>();
        let (Some(sizes), Some(strides), Some(storage_offset)) =
            (ints(&meta.sizes), ints(&meta.strides), meta.storage_offset.as_int())
        else {
            return Err(ErrorKind::SymbolicSize);
        };
        Ok(Self { dtype, sizes, strides, storage_offset })
    }
}
