//! A loaded method.

#[cfg(feature = "alloc")]
use alloc::vec::Vec;

#[cfg(feature = "alloc")]
use crate::delegate::States;
use crate::error::{Result, Role};
use crate::events::EventTracer;
use crate::execution::{Borrowed, Execution, Outputs};
#[cfg(feature = "alloc")]
use crate::extended::Submission;
use crate::fault::Fault;
use crate::footprint;
use crate::io::{Input, OutputBuffer, TensorView};
use crate::load::{self, LoadOptions};
#[cfg(feature = "alloc")]
use crate::memory::{Allocation, SharedBytes};
use crate::memory::{Confined, Memory, SharedRef};
use crate::options::{self, BackendOption};
use crate::program::Program;
use crate::step::{Loaded, MemoryUse};
use crate::strided;
use crate::tensor::{Access, Tensor, TensorState};
use crate::value::EValue;

/// A method of a program, laid out in memory and ready to execute.
///
/// Executing allocates nothing and takes no lock. A method can move between threads, and executes on one at a time.
pub struct Method<'m> {
    pub(crate) loaded: Confined<Loaded<'m>>,
    pub(crate) shared: Option<SharedRef<'m>>,
    // Dropped after `loaded`, which refers to them.
    #[cfg(feature = "alloc")]
    _memory: Vec<Allocation>,
    #[cfg(feature = "alloc")]
    _files: Vec<SharedBytes>,
}

impl<'m> Method<'m> {
    /// Loads the method called `name` into the caller's memory.
    pub fn load(
        program: &Program<'m>,
        name: &str,
        mut memory: Memory<'m>,
        options: &LoadOptions<'_, 'm>,
    ) -> Result<Self> {
        let shared = memory.shared();
        let hold = shared.as_ref().map(SharedRef::hold).transpose()?;
        let loaded = Confined(load::load(program, name, &mut memory, options)?);
        drop(hold);
        Ok(Self {
            loaded,
            shared,
            #[cfg(feature = "alloc")]
            _memory: memory.into_allocations(),
            #[cfg(feature = "alloc")]
            _files: program
                .owner()
                .into_iter()
                .chain(options.external_data.iter().filter_map(|data| data.owner()))
                .collect(),
        })
    }

    pub fn name(&self) -> &str {
        self.loaded.0.plan.name()
    }

    pub fn num_inputs(&self) -> usize {
        self.loaded.0.inputs.len()
    }

    pub fn num_outputs(&self) -> usize {
        self.loaded.0.outputs.len()
    }

    /// The memory that the method takes.
    pub fn memory_use(&self) -> MemoryUse {
        self.loaded.0.sizes
    }

    /// The memory that the method would take on a 32-bit microcontroller. Memory that delegates allocate is not
    /// counted.
    pub fn memory_use_on_32_bit(&self) -> MemoryUse {
        footprint::on_32_bit(&self.loaded.0)
    }

    /// Calculates [`memory_use`](Self::memory_use), to check the calculation.
    #[doc(hidden)]
    pub fn calculated_memory_use(&self) -> MemoryUse {
        footprint::here(&self.loaded.0)
    }

    /// True if the program writes to this input, which must then be given as [`Input::TensorMut`] unless it is planned.
    pub fn writes_input(&self, index: usize) -> bool {
        self.loaded.0.input_written.get(index).copied().unwrap_or(false)
    }

    /// True if `view` can be read in place, or the method can copy it. It can be copied if the input is planned. It can
    /// be read in place if its memory has the dim order and alignment that the program expects and no instruction
    /// writes to it.
    pub fn accepts(&self, index: usize, view: &TensorView<'_>) -> bool {
        match self.input_state(index) {
            Some(state) if state.access == Access::Bound => {
                let size = if state.dtype.is_complex() { state.dtype.size() / 2 } else { state.dtype.size() };
                !self.writes_input(index)
                    && view.data.as_ptr().addr() & (size - 1) == 0
                    && view.sizes.len() == state.rank()
                    && strided::has_dim_order(view.sizes, view.strides, state.dim_order)
            }
            _ => true,
        }
    }

    /// The dim order that the program expects of a tensor input.
    pub fn input_dim_order(&self, index: usize) -> Option<&[u8]> {
        self.input_state(index).map(|state| state.dim_order)
    }

    fn input_state(&self, index: usize) -> Option<&TensorState<'m>> {
        let loaded = &self.loaded.0;
        match loaded.inputs.get(index).and_then(|&value| loaded.values.get(value as usize))?.get() {
            EValue::Tensor(state) => Some(state),
            _ => None,
        }
    }

    /// True if this output is a tensor that the program did not plan. [`start`](Self::start) then needs memory for it.
    pub fn output_needs_memory(&self, index: usize) -> bool {
        let loaded = &self.loaded.0;
        loaded.outputs.get(index).is_some_and(|&value| {
            let tensor = loaded.values.get(value as usize).map(core::cell::Cell::get);
            !loaded.inputs.contains(&value)
                && !loaded.outputs.get(..index).unwrap_or_default().contains(&value)
                && matches!(tensor, Some(EValue::Tensor(tensor)) if tensor.access == Access::Bound)
        })
    }

    /// The parts that an execution borrows.
    fn borrowed(&mut self) -> Borrowed<'_, 'm> {
        Borrowed { loaded: &mut self.loaded.0, shared: self.shared.as_ref() }
    }

    /// Runs the method.
    ///
    /// Fails if an input has another kind, element type, rank or size than the program allows, or an operator fails.
    /// Outputs that the program did not plan need memory: see [`start`](Self::start).
    pub fn execute<'r>(&'r mut self, inputs: &[Input<'r>]) -> Result<Outputs<'r, 'm>> {
        Execution::whole(self.borrowed(), inputs, &mut [], &mut ())
    }

    /// Runs the method and reports events to `tracer`.
    pub fn execute_traced<'r>(
        &'r mut self,
        inputs: &[Input<'r>],
        outputs: &mut [OutputBuffer<'r>],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Outputs<'r, 'm>> {
        Execution::whole(self.borrowed(), inputs, outputs, tracer)
    }

    /// Binds inputs, and memory for unplanned outputs, for an execution that the caller drives.
    pub fn start<'r>(
        &'r mut self,
        inputs: &[Input<'r>],
        outputs: &mut [OutputBuffer<'r>],
    ) -> Result<Execution<'r, 'm>> {
        Execution::start(self.borrowed(), inputs, outputs)
    }

    /// Like [`start`](Self::start), for a session: delegates use `states` instead of the method's own. The states that
    /// the method needs must have been [added](Self::add_states).
    #[cfg(feature = "alloc")]
    pub fn start_in<'r>(
        &'r mut self,
        states: &'r mut States,
        inputs: &[Input<'r>],
        outputs: &mut [OutputBuffer<'r>],
    ) -> Result<Execution<'r, 'm>> {
        Execution::start_in(self.borrowed(), states, inputs, outputs)
    }

    /// Runs the method until an instruction would wait. Poll the result to run the others. If no delegate waits, it does the
    /// same as [`execute`](Self::execute).
    #[cfg(feature = "alloc")]
    pub fn submit<'r>(&'r mut self, inputs: &[Input<'r>]) -> Result<Submission<'r, 'm>> {
        self.start(inputs, &mut [])?.submit()
    }

    /// Makes the states that the method's delegates need and that `states` does not have yet, with their first values.
    /// Fails if `states` has one of them with other bytes ([`Fault::StateBytes`](crate::Fault::StateBytes)), or if they
    /// exceed its limit.
    #[cfg(feature = "alloc")]
    pub fn add_states(&mut self, states: &mut States) -> Result<()> {
        self.loaded.0.add_states(states)
    }

    /// True if delegates of the method keep state.
    #[cfg(feature = "alloc")]
    pub fn has_delegate_states(&mut self) -> bool {
        let delegates = &mut self.loaded.0.delegates;
        (0..delegates.len() as u32)
            .any(|index| delegates.get_mut(index).is_some_and(|delegate| delegate.handle.get().state(0).is_some()))
    }

    /// The name of a buffer that the method keeps between calls in its own memory, not in a delegate's state; `None`
    /// without one.
    pub fn planned_state(&self) -> Option<&str> {
        use rushlight_format::pte::{TensorStorage, ValueSpec};
        self.loaded.0.plan.values().find_map(|value| match value {
            ValueSpec::Tensor(spec) => match spec.storage {
                TensorStorage::PlannedInit { .. } | TensorStorage::ExternalPlanned { .. } => {
                    Some(spec.fully_qualified_name.unwrap_or("a buffer"))
                }
                TensorStorage::Planned { .. } => spec.fully_qualified_name,
                _ => None,
            },
            _ => None,
        })
    }

    /// Changes an option of a backend, for all of its delegates in this method. Fails, with the known options, if it
    /// has no option of this name, if the type is another, or if the option can be set only at load.
    pub fn set_option(&mut self, option: &BackendOption<'_>) -> Result<()> {
        let delegates = &mut self.loaded.0.delegates;
        let mut is_used = false;
        for index in 0..delegates.len() as u32 {
            let Some(delegate) = delegates.get_mut(index).filter(|delegate| delegate.id == option.backend) else {
                continue;
            };
            options::find_changeable(delegate.options, option.key, option.value)?;
            let result = delegate.handle.get().set_option(option.key, option.value);
            result.map_err(|error| error.at(Role::Delegate, index as usize))?;
            is_used = true;
        }
        if is_used { Ok(()) } else { Err(Fault::NoOptionBackend.into()) }
    }

    /// A parameter or buffer by its fully qualified name in the exported module, with its value after the last
    /// execution.
    pub fn attribute(&mut self, name: &str) -> Result<Tensor<'_>> {
        if self.shared.is_some() {
            return Err(Fault::SharedAttributes.into());
        }
        let loaded = &self.loaded.0;
        for (index, value) in loaded.plan.values().enumerate() {
            let rushlight_format::pte::ValueSpec::Tensor(spec) = value else { continue };
            if spec.fully_qualified_name != Some(name) {
                continue;
            }
            if let Some(EValue::Tensor(tensor)) = loaded.values.get(index).map(core::cell::Cell::get)
                && tensor.access != Access::Bound
                && !tensor.is_rebound()
            {
                return tensor.tensor().map_err(|e| e.at(Role::Value, index));
            }
        }
        Err(Fault::NoAttribute.into())
    }
}

impl core::fmt::Debug for Method<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Method").field("name", &self.name()).finish_non_exhaustive()
    }
}
