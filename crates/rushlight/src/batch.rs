//! Batched calls of several sessions.
//!
//! Each call has a loaded copy of the method, and `Execution::finish_batch` runs them side by side, instruction by
//! instruction. At a delegate in host memory, the delegate of the first copy gets all calls (`Delegate::call_batch`,
//! which by default runs one after the other). No program is compiled for a batch.

use std::sync::Arc;

use rushlight_runtime::{Execution, Input, Outputs, States};

use crate::clock::Timed;
use crate::error::Error;
use crate::instance::{MethodInstance, values};
use crate::module::Module;
use crate::session::Session;
use crate::tensor::Value;

/// A method that runs for several sessions at once. If a backend keeps the sessions' states, it reads its weights once
/// for all of them. A call of eight sessions of a language model, one token each, takes little longer than a call of
/// one.
///
/// [`Module::batch`] makes one. It holds a copy of the method for each session of the largest batch so far. A copy
/// takes memory for intermediate results and outputs; weights are the module's.
#[derive(Debug)]
pub struct MethodBatch {
    method: String,
    copies: Vec<MethodInstance>,
    module: Arc<()>,
}

/// A call of one session.
#[derive(Debug)]
pub struct BatchCall<'c> {
    pub session: &'c mut Session,
    pub inputs: &'c [Input<'c>],
}

impl Module {
    /// Makes a method for calls of several sessions at once.
    ///
    /// # Errors
    /// `NotFound` if the program has no such method.
    pub fn batch(&mut self, method: &str) -> Result<MethodBatch, Error> {
        self.meta(method)?;
        Ok(MethodBatch { method: method.to_owned(), copies: Vec::new(), module: self.identity() })
    }
}

impl MethodBatch {
    /// Makes the missing copies of the method for this many sessions. [`run`](Self::run) makes them, too. Calling this
    /// first shows that there is enough memory for them before a state changes.
    ///
    /// # Errors
    /// The errors of [`Module::load_method`], and `InvalidArgument` for another module.
    pub fn reserve(&mut self, module: &mut Module, sessions: usize) -> Result<(), Error> {
        if !Arc::ptr_eq(&self.module, &module.identity()) {
            return Err(Error::invalid("the batch is of another module").help("make it with this module's `batch`"));
        }
        while self.copies.len() < sessions && !module.shares_memory() {
            self.copies.push(module.instantiate_with(&self.method, false)?);
        }
        Ok(())
    }

    /// Runs the method for each session. Returns the outputs of each call.
    ///
    /// Methods that [share memory](crate::ModuleBuilder::share_memory) run one after the other, as single calls do.
    /// Otherwise results are those of single calls but for the order of sums in matrix products, which may depend on how many rows
    /// there are.
    ///
    /// # Errors
    /// The errors of [`reserve`](Self::reserve) and of the inputs; these leave all states unchanged. Otherwise the
    /// error of the call that fails first. It ends all calls, and each state may have changed or not.
    pub fn run(&mut self, module: &mut Module, calls: &mut [BatchCall<'_>]) -> Result<Vec<Vec<Value>>, Error> {
        self.read(module, calls, |outputs| Ok(values(outputs)?))
    }

    /// As [`run`](Self::run), but lends the outputs of each call to `read` where they are, without a copy, in the order of the
    /// calls.
    ///
    /// # Errors
    /// The errors of `run`, and the error of `read`.
    pub fn read<R>(
        &mut self,
        module: &mut Module,
        calls: &mut [BatchCall<'_>],
        mut read: impl FnMut(&Outputs<'_, '_>) -> Result<R, Error>,
    ) -> Result<Vec<R>, Error> {
        self.reserve(module, calls.len())?;
        if module.shares_memory() {
            return calls
                .iter_mut()
                .map(|call| module.call(&self.method).inputs(call.inputs).session(call.session).read(&mut read))
                .collect();
        }
        let mut executions: Vec<Execution<'_, 'static>> = Vec::with_capacity(calls.len());
        let mut first = None;
        for (copy, call) in self.copies.iter_mut().zip(calls) {
            let deadline = copy.deadline();
            let states: &mut States = call.session.states(&self.module)?;
            let (execution, context) = copy.start_with(Some(states), call.inputs)?;
            executions.push(execution);
            first.get_or_insert((deadline, context));
        }
        let Some((deadline, context)) = first else { return Ok(Vec::new()) };
        let outputs = match deadline {
            None => Execution::finish_batch(executions, &mut ()),
            Some((limit, deadline)) => Execution::finish_batch(executions, &mut Timed::until(&mut (), limit, deadline)),
        };
        let outputs = outputs.map_err(|error| context.explain(error.into()))?;
        outputs.iter().map(read).collect()
    }
}
