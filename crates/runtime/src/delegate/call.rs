//! One call of a delegate that uses more than host slices.

use super::buffer::CallBuffers;
use super::state::CallStates;
use crate::context::DelegateContext;
use crate::events::DelegateEvents;
use crate::interrupt::Interrupts;

/// The arguments, states and buffers of a delegate call. Fields, so that a delegate can borrow several at once.
#[derive(Debug)]
#[non_exhaustive]
pub struct Call<'c, 'm> {
    /// The arguments. Tensors in device memory have their sizes, and outputs are resized here; what their bytes hold on the
    /// host is out of date.
    pub context: DelegateContext<'m>,
    /// The states of the session that runs.
    pub states: CallStates<'c>,
    /// The arguments in device memory.
    pub buffers: CallBuffers<'c>,
    /// Says whether the execution has to stop.
    pub interrupts: Interrupts<'c>,
    /// Receives the delegate's own events.
    pub events: DelegateEvents<'c>,
}
