//! The half that runs on a [`Device`]: buffers, running sums, completion, an option, events.

use std::sync::Arc;
use std::task::Poll;

use rushlight::Code;
use rushlight::runtime::{
    Backend, Call, Delegate, DelegateEvent, DelegateHandle, Detail, DeviceBuffer, DeviceDelegate, DeviceId, Error,
    InitContext, Limits, MemoryKind, OptionSpec, OptionValue, Result, State, StateInfo,
};

use crate::device::{BufferId, Device};
use crate::payload::Payload;

/// The half that runs what [`Chain`](crate::Chain) compiled on a device.
#[derive(Debug)]
pub struct DeviceRuntime {
    name: String,
    device: Arc<Device>,
}

impl DeviceRuntime {
    /// The other half of a backend of this name.
    pub fn new(name: &str, device: Arc<Device>) -> Self {
        Self { name: name.into(), device }
    }
}

const LATENCY: &str = "latency";
const TIMESTAMPS: &str = "timestamps";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new(LATENCY, OptionValue::Int(1), "how often a call is pending before it is complete"),
    OptionSpec::new(TIMESTAMPS, OptionValue::Bool(true), "times each step on the device").only_at_load(),
];

impl Backend for DeviceRuntime {
    fn id(&self) -> &str {
        &self.name
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn device(&self) -> Option<&str> {
        Some("a simulated device")
    }

    fn limits(&self) -> Option<Limits> {
        Some(Limits { flop_rate: 1e9, byte_rate: 1e9 })
    }

    fn init<'m>(&self, context: &mut InitContext<'_, 'm>) -> Result<DelegateHandle<'m>> {
        let damaged = || Error::new(Code::DelegateInvalidCompatibility, Detail::Text("a damaged payload"));
        let payload = Arc::new(Payload::parse(context.payload).ok_or_else(damaged)?);
        let keys = payload.sums.iter().map(|sum| format!("sum {}", sum.key)).collect();
        let latency = latency(context.option(LATENCY))?;
        let has_timestamps = context.option(TIMESTAMPS) == Some(OptionValue::Bool(true));
        let device = self.device.clone();
        Ok(DelegateHandle::Boxed(Box::new(Running { device, payload, keys, latency, has_timestamps, due: None })))
    }
}

/// The type of the option was checked, its range was not.
fn latency(value: Option<OptionValue<'_>>) -> Result<u64> {
    let Some(OptionValue::Int(latency)) = value else { return Ok(0) };
    u64::try_from(latency)
        .map_err(|_| Error::from(Detail::Value { what: LATENCY, expected: "0 or more", got: latency }))
}

struct Running {
    device: Arc<Device>,
    payload: Arc<Payload>,
    /// Keys of the running sums.
    keys: Vec<String>,
    latency: u64,
    has_timestamps: bool,
    /// When the call that was submitted is complete.
    due: Option<u64>,
}

impl Delegate for Running {
    fn num_outputs(&self) -> usize {
        self.payload.outputs.len()
    }

    fn device(&mut self) -> Option<&mut dyn DeviceDelegate> {
        Some(self)
    }

    fn state(&self, index: usize) -> Option<StateInfo<'_>> {
        let bytes = (self.payload.sums.get(index)?.elements as usize).saturating_mul(size_of::<f32>());
        Some(StateInfo { key: self.keys.get(index)?, bytes })
    }

    fn new_state(&mut self, index: usize) -> Result<Box<dyn State>> {
        let elements = self.payload.sums.get(index).map_or(0, |sum| sum.elements as usize);
        Ok(Box::new(Sums(Buffer::new(&self.device, elements))))
    }

    fn set_option(&mut self, _: &str, value: OptionValue<'_>) -> Result<()> {
        self.latency = latency(Some(value))?;
        Ok(())
    }
}

impl DeviceDelegate for Running {
    fn memory(&self, _: usize) -> MemoryKind {
        MemoryKind::Device(DeviceId { kind: "example", index: self.device.index() })
    }

    fn allocate(&mut self, bytes: usize) -> Result<Box<dyn DeviceBuffer>> {
        Ok(Box::new(Buffer::new(&self.device, bytes.div_ceil(size_of::<f32>()))))
    }

    fn submit(&mut self, call: &mut Call<'_, '_>) -> Result<()> {
        let inputs = call.context.num_inputs();
        let buffer = |argument: usize| Ok(call.buffers.get::<Buffer>(argument)?.id);
        let from: Result<Vec<BufferId>> = (0..inputs).map(buffer).collect();
        let to: Result<Vec<BufferId>> = (inputs..inputs + call.context.num_outputs()).map(buffer).collect();
        let sums: Result<Vec<BufferId>> =
            (0..self.keys.len()).map(|index| Ok(call.states.get::<Sums>(index)?.0.id)).collect();
        let elements = call.context.output(0)?.numel();
        let (payload, latency) = (&self.payload, self.latency);
        self.due = Some(self.device.submit(latency, payload, from?, to?, sums?, elements));
        Ok(())
    }

    fn poll(&mut self, call: &mut Call<'_, '_>) -> Result<Poll<()>> {
        let Some(due) = self.due else { return Ok(Poll::Ready(())) };
        if !self.device.poll(due) {
            return Ok(Poll::Pending);
        }
        self.due = None;
        if !call.events.is_on() || !self.has_timestamps {
            return Ok(Poll::Ready(()));
        }
        let elements = call.context.output(0)?.numel();
        for (index, step) in self.payload.steps.iter().enumerate() {
            let name = format!("{step:?}");
            let event = DelegateEvent { name: &name, step: Some(index), value: "", cost: Some(step.cost(elements)) };
            call.events.timed(event, due - self.latency.min(due), due);
        }
        Ok(Poll::Ready(()))
    }

    fn cancel(&mut self) {
        if let Some(due) = self.due.take() {
            self.device.cancel(due);
        }
    }
}

/// A buffer of the device.
struct Buffer {
    device: Arc<Device>,
    id: BufferId,
    elements: usize,
    /// When a read that was started is complete.
    due: Option<u64>,
}

impl Buffer {
    fn new(device: &Arc<Device>, elements: usize) -> Self {
        Self { device: device.clone(), id: device.allocate(elements), elements, due: None }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.free(self.id);
    }
}

fn too_small() -> Error {
    Error::new(Code::DelegateInvalidHandle, Detail::Text("the buffer is too small"))
}

impl DeviceBuffer for Buffer {
    fn len(&self) -> usize {
        self.elements * size_of::<f32>()
    }

    fn write(&mut self, data: &[u8]) -> Result<()> {
        self.device.upload(self.id, data).ok_or_else(too_small)
    }

    fn read(&mut self, data: &mut [u8]) -> Result<Poll<()>> {
        let due = *self.due.get_or_insert_with(|| self.device.fence());
        if !self.device.poll(due) {
            return Ok(Poll::Pending);
        }
        self.due = None;
        self.device.download(self.id, data).ok_or_else(too_small)?;
        Ok(Poll::Ready(()))
    }

    fn cancel_read(&mut self) {
        self.due = None;
    }
}

/// Running sums, in the memory of the device.
struct Sums(Buffer);

impl State for Sums {
    fn clear(&mut self) -> Result<()> {
        self.0.device.fill(self.0.id, 0.0);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn State>> {
        let Buffer { device, id, elements, .. } = &self.0;
        Ok(Box::new(Self(Buffer { device: device.clone(), id: device.duplicate(*id), elements: *elements, due: None })))
    }

    fn save(&mut self, to: &mut Vec<u8>) -> Result<Poll<()>> {
        let mut data = vec![0; self.0.len()];
        let poll = self.0.read(&mut data)?;
        if poll.is_ready() {
            to.extend(data);
        }
        Ok(poll)
    }

    fn restore(&mut self, from: &[u8]) -> Result<()> {
        if from.len() != self.0.len() {
            return Err(Error::new(Code::InvalidExternalData, Detail::Text("saved sums of another size")));
        }
        self.0.write(from)
    }
}
