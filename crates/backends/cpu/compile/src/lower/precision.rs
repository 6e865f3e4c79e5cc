//! The precision in which nodes were computed, for the report.

use rushlight_cpu_payload::{Bits, Reduction as ReductionOp};

use rushlight_compiler::passes::legalize::is_rounded;
use rushlight_graph::{Call, ConstantId, NodeId, ValueId};

use crate::select::{Convolution, DataMovement, Embedding, Experts, Gemm, GemmWeights, Int8, Reduction, Selection};
use crate::storage::is_stored_as_float;

use super::Lowering;

/// The precision of steps that read bytes.
const INT8: &str = "int8";

/// The storage of a value when a step reads it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    Bytes,
    /// The exact accumulators of an int8 GEMM, scaled.
    Accumulators,
    Floats,
}

/// Ranks the legalized nodes of one canonical node: the first in this order gives its precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A GEMM, a convolution or an embedding.
    Gemm,
    Float,
    Int8,
}

impl Lowering<'_> {
    /// Returns the precision of a node that uses integers or rounded weights. `None` for nodes that compute in the
    /// types of their results, and for conversions between integers and floats. The precision follows from the views
    /// that steps read and write, so all nodes must be lowered first.
    pub(super) fn precision(&self, id: NodeId) -> Option<(Rank, String)> {
        let selection = self.selections.get(id)?;
        if let Selection::Attention(attention) = selection
            && let Some([keys, _]) = self.cached_keys_and_values(attention.key, attention.value)
        {
            return Some((Rank::Float, format!("f32, keys and values of {}", keys.type_name())));
        }
        let of_gemm = match selection {
            Selection::Quantize { .. }
            | Selection::Dequantize { .. }
            | Selection::Dynamic(_)
            | Selection::RowDequantize(_)
            | Selection::NibbleQuantize(_) => None,
            Selection::Convolution(Convolution { int8: Some(int8), .. }) => Some(int8_convolution(*int8).to_owned()),
            Selection::Convolution(convolution) => {
                self.float_gemm(id, convolution.input, Some(convolution.weight), None)
            }
            Selection::Gemm(Gemm { a, weights, .. })
            | Selection::Experts(Experts { gemm: Gemm { a, weights, .. }, .. }) => match weights {
                GemmWeights::Int8(_, int8) => Some(int8_gemm(*int8).to_owned()),
                GemmWeights::WeightOnly(constant, weights) => {
                    self.float_gemm(id, *a, Some(*constant), Some(weights.matrix.bits.count()))
                }
                GemmWeights::Float(constant) => self.float_gemm(id, *a, Some(*constant), None),
                GemmWeights::Computed(_) => self.float_gemm(id, *a, None, None),
            },
            Selection::Embedding(embedding) => self.table(embedding).map(str::to_owned),
            other => {
                let precision = self.others(id, other)?;
                return Some((if precision == INT8 { Rank::Int8 } else { Rank::Float }, precision));
            }
        };
        of_gemm.map(|precision| (Rank::Gemm, precision))
    }

    /// Returns the precision of a float GEMM or convolution, with the reason, if its input or its weights are integers,
    /// or its weights were rounded. `bits` is the width of weights that are dequantized inside of the kernel.
    fn float_gemm(&self, id: NodeId, input: ValueId, weights: Option<ConstantId>, bits: Option<u32>) -> Option<String> {
        let is_quantized = self.storage(input) == Storage::Bytes || self.rows.contains_key(&input);
        let rounded = self.rounded.contains(&id).then(|| self.plan.precision().name());
        if weights.is_none_or(|weights| self.model.constants[weights].quantized().is_none()) {
            let reason = "f32: its weights are no integers that are known when it is compiled".to_owned();
            let of_weights = rounded.map(|dtype| format!("weights of {dtype}"));
            return if is_quantized { Some(reason) } else { of_weights };
        }
        if is_quantized {
            return Some("f32: weights of this form, or windows of this size, have no int8 kernel".to_owned());
        }
        let form = match (bits, rounded) {
            (Some(bits), _) => format!("weights of {bits} bits"),
            (None, Some(dtype)) => format!("weights made {dtype}"),
            (None, None) => "weights made floats".to_owned(),
        };
        let is_int16 = is_rounded(self.graph, input);
        let input = match (is_int16, bits) {
            (true, _) => "has 16 bits, which floats hold",
            (false, Some(_)) => "is not quantized, but of 16 bits where these are multiplied faster",
            (false, None) => "is not quantized",
        };
        Some(format!("f32, {form}: its input {input}"))
    }

    /// Returns the precision of the rows of a quantized table.
    fn table(&self, embedding: &Embedding) -> Option<&'static str> {
        self.model.constants[embedding.table].quantized()?;
        Some(match embedding.quantized.as_ref().map(|rows| rows.matrix.bits) {
            Some(Bits::Four) => "f32, rows of 4 bits",
            Some(Bits::Six) => "f32, rows of 6 bits",
            Some(Bits::Eight) => "f32, rows of 8 bits",
            None => "f32, rows made floats",
        })
    }

    /// Returns the precision of a node that is neither a GEMM nor a conversion.
    fn others(&self, id: NodeId, selection: &Selection) -> Option<String> {
        let call = Call::new(self.graph, id);
        let mut operands = call.operands();
        operands.retain(|value| self.graph.tensor(*value).is_ok_and(|ty| is_stored_as_float(ty.dtype)));
        if operands.iter().any(|value| self.storage(*value) == Storage::Accumulators) {
            return Some("f32, of the exact sums of the GEMM before it".to_owned());
        }
        let (bytes, floats): (Vec<ValueId>, Vec<ValueId>) =
            operands.into_iter().partition(|value| self.storage(*value) == Storage::Bytes);
        if bytes.is_empty() {
            return None;
        }
        let result = call.result().ok()?;
        let is_quantized = self.quantized_result(result).is_some();
        let reads = reads_bytes(selection);
        // A result that its own step quantizes has no view.
        let is_written = self.views.get(&result).map_or(is_quantized, |view| view.affine.is_some());
        if matches!(reads, Reads::IfWritten) && is_written {
            return Some(INT8.to_owned());
        }
        if let Some(float) = floats.first() {
            return Some(format!("f32: `{}` is not quantized", self.graph.values[*float].name));
        }
        Some(match reads {
            Reads::Never => format!("f32: `{}` has no int8 kernel", call.name()),
            Reads::IfWritten => "f32: what it joins or pads with is not quantized in the same way".to_owned(),
            Reads::IfQuantized if !is_quantized => "f32: its result is not quantized".to_owned(),
            Reads::Always | Reads::IfQuantized => INT8.to_owned(),
        })
    }

    /// Returns the storage of a value when it is read.
    fn storage(&self, value: ValueId) -> Storage {
        let is_int8 = self.selections.of_value(self.graph, value).is_some_and(|maker| maker.int8().is_some());
        let affine = match self.views.get(&value) {
            Some(view) => view.affine,
            // Values within a step have no view.
            None => self.selections.quantized(value),
        };
        match (is_int8, affine) {
            (true, _) => Storage::Accumulators,
            (false, Some(_)) => Storage::Bytes,
            (false, None) => Storage::Floats,
        }
    }
}

/// When the steps of a selection read bytes.
enum Reads {
    Always,
    /// If they write bytes; they do so only when all of their operands are bytes.
    IfWritten,
    /// If the node that quantizes their result is the only one that uses it.
    IfQuantized,
    /// Never: their operands are dequantized first.
    Never,
}

const fn reads_bytes(selection: &Selection) -> Reads {
    match selection {
        Selection::DataMovement(DataMovement::Strided { .. }) => Reads::Never,
        Selection::DataMovement(_) => Reads::IfWritten,
        Selection::Elementwise(_)
        | Selection::Pooling(_)
        | Selection::Reduction(Reduction { function: ReductionOp::Mean, .. }) => Reads::Always,
        Selection::Resize(resize) if resize.is_nearest() => Reads::Always,
        Selection::Resize(_) => Reads::IfQuantized,
        Selection::Softmax(softmax) if !softmax.log => Reads::IfQuantized,
        _ => Reads::Never,
    }
}

const fn int8_convolution(int8: Int8) -> &'static str {
    match int8 {
        Int8::Static => "int8, weights of 8 bits",
        Int8::Dynamic | Int8::DynamicGroupwise { .. } => {
            "int8 with a scale that is chosen when it runs, weights of 8 bits"
        }
    }
}

const fn int8_gemm(int8: Int8) -> &'static str {
    match int8 {
        Int8::Static => "int8, weights of 8 bits",
        Int8::Dynamic => "int8 rows, weights of 8 bits",
        Int8::DynamicGroupwise { is_four_bits: true } => "int8 rows, weights of 4 bits",
        Int8::DynamicGroupwise { is_four_bits: false } => "int8 rows, weights of 8 bits by group",
    }
}
