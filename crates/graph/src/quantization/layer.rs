//! The shape of a layer's weights, by which back ends say whether they have an integer kernel for it.

/// Shape of the weights of a layer: `[N, K]` of a linear layer, or that of a convolution.
#[derive(Clone, Debug)]
pub struct LayerShape<'a> {
    pub sizes: &'a [usize],
    /// `None` for a linear layer.
    pub convolution: Option<ConvolutionShape>,
}

/// Parameters of a convolution besides the sizes of its weights.
#[derive(Clone, Debug)]
pub struct ConvolutionShape {
    pub stride: Vec<usize>,
    pub dilation: Vec<usize>,
    pub groups: usize,
    pub is_transposed: bool,
}
