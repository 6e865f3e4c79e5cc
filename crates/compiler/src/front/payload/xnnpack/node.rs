//! Nodes of a payload, one by one.

use rushlight_format::ScalarType;
use rushlight_format::payload::xnnpack::{Binary, Node, NodeFlags, Operation, PoolingKind, Unary};

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, ValueId};

use super::Site;
use super::values::{Values, rounded};

/// Adds nodes to the graph.
pub(super) struct Nodes<'v, 'a> {
    pub site: &'v mut dyn Site,
    pub values: &'v mut Values<'a>,
}

impl Nodes<'_, '_> {
    /// Adds the operators that compute a node.
    pub fn add(&mut self, node: &Node<'_>) -> Result<(), Error> {
        check_flags(node)?;
        let (output, value) = match node.operation {
            Operation::Unary { unary: Unary::Convert, input, output } => {
                self.values.dtype(output)?;
                (output, self.read(input)?)
            }
            Operation::Unary { unary: Unary::GlobalAveragePooling, input, output } => {
                (output, self.global_average(node.flags, input)?)
            }
            Operation::Unary { unary, input, output } => (output, self.unary(unary, input)?),
            Operation::Binary { binary: Binary::BatchMatrixMultiply, inputs, output } => {
                (output, self.batch_product(node.flags, inputs)?)
            }
            Operation::Binary { binary, inputs, output } => (output, self.binary(binary, inputs)?),
            Operation::Elu { alpha, input, output } => {
                let input = self.read(input)?;
                (output, self.site.one(aten::ELU, vec![input.into(), f64::from(alpha).into()])?)
            }
            Operation::LeakyRelu { negative_slope, input, output } => {
                let input = self.read(input)?;
                (output, self.site.one(aten::LEAKY_RELU, vec![input.into(), f64::from(negative_slope).into()])?)
            }
            Operation::FullyConnected { input, filter, bias, output } => {
                (output, self.fully_connected(node.flags, input, filter, bias)?)
            }
            Operation::Convolution(convolution) => (convolution.output, self.convolution(&convolution)?),
            Operation::Pooling(pooling) => (pooling.output, self.pooling(&pooling)?),
            Operation::ArgMaxPooling { padding, window, input, value, index } => {
                if !padding.is_empty() {
                    return Err(Error::unsupported("positions of maxima in padded images"));
                }
                let (largest, position) = self.arg_max(window, input)?;
                // Positions have the integers of PyTorch, whatever the payload says; the program's outputs decide.
                self.values.write(index, position)?;
                (value, largest)
            }
            Operation::Concatenate { axis, inputs, output } => (output, self.concatenate(axis, &inputs)?),
            Operation::Reshape { shape, input, output } => (output, self.reshape(shape, input)?),
            Operation::Transpose { perm, input, output } => (output, self.transpose(perm, input)?),
            Operation::Slice { offsets, sizes, input, output } => (output, self.slice(offsets, sizes, input)?),
            Operation::Pad { before, after, value, input, output } => {
                (output, self.pad(before, after, f64::from(value), input)?)
            }
            Operation::ResizeBilinear { size, input, output } => {
                (output, self.resize_bilinear(node.flags, size, input)?)
            }
            _ => return Err(Error::unsupported(format!("the node {} of XNNPACK", node.name()))),
        };
        let value = self.clamp_output(node, value)?;
        let (from, dtype) = (self.site.tensor(value)?.dtype, self.values.dtype(output)?);
        let value = self.cast(value, dtype)?;
        match rounded(self.site, value, self.values.rounding(output, from)?)? {
            Some((integers, value)) => self.values.write_integers(output, integers, value),
            None => self.values.write(output, value),
        }
    }

    /// The value of a tensor.
    pub fn read(&mut self, id: u32) -> Result<ValueId, Error> {
        self.values.read(id, self.site)
    }

    /// The value of a tensor, in the dtype of another.
    pub fn read_like(&mut self, id: u32, like: ValueId) -> Result<ValueId, Error> {
        let value = self.read(id)?;
        let dtype = self.site.tensor(like)?.dtype;
        self.cast(value, dtype)
    }

    pub fn cast(&mut self, value: ValueId, dtype: ScalarType) -> Result<ValueId, Error> {
        if self.site.tensor(value)?.dtype == dtype {
            return Ok(value);
        }
        self.site.one_with(aten::_TO_COPY, vec![value.into()], &[("dtype", dtype.into())])
    }

    /// Bounds of the output, which are fused into some nodes and ignored by the others.
    fn clamp_output(&mut self, node: &Node<'_>, value: ValueId) -> Result<ValueId, Error> {
        let takes_bounds = match node.operation {
            Operation::FullyConnected { .. } | Operation::Convolution(_) | Operation::Pooling(_) => true,
            Operation::Unary { unary, .. } => matches!(unary, Unary::Clamp | Unary::GlobalAveragePooling),
            Operation::Binary { binary, .. } => {
                matches!(binary, Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide)
            }
            _ => false,
        };
        let Some((min, max)) = node.output_min_max.filter(|_| takes_bounds) else { return Ok(value) };
        match (min, max) {
            (f32::NEG_INFINITY, f32::INFINITY) => Ok(value),
            (0.0, f32::INFINITY) => self.site.one(aten::RELU, vec![value.into()]),
            _ => {
                let bound = |bound: f32| if bound.is_infinite() { Arg::None } else { Arg::Float(f64::from(bound)) };
                self.site.one(aten::CLAMP, vec![value.into(), bound(min), bound(max)])
            }
        }
    }
}

/// Refuses flags that change the result of a node and are not translated.
fn check_flags(node: &Node<'_>) -> Result<(), Error> {
    let known = match node.operation {
        Operation::FullyConnected { .. } | Operation::Binary { binary: Binary::BatchMatrixMultiply, .. } => {
            NodeFlags::TRANSPOSE
        }
        Operation::ResizeBilinear { .. } => NodeFlags::ALIGN_CORNERS,
        Operation::Pooling(pooling) => match pooling.kind {
            PoolingKind::Average | PoolingKind::Max => NodeFlags::KEEP_DIMS,
        },
        Operation::Unary { unary: Unary::GlobalAveragePooling, .. } => NodeFlags::KEEP_DIMS,
        _ => 0,
    };
    let unknown = node.flags.0 & !known;
    if unknown == 0 {
        return Ok(());
    }
    Err(Error::unsupported(format!("the flags {unknown:#x} of the node {} of XNNPACK", node.name())))
}
