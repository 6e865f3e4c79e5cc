//! Cutting images into tiles, as vision models of the Llama family do.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

/// `preprocess::tile_crop.out(Tensor input, int tile_size, *, Tensor(a!) out) -> Tensor(a!)`
///
/// `[C, H, W]` becomes `[tiles, C, tile_size, tile_size]`, tiles row by row; height and width are multiples of the
/// tile size. Any element type.
pub const TILE_CROP_OUT: Op = Op::new("preprocess::tile_crop.out", 3, tile_crop);

pub const OPS: &[Op] = &[TILE_CROP_OUT];

fn tile_crop(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let (&[channels, height, width], &[channel_stride, row_stride, stride]) = (input.sizes(), input.strides()) else {
        return Err(Error::from(Detail::Rank { expected: "3", got: input.rank() }).arg(0));
    };
    let tile_size = cx.int(1)?;
    let Some(size) = usize::try_from(tile_size).ok().filter(|&size| size > 0) else {
        let detail = Detail::Value { what: "tile_size", expected: "at least 1", got: tile_size };
        return Err(Error::from(detail).arg(1));
    };
    if !height.is_multiple_of(size) || !width.is_multiple_of(size) {
        let expected = "a divisor of the height and the width";
        return Err(Error::from(Detail::Value { what: "tile_size", expected, got: tile_size }).arg(1));
    }
    let (down, across) = (height / size, width / size);
    let tiles = down.checked_mul(across).ok_or_else(|| Error::invalid("the number of tiles overflows").arg(0))?;
    let mut out = cx.out(2)?;
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(2));
    }
    out.resize(&[tiles, channels, size, size]).map_err(|e| e.arg(2))?;
    if !out.is_contiguous() {
        return Err(Error::invalid("the tensor must be contiguous").arg(2));
    }
    dispatch_size!(input.dtype(), N => {
        let source = input.bytes().as_chunks::<N>().0;
        let rows = out.bytes_mut().as_chunks_mut::<N>().0.chunks_exact_mut(size);
        // Rows of the output count, from the inside out: line in the tile, channel, tile.
        for (index, row) in rows.enumerate() {
            let (line, channel, tile) = (index % size, index / size % channels, index / size / channels);
            let start = channel * channel_stride + (tile / across * size + line) * row_stride + tile % across * size * stride;
            for (x, value) in row.iter_mut().zip(source[start..].iter().step_by(stride)) {
                *x = *value;
            }
        }
        Ok(())
    })
}
