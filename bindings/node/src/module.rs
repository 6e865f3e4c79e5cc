//! Programs and calls of their methods.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use napi::bindgen_prelude::{ClassInstance, Env, JavaScriptClassExt, ToNapiValue, Unknown};
use napi_derive::napi;
use rushlight::options::LoadOptions;
use rushlight::{Code, Input, ModuleBuilder, Portability};
use rushlight_bindings_common::Flag;
use rushlight_js_plain::{Plain, Timer, meta, read_options};

use crate::bytes::{Bytes, Content, take};
use crate::error::{Problem, Result};
use crate::interrupt::{Interrupt, Watch};
use crate::into_js::IntoJs;
use crate::job::{call, let_go, start};
use crate::values::{Argument, Given, Returned, returned};

/// A program whose methods are loaded when they are first used.
#[napi]
pub struct Module(Option<Arc<Program>>);

struct Program {
    module: Mutex<rushlight::Module>,
    /// True after `free`: running calls stop at the next step.
    is_ended: Flag,
    /// By method: the size of the inputs of the largest call that took less than [`QUICK`].
    quick: Mutex<HashMap<String, usize>>,
}

/// Calls that take less run on JavaScript's own thread, because passing one to another thread takes about as long.
const QUICK: Duration = Duration::from_micros(50);

#[napi]
impl Module {
    /// Loads a `.pte` file with `.ptd` files, and lowers it if that saves time. Options have names in camel case, with values as
    /// text.
    #[napi(catch_unwind)]
    pub fn load<'env>(
        env: &'env Env,
        mut program: ClassInstance<'_, Bytes>,
        data: Vec<ClassInstance<'_, Bytes>>,
        names: Vec<String>,
        texts: Vec<String>,
    ) -> napi::Result<Unknown<'env>> {
        let (program, data) = call(*env, || contents(&mut program, data))?;
        start(env, move || {
            let options: LoadOptions = read_options(&names, &texts)?;
            let mut module = load(builder(&options, data)?, program)?;
            match options.lower.as_deref() {
                Some("off") => {}
                lower => lower_now(&mut module, lower.is_some_and(|lower| lower != "auto"))?,
            }
            Ok(Arc::new(Program { module: Mutex::new(module), is_ended: Flag::default(), quick: Mutex::default() }))
        })
    }

    /// Returns the metadata of the methods, or the error of a damaged method.
    #[napi(catch_unwind)]
    pub fn describe<'env>(&self, env: &'env Env) -> napi::Result<Unknown<'env>> {
        let methods = call(*env, || {
            let program = self.program()?;
            let module = program.locked()?;
            let method = |name: &str| {
                let described = match module.meta(name) {
                    Ok(described) => ("meta", meta(&described)),
                    Err(error) => ("error", rushlight_js_plain::error(&error)),
                };
                Plain::Object(vec![("name", name.into()), described])
            };
            Ok(Plain::Array(module.method_names().map(method).collect()))
        })?;
        methods.into_js(env)
    }

    /// Runs a method on values, with names or in order. Returns its outputs, or a promise of them. The interrupt ends the call.
    #[napi(catch_unwind)]
    pub fn run<'env>(
        &self,
        env: &'env Env,
        method: String,
        values: Vec<Given>,
        names: Option<Vec<String>>,
        interrupt: Option<ClassInstance<'_, Interrupt>>,
    ) -> napi::Result<Unknown<'env>> {
        let (program, arguments) = call(*env, || Ok((self.program()?.clone(), arguments(values)?)))?;
        let interrupt = interrupt.map(|interrupt| interrupt.flag());
        if program.is_quick(&method, &arguments) {
            return call(*env, || program.run(&method, &arguments, names.as_deref(), interrupt))?.into_js(env);
        }
        let arguments: Vec<_> = call(*env, || arguments.into_iter().map(Argument::detached).collect())?;
        start(env, move || program.run(&method, &arguments, names.as_deref(), interrupt))
    }

    /// Runs a method `runs` times and returns a promise of the time of each step. The interrupt ends the runs.
    #[napi(catch_unwind)]
    pub fn profile<'env>(
        &self,
        env: &'env Env,
        method: String,
        values: Vec<Given>,
        names: Option<Vec<String>>,
        runs: u32,
        interrupt: Option<ClassInstance<'_, Interrupt>>,
    ) -> napi::Result<Unknown<'env>> {
        let program = call(*env, || Ok(self.program()?.clone()))?;
        let interrupt = interrupt.map(|interrupt| interrupt.flag());
        let arguments: Vec<_> = call(*env, || arguments(values)?.into_iter().map(Argument::detached).collect())?;
        start(env, move || program.profile(&method, &arguments, names.as_deref(), runs, interrupt))
    }

    /// Ends running calls, and frees the program when they have ended.
    #[napi(catch_unwind)]
    pub fn free(&mut self) {
        if let Some(program) = self.0.take() {
            program.is_ended.set(true);
            let_go(program);
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let_go(self.0.take());
    }
}

impl Module {
    fn program(&self) -> Result<&Arc<Program>> {
        self.0.as_ref().ok_or(Problem::Own(Code::InvalidState, "the module is used after `dispose`"))
    }
}

impl Program {
    fn locked(&self) -> Result<MutexGuard<'_, rushlight::Module>> {
        locked(&self.module)
    }

    /// True if a call of at least the same size was quick.
    fn is_quick(&self, method: &str, arguments: &[Argument]) -> bool {
        self.quick.lock().is_ok_and(|quick| quick.get(method).is_some_and(|largest| nbytes(arguments) <= *largest))
    }

    fn run(
        &self,
        method: &str,
        arguments: &[Argument],
        names: Option<&[String]>,
        interrupt: Option<Flag>,
    ) -> Result<Vec<Returned>> {
        let begun = Instant::now();
        let mut module = self.locked()?;
        let inputs = inputs(arguments)?;
        let call = module.call(method);
        let call = match names {
            Some(names) => call.named(names.iter().map(String::as_str).zip(inputs)),
            None => call.inputs(&inputs),
        };
        let mut watch = Watch { is_ended: self.is_ended.clone(), interrupt, timer: None };
        let outputs = call.tracer(&mut watch).read(returned)?;
        self.note(method, nbytes(arguments), begun.elapsed());
        Ok(outputs)
    }

    fn profile(
        &self,
        method: &str,
        arguments: &[Argument],
        names: Option<&[String]>,
        runs: u32,
        interrupt: Option<Flag>,
    ) -> Result<Plain> {
        let mut module = self.locked()?;
        let mut timer = Timer::new(milliseconds);
        let mut watch = Watch { is_ended: self.is_ended.clone(), interrupt, timer: Some(&mut timer) };
        for _ in 0..runs {
            let inputs = inputs(arguments)?;
            let call = module.call(method);
            let call = match names {
                Some(names) => call.named(names.iter().map(String::as_str).zip(inputs)),
                None => call.inputs(&inputs),
            };
            call.tracer(&mut watch).run()?;
        }
        Ok(timer.steps())
    }

    /// Updates the largest input size with which the method is quick.
    fn note(&self, method: &str, nbytes: usize, took: Duration) {
        let Ok(mut quick) = self.quick.lock() else { return };
        match quick.get_mut(method) {
            Some(largest) if took < QUICK => *largest = nbytes.max(*largest),
            Some(largest) if nbytes <= *largest => drop(quick.remove(method)),
            None if took < QUICK => drop(quick.insert(method.to_owned(), nbytes)),
            _ => {}
        }
    }
}

impl IntoJs for Arc<Program> {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        Module(Some(self)).into_instance(env)?.into_unknown(env)
    }
}

/// Locks without waiting. JavaScript makes one call of an object at a time.
pub fn locked<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    mutex.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Problem::Own(Code::InvalidState, "another call uses it"),
        TryLockError::Poisoned(_) => Problem::Own(Code::InvalidState, "an earlier error broke the module"),
    })
}

/// Takes the files that make up a program.
pub fn contents(
    program: &mut ClassInstance<'_, Bytes>,
    data: Vec<ClassInstance<'_, Bytes>>,
) -> Result<(Content, Vec<Content>)> {
    Ok((take(program)?, data.into_iter().map(|mut one| take(&mut one)).collect::<Result<_>>()?))
}

/// A builder with options and `.ptd` files.
pub fn builder(options: &LoadOptions, data: Vec<Content>) -> Result<ModuleBuilder> {
    Ok(data.into_iter().fold(options.builder()?, |builder, one| match one {
        Content::Block(block) => builder.external_data_shared(Arc::new(block)),
        Content::Path(path) => builder.external_data(path),
    }))
}

pub fn load(builder: ModuleBuilder, program: Content) -> Result<rushlight::Module> {
    Ok(match program {
        Content::Block(block) => builder.load_shared(Arc::new(block)),
        Content::Path(path) => builder.load(path),
    }?)
}

/// Lowers a portable program now, not at its first call, if it is large enough or `is_asked` is true. A program for a
/// foreign backend does not run as it is.
fn lower_now(module: &mut rushlight::Module, is_asked: bool) -> Result<()> {
    let portability = module.portability();
    if portability == Portability::Compiled || (portability == Portability::Small && !is_asked) {
        return Ok(());
    }
    if module.report().is_err() && portability == Portability::Foreign {
        let first = module.method_names().next().map(ToOwned::to_owned);
        first.map_or(Ok(()), |method| module.load_method(&method))?;
    }
    Ok(())
}

fn arguments(values: Vec<Given>) -> Result<Vec<Argument>> {
    values.into_iter().map(Argument::of).collect()
}

fn nbytes(arguments: &[Argument]) -> usize {
    arguments.iter().map(Argument::nbytes).sum()
}

fn inputs(arguments: &[Argument]) -> Result<Vec<Input<'_>>> {
    Ok(arguments.iter().map(Input::try_from).collect::<std::result::Result<_, _>>()?)
}

fn milliseconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    1e3 * START.get_or_init(Instant::now).elapsed().as_secs_f64()
}
