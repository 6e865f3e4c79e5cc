//! Turns what ExecuTorch lowered for its Vulkan delegate, which its WebGPU runtime takes too, back into operators.
//!
//! The payload's calls have PyTorch's names and arguments, so that most need no translation. On the device, integers and
//! floats of 64 bits have 32, and with `force_fp16` floats have 16. The same is computed here: tensors are converted at the
//! border of the part.
//!
//! Sizes of the payload are those that it was exported with; only its constants' are used. All others follow from the
//! inputs.

mod calls;
mod fused;
mod packed;
mod values;

use rushlight_format::payload::vulkan::Payload;
use rushlight_graph::{Delegate, Error, ErrorKind};

use super::importer::{Arguments, Axes, Importer, NamedData, Site, Written};

use calls::Calls;
use values::Values;

/// The importer of ExecuTorch's Vulkan delegate.
pub(super) const IMPORTER: Importer = Importer { backend: BACKEND, axes: Axes::Program, arguments, inline };

/// ExecuTorch's name of the delegate.
const BACKEND: &str = "VulkanBackend";

fn arguments(delegate: &Delegate, _: &dyn NamedData) -> Option<Arguments> {
    let inputs = Payload::parse(&delegate.payload).ok()?.inputs().len();
    Some(Arguments { inputs, first_output: Some(inputs) })
}

fn inline(site: &mut dyn Site, delegate: &Delegate) -> Result<Vec<Written>, Error> {
    let damaged = |error| Error::new(ErrorKind::Input, format!("the payload of {BACKEND} cannot be read: {error}"));
    let parsed = Payload::parse(&delegate.payload).map_err(damaged)?;
    let mut values = Values::new(&delegate.payload, parsed);
    values.add_inputs(site)?;
    for call in parsed.calls() {
        let name = format!("{} {}", call.name, call.id);
        site.begin(&name);
        Calls { site, values: &mut values }.add(&call).map_err(|error| error.at(name))?;
    }
    let first = site.inputs().len();
    let mut written = Vec::with_capacity(parsed.outputs().len());
    for (index, id) in parsed.outputs().iter().enumerate() {
        let position = u32::try_from(first + index).map_err(|_| Error::invalid("too many outputs of the delegate"))?;
        written.push((position, values.output(id, site)?));
    }
    Ok(written)
}
