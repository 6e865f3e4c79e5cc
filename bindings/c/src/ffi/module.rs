//! Modules: programs whose methods are run.

use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rushlight::options::LoadOptions;
use rushlight::runtime::{DelegateEvent, DelegateTracer, Event, OptionValue, StableBytes};
use rushlight::{Code, LoadMode, Module, ModuleBuilder, Tensor};

use super::delegate::rl_delegate_event;
use super::interrupt::{flag, rl_interrupt};
use super::meta::rl_meta;
use super::option::option_value;
use super::registry::rl_registry;
use super::session::rl_session;
use super::value::{Dims, Lent, inputs, rl_kind, rl_string, rl_tensor, rl_value, view};
use super::{
    Growing, Result, elements, free, guard, guard_or, hand_out, locked, optional_text, options, path, reference,
    rl_option, rl_status, set, set_named, text,
};
use crate::callback;
use crate::status::{Status, c_string};
use crate::tracer::Tracer;

/// A program whose methods can be run. Methods are loaded at their first use, and keep their state between calls.
///
/// Threads: one thread at a time uses a module. It may be another thread at each call. A call during another call, from
/// another thread or from a callback, fails with `RL_INVALID_STATE` and changes nothing. To use several threads at
/// once, load a module for each: the modules share the mapped file.
pub struct rl_module {
    names: Vec<CString>,
    inner: Mutex<Inner>,
}

pub struct Inner {
    pub module: Module,
    /// Sizes and strides of the inputs of a call.
    dims: Vec<usize>,
    lent: Lent,
    attribute: Option<(Tensor, Dims)>,
    /// The device that `rl_module_limits` described last.
    pub device: String,
}

/// Ways to load a file into memory.
#[repr(u32)]
#[allow(dead_code, reason = "for C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rl_load_mode {
    /// Mapped: pages are read at their first use, and shared between processes. The file must not be changed or
    /// shortened while it is loaded.
    RL_LOAD_MMAP = 0,
    /// Read whole into memory.
    RL_LOAD_READ = 1,
    /// Mapped and locked into memory. Fails where the system does not allow it.
    RL_LOAD_MMAP_LOCKED = 2,
    /// Mapped and, where the system allows it, locked into memory.
    RL_LOAD_MMAP_LOCKED_IF_ALLOWED = 3,
}

/// A file of weights that a program does not hold (`.ptd`): a path, or bytes, which are copied.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_data {
    /// The path, or NULL for bytes.
    pub path: *const c_char,
    pub bytes: *const c_void,
    pub size: usize,
}

/// An option of a backend.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_backend_option {
    /// The backend's name, such as `cpu`.
    pub backend: *const c_char,
    /// The option's name.
    pub name: *const c_char,
    /// A bool, an int or a string.
    pub value: rl_value,
}

/// Options of loading a program. `RL_LOAD_OPTIONS_INIT` has the defaults, which are all zero.
#[repr(C)]
pub struct rl_load_options {
    /// `sizeof(rl_load_options)`.
    pub struct_size: usize,
    /// An `rl_load_mode`.
    pub mode: u32,
    /// 1: all methods use one set of planned buffers, sized for the largest, and share the state in planned memory.
    pub share_memory: u32,
    /// Number of threads of a call, the caller's included. 0: the number that the machine runs at once.
    pub threads: usize,
    /// The backend that a portable program is lowered to when its first method is loaded: `auto` (NULL), `off`, or a
    /// backend with its options, such as `cpu:precision=bf16`.
    pub lower: *const c_char,
    /// A folder of the user's own that keeps compiled programs for later loads. NULL: that of the environment variable
    /// `RUSHLIGHT_CACHE`, or none. Empty: none.
    pub cache: *const c_char,
    /// Maximum bytes of memory of one method. 0: no limit.
    pub memory_limit: u64,
    /// Maximum duration of a call in microseconds. A call ends with `RL_OUT_OF_RESOURCES` at most one step later. 0: no
    /// limit.
    pub time_limit: u64,
    /// `num_data` files of weights.
    pub data: *const rl_data,
    pub num_data: usize,
    /// Operators and backends besides the built-in ones. May be NULL.
    pub registry: *const rl_registry,
    /// `num_backend_options` options of backends.
    pub backend_options: *const rl_backend_option,
    pub num_backend_options: usize,
    /// `num_named` further options by name: those of the fields above, which they replace, with times and sizes such as
    /// `500ms` and `64MiB`.
    pub named: *const rl_option,
    pub num_named: usize,
}

// SAFETY: integers and pointers.
unsafe impl Growing for rl_load_options {}

/// Kind of an event.
#[repr(u32)]
#[allow(dead_code, reason = "for C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rl_event_kind {
    /// The whole execution of a method. `name` is the method's.
    RL_EVENT_EXECUTE = 0,
    /// An operator. `name` is its full name.
    RL_EVENT_OPERATOR = 1,
    /// A call of a delegate; `name` is its backend.
    RL_EVENT_DELEGATE = 2,
    RL_EVENT_MOVE = 3,
    RL_EVENT_JUMP = 4,
    RL_EVENT_FREE = 5,
    /// A copy between host and device.
    RL_EVENT_COPY = 6,
}

/// The beginning or the end of an action in a call. Events nest.
#[repr(C)]
pub struct rl_event {
    /// An `rl_event_kind`.
    pub kind: u32,
    /// 1 at the beginning, 0 at the end.
    pub begins: u32,
    /// Index of the instruction.
    pub instruction: usize,
    /// Lives until the callback returns. Empty for an action without a name.
    pub name: rl_string,
}

/// Receives the events of a call, on its thread. It must not throw exceptions or jump out of the call.
pub type rl_event_fn = Option<unsafe extern "C" fn(event: *const rl_event, user_data: *mut c_void)>;

/// The kind of report about an event of a delegate.
#[repr(u32)]
#[allow(dead_code, reason = "for C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rl_phase {
    RL_PHASE_BEGIN = 0,
    RL_PHASE_END = 1,
    /// A whole event, timed by the clock of a device.
    RL_PHASE_TIMED = 2,
}

/// Receives an event of a delegate and its `rl_phase`, on the thread of the call. `start` and `end` are nanoseconds of the
/// device's clock for `RL_PHASE_TIMED`, else 0. It must not throw exceptions or jump out of the call.
pub type rl_delegate_event_fn = Option<
    unsafe extern "C" fn(event: *const rl_delegate_event, phase: u32, start: u64, end: u64, user_data: *mut c_void),
>;

/// Options of a call. `RL_RUN_OPTIONS_INIT` has the defaults, which are all zero.
#[repr(C)]
pub struct rl_run_options {
    /// `sizeof(rl_run_options)`.
    pub struct_size: usize,
    /// The names of the inputs, one for each. With names, inputs may come in any order, and inputs that the export
    /// fixed may be left out. NULL: inputs come in the method's order.
    pub input_names: *const *const c_char,
    /// Memory for outputs, by position. The data of an output is copied, row-major, to the tensor at its position. This
    /// tensor's `dtype` must be the output's, and its `nbytes` at least the output's bytes. The call sets its `nbytes`
    /// and its sizes, and does not read its `sizes`. The memory must not overlap another output, or an input that the
    /// method returns as it is. Values of the kind none are left as they are.
    pub outputs: *mut rl_value,
    pub num_outputs: usize,
    /// The state to use in place of the module's own. May be NULL.
    pub session: *mut rl_session,
    /// Ends the call early. May be NULL.
    pub interrupt: *const rl_interrupt,
    /// Receives events; `event_data` is passed to it. May be NULL.
    pub on_event: rl_event_fn,
    pub event_data: *mut c_void,
    /// Receives the events of delegates, between the beginning and the end of their `RL_EVENT_DELEGATE`; `event_data` is
    /// passed to it. May be NULL.
    pub on_delegate_event: rl_delegate_event_fn,
}

// SAFETY: integers, pointers, and a function that may be NULL.
unsafe impl Growing for rl_run_options {}

/// Called when borrowed memory is not used any more, on any thread.
pub type rl_release_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Bytes of the caller's, which are borrowed until they are released.
struct Borrowed {
    bytes: *const u8,
    size: usize,
    release: rl_release_fn,
    user_data: *mut c_void,
}

// SAFETY: the header says that the bytes do not change and that any thread may call the release function.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}
// SAFETY: the caller does not move or change the bytes until they are released.
unsafe impl StableBytes for Borrowed {
    fn bytes(&self) -> &[u8] {
        // SAFETY: as above; the pointer and the length were checked.
        unsafe { elements(self.bytes, self.size, "bytes") }.unwrap_or_default()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller's function, called once.
            unsafe { release(self.user_data) }
        }
    }
}

/// # Safety
/// The options are NULL or as their description says.
pub unsafe fn builder(given: *const rl_load_options) -> Result<ModuleBuilder> {
    // SAFETY: as the caller promises.
    let given: rl_load_options = unsafe { options(given, "options") }?;
    // SAFETY: as the description says.
    let mut builder = unsafe { settings(&given) }?.builder()?;
    // SAFETY: as the description says.
    for data in unsafe { elements(given.data, given.num_data, "data") }? {
        builder = if data.path.is_null() {
            // SAFETY: as the description says.
            builder.external_data_bytes(unsafe { elements(data.bytes.cast::<u8>(), data.size, "data->bytes") }?)?
        } else {
            // SAFETY: a string.
            builder.external_data(unsafe { path(data.path, "data->path") }?)
        };
    }
    // SAFETY: NULL or a live registry.
    if let Some(registry) = unsafe { given.registry.as_ref() } {
        builder = registry.add_to(builder);
    }
    // SAFETY: as the description says.
    for option in unsafe { elements(given.backend_options, given.num_backend_options, "backend_options") }? {
        // SAFETY: as the description says.
        let (backend, name, value) = unsafe { backend_option(option) }?;
        builder = builder.option(backend, name, value);
    }
    Ok(builder)
}

/// The options that have names.
///
/// # Safety
/// The options are as their description says.
unsafe fn settings(given: &rl_load_options) -> Result<LoadOptions> {
    let mode = match given.mode {
        0 => LoadMode::Mmap,
        1 => LoadMode::File,
        2 => LoadMode::MmapMlock,
        3 => LoadMode::MmapMlockIgnoreErrors,
        mode => return Err(Status::invalid(format!("there is no mode {mode} of loading"))),
    };
    let mut settings = LoadOptions::default();
    settings.load_mode = Some(mode.name().to_owned());
    settings.share_memory = given.share_memory != 0;
    settings.threads = Some(given.threads).filter(|threads| *threads > 0);
    // SAFETY: NULL or strings.
    let (lower, cache) = unsafe { (optional_text(given.lower, "lower")?, optional_text(given.cache, "cache")?) };
    settings.lower = lower.map(ToOwned::to_owned);
    settings.cache = cache.map(PathBuf::from);
    let limit = Some(given.memory_limit).filter(|limit| *limit > 0);
    settings.memory_limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    settings.time_limit = Some(given.time_limit).filter(|limit| *limit > 0).map(Duration::from_micros);
    // SAFETY: as the description says.
    unsafe { set_named(&mut settings, given.named, given.num_named) }?;
    Ok(settings)
}

/// # Safety
/// The option is as its description says.
unsafe fn backend_option<'a>(option: &'a rl_backend_option) -> Result<(&'a str, &'a str, OptionValue<'a>)> {
    // SAFETY: strings.
    let (backend, name) = unsafe { (text(option.backend, "backend")?, text(option.name, "name")?) };
    // SAFETY: as the caller promises.
    Ok((backend, name, unsafe { option_value(name, &option.value) }?))
}

impl rl_module {
    fn of(loaded: Module) -> Self {
        let names = loaded.method_names().map(c_string).collect();
        let (dims, lent, device) = (Vec::new(), Lent::default(), String::new());
        let inner = Inner { module: loaded, dims, lent, attribute: None, device };
        Self { names, inner: Mutex::new(inner) }
    }

    /// The module, for this call alone.
    pub fn lock(&self) -> Result<MutexGuard<'_, Inner>> {
        locked(&self.inner, "module")
    }
}

/// Loads a `.pte` file. `options` may be NULL.
///
/// Errors: `RL_NOT_FOUND` and `RL_ACCESS_FAILED` for the file, `RL_INVALID_PROGRAM` for its content. Methods are
/// checked when they are loaded: a missing operator, for example, is an error then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_load(
    path: *const c_char,
    options: *const rl_load_options,
    module: *mut *mut rl_module,
) -> *mut rl_status {
    guard(|| {
        let make = || {
            // SAFETY: NULL, or as their descriptions say.
            let (path, builder) = unsafe { (self::path(path, "path")?, builder(options)?) };
            Ok(rl_module::of(builder.load(path)?))
        };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(module, "module", make) }
    })
}

/// Loads a program from the bytes of a `.pte` file, which are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_load_bytes(
    bytes: *const c_void,
    size: usize,
    options: *const rl_load_options,
    module: *mut *mut rl_module,
) -> *mut rl_status {
    guard(|| {
        let make = || {
            // SAFETY: NULL, or as their descriptions say.
            let (bytes, builder) = unsafe { (elements(bytes.cast::<u8>(), size, "bytes")?, builder(options)?) };
            Ok(rl_module::of(builder.load_bytes(bytes)?))
        };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(module, "module", make) }
    })
}

/// Loads a program from the bytes of a `.pte` file without a copy. The bytes should be aligned to 16. They must not
/// change until `release` (which may be NULL) is called: when no object uses them any more, or before this function
/// returns if it fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_load_borrowed(
    bytes: *const c_void,
    size: usize,
    release: rl_release_fn,
    user_data: *mut c_void,
    options: *const rl_load_options,
    module: *mut *mut rl_module,
) -> *mut rl_status {
    guard(|| {
        let borrowed: Arc<dyn StableBytes> = Arc::new(Borrowed { bytes: bytes.cast(), size, release, user_data });
        let make = || {
            // SAFETY: NULL, or as their descriptions say.
            let (_, builder) = unsafe { (elements(bytes.cast::<u8>(), size, "bytes")?, builder(options)?) };
            Ok(rl_module::of(builder.load_shared(borrowed)?))
        };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(module, "module", make) }
    })
}

/// Frees a module that no thread uses. NULL is allowed. Its outputs, and values that its functions returned, are freed
/// with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_free(module: *mut rl_module) {
    // SAFETY: NULL or a module that the caller uses no more.
    unsafe { free(module) }
}

/// Returns the name of a method, in the file's order; NULL after the last. It lives as long as the module. Any thread
/// may call this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_method(module: *const rl_module, index: usize) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live module.
        let name = unsafe { module.as_ref() }.and_then(|module| module.names.get(index));
        name.map_or(ptr::null(), |name| name.as_ptr())
    })
}

/// Describes a method without loading it. Free the description with `rl_meta_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_meta(
    module: *mut rl_module,
    method: *const c_char,
    meta: *mut *mut rl_meta,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (module, method) = unsafe { (reference(module, "module")?, text(method, "method")?) };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(meta, "meta", || Ok(rl_meta::of(&module.lock()?.module.meta(method)?))) }
    })
}

/// Loads a method now rather than at its first call. The first method to be loaded also compiles a portable program for
/// this machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_load_method(module: *mut rl_module, method: *const c_char) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (module, method) = unsafe { (reference(module, "module")?, text(method, "method")?) };
        let mut inner = module.lock()?;
        callback::forget();
        inner.module.load_method(method).map_err(callback::explained)
    })
}

/// Frees a method and its state. The next use loads it again. The outputs of its last call are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_unload_method(module: *mut rl_module, method: *const c_char) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (module, method) = unsafe { (reference(module, "module")?, text(method, "method")?) };
        let mut inner = module.lock()?;
        inner.lent.clear();
        inner.module.unload_method(method);
        Ok(())
    })
}

/// Changes an option of a backend for all methods, loaded or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_set_option(
    module: *mut rl_module,
    option: *const rl_backend_option,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (module, option) = unsafe { (reference(module, "module")?, reference(option, "option")?) };
        // SAFETY: as its description says.
        let (backend, name, value) = unsafe { backend_option(option) }?;
        let mut inner = module.lock()?;
        callback::forget();
        inner.module.set_option(backend, name, value).map_err(callback::explained)
    })
}

/// Copies a parameter or buffer of a method, by its name in the exported module. The module owns the tensor, which
/// lives until the next call of this function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_attribute(
    module: *mut rl_module,
    method: *const c_char,
    name: *const c_char,
    tensor: *mut rl_tensor,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (module, method, name) =
            unsafe { (reference(module, "module")?, text(method, "method")?, text(name, "name")?) };
        let mut inner = module.lock()?;
        inner.attribute = Some((inner.module.attribute(method, name)?, Dims::default()));
        let Some((copy, dims)) = &mut inner.attribute else { return Ok(()) };
        let described = rl_tensor {
            data: copy.bytes().as_ptr().cast_mut().cast(),
            nbytes: copy.bytes().len(),
            sizes: dims.keep(copy.shape()),
            strides: ptr::null(),
            rank: copy.shape().len(),
            dtype: copy.dtype().code().into(),
        };
        // SAFETY: the caller's variable.
        unsafe { set(tensor, "tensor", described) }
    })
}

/// Runs a method.
///
/// Inputs are views of the caller's memory, which must not change until the call returns. The method reads an input in
/// place if the program planned no memory for it, and its strides and alignment are those that the program expects.
/// Other inputs are copied once.
///
/// `*outputs` are views, not copies, of the module's memory, or of an input that the method returns as it is. They live
/// until the next use of the module by any function except `rl_module_method` and `rl_module_meta`. `outputs`,
/// `num_outputs` and `options` may be NULL.
///
/// Errors: `RL_INVALID_ARGUMENT` and `RL_INVALID_TYPE` for inputs that do not fit, `RL_INVALID_STATE` for an
/// interrupted call, `RL_OUT_OF_RESOURCES` for a call that took too long, and those of loading the method. After an
/// error there are no outputs. The method can be run again; its state may have changed or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_run(
    module: *mut rl_module,
    method: *const c_char,
    inputs: *const rl_value,
    num_inputs: usize,
    options: *const rl_run_options,
    outputs: *mut *const rl_value,
    num_outputs: *mut usize,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (module, method, values, options) = unsafe {
            (
                reference(module, "module")?,
                text(method, "method")?,
                elements(inputs, num_inputs, "inputs")?,
                super::options::<rl_run_options>(options, "options")?,
            )
        };
        let mut inner = module.lock()?;
        inner.lent.clear();
        // SAFETY: as their descriptions say.
        unsafe { inner.run(method, values, &options) }?;
        if options.num_outputs > 0 {
            // SAFETY: as their descriptions say. The inputs may overlap this memory, and are not read again.
            unsafe { write_outputs(&inner.lent, &options) }?;
        }
        // SAFETY: NULL, or the caller's variables.
        unsafe {
            if !outputs.is_null() {
                set(outputs, "outputs", inner.lent.values.as_ptr())?;
            }
            if !num_outputs.is_null() {
                set(num_outputs, "num_outputs", inner.lent.values.len())?;
            }
        }
        Ok(())
    })
}

impl Inner {
    /// # Safety
    /// The values and options are as their descriptions say.
    unsafe fn run(&mut self, method: &str, values: &[rl_value], options: &rl_run_options) -> Result<()> {
        let Self { module, dims, lent, .. } = self;
        // SAFETY: as the caller promises.
        let inputs = unsafe { inputs(values, dims) }?;
        let names = if options.input_names.is_null() {
            None
        } else {
            // SAFETY: the caller gives one name for each input.
            let names = unsafe { elements(options.input_names, values.len(), "input_names") }?;
            let name = |(index, name): (usize, &*const c_char)| {
                // SAFETY: NULL or a string.
                unsafe { text(*name, format_args!("input_names[{index}]")) }
            };
            Some(names.iter().enumerate().map(name).collect::<Result<Vec<&str>>>()?)
        };
        let on_event = options.on_event.map(|on_event| {
            move |event: Event<'_>, begins: bool| {
                let event = described(event, begins);
                // SAFETY: the caller's function, with an event that lives for the call.
                unsafe { on_event(&raw const event, options.event_data) }
            }
        });
        let on_delegate = options.on_delegate_event.map(|on_event| {
            DelegateCallback(move |event: DelegateEvent<'_>, phase: rl_phase, start: u64, end: u64| {
                let event = rl_delegate_event::of(event);
                // SAFETY: the caller's function, with an event that lives for the call.
                unsafe { on_event(&raw const event, phase as u32, start, end, options.event_data) }
            })
        });
        // SAFETY: NULL or a live interrupt.
        let mut tracer = Tracer { interrupt: unsafe { flag(options.interrupt) }, on_event, on_delegate };
        callback::forget();
        // SAFETY: NULL or a live session.
        let session = unsafe { options.session.as_ref() };
        let call = module.call(method);
        let call = match names {
            Some(names) => call.named(names.into_iter().zip(inputs)),
            None => call.inputs(&inputs),
        };
        let call = call.tracer(&mut tracer);
        match session {
            None => call.read(|outputs| lent.fill(outputs)),
            Some(session) => call.session(&mut *session.lock()?).read(|outputs| lent.fill(outputs)),
        }
        .map_err(callback::explained)
    }
}

/// Copies outputs to the caller's memory.
///
/// # Safety
/// The values of `lent` are those of the last call. The caller's values are as their description says.
unsafe fn write_outputs(lent: &Lent, options: &rl_run_options) -> Result<()> {
    // SAFETY: as the caller promises.
    unsafe { elements(options.outputs, options.num_outputs, "outputs") }?;
    let mut dims = Vec::new();
    for index in 0..options.num_outputs {
        let at = |status: Status| status.at(&format!("output {index}"));
        // SAFETY: the caller has this number of values.
        let wanted = unsafe { &mut *options.outputs.add(index) };
        if wanted.is(rl_kind::RL_KIND_NONE) {
            continue;
        }
        let given =
            lent.values.get(index).filter(|given| given.kind == wanted.kind && wanted.is(rl_kind::RL_KIND_TENSOR));
        let Some(given) = given else {
            let message = "memory can be given for outputs that are tensors, and for no more than there are";
            return Err(at(Status::new(Code::InvalidType, message)));
        };
        // SAFETY: both are tensors.
        let (from, to) = unsafe { (&given.r#as.tensor, &mut wanted.r#as.tensor) };
        // SAFETY: the library described this tensor.
        let read = unsafe { view(from, &mut dims) }.map_err(at)?;
        if to.dtype != from.dtype {
            let message = format!("expected memory for {}, got {}", read.dtype(), to.scalar_type().map_err(at)?);
            return Err(at(Status::new(Code::InvalidType, message)));
        }
        let size = read.sizes().iter().product::<usize>() * read.dtype().size();
        if to.nbytes < size || (to.data.is_null() && size > 0) {
            return Err(at(Status::invalid(format!("the output takes {size} bytes, its memory has {}", to.nbytes))));
        }
        if is_apart(lent, to.data.addr(), size) {
            if size > 0 {
                // SAFETY: the caller's memory has at least this number of bytes. No output overlaps it: neither memory
                // of the module, nor an input that the method returned as it is.
                read.copy_to_row_major(unsafe { std::slice::from_raw_parts_mut(to.data.cast::<u8>(), size) });
            }
        } else if to.data != from.data || !from.strides.is_null() {
            let message =
                "the memory for an output overlaps another output, or an input that the method returns as it is";
            return Err(at(Status::invalid(message)));
        }
        *to = rl_tensor { data: to.data, nbytes: size, strides: ptr::null(), ..*from };
    }
    Ok(())
}

/// True if no output overlaps the memory.
fn is_apart(lent: &Lent, address: usize, size: usize) -> bool {
    lent.values.iter().filter(|value| value.is(rl_kind::RL_KIND_TENSOR)).all(|value| {
        // SAFETY: a value of this kind is a tensor.
        let tensor = unsafe { &value.r#as.tensor };
        let start = tensor.data.addr();
        let is_empty = size == 0 || tensor.nbytes == 0;
        is_empty || start.saturating_add(tensor.nbytes) <= address || address.saturating_add(size) <= start
    })
}

/// Passes the events of delegates to a function.
struct DelegateCallback<F>(F);

impl<F: Fn(DelegateEvent<'_>, rl_phase, u64, u64)> DelegateTracer for DelegateCallback<F> {
    fn begin(&self, event: DelegateEvent<'_>) {
        self.0(event, rl_phase::RL_PHASE_BEGIN, 0, 0);
    }

    fn end(&self, event: DelegateEvent<'_>) {
        self.0(event, rl_phase::RL_PHASE_END, 0, 0);
    }

    fn timed(&self, event: DelegateEvent<'_>, start: u64, end: u64) {
        self.0(event, rl_phase::RL_PHASE_TIMED, start, end);
    }
}

fn described(event: Event<'_>, begins: bool) -> rl_event {
    let (kind, instruction, name) = match event {
        Event::Execute { method } => (rl_event_kind::RL_EVENT_EXECUTE, 0, method),
        Event::Operator { instruction, operator } => (rl_event_kind::RL_EVENT_OPERATOR, instruction, operator),
        Event::Delegate { instruction, id } => (rl_event_kind::RL_EVENT_DELEGATE, instruction, id),
        Event::Move { instruction } => (rl_event_kind::RL_EVENT_MOVE, instruction, ""),
        Event::JumpFalse { instruction } => (rl_event_kind::RL_EVENT_JUMP, instruction, ""),
        Event::Free { instruction } => (rl_event_kind::RL_EVENT_FREE, instruction, ""),
        Event::Copy { instruction, .. } => (rl_event_kind::RL_EVENT_COPY, instruction, ""),
    };
    rl_event { kind: kind as u32, begins: begins.into(), instruction, name: rl_string::of(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes outputs to the caller's memory. `outputs` are those of the call, with 4 numbers each.
    fn write(outputs: &[rl_value], to: &mut [rl_value]) -> Result<()> {
        let mut lent = Lent::default();
        lent.values = outputs.to_vec();
        // SAFETY: all bytes may be zero.
        let zero: rl_run_options = unsafe { options(ptr::null(), "options") }?;
        let options = rl_run_options { outputs: to.as_mut_ptr(), num_outputs: to.len(), ..zero };
        // SAFETY: the values are tensors, and memory for them.
        unsafe { write_outputs(&lent, &options) }
    }

    #[test]
    fn memory_for_outputs_overlaps_none_but_its_own() {
        let sizes = [4_i64];
        let mut memory = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let start = memory.as_mut_ptr();
        let tensor = |first: usize| {
            let data = start.wrapping_add(first).cast();
            rl_value::tensor(rl_tensor {
                data,
                nbytes: 16,
                sizes: sizes.as_ptr(),
                strides: ptr::null(),
                rank: 1,
                dtype: 6,
            })
        };
        // An input that the method returns as it is, written to its own memory.
        write(&[tensor(0)], &mut [tensor(0)]).expect("in place");
        write(&[tensor(0)], &mut [tensor(4)]).expect("elsewhere");
        for (outputs, to) in [
            (&[tensor(0)][..], &mut [tensor(1)][..]),
            (&[tensor(1)], &mut [tensor(0)]),
            (&[tensor(0), tensor(4)], &mut [tensor(4)]),
            (&[tensor(0), tensor(4)], &mut [rl_value::none(), tensor(2)]),
        ] {
            let refused = write(outputs, to).expect_err("overlapping memory");
            assert!(refused.message.to_string_lossy().contains("overlaps another output"), "{refused:?}");
        }
        assert_eq!(memory, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    }
}
