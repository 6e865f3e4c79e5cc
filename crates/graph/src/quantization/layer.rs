//! The shape of a layer's weights. Backends use it to tell if they have an integer kernel for the layer.

/// Shape of the weights of a layer: `[N, K]` of a linear layer, or that of a convolution.
#[derive(Clone, Debug)]
pub struct LayerShape<'a> {
    pub sizes: &'a [usize],
    /// The parameters of a convolution; `None` for a linear layer.
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
