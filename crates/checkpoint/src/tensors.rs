//! The weights of a checkpoint by name. They stay in the mapped file, and are decoded to floats each time that they are
//! read.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use indexmap::IndexMap;
use rushlight_format::ScalarType;

use rushlight_graph::{
    Bytes, Computed, Constant, ConstantData, Error, Granularity, Parameters, Products, Quantization, QuantizedConstant,
    TensorType,
};

use crate::blocks::{Block, GroupNumbers, Groups};

/// The encoding of a stored tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Little-endian, as the other two.
    F32,
    F16,
    Bf16,
    /// Blocks of GGUF along rows.
    Block(Block),
}

impl Encoding {
    /// Number of elements and of bytes of a block.
    pub const fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Block(block) => block.size(),
        }
    }

    /// Number of bytes of `elements`. `None` if they do not fill whole blocks, or on overflow.
    pub fn bytes(self, elements: usize) -> Option<usize> {
        let (each, bytes) = self.block();
        elements.is_multiple_of(each).then(|| (elements / each).checked_mul(bytes))?
    }

    /// Appends the elements of whole blocks as `f32`.
    fn decode(self, bytes: &[u8], to: &mut Vec<f32>) {
        match self {
            Self::F32 => to.extend(bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x))),
            Self::F16 => to.extend(bytes.as_chunks().0.iter().map(|x| widened(u16::from_le_bytes(*x)))),
            Self::Bf16 => to.extend(bytes.as_chunks().0.iter().map(|x| {
                // A bf16 is the upper half of an `f32`.
                f32::from_bits(u32::from(u16::from_le_bytes(*x)) << 16)
            })),
            Self::Block(block) => block.decode(bytes, to),
        }
    }
}

/// Widens the bits of an `f16`. It has no branch, so loops over it vectorize.
fn widened(half: u16) -> f32 {
    /// Two to the power of the difference between the exponents' biases.
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let (sign, rest) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7FFF) << 13);
    // The product is exact, also for subnormal numbers.
    let finite = (f32::from_bits(rest) * SCALE).to_bits();
    let quiet = if rest > 0x1F << 23 { 1 << 22 } else { 0 };
    let bits = if rest >= 0x1F << 23 { rest | 0xFF << 23 | quiet } else { finite };
    f32::from_bits(sign | bits)
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The name in the file.
    pub name: String,
    /// Row-major.
    pub sizes: Vec<usize>,
    pub encoding: Encoding,
    /// The bytes, as many as the sizes and the encoding need.
    pub bytes: Bytes,
    /// Number of heads whose rows llama.cpp reordered; `None` if the rows are in their usual order.
    pub paired_heads: Option<usize>,
}

impl Tensor {
    /// Checks that the number of bytes matches the sizes.
    ///
    /// # Errors
    /// `Input` if it does not.
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
        Ok(Self { name, sizes, encoding, bytes, paired_heads: None })
    }

    /// The elements.
    pub fn floats(&self) -> Vec<f32> {
        let mut floats = Vec::with_capacity(self.sizes.iter().product());
        self.pieces().for_each(|piece| self.encoding.decode(piece, &mut floats));
        floats
    }

    /// Splits the bytes into runs of rows, in the order of the elements.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        /// Elements that are decoded at a time.
        const PIECE: usize = 1 << 14;
        let rows = self.sizes.first().copied().unwrap_or(1).max(1);
        let row = self.bytes.len() / rows;
        let width = self.paired_heads.map(|heads| rows / heads.max(1)).filter(|width| width.is_multiple_of(2));
        let (size, width) = match width {
            Some(width) => (row, width.max(2)),
            None => {
                let elements = self.sizes.iter().skip(1).product::<usize>();
                (PIECE.checked_div(elements).unwrap_or(rows).max(1) * row, 0)
            }
        };
        let count = self.bytes.len().checked_div(size).map_or(0, |_| self.bytes.len().div_ceil(size));
        (0..count).map(move |index| {
            // RoPE pairs are adjacent rows in the file, and half a head apart here.
            let at = match width {
                0 => index,
                _ => index - index % width + 2 * (index % width % (width / 2)) + index % width / (width / 2),
            };
            let start = at * size;
            self.bytes.get(start..self.bytes.len().min(start + size)).unwrap_or_default()
        })
    }

    /// The tensor as an `f32` constant. An `f32` tensor is used as it is stored; all others are decoded when they are
    /// read.
    pub fn constant(self) -> Constant {
        let sizes: Vec<i64> = self.sizes.iter().map(|size| *size as i64).collect();
        let (name, ty) = (self.name.clone(), TensorType::of(ScalarType::Float, &sizes));
        let data = match self.encoding {
            Encoding::F32 if self.paired_heads.is_none() => ConstantData::Dense(self.bytes),
            Encoding::Block(block) if self.sizes.len() == 2 => {
                ConstantData::Computed(Arc::new(Blocks { tensor: self, block, quantized: OnceLock::new() }))
            }
            _ => ConstantData::Computed(Arc::new(self)),
        };
        Constant { name, ty, data }
    }

    /// Stacks the matrices of a tensor of three dimensions into one matrix with the rows of all.
    #[must_use]
    pub fn stacked(mut self) -> Self {
        if let [count, rows, columns] = *self.sizes {
            self.sizes = vec![count * rows, columns];
        }
        self
    }

    /// Returns some rows; `None` if the rows are not contiguous in the file.
    fn part(&self, rows: Range<usize>) -> Option<Self> {
        let count = *self.sizes.first()?;
        let row = self.bytes.len().checked_div(count)?;
        // The rows of a head are reordered in the file.
        let width = self.paired_heads.map_or(1, |heads| (count / heads.max(1)).max(1));
        if !rows.start.is_multiple_of(width) || !rows.end.is_multiple_of(width) {
            return None;
        }
        let bytes = self.bytes.slice(rows.start.checked_mul(row)?..rows.end.checked_mul(row)?)?;
        let mut sizes = self.sizes.clone();
        *sizes.first_mut()? = rows.len();
        let paired_heads = self.paired_heads.map(|_| rows.len() / width);
        Some(Self { name: self.name.clone(), sizes, bytes, paired_heads, encoding: self.encoding })
    }
}

impl Computed for Tensor {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        to.clear();
        to.reserve(self.sizes.iter().product::<usize>().saturating_mul(size_of::<f32>()));
        let mut floats = Vec::new();
        for piece in self.pieces() {
            floats.clear();
            self.encoding.decode(piece, &mut floats);
            match bytemuck::try_cast_slice(&floats) {
                Ok(bytes) if cfg!(target_endian = "little") => to.extend_from_slice(bytes),
                _ => floats.iter().for_each(|float| to.extend_from_slice(&float.to_le_bytes())),
            }
        }
        Ok(())
    }

    fn for_floats(&self, see: &mut dyn FnMut(&[f32])) -> Result<(), Error> {
        let mut floats = Vec::new();
        for piece in self.pieces() {
            floats.clear();
            self.encoding.decode(piece, &mut floats);
            see(&floats);
        }
        Ok(())
    }

    fn rows(&self, rows: Range<usize>) -> Option<Arc<dyn Computed>> {
        Some(Arc::new(self.part(rows)?))
    }
}

/// A matrix of blocks. Backends that multiply integers can read the file's own.
struct Blocks {
    tensor: Tensor,
    block: Block,
    quantized: OnceLock<QuantizedConstant>,
}

impl Blocks {
    fn quantize(&self) -> QuantizedConstant {
        let Self { tensor, block, .. } = self;
        let mut groups = Groups::default();
        tensor.pieces().for_each(|piece| block.groups(piece, &mut groups));
        let each = block.size().0 / block.group();
        let numbers = |GroupNumbers { units, factors }: GroupNumbers| -> Parameters<f32> {
            if factors.is_empty() { units.into() } else { Products { factors, units, each }.into() }
        };
        let scales = numbers(groups.scales);
        let has_minima = !groups.minima.units.is_empty();
        let quantization = Quantization {
            granularity: Granularity::Block { shape: vec![1, block.group() as u32] },
            zero_points: Parameters::same(0, scales.len()),
            scales,
            range: block.range(),
        };
        let sizes: Vec<i64> = tensor.sizes.iter().map(|size| *size as i64).collect();
        let ty = TensorType { quantization: Some(Arc::new(quantization)), ..TensorType::of(ScalarType::Char, &sizes) };
        let data = ConstantData::Computed(Arc::new(Integers { tensor: tensor.clone(), block: *block }));
        let integers = Constant { name: tensor.name.clone(), ty, data };
        QuantizedConstant { integers, minima: has_minima.then(|| numbers(groups.minima)) }
    }
}

impl Computed for Blocks {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        self.tensor.compute(to)
    }

    fn for_floats(&self, see: &mut dyn FnMut(&[f32])) -> Result<(), Error> {
        self.tensor.for_floats(see)
    }

    fn rows(&self, rows: Range<usize>) -> Option<Arc<dyn Computed>> {
        self.tensor.rows(rows)
    }

    fn quantized(&self) -> Option<&QuantizedConstant> {
        Some(self.quantized.get_or_init(|| self.quantize()))
    }

    fn is_quantized(&self) -> bool {
        true
    }
}

/// The integers of a matrix of blocks.
struct Integers {
    tensor: Tensor,
    block: Block,
}

impl Computed for Integers {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        to.clear();
        to.reserve(self.tensor.sizes.iter().product());
        self.tensor.pieces().for_each(|piece| self.block.integers(piece, to));
        Ok(())
    }

    fn rows(&self, rows: Range<usize>) -> Option<Arc<dyn Computed>> {
        Some(Arc::new(Self { tensor: self.tensor.part(rows)?, block: self.block }))
    }
}

/// The tensors of a checkpoint.
#[derive(Debug, Default)]
pub struct Tensors {
    /// Each tensor, with a flag that is true once it was taken.
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

    /// The sizes of the tensor of this name, if there is one.
    pub fn sizes(&self, name: &str) -> Option<&[usize]> {
        self.by_name.get(name).map(|(tensor, _)| tensor.sizes.as_slice())
    }

    /// Changes the tensor of this name, if there is one.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut Tensor)) {
        if let Some((tensor, _)) = self.by_name.get_mut(name) {
            change(tensor);
        }
    }

    /// Takes the tensor of this name, if there is one.
    pub fn take_optional(&mut self, name: &str) -> Option<Tensor> {
        let (tensor, is_taken) = self.by_name.get_mut(name)?;
        *is_taken = true;
        Some(tensor.clone())
    }

    /// Takes the tensor of this name, which must have these sizes.
    ///
    /// # Errors
    /// `Input` if it is missing or has other sizes.
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

    /// Names of the tensors that were not taken.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        self.by_name.iter().filter(|(_, (_, is_taken))| !is_taken).map(|(name, _)| name.as_str())
    }
}

impl Tensor {
    /// Returns the tensor if it has these sizes.
    ///
    /// # Errors
    /// `Input` if it has other sizes.
    pub fn of_sizes(self, sizes: &[usize]) -> Result<Self, Error> {
        if self.sizes == sizes {
            return Ok(self);
        }
        Err(damaged(format!("tensor `{}` does not fit the configuration", self.name))
            .expected(format!("{sizes:?}"))
            .got(format!("{:?}", self.sizes)))
    }
}

/// Returns the error for a checkpoint that contradicts itself.
pub fn damaged(message: impl Into<String>) -> Error {
    Error::new(rushlight_graph::ErrorKind::Input, message)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "tests fail by panics")]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn all_halves_are_widened() {
        for bits in 0..=u16::MAX {
            assert_eq!(widened(bits).to_bits(), f16::from_bits(bits).to_f32().to_bits(), "{bits:x}");
        }
    }

    #[test]
    fn rows_of_paired_heads_come_back_in_order() {
        // llama.cpp stores the rows of a head of four as 0, 2, 1, 3.
        let numbers = [0.0f32, 2.0, 1.0, 3.0, 10.0, 12.0, 11.0, 13.0];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut tensor = Tensor::new("q".into(), vec![8, 1], Encoding::F32, bytes.into()).unwrap();
        tensor.paired_heads = Some(2);
        let expected = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0];
        assert_eq!(tensor.floats(), expected);
        let constant = tensor.constant();
        assert_eq!(constant.floats().unwrap(), expected);
        assert_eq!(constant.rows(4..8).unwrap().floats().unwrap(), expected[4..]);
        assert!(constant.rows(2..8).is_none());
    }

    #[test]
    fn matrices_of_blocks_know_their_integers() {
        let blocks =
            [Block::Q4_0, Block::Q4_1, Block::Q5_0, Block::Q5_1, Block::Q8_0, Block::Q4K, Block::Q5K, Block::Q6K];
        for block in blocks {
            let sizes = [8, 512];
            let count = Encoding::Block(block).bytes(8 * 512).unwrap();
            // The scales are finite numbers.
            let bytes: Vec<u8> = (0..count).map(|at| (at * 37 % 61) as u8).collect();
            let mut tensor = Tensor::new("q".into(), sizes.to_vec(), Encoding::Block(block), bytes.into()).unwrap();
            tensor.paired_heads = Some(2);
            let constant = tensor.constant();
            let turned = constant.permuted(&[1, 0]).unwrap();
            for constant in [&constant, &turned] {
                let quantized = constant.quantized().unwrap();
                let (least, greatest) = quantized.quantization().unwrap().range;
                assert!(
                    quantized.read().unwrap().iter().all(|integer| (least..=greatest).contains(integer)),
                    "{block:?}"
                );
                let mut floats = Vec::new();
                quantized.compute(&mut floats).unwrap();
                assert!(*floats == *constant.read().unwrap(), "{block:?}");
            }
            assert!(turned.permuted(&[1, 0]).unwrap().quantized().is_some());
            let integers = &constant.quantized().unwrap().integers;
            let rows = integers.rows(4..8).unwrap();
            assert_eq!(*rows.read().unwrap(), integers.read().unwrap()[4 * 512..]);
            assert!(integers.rows(2..8).is_none());
        }
    }
}
