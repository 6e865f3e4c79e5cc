//! Turns a case into a `.pte` file whose only method calls the operator once.

use rushlight_format::pte::{PlanModel, ProgramModel, StorageModel, TensorModel, ValueModel};
use rushlight_format::{FormatError, ScalarType};

use crate::cases::{Arg, Case, TensorData};

/// The place of the call's tensors in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Inputs and outputs in planned memory.
    Planned,
    /// As `Planned`, with upper bounds of the outputs that are larger than the results.
    DynamicOutputs,
    /// Outputs in the caller's memory, inputs read in place.
    Unplanned,
    /// Inputs as constants of the program. Inputs that are written are buffers with initial values.
    Constants,
}

/// A program for one case.
#[derive(Debug)]
pub struct OneOperator<'c> {
    /// The contents of the file.
    pub bytes: Vec<u8>,
    /// The inputs of the method, in order.
    pub inputs: Vec<&'c TensorData>,
    /// The outputs whose memory the caller provides, each with its number of bytes.
    pub unplanned: Vec<(usize, usize)>,
}

/// The name of the method.
pub const METHOD: &str = "forward";

/// Writes the program. Output `i` of its method is expected result `i` of the case.
pub fn write(case: &Case, placement: Placement) -> Result<OneOperator<'_>, FormatError> {
    let mut builder = Builder {
        case,
        placement,
        program: ProgramModel::new(),
        plan: PlanModel::new(METHOD),
        inputs: Vec::new(),
        outputs: vec![0; case.expect.len()],
        unplanned: Vec::new(),
    };
    let mut args: Vec<u32> = case.args.iter().map(|arg| builder.argument(arg)).collect();
    args.extend(builder.returned(&args));
    let (name, overload) = case.op.split_once('.').unwrap_or((&case.op, ""));
    builder.plan.call(name, overload, &args);
    let Builder { mut program, mut plan, inputs, outputs, unplanned, .. } = builder;
    plan.outputs = outputs;
    program.methods.push(plan);
    Ok(OneOperator { bytes: program.to_bytes()?, inputs, unplanned })
}

struct Builder<'c> {
    case: &'c Case,
    placement: Placement,
    program: ProgramModel<'c>,
    plan: PlanModel<'c>,
    inputs: Vec<&'c TensorData>,
    /// Value of each expected result.
    outputs: Vec<u32>,
    unplanned: Vec<(usize, usize)>,
}

impl<'c> Builder<'c> {
    fn argument(&mut self, arg: &'c Arg) -> u32 {
        match arg {
            Arg::None => self.plan.push(ValueModel::None),
            Arg::Int(v) => self.plan.push(ValueModel::Int(*v)),
            Arg::Double(v) => self.plan.push(ValueModel::Double(*v)),
            Arg::Bool(v) => self.plan.push(ValueModel::Bool(*v)),
            Arg::Str(v) => self.plan.push(ValueModel::String(v.clone())),
            Arg::IntList(items) => self.plan.int_list(items),
            Arg::DoubleList(items) => self.plan.push(ValueModel::DoubleList(items.clone())),
            Arg::BoolList(items) => self.plan.push(ValueModel::BoolList(items.clone())),
            Arg::Tensor(t) => self.input(t),
            Arg::TensorList(items) => {
                let items = items.iter().map(|t| self.input(t)).collect();
                self.plan.push(ValueModel::TensorList(items))
            }
            Arg::OptionalTensorList(items) => {
                let items = items.iter().map(|t| t.as_ref().map(|t| self.input(t))).collect();
                self.plan.push(ValueModel::OptionalTensorList(items))
            }
            Arg::Out(index) => self.output(*index),
            Arg::OutList(indices) => {
                let items = indices.iter().map(|&index| self.output(index)).collect();
                self.plan.push(ValueModel::TensorList(items))
            }
            Arg::InOut(t, index) => {
                let value = self.updated(t);
                self.outputs[*index] = value;
                value
            }
        }
    }

    fn input(&mut self, t: &'c TensorData) -> u32 {
        let model = model(t);
        if self.placement == Placement::Constants {
            let index = self.program.constant(&t.bytes[..]);
            return self.plan.push(ValueModel::Tensor(model.stored(StorageModel::Constant { index })));
        }
        self.inputs.push(t);
        let model = if self.placement == Placement::Unplanned { model } else { self.plan.planned(model) };
        self.plan.input(ValueModel::Tensor(model))
    }

    /// A tensor that the operator reads and writes, in planned memory.
    fn updated(&mut self, t: &'c TensorData) -> u32 {
        // The operator may change the sizes, up to the initial ones.
        let planned = self.plan.planned(model(t).dynamic());
        if self.placement != Placement::Constants {
            self.inputs.push(t);
            return self.plan.input(ValueModel::Tensor(planned));
        }
        let StorageModel::Planned { memory_id, offset } = planned.storage else { return 0 };
        let index = self.program.initial_value(&t.bytes[..]);
        let storage = StorageModel::PlannedInit { memory_id, offset, index };
        self.plan.push(ValueModel::Tensor(planned.stored(storage)))
    }

    fn output(&mut self, index: usize) -> u32 {
        let value = match &self.case.expect[index] {
            Arg::Tensor(t) => {
                let mut tensor = model(t);
                if self.placement == Placement::DynamicOutputs {
                    tensor = tensor.dynamic();
                    for (d, size) in tensor.sizes.iter_mut().enumerate() {
                        *size += 1 + (d as i32 & 1);
                    }
                }
                if self.placement == Placement::Unplanned {
                    self.unplanned.push((index, t.bytes.len()));
                } else {
                    tensor = self.plan.planned(tensor);
                }
                ValueModel::Tensor(tensor)
            }
            Arg::Double(_) => ValueModel::Double(0.0),
            Arg::Bool(_) => ValueModel::Bool(false),
            _ => ValueModel::Int(0),
        };
        let value = self.plan.push(value);
        self.outputs[index] = value;
        value
    }

    /// The return value, which programs repeat after the arguments: the `out` argument, or a list of several. Symbolic
    /// operators have none.
    fn returned(&mut self, args: &[u32]) -> Option<u32> {
        let written = |arg: &Arg| matches!(arg, Arg::Out(_) | Arg::OutList(_));
        let mut outs: Vec<u32> =
            args.iter().zip(&self.case.args).filter(|(_, a)| written(a)).map(|(v, _)| *v).collect();
        if outs.is_empty() && matches!(self.case.args.first(), Some(Arg::InOut(..))) {
            outs.push(args[0]);
        }
        let symbolic = self.case.op.starts_with("executorch_prim::")
            || self.case.expect.iter().any(|e| !matches!(e, Arg::Tensor(_)));
        match outs[..] {
            _ if symbolic => None,
            [] => None,
            [out] => Some(out),
            _ => Some(self.plan.push(ValueModel::TensorList(outs))),
        }
    }
}

fn model(t: &TensorData) -> TensorModel {
    let sizes: Vec<i32> = t.sizes.iter().map(|&size| size as i32).collect();
    TensorModel::new(t.dtype, &sizes).ordered(&t.dim_order)
}

/// Element strides of a dense tensor with these sizes and dim order.
pub fn strides(sizes: &[usize], dim_order: &[u8]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    let mut step = 1;
    for &d in dim_order.iter().rev() {
        strides[d as usize] = step;
        step *= sizes[d as usize].max(1);
    }
    strides
}

/// True for types whose values are rounded.
pub fn rounds(dtype: ScalarType) -> bool {
    dtype.is_floating() || dtype.is_complex()
}
