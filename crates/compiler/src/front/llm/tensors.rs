//! The weights of a checkpoint by name. They stay in the mapped file, and become floats each time that they are read.

use std::sync::Arc;

use half::{bf16, f16};
use indexmap::IndexMap;
use rushlight_format::ScalarType;

use rushlight_graph::{Bytes, Computed, Constant, ConstantData, Error, TensorType};

/// How the elements of a stored tensor are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    F32,
    F16,
    Bf16,
}

impl Encoding {
    /// Number of elements and of bytes of a block.
    pub const fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
        }
    }

    /// Number of bytes of so many elements; `None` if they are no whole blocks, or too many.
    pub fn bytes(self, elements: usize) -> Option<usize> {
        let (each, bytes) = self.block();
        elements.is_multiple_of(each).then(|| (elements / each).checked_mul(bytes))?
    }

    /// Appends the elements of whole blocks as `f32`.
    fn decode(self, bytes: &[u8], to: &mut Vec<f32>) {
        match self {
            Self::F32 => to.extend(bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x))),
            Self::F16 => to.extend(bytes.as_chunks().0.iter().map(|x| f16::from_le_bytes(*x).to_f32())),
            Self::Bf16 => to.extend(bytes.as_chunks().0.iter().map(|x| bf16::from_le_bytes(*x).to_f32())),
        }
    }
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub name: String,
    /// Row-major.
    pub sizes: Vec<usize>,
    pub encoding: Encoding,
    /// As many bytes as the sizes and the encoding ask for.
    pub bytes: Bytes,
}

impl Tensor {
    /// Checks that the bytes are as many as the sizes need.
    ///
    /// # Errors
    /// `Input` if they are not.
    pub fn new(name: String, sizes: Vec<usize>, encoding: Encoding, bytes: Bytes) -> Result<Self, Error> {
        let elements = sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        let row = sizes.last().copied().unwrap_or(1);
        let needed = elements.and_then(|elements| encoding.bytes(elements));
        // Rows are decoded one at a time.
        if needed != Some(bytes.len()) || encoding.bytes(row).is_none() {
            return Err(damaged(format!("tensor `{name}` of {sizes:?} has the wrong number of bytes"))
                .expected(needed.map_or_else(|| "whole blocks in each row".to_owned(), |needed| format!("{needed}")))
                .got(bytes.len()));
        }
        Ok(Self { name, sizes, encoding, bytes })
    }

    /// The elements.
    pub fn floats(&self) -> Vec<f32> {
        let mut floats = Vec::with_capacity(self.sizes.iter().product());
        self.encoding.decode(&self.bytes, &mut floats);
        floats
    }

    /// The tensor as an `f32` constant. Only `f32` is used as it is stored; everything else is decoded when it is read.
    pub fn constant(self) -> Constant {
        let sizes: Vec<i64> = self.sizes.iter().map(|size| *size as i64).collect();
        let (name, ty) = (self.name.clone(), TensorType::of(ScalarType::Float, &sizes));
        let data = match self.encoding {
            Encoding::F32 => ConstantData::Dense(self.bytes),
            _ => ConstantData::Computed(Arc::new(self)),
        };
        Constant { name, ty, data }
    }
}

impl Computed for Tensor {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        /// Elements that are decoded at a time.
        const PIECE: usize = 1 << 14;
        let (each, bytes) = self.encoding.block();
        to.clear();
        to.reserve(self.sizes.iter().product::<usize>().saturating_mul(size_of::<f32>()));
        let mut floats = Vec::with_capacity(PIECE);
        for piece in self.bytes.chunks(PIECE / each * bytes) {
            floats.clear();
            self.encoding.decode(piece, &mut floats);
            to.extend(floats.iter().flat_map(|float| float.to_le_bytes()));
        }
        Ok(())
    }
}

/// The tensors of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Tensors {
    /// Each with whether it was taken.
    by_name: IndexMap<String, (Tensor, bool)>,
}

impl Tensors {
    /// Adds a tensor.
    ///
    /// # Errors
    /// `Input` for a second one of the same name.
    pub fn add(&mut self, tensor: Tensor) -> Result<(), Error> {
        match self.by_name.insert(tensor.name.clone(), (tensor, false)) {
            None => Ok(()),
            Some((before, _)) => Err(damaged(format!("the checkpoint has two tensors `{}`", before.name))),
        }
    }

    /// True if there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The tensor of this name, if there is one.
    pub fn take_optional(&mut self, name: &str) -> Option<Tensor> {
        let (tensor, is_taken) = self.by_name.get_mut(name)?;
        *is_taken = true;
        Some(tensor.clone())
    }

    /// The tensor of this name, of these sizes.
    ///
    /// # Errors
    /// `Input` if it is not there or has other sizes.
    pub fn take(&mut self, name: &str, sizes: &[usize]) -> Result<Tensor, Error> {
        let tensor = self.take_optional(name).ok_or_else(|| {
            damaged(format!("the checkpoint has no tensor `{name}`"))
                .help("the weights do not belong to the configuration, or files of them are missing")
        })?;
        tensor.of_sizes(sizes)
    }

    /// All tensors, taken or not.
    pub fn into_tensors(self) -> impl Iterator<Item = Tensor> {
        self.by_name.into_values().map(|(tensor, _)| tensor)
    }

    /// Names of the tensors that nobody took.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        self.by_name.iter().filter(|(_, (_, is_taken))| !is_taken).map(|(name, _)| name.as_str())
    }
}

impl Tensor {
    /// The tensor, if it has these sizes.
    ///
    /// # Errors
    /// `Input` if it has others.
    pub fn of_sizes(self, sizes: &[usize]) -> Result<Self, Error> {
        if self.sizes == sizes {
            return Ok(self);
        }
        Err(damaged(format!("tensor `{}` does not fit the configuration", self.name))
            .expected(format!("{sizes:?}"))
            .got(format!("{:?}", self.sizes)))
    }
}

/// An error of a checkpoint that contradicts itself.
pub(super) fn damaged(message: impl Into<String>) -> Error {
    Error::new(rushlight_graph::ErrorKind::Input, message)
}
