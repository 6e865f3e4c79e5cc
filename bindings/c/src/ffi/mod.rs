//! The types and functions that C sees, and their common code, which reads the memory that callers point at.
#![allow(unsafe_code, non_camel_case_types)]

// In the order of the header.
mod status;

mod value;

mod interrupt;

mod module;

mod session;

mod limits;

mod meta;

mod registry;

mod kernel;

mod option;

mod backend;

mod delegate;

mod state;

mod device;

#[cfg(feature = "compiler")]
mod compile;

mod dlpack;

#[cfg(feature = "llm")]
mod llm;

use std::ffi::{CStr, c_char};
use std::fmt::Display;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::{ptr, slice};

use rushlight::Code;
use rushlight_bindings_common::{caught, ending_panics};

use crate::status::Status;
pub use status::rl_status;

type Result<T> = std::result::Result<T, Status>;

/// Runs the body of a function. An error or a panic becomes a status for the caller.
fn guard(body: impl FnOnce() -> Result<()>) -> *mut rl_status {
    match caught(body, Status::from) {
        Ok(()) => ptr::null_mut(),
        Err(status) => rl_status::from(status).into_raw(),
    }
}

/// Runs the body of a function that returns no status. After a panic, the result is `otherwise`.
fn guard_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    ending_panics(otherwise, body)
}

/// # Safety
/// `pointer` is NULL or points at a `T` that is valid for `'a`.
unsafe fn reference<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    check_aligned(pointer, name)?;
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// Fails for an unaligned pointer. A pointer to an object or a variable of the caller's is aligned.
fn check_aligned<T>(pointer: *const T, name: &str) -> Result<()> {
    if pointer.is_aligned() {
        return Ok(());
    }
    Err(Status::invalid(format!("`{name}` is not aligned to {} bytes", align_of::<T>())))
}

fn null(name: impl Display) -> Status {
    Status::invalid(format!("`{name}` is NULL"))
}

/// # Safety
/// `pointer` is NULL or points at `len` elements that are valid, and not written, for `'a`.
unsafe fn elements<'a, T>(pointer: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        let unit = if size_of::<T>() == 1 { "bytes" } else { "elements" };
        return Err(Status::invalid(format!("`{name}` is NULL, with {len} {unit}")));
    }
    check_aligned(pointer, name)?;
    if len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Status::invalid(format!("`{name}` has {len} elements, more than memory has")));
    }
    // SAFETY: as the caller promises. The pointer is aligned and the length is valid, as was just checked.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// # Safety
/// `pointer` is NULL or points at a NUL-terminated string that is valid for `'a`.
unsafe fn optional_text<'a>(pointer: *const c_char, name: impl Display) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Status::invalid(format!("`{name}` is not UTF-8")))
}

/// # Safety
/// As for [`optional_text`].
unsafe fn text<'a>(pointer: *const c_char, name: impl Display + Copy) -> Result<&'a str> {
    // SAFETY: as the caller promises.
    unsafe { optional_text(pointer, name) }?.ok_or_else(|| null(name))
}

/// An option by its name, with the value as text: a number, `true` or `false`, or a text. A list may be given by several
/// options of one name.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_option {
    pub name: *const c_char,
    /// NULL: the default.
    pub value: *const c_char,
}

/// Sets the options of a caller. They replace what `target` has: the first value of a list replaces its values, and the
/// next ones of the same name are appended.
///
/// # Safety
/// `options` is NULL or has `count` options, which live for the call.
unsafe fn set_named<T: rushlight::options::Options>(
    target: &mut T,
    options: *const rl_option,
    count: usize,
) -> Result<()> {
    // SAFETY: as the caller promises.
    let options = unsafe { elements(options, count, "named") }?;
    let mut lists = Vec::new();
    for option in options {
        // SAFETY: strings.
        let (name, value) =
            unsafe { (text(option.name, "named->name")?, optional_text(option.value, "named->value")?) };
        let is_list = T::spec(name).is_ok_and(|spec| spec.field.is_list());
        if is_list && !lists.contains(&name) {
            lists.push(name);
            target.set(name, rushlight::options::OptionValue::None).map_err(rushlight::Error::from)?;
        }
        let set = match value {
            Some(value) => target.set_text(name, value),
            None => target.set(name, rushlight::options::OptionValue::None),
        };
        set.map_err(rushlight::Error::from)?;
    }
    Ok(())
}

/// The path of a string: its bytes where paths are bytes, else UTF-8.
///
/// # Safety
/// As for [`optional_text`].
unsafe fn path<'a>(pointer: *const c_char, name: &str) -> Result<&'a Path> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        if pointer.is_null() {
            return Err(null(name));
        }
        // SAFETY: as the caller promises.
        let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
        Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)))
    }
    #[cfg(not(unix))]
    // SAFETY: as the caller promises.
    Ok(Path::new(unsafe { text(pointer, name) }?))
}

/// Writes a result to the caller's variable.
///
/// # Safety
/// `out` is NULL or can be written.
unsafe fn set<T>(out: *mut T, name: &str, value: T) -> Result<()> {
    if out.is_null() {
        return Err(null(name));
    }
    check_aligned(out, name)?;
    // SAFETY: as the caller promises.
    unsafe { out.write(value) };
    Ok(())
}

/// Makes an object and returns its handle to the caller, who frees it with a function that calls [`free`].
///
/// # Safety
/// `out` can be written, or is NULL, which is an error before anything is made.
unsafe fn hand_out<T>(out: *mut *mut T, name: &str, make: impl FnOnce() -> Result<T>) -> Result<()> {
    if out.is_null() {
        return Err(null(name));
    }
    check_aligned(out, name)?;
    let made = Box::new(make()?);
    // SAFETY: as the caller promises.
    unsafe { set(out, name, Box::into_raw(made)) }
}

/// Writes a result to the caller's variable, which begins with its size. Fields beyond that size are left out.
///
/// # Safety
/// `out` is NULL or a variable of the size that its first field says.
unsafe fn set_sized<T>(out: *mut T, name: &str, value: impl FnOnce(usize) -> T) -> Result<()> {
    if out.is_null() {
        return Err(null(name));
    }
    check_aligned(out, name)?;
    // SAFETY: as the caller promises.
    let size = unsafe { out.cast::<usize>().read() };
    check_size(size, name)?;
    let value = value(size);
    // SAFETY: the variable has `size` bytes.
    unsafe { ptr::from_ref(&value).cast::<u8>().copy_to_nonoverlapping(out.cast(), size.min(size_of::<T>())) };
    Ok(())
}

/// Upper bound of a structure's bytes in any version of the header.
const MAX_STRUCT: usize = 1 << 12;

/// Fails for a size that no structure has, such as that of an uninitialized one.
fn check_size(size: usize, name: &str) -> Result<()> {
    if (size_of::<usize>()..=MAX_STRUCT).contains(&size) {
        return Ok(());
    }
    Err(Status::invalid(format!("`{name}->struct_size` is {size}: it has to be the size of the struct")))
}

/// A structure that begins with its size and can get more fields.
///
/// # Safety
/// All bytes may be zero, or any bytes that callers may write.
unsafe trait Growing {}

/// Reads options of the caller's version of the header. Options that this version does not have are zero.
///
/// # Safety
/// `pointer` is NULL or a structure of the size that its first field says.
unsafe fn options<T: Growing>(pointer: *const T, name: &str) -> Result<T> {
    let mut options = std::mem::MaybeUninit::<T>::zeroed();
    if !pointer.is_null() {
        check_aligned(pointer, name)?;
        // SAFETY: structures of this kind begin with their size.
        let size = unsafe { *pointer.cast::<usize>() };
        check_size(size, name)?;
        let known = size.min(size_of::<T>());
        // SAFETY: the structure has `size` bytes.
        let rest = unsafe { slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known) };
        if rest.iter().any(|byte| *byte != 0) {
            let message = format!("`{name}` has an option that this version of the library does not know");
            return Err(Status::new(Code::NotSupported, message));
        }
        // SAFETY: both have `known` bytes.
        unsafe { pointer.cast::<u8>().copy_to_nonoverlapping(options.as_mut_ptr().cast(), known) };
    }
    // SAFETY: all bytes are zero or written by the caller. `Growing` allows both.
    Ok(unsafe { options.assume_init() })
}

/// Locks without waiting. A lock that is already held is an error.
fn locked<'a, T>(mutex: &'a Mutex<T>, what: &str) -> Result<MutexGuard<'a, T>> {
    mutex.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Status::new(
            Code::InvalidState,
            format!("the {what} is in use, by another thread or by the call that this one is part of"),
        ),
        TryLockError::Poisoned(_) => {
            Status::new(Code::Internal, format!("an earlier call of the {what} ended with a defect: make it anew"))
        }
    })
}

/// Frees a handle from `Box::into_raw`.
///
/// # Safety
/// `handle` is NULL or such a handle, which is not used again.
unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: as the caller promises.
        let handle = unsafe { Box::from_raw(handle) };
        // A panic in `drop` must not reach the caller.
        guard_or((), || drop(handle));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// The body of each function that C calls is one call of a guard.
    #[test]
    fn every_entry_is_guarded() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
        let files =
            [folder.clone(), folder.join("ffi")].into_iter().flat_map(|folder| fs::read_dir(folder).expect("a folder"));
        let mut entries = Vec::new();
        let mut unguarded = Vec::new();
        for path in
            files.map(|file| file.expect("a file").path()).filter(|path| path.extension().is_some_and(|e| e == "rs"))
        {
            let source = fs::read_to_string(&path).expect("a source");
            let source = source.split("#[cfg(test)]").next().unwrap_or_default();
            for function in source.split("extern \"C\" fn ").skip(1) {
                let (name, rest) = function.split_once('(').expect("arguments");
                let lines: Vec<&str> = rest.lines().map(str::trim).collect();
                // A definition ends with the brace at the margin.
                let Some(open) = lines.iter().position(|line| line.ends_with('{')) else { continue };
                let body = lines[open + 1..].iter().filter(|line| !line.starts_with("//")).copied().collect::<Vec<_>>();
                let is_guarded =
                    ["guard(|| ", "guard_or(", "unsafe { free("].iter().any(|guard| body[0].starts_with(guard));
                entries.push(name.to_owned());
                if !is_guarded {
                    unguarded.push(name.to_owned());
                }
            }
            assert!(!source.contains("extern \"C-unwind\""), "{}", path.display());
        }
        assert!(unguarded.is_empty(), "{unguarded:?}");
        // All exported functions, a deleter of DLPack, and the function that a state is saved with.
        let exported = include_str!("../../include/rushlight.h");
        assert!(entries.len() > 80, "{}", entries.len());
        for name in entries.iter().filter(|name| !["delete", "append"].contains(&name.as_str())) {
            assert!(exported.contains(&format!("{name}(")), "{name} is not in the header");
        }
    }

    /// Panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("at its end")
        }
    }

    #[test]
    fn no_panic_leaves_functions_without_a_status() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let code = guard_or(7, || panic!("on purpose"));
        // SAFETY: the handle was just made.
        unsafe { free(Box::into_raw(Box::new(Bomb))) };
        let thrown = guard(|| std::panic::panic_any(Bomb));
        std::panic::set_hook(hook);
        assert_eq!(code, 7);
        // SAFETY: the status was just made, and nobody else has it.
        assert!(unsafe { status::take(thrown) }.is_err());
    }

    #[test]
    fn pointers_that_are_not_aligned_are_refused() {
        let mut words = [0_u64; 3];
        let odd = words.as_mut_ptr().cast::<u8>().wrapping_add(1);
        // SAFETY: the pointers are refused before anything is read or written there.
        unsafe {
            assert!(reference(odd.cast::<u64>(), "pointer").is_err());
            assert!(elements(odd.cast::<u64>(), 1, "pointer").is_err());
            assert!(set(odd.cast(), "pointer", 1_u64).is_err());
            assert!(hand_out(odd.cast(), "pointer", || Ok(1_u64)).is_err());
            assert!(set_sized(odd.cast(), "pointer", |size| size).is_err());
        }
        assert_eq!(words, [0; 3]);
    }

    #[test]
    fn a_panic_becomes_a_status() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let number = 7;
        let statuses = [guard(|| panic!("fixed")), guard(|| panic!("number {number}"))];
        std::panic::set_hook(hook);
        for (status, text) in statuses.into_iter().zip(["fixed", "number 7"]) {
            // SAFETY: the status was just made, and nobody else has it.
            let Err(status) = (unsafe { status::take(status) }) else { panic!("no status") };
            assert_eq!(status.code, Code::Internal as u32);
            assert!(status.message.to_string_lossy().ends_with(text), "{status:?}");
        }
    }

    #[cfg(feature = "compiler")]
    #[test]
    fn named_lists_replace_fields() {
        use rushlight::options::{CompilerOptions, Options as _};

        let given = |named: &[(&CStr, Option<&CStr>)]| {
            let mut target = CompilerOptions::default();
            target.set("backend", "cpu").unwrap();
            let value = |value: &Option<&CStr>| value.map_or(ptr::null(), CStr::as_ptr);
            let named: Vec<rl_option> =
                named.iter().map(|(name, text)| rl_option { name: name.as_ptr(), value: value(text) }).collect();
            // SAFETY: options that live for the call.
            unsafe { set_named(&mut target, named.as_ptr(), named.len()) }.unwrap();
            target.get("backend").unwrap()
        };
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>().into();
        let default = CompilerOptions::default().get("backend").unwrap();
        assert_eq!(given(&[]), list(&["cpu"]));
        assert_eq!(given(&[(c"backend", Some(c"x"))]), list(&["x"]));
        assert_eq!(
            given(&[(c"backend", Some(c"x")), (c"quantize", Some(c"int4")), (c"backend", Some(c"y"))]),
            list(&["x", "y"])
        );
        assert_eq!(given(&[(c"backend", Some(c"x")), (c"backend", None)]), default);
    }

    #[test]
    fn structures_of_no_size_are_refused() {
        for size in [0, 7, MAX_STRUCT + 1, usize::MAX] {
            assert!(check_size(size, "options").is_err(), "{size}");
        }
        assert!(check_size(size_of::<usize>(), "options").is_ok());
        let words = [0_usize; 2];
        let odd = words.as_ptr().cast::<u8>().wrapping_add(1).cast::<usize>();
        assert!(check_aligned(odd, "options").is_err() && check_aligned(words.as_ptr(), "options").is_ok());
    }

    #[test]
    fn what_panicked_is_not_used_again() {
        let module = Mutex::new(0);
        let poison = guard(|| {
            let _held = locked(&module, "module")?;
            panic!("in the middle")
        });
        // SAFETY: as above.
        assert!(unsafe { status::take(poison) }.is_err());
        let Err(status) = locked(&module, "module") else { panic!("it was locked") };
        assert_eq!(status.code, Code::Internal as u32);
    }
}
