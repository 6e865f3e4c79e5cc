//! The run-time half.

use rushlight::Code;
use rushlight::runtime::{Backend, Delegate, DelegateContext, DelegateHandle, Detail, Error, InitContext, Result};

use crate::payload::Payload;

/// The run-time half, which runs payloads of [`Chain`](crate::Chain).
#[derive(Debug)]
pub struct ChainRuntime {
    name: String,
}

impl ChainRuntime {
    /// The run-time half of a backend with this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.into() }
    }
}

impl Backend for ChainRuntime {
    fn id(&self) -> &str {
        &self.name
    }

    fn init<'m>(&self, context: &mut InitContext<'_, 'm>) -> Result<DelegateHandle<'m>> {
        let damaged = || Error::new(Code::DelegateInvalidCompatibility, Detail::Text("a damaged payload"));
        let payload = Payload::parse(context.payload).ok_or_else(damaged)?;
        if !payload.sums.is_empty() {
            return Err(Error::new(Code::NotSupported, Detail::Text("running sums are the device's")));
        }
        let registers = payload.registers();
        // The memory of executions is allocated here.
        Ok(DelegateHandle::Boxed(Box::new(Running { payload, registers: vec![0.0; registers] })))
    }
}

struct Running {
    payload: Payload,
    registers: Vec<f32>,
}

impl Delegate for Running {
    fn num_outputs(&self) -> usize {
        self.payload.outputs.len()
    }

    fn execute(&mut self, context: &DelegateContext<'_>) -> Result<()> {
        let Self { payload, registers } = self;
        let wrong = || Error::new(Code::DelegateInvalidHandle, Detail::Text("a tensor of another size"));
        for (index, result) in payload.outputs.iter().enumerate() {
            let mut output = context.output(index)?;
            for (element, slot) in output.as_mut_slice::<f32>()?.iter_mut().enumerate() {
                let input = |index| context.input(index).ok()?.as_slice::<f32>().ok()?.get(element).copied();
                payload.evaluate(element, registers, input, |_, _| None).ok_or_else(wrong)?;
                *slot = registers[*result as usize];
            }
        }
        Ok(())
    }
}
