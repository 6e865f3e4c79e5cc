//! The memories that values can be in.

/// A device whose delegates can use each other's buffers. Two back ends that mean the same device, and the same type of
/// buffer, give equal ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The API behind it, such as `wgpu`.
    pub kind: &'static str,
    /// Index of the device.
    pub index: u32,
}

/// The memory of a tensor's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Slices that the host reads and writes.
    #[default]
    Host,
    /// A buffer of this device.
    Device(DeviceId),
}
