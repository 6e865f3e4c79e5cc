//! Elementwise nodes, products and softmax.

use rushlight_format::ScalarType;
use rushlight_format::payload::xnnpack::{Binary, NodeFlags, Unary};

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, ValueId};

use super::node::Nodes;

impl Nodes<'_, '_> {
    pub(super) fn unary(&mut self, unary: Unary, input: u32) -> Result<ValueId, Error> {
        let input = self.read(input)?;
        let name = match unary {
            // A clamp is the bounds of its output.
            Unary::Clamp | Unary::Convert | Unary::Copy => return Ok(input),
            Unary::Softmax => {
                return self.site.one(aten::_SOFTMAX, vec![input.into(), (-1).into(), false.into()]);
            }
            Unary::Square => return self.site.one(aten::MUL_TENSOR, vec![input.into(), input.into()]),
            Unary::GlobalAveragePooling => {
                return Err(Error::unsupported("a mean of images as an elementwise function"));
            }
            Unary::Abs => aten::ABS,
            Unary::Ceiling => aten::CEIL,
            Unary::Cos => aten::COS,
            Unary::Exp => aten::EXP,
            Unary::Floor => aten::FLOOR,
            Unary::Gelu => aten::GELU,
            Unary::Hardswish => aten::HARDSWISH,
            Unary::Log => aten::LOG,
            Unary::Negate => aten::NEG,
            Unary::ReciprocalSquareRoot => aten::RSQRT,
            Unary::Sigmoid => aten::SIGMOID,
            Unary::Sin => aten::SIN,
            Unary::SquareRoot => aten::SQRT,
            Unary::Tanh => aten::TANH,
        };
        self.site.one(name, vec![input.into()])
    }

    pub(super) fn binary(&mut self, binary: Binary, inputs: [u32; 2]) -> Result<ValueId, Error> {
        let [a, b] = inputs;
        let a = self.read(a)?;
        let b = self.read_like(b, a)?;
        let name = match binary {
            Binary::Add => aten::ADD_TENSOR,
            Binary::Subtract => aten::SUB_TENSOR,
            Binary::Multiply => aten::MUL_TENSOR,
            Binary::Divide => aten::DIV_TENSOR,
            Binary::Maximum => aten::MAXIMUM,
            Binary::Minimum => aten::MINIMUM,
            // Slopes belong to the last dimension, the channels, and spread over the others.
            Binary::PRelu => aten::_PRELU_KERNEL,
            Binary::BatchMatrixMultiply => aten::MATMUL,
        };
        self.site.one(name, vec![a.into(), b.into()])
    }

    /// `[batch…, m, k]` times `[batch…, k, n]`, or `[batch…, n, k]` if it is flagged as transposed.
    pub(super) fn batch_product(&mut self, flags: NodeFlags, inputs: [u32; 2]) -> Result<ValueId, Error> {
        let [a, b] = inputs;
        let a = self.read(a)?;
        let mut b = self.read_like(b, a)?;
        if flags.has(NodeFlags::TRANSPOSE) {
            b = self.swap_last(b)?;
        }
        self.site.one(aten::MATMUL, vec![a.into(), b.into()])
    }

    pub(super) fn fully_connected(
        &mut self,
        flags: NodeFlags,
        input: u32,
        filter: u32,
        bias: Option<u32>,
    ) -> Result<ValueId, Error> {
        let mut input = self.read(input)?;
        // XNNPACK accumulates bf16 GEMMs in f32, and the bias is f32 too.
        if self.site.tensor(input)?.dtype == ScalarType::BFloat16 {
            input = self.cast(input, ScalarType::Float)?;
        }
        let mut filter = self.read_like(filter, input)?;
        if flags.has(NodeFlags::TRANSPOSE) {
            filter = self.swap_last(filter)?;
        }
        let bias = bias.map(|bias| self.read_like(bias, input)).transpose()?;
        self.site.one(aten::LINEAR, vec![input.into(), filter.into(), Arg::from(bias)])
    }

    /// The last two dimensions in the other order.
    fn swap_last(&mut self, value: ValueId) -> Result<ValueId, Error> {
        let rank = self.site.tensor(value)?.rank() as i64;
        if rank < 2 {
            return Err(Error::invalid("a matrix has fewer than two dimensions").got(rank));
        }
        let order: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        self.site.one(aten::PERMUTE_COPY, vec![value.into(), Arg::from(order.as_slice())])
    }
}
