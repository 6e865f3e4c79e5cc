//! A call of a method: its inputs, session and tracer, and the three ways to run it.

use rushlight_runtime::{Code, EventTracer, Input, Outputs, States};

use super::Module;
use crate::error::Error;
use crate::instance::{MethodInstance, Submission};
use crate::meta::ValueInfo;
use crate::names::fixed;
use crate::outputs::OutputMut;
use crate::session::Session;
use crate::tensor::Value;

/// A call of a method. [`Module::call`] makes one.
///
/// ```no_run
/// # fn main() -> rushlight::Result<()> {
/// # let mut module = rushlight::Module::load("model.pte")?;
/// # let (prompt, mut tracer) = ([], ());
/// let mut session = module.session()?;
/// let outputs = module.call("forward").inputs(&prompt).session(&mut session).tracer(&mut tracer).run()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a call does nothing until it is run"]
pub struct Call<'m, 'i> {
    module: &'m mut Module,
    method: &'m str,
    inputs: Inputs<'i>,
    session: Option<&'m mut Session>,
    tracer: Option<&'m mut dyn EventTracer>,
}

enum Inputs<'i> {
    Given(&'i [Input<'i>]),
    /// In the order of the method, without values that the export fixed.
    Named(Result<Vec<Option<Input<'i>>>, Error>),
    /// Named inputs with the values that the export fixed.
    Filled(Vec<Input<'i>>),
}

impl<'m, 'i> Call<'m, 'i> {
    pub(super) fn new(module: &'m mut Module, method: &'m str) -> Self {
        Self { module, method, inputs: Inputs::Given(&[]), session: None, tracer: None }
    }

    /// Sets the inputs, in the order of the method.
    pub fn inputs(mut self, inputs: &'i [Input<'i>]) -> Self {
        self.inputs = Inputs::Given(inputs);
        self
    }

    /// Sets the inputs by their [names](crate::MethodMeta::input_names), in any order. Values that were fixed at export may be
    /// left out.
    ///
    /// ```no_run
    /// # fn main() -> rushlight::Result<()> {
    /// use rushlight::TensorView;
    ///
    /// let mut module = rushlight::Module::load("model.pte")?;
    /// let (ids, mask) = ([101i64, 7592, 102], [1i64; 3]);
    /// let inputs = [
    ///     ("input_ids", TensorView::of(&[1, 3], &ids)?.into()),
    ///     ("attention_mask", TensorView::of(&[1, 3], &mask)?.into()),
    /// ];
    /// let outputs = module.call("forward").named(inputs).run()?;
    /// let logits = &outputs[module.meta("forward")?.output_index("logits")?];
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Running the call fails with `InvalidArgument` for a name that the method does not have, with the nearest, for one that is
    /// given twice, and for inputs that are missing.
    pub fn named<'n>(mut self, inputs: impl IntoIterator<Item = (&'n str, Input<'i>)>) -> Self {
        let meta = self.module.kept_meta(self.method);
        self.inputs = Inputs::Named(meta.and_then(|meta| meta.arranged(inputs)));
        self
    }

    /// Uses the states of a session. Without one, the call uses those of the module.
    pub fn session(mut self, session: &'m mut Session) -> Self {
        self.session = Some(session);
        self
    }

    /// Reports the events of the call to a tracer, which may end it early, also on behalf of another thread: see
    /// [`EventTracer::interrupt`] and the [front page](crate#threads-limits-and-cancelling).
    pub fn tracer(mut self, tracer: &'m mut dyn EventTracer) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Runs the method and copies its outputs.
    ///
    /// # Errors
    /// Those of loading the method, of an input that does not fit, with what was expected, of names, and of the program;
    /// `InvalidState` for a call that a tracer cancelled; `InvalidArgument` for the session of another module.
    pub fn run(self) -> Result<Vec<Value>, Error> {
        self.with_inputs(|instance, states, inputs, tracer| match tracer {
            None => instance.run_with(states, inputs, &mut ()),
            Some(tracer) => instance.run_with(states, inputs, tracer),
        })
    }

    /// Runs the method and writes its outputs to memory of the caller's: one for each output, in order. An output without memory
    /// (`None`) is not written.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and `InvalidArgument` for memory of another number, element type or shape than the outputs have.
    /// These are found before the method runs; only a shape that depends on the inputs is known after it.
    pub fn run_into(self, outputs: &mut [Option<OutputMut<'_>>]) -> Result<(), Error> {
        self.with_inputs(|instance, states, inputs, tracer| match tracer {
            None => instance.run_into_with(states, inputs, outputs, &mut ()),
            Some(tracer) => instance.run_into_with(states, inputs, outputs, tracer),
        })
    }

    /// Runs the method and lends its outputs to `read` where they are, without a copy. Their memory, which is the module's or that
    /// of an input, keeps them until the module is used next.
    ///
    /// ```
    /// # fn main() -> rushlight::Result<()> {
    /// # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m")).unwrap();
    /// use rushlight::runtime::Output;
    ///
    /// let mut module = rushlight::Module::load("digits.pte")?;
    /// let image = [0.0f32; 64];
    /// let inputs = [rushlight::TensorView::of(&[1, 1, 8, 8], &image)?.into()];
    /// let first = module.call("forward").inputs(&inputs).read(|outputs| match outputs.get(0)? {
    ///     Output::Tensor(logits) => Ok(logits.as_slice::<f32>()?[0]),
    ///     _ => Ok(f32::NAN),
    /// })?;
    /// assert_eq!(first, module.forward(&inputs)?[0].as_slice::<f32>()?[0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and that of `read`.
    pub fn read<R>(self, read: impl FnOnce(&Outputs<'_, '_>) -> Result<R, Error>) -> Result<R, Error> {
        let read = |outputs: &Outputs<'_, '_>| Ok(read(outputs)?);
        self.with_inputs(|instance, states, inputs, tracer| match tracer {
            None => instance.read_with(states, inputs, &mut (), read),
            Some(tracer) => instance.read_with(states, inputs, tracer, read),
        })
    }

    /// Submits the call: it continues while it is polled, and the host may do anything else meanwhile. Methods whose delegates do
    /// not need to wait complete at once. Events are reported by [`Submission::poll_traced`] alone.
    ///
    /// ```no_run
    /// # fn main() -> rushlight::Result<()> {
    /// # let mut module = rushlight::Module::load("model.pte")?;
    /// # let inputs = [];
    /// let mut call = module.call("forward").inputs(&inputs);
    /// let mut submission = call.submit()?;
    /// while submission.poll()?.is_pending() {
    ///     // Draw a frame, or return to the browser's event loop.
    /// }
    /// let outputs = submission.complete()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and `NotSupported` for inputs by name without a string that the export fixed.
    pub fn submit(&mut self) -> Result<Submission<'_>, Error> {
        if let Inputs::Named(named) = &mut self.inputs {
            let named = std::mem::replace(named, Ok(Vec::new()))?;
            let meta = self.module.kept_meta(self.method)?;
            let filled = named.into_iter().zip(&meta.inputs).map(|(input, info)| input.map_or_else(|| owned(info), Ok));
            self.inputs = Inputs::Filled(filled.collect::<Result<_, _>>()?);
        }
        let inputs = match &self.inputs {
            Inputs::Given(inputs) => inputs,
            Inputs::Filled(inputs) => &inputs[..],
            Inputs::Named(_) => &[],
        };
        let (instance, states) = target(self.module, self.method, self.session.as_deref_mut())?;
        instance.submit_with(states, inputs)
    }

    /// Calls `run` with the loaded method and its arguments.
    fn with_inputs<R>(
        self,
        run: impl FnOnce(
            &mut MethodInstance,
            Option<&mut States>,
            &[Input<'_>],
            Option<&mut dyn EventTracer>,
        ) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let Self { module, method, inputs, session, tracer } = self;
        let (meta, named);
        let inputs = match inputs {
            Inputs::Given(inputs) => inputs,
            Inputs::Filled(ref inputs) => &inputs[..],
            Inputs::Named(given) => {
                meta = module.kept_meta(method)?;
                named = meta.filled(given?);
                &named[..]
            }
        };
        let (instance, states) = target(module, method, session)?;
        run(instance, states, inputs, tracer)
    }
}

/// The loaded method, and the states of the session, or of the module without one.
fn target<'c>(
    module: &'c mut Module,
    method: &str,
    session: Option<&'c mut Session>,
) -> Result<(&'c mut MethodInstance, Option<&'c mut States>), Error> {
    match session {
        Some(session) => {
            let states = session.states(&module.identity())?;
            Ok((module.loaded(method)?, Some(states)))
        }
        None => module.loaded_with_states(method),
    }
}

/// The value that an export fixed, apart from the method's description.
fn owned<'i>(info: &ValueInfo) -> Result<Input<'i>, Error> {
    match fixed(info) {
        Some(Input::Int(value)) => Ok(Input::Int(value)),
        Some(Input::Double(value)) => Ok(Input::Double(value)),
        Some(Input::Bool(value)) => Ok(Input::Bool(value)),
        Some(Input::None) => Ok(Input::None),
        _ => {
            let message = "a call without a string that the export fixed cannot be submitted";
            Err(Error::new(Code::NotSupported, message).help("give the string, or all inputs in order"))
        }
    }
}

impl core::fmt::Debug for Call<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Call").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Module {
    /// A call of a method, to set its inputs, session and tracer, and to run it.
    pub fn call<'m, 'i>(&'m mut self, method: &'m str) -> Call<'m, 'i> {
        Call::new(self, method)
    }

    /// Runs the method `forward`.
    ///
    /// # Errors
    /// Those of [`Call::run`].
    pub fn forward(&mut self, inputs: &[Input<'_>]) -> Result<Vec<Value>, Error> {
        self.run("forward", inputs)
    }

    /// Runs a method and copies its outputs.
    ///
    /// # Errors
    /// Those of [`Call::run`].
    pub fn run(&mut self, method: &str, inputs: &[Input<'_>]) -> Result<Vec<Value>, Error> {
        let (instance, states) = self.loaded_with_states(method)?;
        instance.run_with(states, inputs, &mut ())
    }
}
