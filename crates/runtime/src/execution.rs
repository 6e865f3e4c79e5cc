//! Running a loaded method: binding inputs, the instruction loop, reading outputs.

use core::cell::Cell;
use core::ptr::NonNull;

use rushlight_format::pte::ShapeDynamism;

use crate::context::{DelegateContext, KernelContext};
use crate::error::{Code, Detail, Error, Result, Role};
use crate::events::{Event, EventTracer};
use crate::io::{Input, Output, OutputBuffer, TensorView};
use crate::load::{Loaded, Step};
use crate::memory::{Hold, bind_borrowed};
use crate::method::Method;
use crate::strided;
use crate::tensor::{Access, Tensor, TensorState};
use crate::value::Value;

/// Instructions that one execution may take, as in ExecuTorch; it stops endless loops.
pub const MAX_INSTRUCTIONS: u32 = 10_000_000;

/// An execution under way: inputs are bound, instructions run one by one or all together.
pub struct Execution<'r, 'm> {
    loaded: &'r mut Loaded<'m>,
    _hold: Option<Hold<'r>>,
    next: usize,
    executed: u32,
}

impl<'r, 'm> Execution<'r, 'm> {
    pub(crate) fn start(
        method: &'r mut Method<'m>,
        inputs: &[Input<'r>],
        outputs: &mut [OutputBuffer<'r>],
    ) -> Result<Self> {
        let hold = method.shared.as_ref().map(crate::memory::SharedRef::hold).transpose()?;
        let loaded = &mut method.loaded.0;
        if inputs.len() != loaded.inputs.len() {
            return Err(Detail::Count { what: "inputs", expected: loaded.inputs.len(), got: inputs.len() }.into());
        }
        release(loaded);
        let execution = Self { loaded, _hold: hold, next: 0, executed: 0 };
        for (i, input) in inputs.iter().enumerate() {
            execution.bind_input(i, input).map_err(|e| e.at(Role::Input, i))?;
        }
        for output in outputs {
            execution.bind_output(output).map_err(|e| e.at(Role::Output, output.index))?;
        }
        Ok(execution)
    }

    fn bind_input(&self, index: usize, input: &Input<'r>) -> Result<()> {
        let Some(value) = self.loaded.value_of(self.loaded.inputs, index) else {
            return Err(Error::program("the input names a value that does not exist"));
        };
        let differs = |expected| Err(Error::from(Detail::Kind { expected, got: input.kind() }));
        match (value, input) {
            (Value::Tensor(state), Input::Tensor(view)) => {
                check_input(state, view)?;
                if state.access != Access::Bound {
                    return strided::copy(state, view);
                }
                if self.loaded.input_written.get(index) == Some(&true) {
                    return Err(Error::invalid("the program writes to this input: it needs a mutable tensor"));
                }
                check_layout(state, view)?;
                // SAFETY: the data is borrowed for 'r, which outlives this execution and its outputs; both release the
                // binding when they are dropped, and the next execution does before it runs anything. It is only read.
                unsafe { bind_borrowed(state, NonNull::from(view.data).cast(), state.nbytes()) }
            }
            (Value::Tensor(state), Input::TensorMut(view)) => {
                check_input(state, &view.view())?;
                if state.access != Access::Bound {
                    return strided::copy(state, &view.view());
                }
                check_layout(state, &view.view())?;
                // SAFETY: as above; the data is borrowed mutably for 'r, so it may be written.
                unsafe { bind_borrowed(state, NonNull::from(&*view.data).cast(), state.nbytes()) }
            }
            (Value::Tensor(_), _) => differs("a tensor"),
            (Value::Int(expected), Input::Int(got)) => same(
                expected == *got,
                Detail::Value {
                    what: "an int that was fixed when the program was exported",
                    expected: "the same value",
                    got: *got,
                },
            ),
            (Value::Double(expected), Input::Double(got)) => same(
                is_close(expected, *got),
                Detail::Number {
                    what: "a double that was fixed when the program was exported",
                    expected: "the same value",
                    got: *got,
                },
            ),
            (Value::Bool(expected), Input::Bool(got)) => {
                same(expected == *got, Detail::Text("a bool that was fixed when the program was exported has changed"))
            }
            (Value::String(expected), Input::String(got)) => same(
                expected == *got,
                Detail::Text("a string that was fixed when the program was exported has changed"),
            ),
            (Value::None, Input::None) => Ok(()),
            (Value::Int(_), _) => differs("an int"),
            (Value::Double(_), _) => differs("a double"),
            (Value::Bool(_), _) => differs("a bool"),
            (Value::String(_), _) => differs("a string"),
            (Value::None, _) => differs("None"),
            (value, _) => Err(Detail::Kind { expected: "an input that can be set", got: value.kind() }.into()),
        }
    }

    fn bind_output(&self, output: &mut OutputBuffer<'r>) -> Result<()> {
        let outputs = self.loaded.outputs;
        let Some(value) = self.loaded.value_of(outputs, output.index) else {
            return Err(Detail::Index { index: output.index as i64, size: outputs.len() }.into());
        };
        let Value::Tensor(state) = value else {
            return Err(Detail::Kind { expected: "a tensor", got: value.kind() }.into());
        };
        if state.access != Access::Bound || state.memory().is_some() {
            return Err(Error::new(Code::InvalidState, Detail::Text("the output has memory already")));
        }
        if output.data.len() < state.bound {
            let (needed, available) = (state.bound, output.data.len());
            return Err(Detail::Memory { what: "memory for the output", needed, available }.into());
        }
        // SAFETY: the data is borrowed mutably for 'r, which outlives this execution and its outputs; both release the
        // binding when they are dropped, and the next execution does before it runs anything.
        unsafe { bind_borrowed(state, NonNull::from(&mut *output.data).cast(), output.data.len()) }
    }

    /// Index of the instruction that runs next; `None` after the last.
    pub fn next_instruction(&self) -> Option<usize> {
        Some(self.next).filter(|&next| next < self.loaded.steps.len())
    }

    /// Runs one instruction. False if there was none left.
    pub fn step(&mut self) -> Result<bool> {
        self.step_traced(&mut ())
    }

    /// Runs one instruction and reports it to `tracer`. False if there was none left.
    #[inline]
    pub fn step_traced(&mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<bool> {
        let index = self.next;
        let Some(step) = self.loaded.steps.get(index) else { return Ok(false) };
        if self.executed == MAX_INSTRUCTIONS {
            let text = "the method has run 10 million instructions: it seems to loop without end";
            return Err(Error::new(Code::InvalidProgram, Detail::Text(text)).instruction(index, None));
        }
        self.executed += 1;
        let values = self.loaded.values;
        self.next = index + 1;
        match *step {
            Step::Kernel { op, arguments } => {
                let event = Event::Operator { instruction: index, operator: op.name };
                tracer.begin(event);
                let context = KernelContext::new(values, arguments, op.writes, self.loaded.temp);
                (op.kernel)(&context).map_err(|e| e.instruction(index, Some(op.name)))?;
                drop(context);
                tracer.end(event);
                if tracer.wants_tensors() {
                    show_written(values, arguments, |i| op.writes_argument(i), index, tracer);
                }
            }
            Step::Delegate { delegate, arguments } => self.run_delegate(index, delegate, arguments, tracer)?,
            Step::Move { from, to } => {
                tracer.begin(Event::Move { instruction: index });
                if let (Some(from), Some(to)) = (values.get(from as usize), values.get(to as usize)) {
                    set(to, from.get());
                }
                tracer.end(Event::Move { instruction: index });
            }
            Step::JumpFalse { condition, destination } => {
                tracer.begin(Event::JumpFalse { instruction: index });
                let condition = values.get(condition as usize).map_or(Value::None, Cell::get);
                if !is_true(condition).map_err(|e| e.instruction(index, None))? {
                    self.next = destination as usize;
                }
                tracer.end(Event::JumpFalse { instruction: index });
            }
            Step::Free { value } => {
                tracer.begin(Event::Free { instruction: index });
                if let Some(Value::Tensor(tensor)) = values.get(value as usize).map(Cell::get)
                    && tensor.is_rebound()
                {
                    tensor.unbind();
                }
                tracer.end(Event::Free { instruction: index });
            }
            Step::Nothing => {}
        }
        Ok(true)
    }

    #[inline(never)]
    fn run_delegate(
        &mut self,
        index: usize,
        delegate: u32,
        arguments: &'m [u32],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<()> {
        let values = self.loaded.values;
        let Some(Some(delegate)) = self.loaded.delegates.get_mut(delegate as usize) else {
            return Err(Error::program("an instruction names a delegate that the plan does not have"));
        };
        let event = Event::Delegate { instruction: index, id: delegate.id };
        tracer.begin(event);
        let context = DelegateContext::new(values, arguments, delegate.outputs);
        delegate.handle.get().execute(&context).map_err(|e| e.instruction(index, None))?;
        tracer.end(event);
        if tracer.wants_tensors() {
            let first = arguments.len() - delegate.outputs;
            show_written(values, arguments, |i| i >= first, index, tracer);
        }
        Ok(())
    }

    /// Runs the remaining instructions.
    pub fn finish(self) -> Result<Outputs<'r, 'm>> {
        self.finish_traced(&mut ())
    }

    /// Runs the remaining instructions and reports them to `tracer`.
    pub fn finish_traced(mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<Outputs<'r, 'm>> {
        let event = Event::Execute { method: self.loaded.plan.name() };
        tracer.begin(event);
        while self.step_traced(tracer)? {}
        tracer.end(event);
        Ok(Outputs { execution: self })
    }
}

impl Drop for Execution<'_, '_> {
    fn drop(&mut self) {
        release(self.loaded);
    }
}

impl core::fmt::Debug for Execution<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Execution").field("next", &self.next).finish_non_exhaustive()
    }
}

/// The outputs of a finished execution. They are in the method's memory, or in the caller's.
#[derive(Debug)]
pub struct Outputs<'r, 'm> {
    execution: Execution<'r, 'm>,
}

impl Outputs<'_, '_> {
    pub fn len(&self) -> usize {
        self.execution.loaded.outputs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Output `index`.
    pub fn get(&self, index: usize) -> Result<Output<'_>> {
        let loaded = &*self.execution.loaded;
        match loaded.value_of(loaded.outputs, index) {
            None => Err(Detail::Index { index: index as i64, size: self.len() }.into()),
            Some(Value::Tensor(state)) => state.tensor().map(Output::Tensor).map_err(|e| e.at(Role::Output, index)),
            Some(Value::Int(v)) => Ok(Output::Int(v)),
            Some(Value::Double(v)) => Ok(Output::Double(v)),
            Some(Value::Bool(v)) => Ok(Output::Bool(v)),
            Some(Value::String(v)) => Ok(Output::String(v)),
            Some(Value::None) => Ok(Output::None),
            Some(other) => Err(Error::from(Detail::Kind { expected: "a tensor or a scalar", got: other.kind() })
                .at(Role::Output, index)),
        }
    }

    /// Output `index`, which must be a tensor.
    pub fn tensor(&self, index: usize) -> Result<Tensor<'_>> {
        match self.get(index)? {
            Output::Tensor(tensor) => Ok(tensor),
            _ => Err(Error::from(Detail::Text("the output is not a tensor")).at(Role::Output, index)),
        }
    }
}

impl<'m> Loaded<'m> {
    fn value_of(&self, list: &[u32], index: usize) -> Option<Value<'m>> {
        list.get(index).and_then(|&value| self.values.get(value as usize)).map(Cell::get)
    }
}

/// Takes the caller's memory away from the method, and gives the outputs of views their own memory back.
fn release(loaded: &Loaded<'_>) {
    for rebound in loaded.rebound {
        rebound.restore();
    }
}

fn show_written(
    values: crate::value::Values<'_>,
    arguments: &[u32],
    writes: impl Fn(usize) -> bool,
    instruction: usize,
    tracer: &mut (impl EventTracer + ?Sized),
) {
    let value = |index: u32| values.get(index as usize).map_or(Value::None, Cell::get);
    for (i, &argument) in arguments.iter().enumerate().filter(|(i, _)| writes(*i)) {
        match value(argument) {
            Value::Tensor(state) => {
                if let Ok(tensor) = state.tensor() {
                    tracer.tensor(instruction, i, tensor);
                }
            }
            Value::TensorList(items) => {
                for &item in items {
                    if let Value::Tensor(state) = value(item)
                        && let Ok(tensor) = state.tensor()
                    {
                        tracer.tensor(instruction, i, tensor);
                    }
                }
            }
            _ => {}
        }
    }
}

fn same(same: bool, detail: Detail) -> Result<()> {
    if same { Ok(()) } else { Err(Error::new(Code::InvalidArgument, detail)) }
}

/// Out of line, so that the copy is of memory that is known not to overlap.
#[inline(never)]
fn set<'m>(slot: &Cell<Value<'m>>, value: Value<'m>) {
    slot.set(value);
}

/// ExecuTorch's tolerance for doubles that were fixed at export. Bare-metal targets demand the same bits: arithmetic on
/// doubles would take a tenth of the runtime's code there.
fn is_close(a: f64, b: f64) -> bool {
    if cfg!(target_os = "none") {
        return a.to_bits() == b.to_bits();
    }
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-4 + 1e-5 * b.abs()
}

/// A condition is a bool, or a bool tensor whose elements are all true.
fn is_true(value: Value<'_>) -> Result<bool> {
    match value {
        Value::Bool(v) => Ok(v),
        Value::Tensor(state) => {
            let tensor = state.tensor()?;
            Ok(tensor.as_slice::<crate::Bool8>()?.iter().all(|b| b.get()))
        }
        other => Err(Detail::Kind { expected: "a bool or a bool tensor", got: other.kind() }.into()),
    }
}

/// Checks type, rank and bounds, and gives the tensor the input's sizes.
fn check_input(state: &TensorState<'_>, view: &TensorView<'_>) -> Result<()> {
    if view.dtype != state.dtype {
        return Err(Detail::Dtype { expected: state.dtype.name(), got: view.dtype }.into());
    }
    if view.sizes.len() != state.rank() {
        return Err(Detail::Count { what: "rank of the input", expected: state.rank(), got: view.sizes.len() }.into());
    }
    for (dim, (&got, &bound)) in view.sizes.iter().zip(state.bounds()).enumerate() {
        if state.dynamism == ShapeDynamism::Static && got != bound {
            return Err(Detail::Size { dim, expected: bound, got }.into());
        }
        if got > bound {
            return Err(Detail::Bound { dim, bound, got }.into());
        }
    }
    state.resize(view.sizes)
}

/// An input that is read in place must lie in memory as the program expects.
fn check_layout(state: &TensorState<'_>, view: &TensorView<'_>) -> Result<()> {
    if strided::is_dense(view.sizes, view.strides, state.strides()) {
        return Ok(());
    }
    Err(Error::invalid("the strides of this unplanned input differ from the program's dim order; copy it first"))
}
