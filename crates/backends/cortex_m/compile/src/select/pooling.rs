//! Pooling in two dimensions.

use rushlight_graph::operators::aten;
use rushlight_graph::{Call, ValueId};

use super::{Context, Operand, Output, Selected, Step, check_absent, pair};

/// The window of a pooling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub kernel: [i64; 2],
    pub stride: [i64; 2],
    pub padding: [i64; 2],
    pub is_rounded_up: bool,
}

/// An average of the elements in a window.
#[derive(Debug)]
pub(crate) struct Average {
    pub input: Operand,
    /// `[N, C, H, W]`.
    pub input_sizes: [i64; 4],
    pub window: Window,
    /// True if padding counts as zeros.
    pub counts_padding: bool,
}

/// The maximum of the elements in a window.
#[derive(Debug)]
pub(crate) struct Maximum {
    pub input: Operand,
    pub window: Window,
    pub output: Output,
}

/// Fails unless the result has the scale of the input.
fn check_alike(input: &Operand, output: &Output) -> Result<(), String> {
    let is_alike = input.affine.is_alike(&output.affine);
    if is_alike { Ok(()) } else { Err("its input and its result have different scales".to_owned()) }
}

fn image(cx: &Context<'_>, value: ValueId) -> Result<[i64; 4], String> {
    cx.sizes(value)?.try_into().map_err(|_| "its input does not have four dimensions".to_owned())
}

pub(super) fn average(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let input = cx.operand(call, "self")?;
    check_alike(&input, &output)?;
    output.check_range()?;
    let input_sizes = image(cx, input.value)?;
    let [_, _, height, width] = input_sizes;
    let whole = Window { kernel: [height, width], stride: [1, 1], padding: [0, 0], is_rounded_up: false };
    let (window, counts_padding) = match call.name() {
        aten::MEAN_DIM => {
            let mut dims: Vec<i64> = call.ints("dim").ok_or("`dim` is not known")?;
            dims.iter_mut().for_each(|dim| *dim = dim.rem_euclid(4));
            dims.sort_unstable();
            if dims != [2, 3] {
                return Err("it is not a mean over height and width".to_owned());
            }
            (whole, false)
        }
        aten::ADAPTIVE_AVG_POOL2D => {
            let sizes = pair(call, "output_size")?;
            let [kernel_height, kernel_width] = [height / sizes[0].max(1), width / sizes[1].max(1)];
            if [kernel_height * sizes[0], kernel_width * sizes[1]] != [height, width] {
                return Err("its windows have different sizes".to_owned());
            }
            let kernel = [kernel_height, kernel_width];
            (Window { kernel, stride: kernel, ..whole }, false)
        }
        _ => {
            check_absent(call, "divisor_override")?;
            (window(call)?, call.flag("count_include_pad"))
        }
    };
    if counts_padding && window.is_rounded_up && window.padding != [0, 0] {
        return Err("it counts padding and has `ceil_mode`".to_owned());
    }
    Ok(Selected::new([input.node], Step::Average(Average { input, input_sizes, window, counts_padding })))
}

pub(super) fn maximum(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let input = cx.operand(call, "self")?;
    check_alike(&input, &output)?;
    image(cx, input.value)?;
    let window = window(call)?;
    if window.is_rounded_up || pair(call, "dilation")? != [1, 1] {
        return Err("it has dilation or `ceil_mode`".to_owned());
    }
    Ok(Selected::new([input.node], Step::Maximum(Maximum { input, window, output })))
}

fn window(call: &Call<'_>) -> Result<Window, String> {
    let kernel = pair(call, "kernel_size")?;
    let stride =
        if call.ints("stride").is_none_or(|stride| stride.is_empty()) { kernel } else { pair(call, "stride")? };
    Ok(Window { kernel, stride, padding: pair(call, "padding")?, is_rounded_up: call.flag("ceil_mode") })
}
