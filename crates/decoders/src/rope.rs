//! Rotary position embeddings (RoFormer, Su et al. 2021), and their scaling to longer contexts as in transformers'
//! `modeling_rope_utils`.

use std::f64::consts::PI;

use rushlight_graph::{Computed, Error};

use rushlight_checkpoint::config::Config;
use rushlight_checkpoint::damaged;

/// The frequencies of one kind of RoPE.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rope {
    /// Frequency of each pair of columns, in radians per position.
    pub frequencies: Vec<f32>,
    /// Factor of cosines and sines.
    pub scale: f64,
}

/// Properties of the model that frequencies depend on, besides the settings of RoPE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    pub head_dim: usize,
    /// `max_position_embeddings`.
    pub max_positions: usize,
    /// Positions of the compiled program.
    pub context: usize,
}

impl Rope {
    /// Number of columns of a head that are rotated.
    pub fn columns(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Plain RoPE: `theta ^ (-2 i / columns)`.
    pub fn plain(theta: f64, columns: usize) -> Self {
        let pair = |index: usize| theta.powf(-((2 * index) as f64) / columns.max(1) as f64) as f32;
        Self { frequencies: (0..columns / 2).map(pair).collect(), scale: 1.0 }
    }

    /// Reads the settings of a RoPE: `rope_parameters`, or `rope_scaling` of older configurations. `theta` and
    /// `fraction` (of the rotated columns) are defaults for settings without them. `original` is the training context,
    /// if the configuration has it outside of the settings.
    ///
    /// # Errors
    /// `Unsupported` for an unknown kind, `Input` for settings that are missing or not numbers.
    pub fn of(
        settings: Option<Config<'_>>,
        theta: f64,
        fraction: f64,
        original: Option<f64>,
        width: Width,
    ) -> Result<Self, Error> {
        let number = |key: &str| settings.map_or(Ok(None), |settings| settings.positive(key));
        let theta = number("rope_theta")?.unwrap_or(theta);
        let fraction = number("partial_rotary_factor")?.unwrap_or(fraction);
        let columns = (width.head_dim as f64 * fraction) as usize;
        if columns > width.head_dim || !columns.is_multiple_of(2) || columns == 0 {
            return Err(damaged("RoPE rotates columns that there are not")
                .expected(format!("an even number of columns up to {}", width.head_dim))
                .got(columns));
        }
        let plain = Self::plain(theta, columns);
        let Some(settings) = settings else { return Ok(plain) };
        let kind = match settings.text("rope_type")? {
            Some(kind) => kind,
            None => settings.text("type")?.unwrap_or("default"),
        };
        let original = match original {
            Some(original) => original,
            None => settings.positive("original_max_position_embeddings")?.unwrap_or(width.max_positions as f64),
        };
        match kind {
            "default" | "mrope" => Ok(plain),
            "linear" => Ok(plain.slower(settings.required_positive("factor")?)),
            "llama3" => plain.llama3(settings, original),
            "yarn" => plain.yarn(settings, theta, columns, original, width.max_positions),
            "longrope" | "su" => plain.long(settings, original, width),
            other => Err(Error::unsupported(format!("RoPE of the kind `{other}`"))
                .expected("default, linear, llama3, yarn or longrope")),
        }
    }

    /// Divides each frequency by a factor of its own.
    ///
    /// # Errors
    /// `Input` if there are too few factors, or one is not positive.
    pub fn divide(&mut self, factors: &[f32]) -> Result<(), Error> {
        if factors.len() != self.frequencies.len() || factors.iter().any(|factor| factor.is_nan() || *factor <= 0.0) {
            return Err(damaged("the factors of RoPE do not fit the head")
                .expected(format!("{} numbers above 0", self.frequencies.len()))
                .got(format!("{} numbers", factors.len())));
        }
        self.frequencies.iter_mut().zip(factors).for_each(|(frequency, factor)| *frequency /= factor);
        Ok(())
    }

    /// Divides all frequencies by a factor, as if positions were closer by it.
    fn slower(mut self, factor: f64) -> Self {
        self.frequencies.iter_mut().for_each(|frequency| *frequency = (f64::from(*frequency) / factor) as f32);
        self
    }

    /// Llama 3.1: divides the frequencies of wavelengths beyond the original context, and keeps those of short ones.
    fn llama3(mut self, settings: Config<'_>, original: f64) -> Result<Self, Error> {
        let factor = settings.required_positive("factor")?;
        let low = settings.required_positive("low_freq_factor")?;
        let high = settings.required_positive("high_freq_factor")?;
        if low == high {
            return Err(damaged("`low_freq_factor` and `high_freq_factor` are the same"));
        }
        for frequency in &mut self.frequencies {
            let plain = f64::from(*frequency);
            let waves = original * plain / (2.0 * PI);
            let smooth = ((waves - low) / (high - low)).clamp(0.0, 1.0);
            *frequency = ((1.0 - smooth) * plain / factor + smooth * plain) as f32;
        }
        Ok(self)
    }

    /// YaRN (Peng et al. 2023).
    fn yarn(
        mut self,
        settings: Config<'_>,
        theta: f64,
        columns: usize,
        original: f64,
        max_positions: usize,
    ) -> Result<Self, Error> {
        let factor = settings.positive("factor")?.unwrap_or(max_positions as f64 / original);
        let magnitude = |scale: f64, by: f64| if scale <= 1.0 { 1.0 } else { 0.1 * by * scale.ln() + 1.0 };
        self.scale = match settings.positive("attention_factor")? {
            Some(given) => given,
            None => match (settings.positive("mscale")?, settings.positive("mscale_all_dim")?) {
                (Some(one), Some(all)) => magnitude(factor, one) / magnitude(factor, all),
                _ => magnitude(factor, 1.0),
            },
        };
        let fast = settings.positive("beta_fast")?.unwrap_or(32.0);
        let slow = settings.positive("beta_slow")?.unwrap_or(1.0);
        let dim = |turns: f64| columns as f64 * (original / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln());
        let (mut low, mut high) = (dim(fast), dim(slow));
        if settings.flag("truncate")?.unwrap_or(true) {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, mut high) = (low.max(0.0), high.min(columns as f64 - 1.0));
        if low == high {
            high += 0.001;
        }
        for (index, frequency) in self.frequencies.iter_mut().enumerate() {
            let plain = f64::from(*frequency);
            let kept = 1.0 - ((index as f64 - low) / (high - low)).clamp(0.0, 1.0);
            *frequency = (plain / factor * (1.0 - kept) + plain * kept) as f32;
        }
        Ok(self)
    }

    /// LongRoPE (Ding et al. 2024): a factor for each frequency, with other factors for contexts beyond the original
    /// one. The compiled program uses those of its own context.
    fn long(mut self, settings: Config<'_>, original: f64, width: Width) -> Result<Self, Error> {
        let key = if width.context as f64 > original { "long_factor" } else { "short_factor" };
        let factors = settings.numbers(key)?.unwrap_or_default();
        if factors.len() != self.frequencies.len() || factors.iter().any(|factor| *factor <= 0.0) {
            return Err(damaged(format!("`{key}` does not fit the head"))
                .expected(format!("{} numbers above 0", self.frequencies.len()))
                .got(format!("{} numbers", factors.len())));
        }
        let factor = settings.positive("factor")?.unwrap_or(width.max_positions as f64 / original);
        self.scale = match settings.positive("attention_factor")? {
            Some(given) => given,
            None if factor <= 1.0 => 1.0,
            None => (1.0 + factor.ln() / original.ln()).sqrt(),
        };
        for (frequency, factor) in self.frequencies.iter_mut().zip(factors) {
            *frequency = (f64::from(*frequency) / factor) as f32;
        }
        Ok(self)
    }
}

/// Cosines or sines of positions, `[rows, columns]`, with the frequencies twice. Computed when they are read.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub rope: Rope,
    pub rows: usize,
    pub is_sine: bool,
}

impl Computed for Table {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        to.clear();
        to.reserve(self.rows.saturating_mul(self.rope.columns()).saturating_mul(size_of::<f32>()));
        let mut row = Vec::with_capacity(2 * self.rope.columns());
        for position in 0..self.rows {
            row.clear();
            for frequency in &self.rope.frequencies {
                // PyTorch multiplies in f32, too.
                let angle = f64::from(position as f32 * frequency);
                let number = if self.is_sine { angle.sin() } else { angle.cos() };
                row.extend(((number * self.rope.scale) as f32).to_le_bytes());
            }
            to.extend_from_slice(&row);
            to.extend_from_slice(&row);
        }
        Ok(())
    }
}
