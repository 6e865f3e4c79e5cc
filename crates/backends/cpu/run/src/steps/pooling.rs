//! Pooling of images.

use rushlight_cpu_payload::{PoolKind, Pooling};
use rushlight_engine::{Data, DataMut, Engine, FloatSliceMut, Pool2d, QuantOut};
use rushlight_runtime::Result;

use super::{FLOATS_ONLY, RunStep};
use crate::bf16_choice::Choice;
use crate::memory::{NOT_QUANTIZED, StepContext, done};
use crate::shapes::check_windows;

impl RunStep for Pooling {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split_data(self.y)?;
        let ([batch, in_h, in_w, channels], [_, out_h, out_w, _]) = (reader.image(self.x)?, reader.image(self.y)?);
        check_windows(&[out_h, out_w])?;
        let usize2 = |pair: [u32; 2]| pair.map(|size| size as usize);
        let pool = Pool2d {
            batch,
            in_h,
            in_w,
            channels,
            out_h,
            out_w,
            kernel: usize2(self.kernel),
            stride: usize2(self.stride),
            padding: self.padding.map(usize2),
            dilation: usize2(self.dilation),
            kind: self.kind,
        };
        done(match (reader.data(self.x)?, y) {
            (Data::Bytes(x, affine), y) if pool.kind != PoolKind::Max => {
                let y = match y {
                    DataMut::Floats(y) => QuantOut::Floats(y),
                    DataMut::Bytes(y, affine) => QuantOut::Bytes(y, affine),
                    DataMut::Bf16(_) => return Err(FLOATS_ONLY.into()),
                };
                rushlight_engine::avg_pool2d_u8(engine, &pool, x, affine, y)
            }
            (Data::Bytes(x, _), DataMut::Bytes(y, _)) => rushlight_engine::max_pool2d_u8(engine, &pool, x, y),
            (_, DataMut::Floats(y)) => rushlight_engine::pool2d(engine, &pool, reader.floats(self.x)?, y),
            (_, DataMut::Bf16(y)) => {
                rushlight_engine::pool2d(engine, &pool, reader.float_slice(self.x)?, FloatSliceMut::Bf16(y))
            }
            (_, DataMut::Bytes(..)) => return Err(NOT_QUANTIZED.into()),
        })
    }

    fn restrict_bf16(&self, choice: &mut Choice<'_>) -> bool {
        choice.read(self.x) | choice.both(self.x, self.y)
    }
}
