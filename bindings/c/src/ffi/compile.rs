//! Compiling exported programs.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use rushlight::options::{CompilerOptions, OptionError, Options as _};
use rushlight::{CompiledProgram, Compiler, Progress, ProgressListener};

use super::backend::rl_bytes;
use super::interrupt::{flag, rl_interrupt};
use super::value::rl_string;
use super::{
    Growing, Result, elements, free, guard, hand_out, path, reference, rl_option, rl_status, set, set_named, text,
};
use rushlight_bindings_common::Flag;

/// Source of a method: the path of a `.pt2` file that `torch.export.save` wrote, or its bytes. The only source may also
/// be a published language model, which needs no PyTorch: the path of a Hugging Face folder or of a GGUF file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_exported {
    /// The name of the method, such as `forward`. A language model's is always `forward`.
    pub method: *const c_char,
    /// The path, or NULL for bytes.
    pub path: *const c_char,
    /// `size` bytes, which are copied.
    pub bytes: *const c_void,
    pub size: usize,
}

/// Receives the progress of long work: the stage, which lives as long as the library, and the finished units of a
/// total. A total of 0 means that the stage has no measure. Any thread may call it, one at a time. It must not throw
/// exceptions or jump out of the call.
pub type rl_progress_fn = Option<unsafe extern "C" fn(stage: rl_string, done: u64, total: u64, user_data: *mut c_void)>;

/// Options of a compilation. `RL_COMPILE_OPTIONS_INIT` has the defaults, which are all zero.
#[repr(C)]
pub struct rl_compile_options {
    /// `sizeof(rl_compile_options)`.
    pub struct_size: usize,
    /// `num_backends` backends in the order of priority, such as `cpu` or `cpu:precision=bf16`. None: a portable
    /// program, which is compiled for the machine when it is loaded.
    pub backends: *const *const c_char,
    pub num_backends: usize,
    /// 1: methods share the buffers that have the same name.
    pub share_state: u32,
    /// The quantization scheme, by a name that `rushlight quantize --help` lists, such as `int4` or `8da4w`. NULL:
    /// none. Schemes that need samples for their calibration use the inputs that the export recorded.
    pub quantize: *const c_char,
    /// Number of positions of a language model's KV cache. 0: that of the model, at most 2048.
    pub max_context_len: usize,
    /// Ends the compilation, or the writing of its program, early. May be NULL.
    pub interrupt: *const rl_interrupt,
    /// Receives the progress, also while the program is written; `progress_data` is passed to it and must live as long
    /// as the program. May be NULL.
    pub on_progress: rl_progress_fn,
    pub progress_data: *mut c_void,
    /// `num_named` further options by name: `kv_cache`, `embeddings`, `observer`, `weights`, `keep`, `min_snr`,
    /// `no_bias_correction`, `max_seq_len`, `full_logits`, `hidden_states`, `lora_rank`, `tokenizer` and `no_tokenizer`. An option with the name of a field above replaces the field. A list
    /// takes several options of its name. `rushlight compile --help` describes all options, with `-` for `_`.
    pub named: *const rl_option,
    pub num_named: usize,
}

// SAFETY: integers, pointers, and a function that may be NULL.
unsafe impl Growing for rl_compile_options {}

/// A compiled program. Threads: it never changes, so any number of threads may use it.
pub struct rl_program {
    compiled: CompiledProgram,
    progress: Progress,
    bytes: OnceLock<Vec<u8>>,
}

struct Listener {
    interrupt: Option<Flag>,
    on_progress: rl_progress_fn,
    user_data: *mut c_void,
    /// Held by the thread that reports.
    turn: Mutex<()>,
    /// The thread that has the turn.
    reporting: Mutex<Option<ThreadId>>,
}

impl Listener {
    /// The thread that has the turn. Nothing panics while the lock is held.
    fn reporting(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.reporting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: the header says that any thread may call the function.
unsafe impl Send for Listener {}
// SAFETY: as above; one thread at a time has the turn.
unsafe impl Sync for Listener {}

impl ProgressListener for Listener {
    fn report(&self, stage: &'static str, done: u64, total: u64) {
        let Some(on_progress) = self.on_progress else { return };
        let this = thread::current().id();
        // A callback that reports progress itself must not wait for its own turn.
        if *self.reporting() == Some(this) {
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *self.reporting() = Some(this);
        // SAFETY: the caller's function.
        unsafe { on_progress(rl_string::of(stage), done, total, self.user_data) }
        *self.reporting() = None;
    }

    fn is_cancelled(&self) -> bool {
        self.interrupt.as_ref().is_some_and(Flag::is_set)
    }
}

/// Compiles exported programs. Each becomes a method of one program. `options` may be NULL.
///
/// Errors: `RL_NOT_FOUND`, `RL_ACCESS_FAILED` and `RL_INVALID_PROGRAM` for files, `RL_NOT_SUPPORTED` for anything that
/// the compiler does not have, `RL_INVALID_STATE` if it was interrupted. The error names the node and its line of
/// Python.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_compile(
    exported: *const rl_exported,
    num_exported: usize,
    options: *const rl_compile_options,
    program: *mut *mut rl_program,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (exported, options) = unsafe {
            (elements(exported, num_exported, "exported")?, super::options::<rl_compile_options>(options, "options")?)
        };
        let make = || {
            // SAFETY: as their descriptions say.
            let (compiler, progress) = unsafe { compiler(exported, &options) }?;
            Ok(rl_program { compiled: compiler.compile()?, progress, bytes: OnceLock::new() })
        };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(program, "program", make) }
    })
}

/// # Safety
/// The arguments are as their descriptions say.
unsafe fn compiler(exported: &[rl_exported], options: &rl_compile_options) -> Result<(Compiler, Progress)> {
    // SAFETY: as their descriptions say.
    let settings = unsafe { settings(options) }?;
    let mut compiler = settings.apply(Compiler::new())?;
    for exported in exported {
        #[cfg(feature = "llm")]
        // SAFETY: NULL or a string.
        if let Some(path) = unsafe { language_model(exported) }? {
            compiler = compiler.language_model(path, settings.language_model()?);
            continue;
        }
        // SAFETY: a string.
        let method = unsafe { text(exported.method, "exported->method") }?;
        compiler = if exported.path.is_null() {
            // SAFETY: as its description says.
            let bytes = unsafe { elements(exported.bytes.cast::<u8>(), exported.size, "exported->bytes") }?;
            compiler.method_bytes(method, bytes.to_vec())
        } else {
            // SAFETY: a string.
            compiler.method(method, unsafe { path(exported.path, "exported->path") }?)
        };
    }
    let listener = Listener {
        // SAFETY: NULL or a live interrupt.
        interrupt: unsafe { flag(options.interrupt) },
        on_progress: options.on_progress,
        user_data: options.progress_data,
        turn: Mutex::new(()),
        reporting: Mutex::new(None),
    };
    let progress = Progress::new(Arc::new(listener));
    Ok((compiler.progress(progress.clone()), progress))
}

/// The options that have names.
///
/// # Safety
/// The options are as their description says.
unsafe fn settings(options: &rl_compile_options) -> Result<CompilerOptions> {
    let mut settings = CompilerOptions::default();
    // SAFETY: as their description says.
    let backends = unsafe { elements(options.backends, options.num_backends, "backends") }?.iter();
    // SAFETY: strings.
    let backends = backends.map(|backend| Ok(unsafe { text(*backend, "backends") }?.to_owned()));
    let backends = backends.collect::<Result<Vec<_>>>()?;
    // SAFETY: NULL or a string.
    let scheme = unsafe { super::optional_text(options.quantize, "quantize") }?;
    let set = || -> std::result::Result<(), OptionError> {
        settings.set("backend", backends)?;
        settings.set("share_state", options.share_state != 0)?;
        settings.set("quantize", scheme)?;
        #[cfg(feature = "llm")]
        settings.set("max_context_len", Some(options.max_context_len).filter(|length| *length > 0))?;
        Ok(())
    };
    set().map_err(rushlight::Error::from)?;
    // SAFETY: as their description says.
    unsafe { set_named(&mut settings, options.named, options.num_named) }?;
    Ok(settings)
}

/// The path of a language model, unless it is an exported program.
///
/// # Safety
/// The description is as the header says.
#[cfg(feature = "llm")]
unsafe fn language_model(exported: &rl_exported) -> Result<Option<&std::path::Path>> {
    if exported.path.is_null() {
        return Ok(None);
    }
    // SAFETY: a string.
    let path = unsafe { path(exported.path, "exported->path") }?;
    Ok(Some(path).filter(|path| rushlight::is_language_model(path)))
}

/// Returns the bytes of a compiled program, which live as long as the program. `rl_module_load_bytes` takes them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_program_bytes(program: *const rl_program, bytes: *mut rl_bytes) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a live program.
        let program = unsafe { reference(program, "program") }?;
        let made = match program.bytes.get() {
            Some(made) => made,
            None => {
                let made = program.compiled.to_bytes_with(&program.progress)?;
                program.bytes.get_or_init(|| made)
            }
        };
        // SAFETY: the caller's variable.
        unsafe { set(bytes, "bytes", rl_bytes { data: made.as_ptr().cast(), size: made.len() }) }
    })
}

/// Writes a compiled program to a file. Writes a file beside it first and renames that, so that the old file stays if
/// writing fails. Never replaces a file that the program was compiled from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_program_save(program: *const rl_program, path: *const c_char) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (program, path) = unsafe { (reference(program, "program")?, self::path(path, "path")?) };
        program.compiled.save_with(path, &program.progress)?;
        Ok(())
    })
}

/// Frees a compiled program. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_program_free(program: *mut rl_program) {
    // SAFETY: NULL or a program that the caller does not use again.
    unsafe { free(program) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Again {
        listener: Option<Listener>,
        calls: usize,
    }

    unsafe extern "C" fn again(_: rl_string, _: u64, _: u64, again: *mut c_void) {
        let again = again.cast::<Again>();
        // SAFETY: the object of the test, of which only this field changes.
        unsafe { (*again).calls += 1 };
        // SAFETY: as above.
        if let Some(listener) = unsafe { &(*again).listener } {
            listener.report("again", 1, 1);
        }
    }

    #[test]
    fn a_report_in_a_report_does_not_wait_for_itself() {
        let mut object = Again { listener: None, calls: 0 };
        let user_data = (&raw mut object).cast();
        let (turn, reporting) = (Mutex::new(()), Mutex::new(None));
        let listener = Listener { interrupt: None, on_progress: Some(again), user_data, turn, reporting };
        object.listener = Some(listener);
        let again = (&raw mut object).cast::<Again>();
        // SAFETY: the object lives, and has a listener.
        let listener = unsafe { &(*again).listener };
        listener.iter().for_each(|listener| listener.report("first", 1, 2));
        listener.iter().for_each(|listener| listener.report("second", 2, 2));
        // SAFETY: as above.
        assert_eq!(unsafe { (*again).calls }, 2);
    }
}
