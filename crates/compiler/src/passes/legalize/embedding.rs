//! Legalizes embeddings of packed integers to plain ones.

use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::operators::{aten, quantized_decomposed};
use rushlight_graph::{Arg, Builder, Call, Constant, NodeId, TensorType, ValueId};

/// The number of elements in a byte of an operator's table.
fn elements_per_byte(name: &str) -> Option<usize> {
    Some(match name {
        quantized_decomposed::EMBEDDING_BYTE | quantized_decomposed::EMBEDDING_BYTE_DTYPE => 1,
        quantized_decomposed::EMBEDDING_4BIT | quantized_decomposed::EMBEDDING_4BIT_DTYPE => 2,
        quantized_decomposed::EMBEDDING_2BIT | quantized_decomposed::EMBEDDING_2BIT_DTYPE => 4,
        _ => return None,
    })
}

/// Lowers ExecuTorch's embeddings of constant tables of 8, 4 and 2 bits to `aten::embedding` of a dequantized table. The
/// table has one byte for each integer, which constant folding keeps. Returns `None` for other nodes, and for those in
/// another form.
///
/// # Errors
/// `InvalidProgram` for a call without its arguments; errors of reading the table.
pub fn legalize(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let Some(each) = elements_per_byte(call.name()) else { return Ok(None) };
    let (table, scales, indices) = (call.value("weight")?, call.value("weight_scales")?, call.value("indices")?);
    let zeros = call.optional("weight_zero_points");
    let (Some(min), Some(max)) = (call.expr("weight_quant_min"), call.expr("weight_quant_max")) else {
        return Ok(None);
    };
    let are_floats = [call.result()?, scales]
        .iter()
        .all(|value| builder.graph.tensor(*value).is_ok_and(|ty| ty.dtype == ScalarType::Float));
    let are_constant = zeros.is_none_or(|zeros| builder.graph.constant_of(zeros).is_some());
    let constant = |value: ValueId| builder.graph.constant_of(value).map(|id| &builder.constants[id]);
    let (Some(packed), Some(parameters)) = (constant(table), constant(scales)) else { return Ok(None) };
    let is_known = matches!((packed.ty.dtype, each), (ScalarType::Byte, _) | (ScalarType::Char, 1));
    let (&[count, bytes], true) = (packed.sizes()?.as_slice(), are_floats && are_constant && is_known) else {
        return Ok(None);
    };
    let groups = match *parameters.sizes()?.as_slice() {
        [_] => 1,
        [_, groups] if groups > 0 => groups,
        _ => return Ok(None),
    };
    let columns = bytes * each;
    if !columns.is_multiple_of(groups) {
        return Ok(None);
    }
    let dtype = if each == 1 { packed.ty.dtype } else { ScalarType::Char };
    let table = if each == 1 {
        table
    } else {
        let ty = TensorType::of(ScalarType::Char, &[count as i64, columns as i64]);
        let unpacked = Constant::dense(packed.name.clone(), ty, unpacked(&packed.read()?, each))?;
        builder.constant(unpacked)
    };
    let (range, dtype) = ([Arg::Int(min), Arg::Int(max)], Arg::DType(dtype));
    let zeros = zeros.map_or(Arg::None, Arg::Value);
    let mut args = vec![table.into(), scales.into(), zeros];
    let numbers = if groups == 1 {
        if builder.tensor(scales)?.rank() == 2 {
            let flat = |builder: &mut Builder<'_>, value: ValueId| {
                builder.one(aten::VIEW_COPY, vec![value.into(), Arg::from([count as i64])])
            };
            args[1] = flat(builder, scales)?.into();
            if let Arg::Value(zeros) = args[2] {
                args[2] = flat(builder, zeros)?.into();
            }
        }
        args.push(Arg::from(0));
        args.extend(range);
        args.push(dtype);
        builder.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL, args)?
    } else {
        args.extend(range);
        args.extend([dtype, Arg::from((columns / groups) as i64), Arg::DType(ScalarType::Float)]);
        builder.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP, args)?
    };
    builder.one(aten::EMBEDDING, vec![numbers.into(), indices.into()]).map(Some)
}

/// Unpacks integers of 4 bits, the first in the high ones, or of 2, the first in the lowest ones. They are stored with 8, or 2,
/// added.
fn unpacked(bytes: &[u8], each: usize) -> Vec<u8> {
    let mut integers = vec![0; bytes.len() * each];
    if each == 2 {
        for (to, byte) in integers.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
            *to = [byte >> 4, byte & 15].map(|bits| bits.wrapping_sub(8));
        }
    } else {
        for (to, byte) in integers.as_chunks_mut::<4>().0.iter_mut().zip(bytes) {
            *to = [0, 2, 4, 6].map(|shift| (byte >> shift & 3).wrapping_sub(2));
        }
    }
    integers
}
