//! Turns what ExecuTorch lowered for XNNPACK back into operators, so that it is compiled with the program around it.
//!
//! XNNPACK's images are in the order batch, height, width, channels, and the payload has transpositions where the model's
//! are not. Both become permutations: those of the payload, and one on each side of every operator that wants channels
//! second. Where they meet, later passes cancel them.
//!
//! Sizes of the payload are those that it was exported with; only its constants' are used. All others follow from the
//! inputs.

mod arithmetic;
mod images;
mod node;
mod shapes;
mod values;

use rushlight_format::ScalarType;
use rushlight_format::payload::xnnpack::Payload;
use rustc_hash::FxHashSet;

use rushlight_graph::{Arg, Delegate, Error, ErrorKind};

use super::importer::{Arguments, Axes, Importer, NamedData, Site, Written};

use node::Nodes;
use values::Values;

/// The importer of ExecuTorch's XNNPACK delegate.
pub(super) const IMPORTER: Importer = Importer { backend: BACKEND, axes: Axes::Memory, arguments, inline };

/// ExecuTorch's name of the delegate.
const BACKEND: &str = "XnnpackBackend";

fn arguments(delegate: &Delegate, _: &dyn NamedData) -> Option<Arguments> {
    let parsed = Payload::parse(&delegate.payload).ok()?;
    let inputs = parsed.values().filter_map(|tensor| tensor.input).max();
    let outputs = parsed.values().filter_map(|tensor| tensor.output).min();
    let inputs = inputs.map_or(0, |last| (last as usize).saturating_add(1));
    Some(Arguments { inputs, first_output: outputs.map(|first| first as usize) })
}

fn inline(site: &mut dyn Site, delegate: &Delegate) -> Result<Vec<Written>, Error> {
    let damaged = |error| Error::new(ErrorKind::Input, format!("the payload of {BACKEND} cannot be read: {error}"));
    let parsed = Payload::parse(&delegate.payload).map_err(damaged)?;
    let mut values = Values::new(&delegate.payload, parsed, site)?;
    for (index, node) in parsed.nodes().enumerate() {
        let name = format!("{} {index}", node.name());
        site.begin(&name);
        Nodes { site, values: &mut values }.add(&node).map_err(|error| error.at(name))?;
    }
    let mut written = values.outputs()?;
    written.extend(unmarked_output(site, &values, &written));
    Ok(written)
}

/// Finds the output that a payload does not mark.
///
/// ExecuTorch 1.5 does not mark a payload's output if the operator after the delegate quantizes it again. An example is
/// the padding of an int8 Swin Transformer. ExecuTorch's own runtime refuses such a file. If exactly one result has no
/// reader and exactly one output has no source, they are the same.
fn unmarked_output(site: &dyn Site, values: &Values<'_>, written: &[Written]) -> Option<Written> {
    let first = u32::try_from(site.inputs().len()).ok()?;
    let outputs = (first..).zip(site.outputs());
    let known: FxHashSet<u32> = written.iter().map(|(position, _)| *position).collect();
    let mut missing = outputs.filter(|(position, _)| !known.contains(position));
    match (missing.next()?, missing.next(), values.unread().as_slice()) {
        ((position, Some(tensor)), None, [value]) if tensor.scalar_type == ScalarType::Float => {
            Some((position, Arg::Value(*value)))
        }
        _ => None,
    }
}
