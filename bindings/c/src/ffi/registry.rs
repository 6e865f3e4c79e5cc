//! Registries: the operators and backends that a program is loaded with, besides the built-in ones.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use rushlight::runtime::Backend;
use rushlight::{ModuleBuilder, Op, OpSet};

use super::backend::{CustomBackend, rl_backend};
use super::kernel::{CustomKernel, KERNEL, rl_kernel_fn};
use super::{Growing, Result, free, guard, hand_out, null, options, reference, rl_status, text};
use crate::status::Status;

/// Operators and backends of the caller's, for `rl_module_load`. Threads: any number of threads may use a registry at
/// once.
#[derive(Default)]
pub struct rl_registry {
    sets: Mutex<Vec<&'static OpSet>>,
    backends: Mutex<Vec<Arc<dyn Backend + Send>>>,
}

/// An operator of the caller's.
#[repr(C)]
pub struct rl_operator {
    /// `sizeof(rl_operator)`.
    pub struct_size: usize,
    /// Namespace, name and overload of the out variant, which programs call. For `example::twice(Tensor x) -> Tensor`
    /// it is `example::twice.out`, with the arguments `x` and `out`.
    pub name: *const c_char,
    /// Number of arguments, outputs included; at most 32.
    pub num_arguments: u32,
    /// Number of outputs, which are the last arguments. 0 counts as 1.
    pub num_outputs: u32,
    /// The function that computes the operator.
    pub kernel: rl_kernel_fn,
    /// Passed to the kernel. It must live as long as modules that were loaded with the registry. Several threads use it
    /// at once if they use several of these modules at once.
    pub user_data: *mut c_void,
}

// SAFETY: integers, pointers, and a function that may be NULL.
unsafe impl Growing for rl_operator {}

impl rl_registry {
    /// Adds the registered operators and backends to a module that is being loaded.
    pub fn add_to(&self, builder: ModuleBuilder) -> ModuleBuilder {
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        // The latest come first, so that they are found before earlier ones of the same name.
        let builder = sets.iter().rev().fold(builder, |builder, set| builder.ops(set));
        let backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        backends.iter().fold(builder, |builder, backend| builder.backend(backend.clone()))
    }
}

/// Makes an empty registry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_registry_new(registry: *mut *mut rl_registry) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(registry, "registry", || Ok(rl_registry::default())) }
    })
}

/// Adds an operator. It is found before built-in operators, and before earlier ones of the same name. About 100 bytes
/// of it are kept until the process ends: make one registry, not one for each module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_registry_add_operator(
    registry: *mut rl_registry,
    op: *const rl_operator,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or live objects of the caller's.
        let registry = unsafe { reference(registry, "registry") }?;
        // SAFETY: NULL, or a structure that says its size.
        let operator: rl_operator = unsafe { options(op, "op") }?;
        // SAFETY: NULL, or a string.
        let name = unsafe { text(operator.name, "op->name") }?;
        let set = operator_set(name, &operator)?;
        registry.sets.lock().unwrap_or_else(PoisonError::into_inner).push(set);
        Ok(())
    })
}

fn operator_set(name: &str, operator: &rl_operator) -> Result<&'static OpSet> {
    if name.split_once("::").is_none_or(|(space, name)| space.is_empty() || name.is_empty()) {
        return Err(Status::invalid(format!("`{name}` is no name of an operator, such as `my::nms.out`")));
    }
    let function = operator.kernel.ok_or_else(|| null("op->kernel"))?;
    let outputs = operator.num_outputs.max(1);
    let (arguments, outs) = match (u8::try_from(operator.num_arguments), u8::try_from(outputs)) {
        (Ok(arguments @ 1..=32), Ok(outs)) if outs <= arguments && outs < 32 => (arguments, outs),
        _ => {
            let message = format!("{} arguments with {outputs} outputs: there are 1 to 32", operator.num_arguments);
            return Err(Status::invalid(message).at(&format!("operator `{name}`")));
        }
    };
    let kernel = CustomKernel { function, user_data: operator.user_data, arguments: arguments.into() };
    // Methods refer to their operators without a reference count, so operators live as long as the process.
    let data: &'static CustomKernel = Box::leak(Box::new(kernel));
    let op = Op::new(String::leak(name.to_owned()), arguments, KERNEL).outs(outs).data(data);
    let group: &'static [Op] = std::slice::from_ref(Box::leak(Box::new(op)));
    let groups: &'static [&'static [Op]] = std::slice::from_ref(Box::leak(Box::new(group)));
    Ok(Box::leak(Box::new(OpSet { name: "REGISTRY", groups: std::slice::from_ref(Box::leak(Box::new(groups))) })))
}

/// Adds a backend. It runs the parts of programs that are delegated to its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_registry_add_backend(
    registry: *mut rl_registry,
    backend: *const rl_backend,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or live objects of the caller's.
        let registry = unsafe { reference(registry, "registry") }?;
        // SAFETY: NULL, or a structure that says its size.
        let backend: rl_backend = unsafe { options(backend, "backend") }?;
        // SAFETY: its name is NULL, or a string.
        let backend = unsafe { CustomBackend::of(&backend) }?;
        registry.backends.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(backend));
        Ok(())
    })
}

/// Frees a registry. Modules that were loaded with it keep its operators and backends. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_registry_free(registry: *mut rl_registry) {
    // SAFETY: NULL or a registry that the caller does not use again.
    unsafe { free(registry) }
}
