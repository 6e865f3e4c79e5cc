//! Convolution, pooling, padding, resampling: operators over spatial neighbourhoods.

use rushlight_runtime::OpGroup;

pub mod adaptive_avg_pool;
pub mod avg_pool;
pub mod col2im;
pub mod convolution;
pub mod convolution_backward;
pub mod fractional_max_pool;
pub mod grid_sampler;
pub mod grid_sampler_3d;
pub mod max_pool;
pub mod pad;
pub mod pixel_shuffle;
mod staged;
pub mod upsample;
mod window;

/// The groups of this folder that ExecuTorch has in its portable set.
pub const PORTABLE: &[OpGroup] = &[
    convolution::OPS,
    convolution_backward::OPS,
    pad::OPS,
    pixel_shuffle::OPS,
    upsample::OPS,
    grid_sampler::OPS,
    max_pool::PORTABLE,
    avg_pool::PORTABLE,
    adaptive_avg_pool::PORTABLE,
];

/// The groups of this folder with core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: &[OpGroup] =
    &[col2im::OPS, max_pool::CORE_ATEN, avg_pool::CORE_ATEN, adaptive_avg_pool::CORE_ATEN];

/// The groups of this folder with operators beyond core ATen.
pub const ATEN: &[OpGroup] = &[fractional_max_pool::OPS, grid_sampler_3d::OPS];
