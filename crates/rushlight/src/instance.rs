//! A loaded method with everything that one call needs: copies of outputs, memory for unplanned outputs, and inputs in
//! the dim order that the program expects.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

#[cfg(feature = "lower")]
use rushlight_compiler::{debug_map, emit::MethodMap};
use rushlight_format::pte::{self, Plan, TensorStorage};
use rushlight_runtime::{
    self as runtime, Code, DataMap, Detail, EventTracer, Fault, Input, Method, Output, OutputBuffer, Outputs, Program,
    Registry, Role, ScalarType, States, Tensor as TensorRef, TensorView, TensorViewMut, dense_strides,
};

use crate::clock::Timed;
use crate::error::Error;
#[cfg(feature = "_backends")]
use crate::explain::{StepOrigin, explain_step};
use crate::explain::{explain, explain_inputs};
use crate::meta::{MethodMeta, TensorInfo, ValueInfo};
use crate::tensor::{Tensor, Value};

/// A loaded method with memory and state of its own.
pub struct MethodInstance {
    method: Method<'static>,
    shown: Shown,
    /// The program that runs: that of the file, or the lowered one.
    program: Program<'static>,
    registry: Registry<'static>,
    /// The outputs that need memory from the caller: position, element type, maximum sizes.
    unplanned: Vec<(usize, ScalarType, Vec<usize>)>,
    time_limit: Option<Duration>,
    /// True if delegates keep states, which are lent to each call.
    pub(crate) has_lent_states: bool,
    /// Copies of inputs that the last call reads.
    copies: Vec<Option<Ordered>>,
    /// Memory for the outputs of the last call that the program did not plan.
    memory: Vec<(usize, Tensor)>,
    /// The method's description, once a call needs it.
    meta: Option<Arc<MethodMeta>>,
}

/// The program that users see. Another may run in its place.
pub(crate) struct Shown {
    /// The program of the file.
    pub program: Program<'static>,
    pub external: Vec<DataMap<'static>>,
    /// The origins of the lowered method's instructions.
    #[cfg(feature = "lower")]
    pub map: Option<MethodMap>,
}

impl Shown {
    /// Explains an error of the `running` program. Errors about inputs and outputs use the file's names.
    pub fn explain(
        &self,
        error: &rushlight_runtime::Error,
        running: &Program<'_>,
        method: &str,
        registry: &Registry<'_>,
    ) -> Error {
        self.explain_with(error, running, method, |plan| explain(error, plan, registry))
    }

    fn explain_with(
        &self,
        error: &rushlight_runtime::Error,
        running: &Program<'_>,
        method: &str,
        explain: impl Fn(&Plan<'_>) -> Error,
    ) -> Error {
        let of_file =
            error.site.instruction.is_none() && matches!(error.site.role, Role::Input | Role::Output | Role::None);
        let program = if of_file { &self.program } else { running };
        let parsed = program.parsed();
        let Some(plan) = parsed.method_named(method) else { return (*error).into() };
        let result = explain(&plan);
        #[cfg(feature = "_backends")]
        if let (Some(step), Some(instruction)) = (error.site.step, error.site.instruction)
            && let Some(origin) = self.step(&parsed, &plan, instruction as usize, step as usize)
        {
            return explain_step(result, error, step, &origin);
        }
        result
    }

    /// Returns the origin of a step of a delegate.
    #[cfg(feature = "_backends")]
    fn step(&self, program: &pte::Program<'_>, plan: &Plan<'_>, instruction: usize, step: usize) -> Option<StepOrigin> {
        let Some(pte::Instruction::Delegate { delegate, .. }) = plan.instruction(instruction) else { return None };
        let delegate = plan.delegate(delegate as usize)?;
        let step = crate::backends::step(delegate.id, program.delegate_data(delegate.data)?, step)?;
        #[cfg(feature = "lower")]
        {
            let maps = if self.map.is_none() { debug_map::of_program(program) } else { Vec::new() };
            let map = self.map.as_ref().or_else(|| maps.iter().find(|map| map.method == plan.name()));
            let nodes = map.and_then(|map| map.instructions.get(instruction)?.as_ref()).map(|origin| &origin.nodes);
            if let Some(node) = nodes.and_then(|nodes| nodes.iter().find(|node| node.node == step.value)) {
                let (operator, module, source) =
                    (Some(node.op.clone()), Some(node.module.clone()), node.source.clone());
                return Some(StepOrigin { step, operator, module, source });
            }
        }
        Some(StepOrigin { step, operator: None, module: None, source: None })
    }

    /// Copies a parameter or buffer from the file.
    fn constant(&self, method: &str, name: &str) -> Option<Result<Tensor, Error>> {
        let parsed = self.program.parsed();
        let plan = parsed.method_named(method)?;
        let spec = plan.values().find_map(|value| match value {
            pte::ValueSpec::Tensor(spec) if spec.fully_qualified_name == Some(name) => Some(spec),
            _ => None,
        })?;
        let external = |name: &str| {
            let in_files = self.external.iter().find_map(|data| data.parsed().get(name).map(|tensor| tensor.data));
            in_files.or_else(|| parsed.named(name))
        };
        let bytes = match spec.storage {
            TensorStorage::Constant { index } => parsed.constant(index),
            TensorStorage::PlannedInit { index, .. } => parsed.mutable_data(index),
            TensorStorage::External { name } | TensorStorage::ExternalPlanned { name, .. } => external(name),
            TensorStorage::Planned { .. } | TensorStorage::Unplanned => None,
        };
        let info = TensorInfo::of(&spec);
        let bytes = bytes?.get(..spec.nbytes)?;
        let mut strides = vec![1; info.sizes.len()];
        dense_strides(&info.sizes, info.dim_order.iter().map(|&dim| dim as usize), &mut strides);
        let view = TensorView::strided(info.dtype, &info.sizes, &strides, bytes);
        Some(view.map_err(Error::from).and_then(|view| Tensor::copy_of(&view)))
    }
}

pub(crate) enum Failure {
    Facade(Error),
    Runtime(rushlight_runtime::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Facade(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Facade(error) => error,
            Failure::Runtime(error) => error.into(),
        }
    }
}

impl From<rushlight_runtime::Error> for Failure {
    fn from(error: rushlight_runtime::Error) -> Self {
        Self::Runtime(error)
    }
}

impl MethodInstance {
    pub(crate) fn new(
        shown: Shown,
        program: Program<'static>,
        method: Method<'static>,
        meta: &MethodMeta,
        registry: Registry<'static>,
        time_limit: Option<Duration>,
    ) -> Self {
        let unplanned = meta.outputs.iter().enumerate().filter_map(|(i, output)| match output {
            ValueInfo::Tensor(info) if method.output_needs_memory(i) => Some((i, info.dtype, info.sizes.clone())),
            _ => None,
        });
        let unplanned = unplanned.collect();
        Self {
            unplanned,
            method,
            shown,
            program,
            registry,
            time_limit,
            has_lent_states: false,
            copies: Vec::new(),
            memory: Vec::new(),
            meta: None,
        }
    }

    /// Describes the method as the program's file has it.
    pub(crate) fn meta(&mut self) -> Result<Arc<MethodMeta>, Error> {
        if let Some(meta) = &self.meta {
            return Ok(meta.clone());
        }
        let plan = self.shown.program.parsed().method_named(self.method.name());
        let plan = plan.ok_or_else(|| Error::new(Code::Internal, "the method is not in its program"))?;
        Ok(self.meta.insert(Arc::new(MethodMeta::of(&plan))).clone())
    }

    /// True if the method keeps state between calls, in its own memory or in that of its delegates. Copies of such a method are no
    /// substitutes for each other.
    pub fn has_state(&mut self) -> bool {
        self.method.planned_state().is_some() || self.method.has_delegate_states()
    }

    /// Runs the method and copies its outputs.
    ///
    /// Inputs may have any strides. An input that the program would read in place is copied first, if its strides or
    /// alignment do not allow that, or if the program writes to it. The caller's data never changes.
    pub fn run(&mut self, inputs: &[Input<'_>]) -> Result<Vec<Value>, Error> {
        self.run_traced(inputs, &mut ())
    }

    /// As [`run`](Self::run), and reports events to `tracer`.
    pub fn run_traced(
        &mut self,
        inputs: &[Input<'_>],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Vec<Value>, Error> {
        self.run_with(None, inputs, tracer)
    }

    /// Runs the method with the states of a session, or with its own.
    pub(crate) fn run_with(
        &mut self,
        states: Option<&mut States>,
        inputs: &[Input<'_>],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Vec<Value>, Error> {
        let result = self.read_with(states, inputs, tracer, values);
        self.release();
        result
    }

    /// Frees what the last call made for its inputs and outputs.
    pub(crate) fn release(&mut self) {
        self.memory.clear();
        self.copies.clear();
    }

    /// As [`run_with`](Self::run_with), but lends the outputs to `read` in place of copying them.
    pub(crate) fn read_with<R>(
        &mut self,
        states: Option<&mut States>,
        inputs: &[Input<'_>],
        tracer: &mut (impl EventTracer + ?Sized),
        read: impl FnOnce(&Outputs<'_, '_>) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let result = match self.time_limit {
            None => self.call(states, inputs, tracer, read),
            Some(limit) => self.call(states, inputs, &mut Timed::new(tracer, limit), read),
        };
        result.map_err(|failure| match failure {
            Failure::Facade(error) => error,
            Failure::Runtime(error) => {
                let explain = |plan: &Plan<'_>| explain_inputs(&error, plan, &self.registry, inputs);
                self.shown.explain_with(&error, &self.program, self.method.name(), explain)
            }
        })
    }

    fn call<R>(
        &mut self,
        states: Option<&mut States>,
        inputs: &[Input<'_>],
        tracer: &mut (impl EventTracer + ?Sized),
        read: impl FnOnce(&Outputs<'_, '_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if self.accepts(inputs) {
            return self.execute(states, inputs, tracer, read);
        }
        let mut copies = copies(&self.method, inputs)?;
        let result = {
            let borrowed = borrowed_inputs(&self.method, inputs, &mut copies)?;
            self.execute(states, &borrowed, tracer, read)
        };
        // An output may be one of the copies.
        self.copies = copies;
        result
    }

    /// Submits a call: it continues while it is polled. See [`Call::submit`](crate::Call::submit).
    pub fn submit<'r>(&'r mut self, inputs: &'r [Input<'r>]) -> Result<Submission<'r>, Error> {
        self.submit_with(None, inputs)
    }

    pub(crate) fn submit_with<'r>(
        &'r mut self,
        states: Option<&'r mut States>,
        inputs: &'r [Input<'r>],
    ) -> Result<Submission<'r>, Error> {
        let deadline = self.deadline();
        let (execution, context) = self.start_with(states, inputs)?;
        let submitted = match deadline {
            None => execution.submit(),
            Some((limit, deadline)) => execution.submit_traced(&mut Timed::until(&mut (), limit, deadline)),
        };
        match submitted {
            Ok(submission) => Ok(Submission { submission, deadline, context }),
            Err(error) => Err(context.explain(error.into())),
        }
    }

    /// Returns the time limit of calls, and the deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Option<(Duration, Option<Instant>)> {
        self.time_limit.map(|limit| (limit, crate::clock::deadline(limit)))
    }

    /// Binds the inputs, or copies of them, and memory for the outputs.
    pub(crate) fn start_with<'r>(
        &'r mut self,
        states: Option<&'r mut States>,
        inputs: &'r [Input<'r>],
    ) -> Result<(runtime::Execution<'r, 'static>, Context<'r>), Error> {
        let is_copied = !self.accepts(inputs);
        self.copies.clear();
        if is_copied {
            self.copies = copies(&self.method, inputs)?;
        }
        self.memory = zeros(&self.unplanned)?;
        let name = self.method.name().to_owned();
        let Self { method, shown, program, registry, copies, memory, .. } = self;
        let context = Context { shown, program, registry, inputs, name };
        let mut buffers = buffers(memory);
        let borrowed;
        let given = if is_copied {
            borrowed = borrowed_inputs(method, inputs, copies).map_err(|failure| context.explain(failure))?;
            &borrowed[..]
        } else {
            inputs
        };
        let execution = match states {
            Some(states) => method.start_in(states, given, &mut buffers),
            None => method.start(given, &mut buffers),
        };
        match execution {
            Ok(execution) => Ok((execution, context)),
            Err(error) => Err(context.explain(error.into())),
        }
    }

    /// True if the method reads these inputs in place, without a copy.
    pub(crate) fn accepts(&self, inputs: &[Input<'_>]) -> bool {
        inputs.iter().enumerate().all(|(i, input)| match input {
            Input::Tensor(view) => self.method.accepts(i, view),
            _ => true,
        })
    }

    /// Returns the method itself, to run single steps or to write outputs in place. It ignores the time limit.
    pub fn method(&mut self) -> &mut Method<'static> {
        &mut self.method
    }

    /// Copies a parameter or buffer, by its name in the exported module.
    pub fn attribute(&mut self, name: &str) -> Result<Tensor, Error> {
        let error = match self.method.attribute(name) {
            Ok(tensor) => return copy(tensor),
            Err(error) => error,
        };
        // A lowered program may lack the tensor, or have it under another name. A constant of the file never changes.
        if matches!(error.detail, Detail::Fault(Fault::NoAttribute, ..))
            && let Some(tensor) = self.shown.constant(self.method.name(), name)
        {
            return tensor;
        }
        let site = format!("attribute `{name}` of `{}`", self.method.name());
        Err(Error::new(error.code, error.detail.to_string()).site(site))
    }

    fn execute<R>(
        &mut self,
        states: Option<&mut States>,
        inputs: &[Input<'_>],
        tracer: &mut (impl EventTracer + ?Sized),
        read: impl FnOnce(&Outputs<'_, '_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.memory = zeros(&self.unplanned)?;
        let mut buffers = buffers(&mut self.memory);
        let outputs = match states {
            None => self.method.execute_traced(inputs, &mut buffers, tracer)?,
            Some(states) => self.method.start_in(states, inputs, &mut buffers)?.finish_traced(tracer)?,
        };
        read(&outputs)
    }
}

/// Allocates memory for outputs that the program did not plan.
fn zeros(unplanned: &[(usize, ScalarType, Vec<usize>)]) -> Result<Vec<(usize, Tensor)>, Error> {
    let mut memory = Vec::with_capacity(unplanned.len());
    for (index, dtype, sizes) in unplanned {
        memory.push((*index, Tensor::zeros(*dtype, sizes)?));
    }
    Ok(memory)
}

fn buffers(memory: &mut [(usize, Tensor)]) -> Vec<OutputBuffer<'_>> {
    memory.iter_mut().map(|(index, tensor)| OutputBuffer { index: *index, data: tensor.bytes_mut() }).collect()
}

/// Copies the outputs.
pub(crate) fn values(outputs: &Outputs<'_, '_>) -> Result<Vec<Value>, Failure> {
    let mut values = Vec::with_capacity(outputs.len());
    for index in 0..outputs.len() {
        values.push(match outputs.get(index)? {
            Output::Tensor(tensor) => Value::Tensor(copy(tensor)?),
            Output::Int(v) => Value::Int(v),
            Output::Double(v) => Value::Double(v),
            Output::Bool(v) => Value::Bool(v),
            Output::String(v) => Value::String(v.to_owned()),
            Output::None => Value::None,
        });
    }
    Ok(values)
}

/// Copies the inputs that the method cannot read in place.
fn copies(method: &Method<'_>, inputs: &[Input<'_>]) -> Result<Vec<Option<Ordered>>, Error> {
    let mut copies = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate() {
        copies.push(match input {
            Input::Tensor(view) if !method.accepts(i, view) => {
                Some(Ordered::copy_of(view, method.input_dim_order(i).unwrap_or_default())?)
            }
            _ => None,
        });
    }
    Ok(copies)
}

/// Returns the inputs, or their copies if there are some.
fn borrowed_inputs<'i>(
    method: &Method<'_>,
    inputs: &'i [Input<'_>],
    copies: &'i mut [Option<Ordered>],
) -> Result<Vec<Input<'i>>, Failure> {
    let mut borrowed = Vec::with_capacity(inputs.len());
    for (i, (input, copy)) in inputs.iter().zip(copies).enumerate() {
        let is_written = method.writes_input(i);
        borrowed.push(match (input, copy) {
            (_, Some(copy)) => {
                if is_written {
                    Input::TensorMut(copy.view_mut()?)
                } else {
                    Input::Tensor(copy.view()?)
                }
            }
            (Input::Tensor(view), None) => Input::Tensor(*view),
            (Input::Int(v), None) => Input::Int(*v),
            (Input::Double(v), None) => Input::Double(*v),
            (Input::Bool(v), None) => Input::Bool(*v),
            (Input::String(v), None) => Input::String(v),
            (Input::None, None) => Input::None,
            (Input::TensorMut(_), None) => {
                let text = "a mutable tensor cannot be given beside inputs that have to be copied";
                return Err(Error::invalid(text).into());
            }
        });
    }
    Ok(borrowed)
}

/// The context that explains the errors of a call.
pub(crate) struct Context<'r> {
    shown: &'r Shown,
    program: &'r Program<'static>,
    registry: &'r Registry<'static>,
    inputs: &'r [Input<'r>],
    name: String,
}

impl Context<'_> {
    pub fn explain(&self, failure: Failure) -> Error {
        match failure {
            Failure::Facade(error) => error,
            Failure::Runtime(error) => {
                let explain = |plan: &Plan<'_>| explain_inputs(&error, plan, self.registry, self.inputs);
                self.shown.explain_with(&error, self.program, &self.name, explain)
            }
        }
    }
}

/// A submitted call. Dropping it cancels the rest of the call.
pub struct Submission<'r> {
    submission: runtime::Submission<'r, 'static>,
    deadline: Option<(Duration, Option<Instant>)>,
    context: Context<'r>,
}

impl Submission<'_> {
    /// Proceeds as far as possible without waiting. Ready when the outputs are computed.
    pub fn poll(&mut self) -> Result<Poll<()>, Error> {
        self.poll_traced(&mut ())
    }

    /// As [`poll`](Self::poll), and reports events to `tracer`, which may stop the call.
    pub fn poll_traced(&mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<Poll<()>, Error> {
        let result = match self.deadline {
            None => self.submission.poll_traced(tracer),
            Some((limit, deadline)) => self.submission.poll_traced(&mut Timed::until(tracer, limit, deadline)),
        };
        result.map_err(|error| self.context.explain(error.into()))
    }

    /// Waits until the call is complete, and copies its outputs. If a device does not let the host wait, poll first.
    pub fn complete(self) -> Result<Vec<Value>, Error> {
        self.complete_with(values)
    }

    /// As [`complete`](Self::complete), but lends the outputs to `read` where they are, without a copy.
    ///
    /// # Errors
    /// The errors of the call, and the error of `read`.
    pub fn read<R>(self, read: impl FnOnce(&Outputs<'_, '_>) -> Result<R, Error>) -> Result<R, Error> {
        self.complete_with(|outputs| Ok(read(outputs)?))
    }

    fn complete_with<R>(self, read: impl FnOnce(&Outputs<'_, '_>) -> Result<R, Failure>) -> Result<R, Error> {
        let Self { submission, deadline, context } = self;
        let outputs = match deadline {
            None => submission.complete(),
            Some((limit, deadline)) => submission.complete_traced(&mut Timed::until(&mut (), limit, deadline)),
        };
        outputs.map_err(Failure::from).and_then(|outputs| read(&outputs)).map_err(|failure| context.explain(failure))
    }
}

impl core::fmt::Debug for Submission<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Submission").field(&self.submission).finish()
    }
}

impl core::fmt::Debug for MethodInstance {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("MethodInstance").field(&self.method).finish()
    }
}

/// A copy of a tensor in a given dim order.
struct Ordered {
    data: Tensor,
    sizes: Vec<usize>,
    strides: Vec<usize>,
}

impl Ordered {
    fn copy_of(view: &TensorView<'_>, dim_order: &[u8]) -> Result<Self, Error> {
        let sizes = view.sizes().to_vec();
        let mut data = Tensor::zeros(view.dtype(), &sizes)?;
        let mut strides = vec![1; sizes.len()];
        if dim_order.len() == sizes.len() {
            dense_strides(&sizes, dim_order.iter().map(|&dim| dim as usize), &mut strides);
            view.copy_ordered(dim_order, data.bytes_mut());
        }
        Ok(Self { data, sizes, strides })
    }

    fn view(&self) -> Result<TensorView<'_>, rushlight_runtime::Error> {
        TensorView::strided(self.data.dtype(), &self.sizes, &self.strides, self.data.bytes())
    }

    fn view_mut(&mut self) -> Result<TensorViewMut<'_>, rushlight_runtime::Error> {
        let dtype = self.data.dtype();
        TensorViewMut::strided(dtype, &self.sizes, &self.strides, self.data.bytes_mut())
    }
}

fn copy(tensor: TensorRef<'_>) -> Result<Tensor, Error> {
    Tensor::copy_of(&TensorView::from(tensor))
}
