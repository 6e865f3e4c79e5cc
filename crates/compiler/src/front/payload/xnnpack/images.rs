//! Nodes on images, which XNNPACK has in the order batch, height, width, channels.

use rushlight_format::payload::xnnpack::{Convolution, ConvolutionKind, NodeFlags, Padding, Pooling, PoolingKind};

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Expr, ValueId};

use super::node::Nodes;

/// From the order of XNNPACK to that of PyTorch, and back.
const CHANNELS_SECOND: [i64; 4] = [0, 3, 1, 2];
const CHANNELS_LAST: [i64; 4] = [0, 2, 3, 1];

impl Nodes<'_, '_> {
    pub(super) fn convolution(&mut self, node: &Convolution) -> Result<ValueId, Error> {
        let mut input = self.image(node.input)?;
        let groups = i64::from(node.groups);
        let filter = self.read_like(node.filter, input)?;
        let weight = self.weight(node.kind, groups, filter)?;
        let bias = node.bias.map(|bias| self.read_like(bias, input)).transpose()?;
        let is_transposed = node.kind == ConvolutionKind::Transposed;
        let padding = match node.padding.symmetric() {
            Some(padding) => padding,
            None if is_transposed => {
                return Err(Error::unsupported("a transposed convolution whose padding differs between the sides"));
            }
            None => {
                input = self.padded(input, node.padding, 0.0)?;
                [0, 0]
            }
        };
        let output = self.site.one(
            aten::CONVOLUTION,
            vec![
                input.into(),
                weight.into(),
                Arg::from(bias),
                sizes(node.stride),
                sizes(padding),
                sizes(node.dilation),
                is_transposed.into(),
                sizes(if is_transposed { node.adjustment } else { [0, 0] }),
                groups.into(),
            ],
        )?;
        self.permuted(output, CHANNELS_LAST)
    }

    /// A filter in the order of PyTorch.
    fn weight(&mut self, kind: ConvolutionKind, groups: i64, filter: ValueId) -> Result<ValueId, Error> {
        self.check_image(filter, "a filter")?;
        match kind {
            ConvolutionKind::Standard => self.permuted(filter, CHANNELS_SECOND),
            ConvolutionKind::Depthwise => self.permuted(filter, [3, 0, 1, 2]),
            ConvolutionKind::Transposed => {
                let fixed = self.site.tensor(filter)?.static_sizes();
                let Some(&[outputs, height, width, inputs]) = fixed.as_deref() else {
                    return Err(Error::unsupported("a filter of unknown size"));
                };
                if groups < 1 || outputs % groups != 0 {
                    return Err(Error::invalid("output channels do not divide into groups")
                        .expected(groups)
                        .got(outputs));
                }
                let of_group = outputs / groups;
                let shape = Arg::from([groups, of_group, height, width, inputs]);
                let grouped = self.site.one(aten::VIEW_COPY, vec![filter.into(), shape])?;
                let order = Arg::from([0, 4, 1, 2, 3]);
                let grouped = self.site.one(aten::PERMUTE_COPY, vec![grouped.into(), order])?;
                let all = groups.checked_mul(inputs).ok_or_else(|| Error::invalid("too many input channels"))?;
                self.site.one(aten::VIEW_COPY, vec![grouped.into(), Arg::from([all, of_group, height, width])])
            }
        }
    }

    pub(super) fn pooling(&mut self, node: &Pooling) -> Result<ValueId, Error> {
        let mut input = self.image(node.input)?;
        let symmetric = node.padding.symmetric();
        let output = match node.kind {
            PoolingKind::Average => {
                let padding = symmetric
                    .ok_or_else(|| Error::unsupported("a mean of windows whose padding differs between the sides"))?;
                let args = vec![input.into(), sizes(node.window), sizes(node.stride), sizes(padding)];
                self.site.one_with(aten::AVG_POOL2D, args, &[("count_include_pad", false.into())])?
            }
            PoolingKind::Max => {
                // PyTorch pads at most half a window; XNNPACK pads as much as anyone asks for.
                let fits = |padding: &[u32; 2]| padding.iter().zip(node.window).all(|(pad, window)| *pad <= window / 2);
                let padding = match symmetric.filter(fits) {
                    Some(padding) => padding,
                    None => {
                        input = self.padded(input, node.padding, f64::NEG_INFINITY)?;
                        [0, 0]
                    }
                };
                let dilation = sizes(node.dilation);
                let args = vec![input.into(), sizes(node.window), sizes(node.stride), sizes(padding), dilation];
                self.site.one(aten::MAX_POOL2D, args)?
            }
        };
        self.permuted(output, CHANNELS_LAST)
    }

    /// The mean of each channel. Without the flag the payload's graph drops height and width.
    pub(super) fn global_average(&mut self, flags: NodeFlags, input: u32) -> Result<ValueId, Error> {
        let input = self.read(input)?;
        self.check_image(input, "an image")?;
        let keep = flags.has(NodeFlags::KEEP_DIMS);
        self.site.one(aten::MEAN_DIM, vec![input.into(), Arg::from([1, 2]), keep.into()])
    }

    /// The largest of each window and its position in the window.
    pub(super) fn arg_max(&mut self, window: [u32; 2], input: u32) -> Result<(ValueId, ValueId), Error> {
        let input = self.read(input)?;
        self.check_image(input, "an image")?;
        let shape = self.site.tensor(input)?.shape.clone();
        let [batch, height, width, channels] = shape.as_slice() else {
            return Err(Error::invalid("an image has not four dimensions"));
        };
        let whole = |size: &Expr, window: u32| -> Result<(Expr, Expr), Error> {
            match (size.as_int(), i64::from(window)) {
                (Some(size), window) if window > 0 && size % window == 0 => {
                    Ok((Expr::Int(size / window), Expr::Int(window)))
                }
                (_, 1) => Ok((size.clone(), Expr::Int(1))),
                _ => Err(Error::unsupported("positions of maxima in windows that do not tile the image")),
            }
        };
        let (rows, high) = whole(height, window[0])?;
        let (columns, wide) = whole(width, window[1])?;
        let tiles = vec![batch.clone(), rows.clone(), high.clone(), columns.clone(), wide.clone(), channels.clone()];
        let tiled = self.site.one(aten::VIEW_COPY, vec![input.into(), tiles.into()])?;
        let tiled = self.site.one(aten::PERMUTE_COPY, vec![tiled.into(), Arg::from([0, 1, 3, 5, 2, 4])])?;
        let windows = vec![batch.clone(), rows, columns, channels.clone(), high.mul(wide)];
        let windows = self.site.one(aten::VIEW_COPY, vec![tiled.into(), windows.into()])?;
        match self.site.call(aten::MAX_DIM, vec![windows.into(), (-1).into()], &[])?.as_slice() {
            [largest, position] => Ok((*largest, *position)),
            _ => Err(Error::unsupported("maxima without positions")),
        }
    }

    pub(super) fn resize_bilinear(&mut self, flags: NodeFlags, size: [u32; 2], input: u32) -> Result<ValueId, Error> {
        let input = self.image(input)?;
        let align_corners = flags.has(NodeFlags::ALIGN_CORNERS);
        let args = vec![input.into(), sizes(size), align_corners.into()];
        let output = self.site.one(aten::UPSAMPLE_BILINEAR2D, args)?;
        self.permuted(output, CHANNELS_LAST)
    }

    /// An image with its channels second.
    fn image(&mut self, id: u32) -> Result<ValueId, Error> {
        let value = self.read(id)?;
        self.check_image(value, "an image")?;
        self.permuted(value, CHANNELS_SECOND)
    }

    fn check_image(&self, value: ValueId, what: &str) -> Result<(), Error> {
        match self.site.tensor(value)?.rank() {
            4 => Ok(()),
            rank => Err(Error::invalid(format!("{what} has not four dimensions")).expected(4).got(rank)),
        }
    }

    fn permuted(&mut self, value: ValueId, order: [i64; 4]) -> Result<ValueId, Error> {
        self.site.one(aten::PERMUTE_COPY, vec![value.into(), Arg::from(order)])
    }

    /// An image, channels second, with rows and columns around it.
    fn padded(&mut self, image: ValueId, padding: Padding, value: f64) -> Result<ValueId, Error> {
        let Padding { top, right, bottom, left } = padding;
        let pad = Arg::from([left, right, top, bottom].map(i64::from));
        self.site.one(aten::CONSTANT_PAD_ND, vec![image.into(), pad, value.into()])
    }
}

fn sizes(pair: [u32; 2]) -> Arg {
    Arg::from(pair.map(i64::from))
}
