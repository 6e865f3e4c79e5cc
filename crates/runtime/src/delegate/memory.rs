//! The memories that hold values.

/// A device whose delegates can use each other's buffers. Two backends return equal ids if they use the same device and
/// the same type of buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The API of the device, such as `wgpu`.
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
