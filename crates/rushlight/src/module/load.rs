//! Loading a method: its memory, its backends, its data.

use std::sync::Arc;

use rushlight_runtime::{
    Backend, BackendOption, Code, DataMap, Detail, Fault, LoadOptions, Memory, Method, Program, SharedArenas, States,
};

use super::Module;
use super::builder::declared;
use super::built_in::{self, Blobs};
use crate::backend_options;
use crate::error::Error;
use crate::instance::{MethodInstance, Shown};
use crate::meta::{MethodMeta, ValueInfo};

impl Module {
    /// Loads a method with memory and state of its own, apart from the module's. With
    /// [`share_memory`](crate::ModuleBuilder::share_memory) it uses the module's planned buffers.
    pub fn instantiate(&mut self, name: &str) -> Result<MethodInstance, Error> {
        self.instantiate_with(name, true)
    }

    /// Loads a method, with states of its own for its delegates or without.
    pub(crate) fn instantiate_with(&mut self, name: &str, has_states: bool) -> Result<MethodInstance, Error> {
        let meta = self.meta(name)?;
        if let Some(lowered) = self.lowered_instance(&meta, has_states) {
            return lowered;
        }
        let program = self.program.clone();
        let loaded = self.instance(&program, &meta, has_states, 0, &Arc::default());
        loaded.map_err(|error| self.untranslated(error, name))
    }

    /// Loads a method of a program, which takes `taken` bytes of memory besides the file's, and whose data for backends that
    /// come with Rushlight may be in `blobs`. `meta` is the file's.
    pub(super) fn instance(
        &mut self,
        program: &Program<'static>,
        meta: &MethodMeta,
        has_states: bool,
        taken: usize,
        blobs: &Arc<Blobs>,
    ) -> Result<MethodInstance, Error> {
        let name = &meta.name;
        let shared = if self.options.share_memory { Some(self.shared_arenas(program)?) } else { None };
        let mut memory = Memory::heap();
        if let Some(limit) = self.options.memory_limit {
            let shared = shared.as_ref().map_or(0, |arenas| arenas.size());
            let outside = output_bytes(meta).saturating_add(taken).saturating_add(shared);
            memory = memory.with_limit(limit.checked_sub(outside).ok_or_else(|| {
                Error::new(Code::MemoryAllocationFailed, format!("the memory limit is too small for `{name}`"))
                    .expected(format!("more than {outside} bytes, which outputs and compiled weights take alone"))
                    .got(format!("{limit} bytes"))
            })?);
        }
        if let Some(shared) = shared {
            memory = memory.with_shared_arenas(shared);
        }
        let external: Vec<&DataMap<'static>> = self.options.external_data.iter().collect();
        let own = self.options.backends.iter().map(|backend| &**backend as &dyn Backend);
        let known = built_in::running(program.parsed().method_named(name), &self.options.host, blobs)?;
        let backends: Vec<&dyn Backend> = own.chain(known.iter().map(|backend| &**backend as &dyn Backend)).collect();
        let registry = self.registry();
        let declared = declared(&self.options.backends);
        let backend_options =
            self.options.backend_options.as_given().map(|option| backend_options::check(option, declared.clone()));
        let backend_options: Vec<BackendOption<'_>> = backend_options.collect::<Result<_, _>>()?;
        let options = LoadOptions {
            backends: &backends,
            backend_options: &backend_options,
            external_data: &external,
            without_states: !has_states,
            ..LoadOptions::new(registry)
        };
        let shown = Shown {
            program: self.program.clone(),
            external: self.options.external_data.clone(),
            #[cfg(feature = "lower")]
            map: self.lowered_map(name).cloned(),
        };
        let method = Method::load(program, name, memory, &options);
        let mut method = method.map_err(|error| {
            let mut explained = shown.explain(&error, program, name, &registry);
            if let Some(limit) = self.options.memory_limit.filter(|_| explained.code() == Code::MemoryAllocationFailed) {
                explained = explained.help(format!(
                    "the memory limit of the module is {limit} bytes; `MethodMeta::planned_buffers` has the largest parts of what \
                     `{name}` needs"
                ));
            }
            match error.detail {
                Detail::Fault(Fault::NoExternalData, ..) => self.missing_data_error(explained, program, name),
                _ => explained,
            }
        })?;
        let has_lent_states = !has_states && method.has_delegate_states();
        let mut instance = MethodInstance::new(shown, program.clone(), method, meta, registry, self.options.time_limit);
        instance.has_lent_states = has_lent_states;
        Ok(instance)
    }

    fn shared_arenas(&mut self, program: &Program<'static>) -> Result<Arc<SharedArenas<'static>>, Error> {
        if let Some(arenas) = &self.arenas {
            return Ok(Arc::clone(arenas));
        }
        let mut sizes: Vec<usize> = Vec::new();
        for plan in program.parsed().methods() {
            for (i, size) in (1..plan.num_buffers()).map(|id| plan.buffer_size(id as u32)).enumerate() {
                let size = usize::try_from(size).map_err(|_| Error::invalid("a planned buffer is too large"))?;
                match sizes.get_mut(i) {
                    Some(largest) => *largest = size.max(*largest),
                    None => sizes.push(size),
                }
            }
        }
        let total = sizes.iter().fold(0usize, |total, size| total.saturating_add(*size));
        if let Some(limit) = self.options.memory_limit.filter(|&limit| total > limit) {
            let message = "the planned buffers that the methods share take more memory than the limit";
            return Err(Error::new(Code::MemoryAllocationFailed, message)
                .expected(format!("at most {limit} bytes"))
                .got(format!("{total} bytes")));
        }
        let mut arenas = SharedArenas::heap(&sizes)?;
        if program.parsed().shares_state() {
            // A method may be loaded after others were called.
            arenas = arenas.with_states_of(program)?;
        }
        let arenas = Arc::new(arenas);
        self.arenas = Some(Arc::clone(&arenas));
        Ok(arenas)
    }
}

/// States that take at most as much memory as one method may.
pub(super) fn no_states(memory_limit: Option<usize>) -> States {
    States::with_limit(memory_limit.unwrap_or(usize::MAX))
}

/// Upper bound of the memory of a call's outputs: the caller's copies, and buffers for outputs that the program has not
/// planned.
fn output_bytes(meta: &MethodMeta) -> usize {
    meta.outputs.iter().filter_map(ValueInfo::as_tensor).fold(0, |total: usize, info| {
        let bytes = usize::try_from(info.nbytes).unwrap_or(usize::MAX);
        total.saturating_add(if info.is_memory_planned { bytes } else { bytes.saturating_mul(2) })
    })
}
