//! Weights in the safetensors format.

use safetensors::{Dtype, SafeTensors};

use rushlight_graph::{Bytes, Error};

use crate::tensors::{Encoding, Tensor, Tensors, damaged};

/// Adds the tensors of a file, which keep its memory. `file` is its name.
///
/// # Errors
/// `Input` for a damaged file and for a tensor that is there already, `Unsupported` for dtypes other than floats.
pub fn read(file: &str, bytes: &Bytes, tensors: &mut Tensors) -> Result<(), Error> {
    let at = |error: Error| error.at(format!("file `{file}`"));
    let parsed = SafeTensors::read_metadata(bytes);
    let (header, metadata) = parsed.map_err(|fault| {
        at(damaged("the file is damaged: it should be a safetensors file")
            .got(fault.to_string())
            .help("copy or download it again"))
    })?;
    // The length of the header stands before it.
    let start = header.saturating_add(size_of::<u64>());
    let mut infos: Vec<_> = metadata.tensors().into_iter().collect();
    infos.sort_by_key(|(_, info)| info.data_offsets);
    for (name, info) in infos {
        let encoding = match info.dtype {
            Dtype::F32 => Encoding::F32,
            Dtype::F16 => Encoding::F16,
            Dtype::BF16 => Encoding::Bf16,
            other => {
                return Err(at(Error::unsupported(format!("tensor `{name}` is of type {other}"))
                    .expected("F32, F16 or BF16")
                    .help("give the checkpoint before it was quantized, and `--quantize`")));
            }
        };
        let (from, to) = info.data_offsets;
        let range = start.saturating_add(from)..start.saturating_add(to);
        let data = bytes.slice(range).ok_or_else(|| at(damaged(format!("tensor `{name}` is cut off"))))?;
        tensors.add(Tensor::new(name, info.shape.clone(), encoding, data).map_err(at)?).map_err(at)?;
    }
    Ok(())
}
