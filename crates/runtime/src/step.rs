//! A loaded method: its steps, its delegates, and the other contents of its memory.

#[cfg(feature = "alloc")]
use alloc::boxed::Box;
#[cfg(feature = "alloc")]
use alloc::vec::Vec;
use core::cell::Cell;

use rushlight_format::pte::Plan;
use rushlight_format::shapes::Shapes;

use crate::delegate::DelegateHandle;
#[cfg(feature = "alloc")]
use crate::delegate::States;
#[cfg(feature = "alloc")]
use crate::delegate::buffer::{Place, PlacedValue};
#[cfg(feature = "alloc")]
use crate::delegate::state::StateSlot;
#[cfg(feature = "alloc")]
use crate::error::Result;
use crate::memory::Temp;
use crate::op::Op;
use crate::options::OptionSpec;
use crate::tensor::Rebound;
use crate::value::Values;

/// One instruction, resolved.
#[derive(Clone, Copy)]
pub(crate) enum Step<'m> {
    Kernel {
        op: &'static Op,
        arguments: &'m [u32],
    },
    Delegate {
        delegate: u32,
        arguments: &'m [u32],
    },
    Move {
        from: u32,
        to: u32,
    },
    JumpFalse {
        condition: u32,
        destination: u32,
    },
    Free {
        value: u32,
    },
    /// An operator that would copy a tensor onto itself.
    Nothing,
    /// A step that involves a delegate's state, device memory or completion; see [`Extended`].
    #[cfg(feature = "alloc")]
    Extended {
        step: u32,
    },
}

/// A delegate and the name of its backend.
pub(crate) struct LoadedDelegate<'m> {
    pub(crate) id: &'m str,
    pub(crate) outputs: usize,
    pub(crate) options: &'static [OptionSpec],
    pub(crate) handle: DelegateHandle<'m>,
}

/// The delegates of a method. The method's memory drops nothing by itself, but delegates may own heap memory. They are
/// therefore dropped here, if a method is dropped or its loading fails.
pub(crate) struct Delegates<'m>(&'m mut [Option<LoadedDelegate<'m>>]);

impl<'m> Delegates<'m> {
    pub(crate) fn new(slots: &'m mut [Option<LoadedDelegate<'m>>]) -> Self {
        Self(slots)
    }

    /// The place of each delegate, which loading fills.
    pub(crate) fn slots(&mut self) -> &mut [Option<LoadedDelegate<'m>>] {
        self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut LoadedDelegate<'m>> {
        self.0.get_mut(index as usize)?.as_mut()
    }

    /// Returns the number of arguments that a delegate writes.
    pub(crate) fn outputs(&self, index: u32) -> usize {
        self.0.get(index as usize).and_then(Option::as_ref).map_or(0, |delegate| delegate.outputs)
    }
}

impl Drop for Delegates<'_> {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|delegate| *delegate = None);
    }
}

/// The extended steps of a method, with their states and device copies; see [`extended`](crate::extended).
#[cfg(feature = "alloc")]
pub(crate) struct Extended<'m> {
    pub(crate) steps: Vec<ExtendedStep<'m>>,
    pub(crate) placed: Vec<PlacedValue>,
    /// The states of executions that get no states from the caller.
    pub(crate) states: States,
    /// The delegate that was submitted and is not complete.
    pub(crate) in_flight: Option<u32>,
}

/// A step that uses state, device memory or completion.
#[cfg(feature = "alloc")]
pub(crate) struct ExtendedStep<'m> {
    /// The step without its use of devices.
    pub(crate) plain: Step<'m>,
    /// Positions in `placed` of the values that the step reads on the host.
    pub(crate) reads: Vec<u32>,
    /// Positions in `placed` of the values that the step writes on the host.
    pub(crate) writes: Vec<u32>,
    /// For each argument of a delegate: its buffer, if it is in device memory.
    pub(crate) places: Vec<Option<Place>>,
    /// The states of a delegate.
    pub(crate) slots: Vec<StateSlot>,
}

/// Progress of an execution in its current step, if that is an extended one.
///
/// It is as wide as the adjacent counter, so that one store sets both.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    /// No extended step ran yet.
    Fresh,
    /// Updates the copies that the step reads.
    Inputs,
    /// A delegate was submitted.
    Submitted,
    /// Updates the host's copy of the outputs that must be current on the host.
    Outputs,
}

#[cfg(feature = "alloc")]
impl<'m> Extended<'m> {
    /// Step `index` without its use of devices.
    pub(crate) fn plain(&self, index: u32) -> Option<&Step<'m>> {
        self.steps.get(index as usize).map(|step| &step.plain)
    }

    /// Step `index` without its use of devices, with its states and those of executions that get none from the caller;
    /// `None` if it uses a value in device memory.
    pub(crate) fn host_step(&mut self, index: u32) -> Option<(Step<'m>, &mut [StateSlot], &mut States)> {
        let ExtendedStep { plain, reads, writes, places, slots } = self.steps.get_mut(index as usize)?;
        let is_on_host = reads.is_empty() && writes.is_empty() && places.iter().all(Option::is_none);
        is_on_host.then_some((*plain, slots, &mut self.states))
    }
}

/// The parts of a method that are stored in its memory.
pub(crate) struct Loaded<'m> {
    pub(crate) plan: Plan<'m>,
    pub(crate) values: Values<'m>,
    pub(crate) inputs: &'m [u32],
    pub(crate) outputs: &'m [u32],
    /// Rules about the sizes of the inputs, if the program has more than the bounds of its tensors.
    pub(crate) shapes: Option<Shapes<'m>>,
    /// For each input: true if an instruction writes it.
    pub(crate) input_written: &'m [bool],
    pub(crate) steps: &'m [Step<'m>],
    pub(crate) delegates: Delegates<'m>,
    /// The extended steps, if there are any.
    #[cfg(feature = "alloc")]
    pub(crate) extended: Option<Box<Extended<'m>>>,
    /// A bit for each output of the delegate with the most outputs; it is set if the output was taken in the current
    /// call.
    pub(crate) taken: &'m [Cell<usize>],
    pub(crate) rebound: &'m [Rebound<'m>],
    pub(crate) temp: &'m Temp<'m>,
    pub(crate) sizes: MemoryUse,
}

impl<'m> Loaded<'m> {
    /// The steps of the program, without the replacements of extended steps.
    pub(crate) fn plain_steps(&self) -> impl Iterator<Item = &Step<'m>> {
        self.steps.iter().map(|step| match step {
            #[cfg(feature = "alloc")]
            Step::Extended { step: index } => match &self.extended {
                Some(extended) => extended.plain(*index).unwrap_or(step),
                None => step,
            },
            _ => step,
        })
    }

    /// Makes the states that the delegates declare and that `states` does not have yet.
    #[cfg(feature = "alloc")]
    pub(crate) fn add_states(&mut self, states: &mut States) -> Result<()> {
        for index in 0..self.delegates.len() as u32 {
            let Some(delegate) = self.delegates.get_mut(index) else { continue };
            states.add(delegate.id, delegate.handle.get())?;
        }
        Ok(())
    }
}

/// The memory that a loaded method takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Values, tensors, steps and delegates.
    pub method: usize,
    /// Planned buffers, all memory ids together.
    pub planned: usize,
    /// Maximum temporary memory of one operator.
    pub temp: usize,
    /// The block that holds everything, with padding and the memory that only loading needs. Separate or shared buffers
    /// do not count.
    pub total: usize,
}

/// Returns the maximum number of outputs of the delegates that are called.
pub(crate) fn max_outputs<'a, 'm: 'a>(
    steps: impl IntoIterator<Item = &'a Step<'m>>,
    delegates: &Delegates<'_>,
) -> usize {
    let outputs = steps.into_iter().map(|step| match step {
        Step::Delegate { delegate, .. } => delegates.outputs(*delegate),
        _ => 0,
    });
    outputs.max().unwrap_or(0)
}
