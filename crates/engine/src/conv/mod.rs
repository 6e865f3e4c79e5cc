//! Convolutions over channels-last (NHWC, NDHWC) images.

mod depthwise;
mod direct;
mod kernel_rows;
pub(crate) mod pack;
mod shape;
pub(crate) mod transposed;
pub(crate) mod window;
mod winograd;

pub use depthwise::depthwise2d;
pub use direct::{conv2d, conv3d};
pub use shape::{Conv2d, Conv3d};
pub use transposed::{ConvTranspose2d, conv_transpose2d};
pub use winograd::{Winograd, WinogradWeights, conv2d_winograd, conv2d_winograd_scratch};
