//! Adapters as PEFT publishes them: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::HashMap;

use rushlight_graph::{Bytes, Error};
use serde_json::Value;

use super::{Kind, Targets};
use crate::config::{self, Config};
use crate::fields::Form::{
    self, CountOrCounts, Counts, Flag, Indices, List, Loose, Number, Object, Share, Size, Text, TextOrTexts, Texts,
};
use crate::fields::check;
use crate::safetensors;
use crate::tensors::{Tensor, Tensors, damaged};

/// The configuration.
pub const CONFIG: &str = "adapter_config.json";
/// The matrices.
pub const WEIGHTS: &str = "adapter_model.safetensors";

/// The known fields of an `adapter_config.json`, with the form of each.
pub const FIELDS: &[(&str, Form)] = &[
    ("alora_invocation_tokens", Counts),
    ("alpha_pattern", Object),
    ("arrow_config", Object),
    ("auto_mapping", Object),
    ("base_model_name_or_path", Text),
    ("bias", Text),
    ("corda_config", Object),
    ("ensure_weight_tying", Flag),
    ("eva_config", Object),
    ("exclude_modules", TextOrTexts),
    ("fan_in_fan_out", Flag),
    ("inference_mode", Flag),
    ("init_lora_weights", Loose),
    ("kasa_config", Object),
    ("layer_replication", List),
    ("layers_pattern", TextOrTexts),
    ("layers_to_transform", CountOrCounts),
    ("loftq_config", Object),
    ("lora_alpha", Number),
    ("lora_bias", Flag),
    ("lora_dropout", Share),
    ("lora_ga_config", Object),
    ("megatron_config", Object),
    ("megatron_core", Text),
    ("modules_to_save", Texts),
    ("monteclora_config", Object),
    ("peft_type", Text),
    ("peft_version", Text),
    ("qalora_group_size", Size),
    ("r", Size),
    ("rank_pattern", Object),
    ("revision", Text),
    ("target_modules", TextOrTexts),
    ("target_parameters", Texts),
    ("task_type", Text),
    ("trainable_token_indices", Indices),
    ("use_bdlora", Flag),
    ("use_dora", Flag),
    ("use_qalora", Flag),
    ("use_rslora", Flag),
    ("velora_config", Object),
];

/// The matrices of linear layers of one kind, row-major, as the method takes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrices {
    /// The rank of all of them; those of smaller ranks have zeros.
    pub rank: usize,
    /// `[layers, rank, inputs]`.
    pub a: Vec<f32>,
    /// `[layers, outputs, rank]`, with the scaling of the adapter as a factor.
    pub b: Vec<f32>,
}

/// Unsupported settings that change the result of an adapter, with their descriptions.
const UNSUPPORTED: [(&str, &str); 8] = [
    ("use_dora", "DoRA"),
    ("use_qalora", "QALoRA"),
    ("use_bdlora", "BD-LoRA"),
    ("alora_invocation_tokens", "activated LoRA"),
    ("arrow_config", "Arrow's router"),
    ("kasa_config", "KaSA"),
    ("layer_replication", "replicated layers"),
    ("monteclora_config", "MonteCLoRA"),
];

/// True unless the value is empty, null or false.
fn is_said(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

fn is_not_none(value: &Value) -> bool {
    value.as_str() != Some("none")
}

/// Unsupported settings, which train other layers than linear ones or store weights otherwise: key, description, and a function that is
/// true for values that turn them on.
const LEFT_OUT: [(&str, &str, fn(&Value) -> bool); 6] = [
    ("fan_in_fan_out", "matrices for layers whose weights are transposed", is_said),
    ("bias", "trained biases", is_not_none),
    ("lora_bias", "biases of its matrices", is_said),
    ("modules_to_save", "layers that are trained as a whole", is_said),
    ("target_parameters", "matrices for parameters that are no layers", is_said),
    ("trainable_token_indices", "trained embeddings", is_said),
];

/// Values of `init_lora_weights` that leave the base weights as they are.
const KNOWN_STARTS: [&str; 4] = ["gaussian", "eva", "orthogonal", "true"];

/// Reads an adapter: the matrices of each kind of target, with zeros where it has none. `scale` multiplies its effect.
///
/// # Errors
/// `Input` for damaged files, and matrices that do not fit the layers; `Unsupported` for other adapters than LoRA, ranks above
/// the maximum, and layers that are not among the targets.
pub fn read(config: &[u8], weights: &Bytes, targets: &Targets, scale: f32) -> Result<Vec<Matrices>, Error> {
    let file = config::parse(CONFIG, config)?;
    let config = Config(&file);
    let in_file = |error: Error| error.at(format!("file `{CONFIG}`"));
    check(config, FIELDS).map_err(in_file)?;
    let scaling = Scaling::of(config).map_err(in_file)?;
    let ranks = Ranks::of(config).map_err(in_file)?;
    let mut stored = Tensors::default();
    safetensors::read(WEIGHTS, weights, &mut stored)?;
    let mut layers = layers(stored)?;
    scaling.check(layers.values().map(|layer| layer.published.as_str()))?;
    layers.values().try_for_each(|layer| ranks.check(layer))?;
    let mut matrices = Vec::with_capacity(targets.kinds.len());
    for kind in &targets.kinds {
        let of_kind = kind.modules.iter().map(|module| layers.remove(module));
        let of_kind = of_kind.map(|layer| layer.map(|layer| layer.checked(kind, targets.max_rank)).transpose());
        let of_kind = of_kind.collect::<Result<Vec<_>, _>>()?;
        matrices.push(stacked(kind, &of_kind, &scaling, scale)?);
    }
    match layers.into_keys().min() {
        None => Ok(matrices),
        Some(module) => {
            let known = targets.kinds.iter().filter_map(|kind| kind.modules.first());
            Err(Error::unsupported(format!("the program has no layer `{module}` that adapters change"))
                .expected(known.cloned().collect::<Vec<_>>().join(", ") + ", and those of other layers")
                .help("use an adapter of this model, or merge the adapter into its model with PEFT, and compile the result"))
        }
    }
}

/// The factors of the products.
struct Scaling<'a> {
    alpha: f64,
    /// Those of some layers, by the end of their names.
    alphas: Vec<(&'a str, f64)>,
    /// True if `alpha` is divided by the square root of the rank, as rank-stabilized LoRA does, rather than by the rank.
    is_by_root: bool,
}

impl<'a> Scaling<'a> {
    fn of(config: Config<'a>) -> Result<Self, Error> {
        match config.text("peft_type")? {
            Some("LORA") => {}
            other => {
                return Err(Error::unsupported("the adapter is of a type that is not supported")
                    .expected("`peft_type` `LORA`")
                    .got(other.unwrap_or("none")));
            }
        }
        for (key, what) in UNSUPPORTED {
            let is_set = |value: &Value| value.as_bool() != Some(false);
            if config.get(key).is_some_and(is_set) {
                return Err(Error::unsupported(format!("the adapter has {what}"))
                    .got(format!("`{key}`"))
                    .help("merge it into the model with PEFT, and compile that"));
            }
        }
        for (key, what, is_set) in LEFT_OUT {
            if let Some(value) = config.get(key).filter(|value| is_set(value)) {
                let got = format!("`{key}`: {}", value.to_string().chars().take(80).collect::<String>());
                return Err(Error::unsupported(format!("the adapter has {what}"))
                    .got(got)
                    .help("merge it into the model with PEFT, and compile that"));
            }
        }
        // These begin with other base weights than the model's: PEFT changes them when it loads the adapter.
        if let Some(start) = config.get("init_lora_weights").and_then(Value::as_str)
            && !KNOWN_STARTS.contains(&start)
        {
            return Err(Error::unsupported("the adapter is for base weights that were changed")
                .expected(format!("`init_lora_weights` true, false or one of {}", KNOWN_STARTS.join(", ")))
                .got(start)
                .help(
                    "have PEFT convert it to plain LoRA when it saves it (`path_initial_model_for_weight_conversion`)",
                ));
        }
        let mut alphas = Vec::new();
        if let Some(pattern) = config.object("alpha_pattern")? {
            for name in pattern.0.keys() {
                if !name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c)) {
                    return Err(Error::unsupported("`alpha_pattern` has a regular expression").got(name));
                }
                alphas.push((name.as_str(), pattern.required_number(name)?));
            }
        }
        let is_by_root = config.flag("use_rslora")?.unwrap_or(false);
        Ok(Self { alpha: config.required_number("lora_alpha")?, alphas, is_by_root })
    }

    /// Refuses factors of layers that the adapter does not have: they would be ignored.
    fn check<'l>(&self, mut layers: impl Iterator<Item = &'l str> + Clone) -> Result<(), Error> {
        match self.alphas.iter().find(|(name, _)| !layers.clone().any(|layer| is_of(layer, name))) {
            None => Ok(()),
            Some((name, _)) => Err(damaged("`alpha_pattern` is for a layer that the adapter does not have")
                .expected(layers.next().unwrap_or("no layer"))
                .got(*name)),
        }
    }

    /// The factor of a layer.
    fn of_layer(&self, layer: &str, rank: usize) -> f32 {
        let own = self.alphas.iter().find(|(name, _)| is_of(layer, name));
        let alpha = own.map_or(self.alpha, |(_, alpha)| *alpha);
        let rank = rank as f64;
        (alpha / if self.is_by_root { rank.sqrt() } else { rank }) as f32
    }
}

/// The ranks of the configuration.
struct Ranks<'a> {
    rank: usize,
    /// Those of some layers, by the end of their names.
    own: Vec<(&'a str, usize)>,
}

impl<'a> Ranks<'a> {
    /// PEFT's default.
    const DEFAULT: usize = 8;

    fn of(config: Config<'a>) -> Result<Self, Error> {
        let mut own = Vec::new();
        if let Some(pattern) = config.object("rank_pattern")? {
            for name in pattern.0.keys() {
                own.push((name.as_str(), pattern.required_size(name)?));
            }
        }
        Ok(Self { rank: config.size("r")?.unwrap_or(Self::DEFAULT), own })
    }

    /// Refuses matrices of another rank.
    fn check(&self, layer: &Layer) -> Result<(), Error> {
        let Some((name, rank)) = layer.a.as_ref().and_then(|a| Some((&a.name, *a.sizes.first()?))) else {
            return Ok(());
        };
        let is_plain = |name: &str| name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c));
        let own = self.own.iter().find(|(name, _)| is_plain(name) && is_of(&layer.published, name));
        // A regular expression may be for any layer.
        let is_of_expression = self.own.iter().any(|(name, own)| !is_plain(name) && *own == rank);
        let expected = own.map_or(self.rank, |(_, rank)| *rank);
        if rank == expected || is_of_expression {
            return Ok(());
        }
        Err(damaged(format!("`{name}` does not have the rank that `{CONFIG}` says"))
            .expected(format!("{expected} rows, as `r` or `rank_pattern` says"))
            .got(rank))
    }
}

/// True if a name in a pattern is that of a layer, or its end.
fn is_of(layer: &str, name: &str) -> bool {
    layer.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The matrices of one layer.
struct Layer {
    /// PEFT's name of the layer.
    published: String,
    a: Option<Tensor>,
    b: Option<Tensor>,
}

/// The layers of an adapter, by the names of the modules in a decoder.
fn layers(stored: Tensors) -> Result<HashMap<String, Layer>, Error> {
    let mut layers: HashMap<String, Layer> = HashMap::new();
    for tensor in stored.into_tensors() {
        let name = tensor.name.strip_prefix("base_model.model.").unwrap_or(&tensor.name);
        let (module, is_a) = match (name.strip_suffix(".lora_A.weight"), name.strip_suffix(".lora_B.weight")) {
            (Some(module), _) => (module, true),
            (None, Some(module)) => (module, false),
            (None, None) => {
                return Err(Error::unsupported(format!("the adapter has a tensor `{}`", tensor.name))
                    .expected("`lora_A.weight` and `lora_B.weight` of linear layers alone"));
            }
        };
        let published = module.to_owned();
        let text = module.strip_prefix("language_model.").or_else(|| module.strip_prefix("model.language_model."));
        let module = text.unwrap_or(module);
        // A base model has no prefix.
        let module = if module.starts_with("layers.") { format!("model.{module}") } else { module.to_owned() };
        let layer = layers.entry(module).or_insert_with(|| Layer { published, a: None, b: None });
        let matrix = if is_a { &mut layer.a } else { &mut layer.b };
        if let Some(other) = matrix.replace(tensor) {
            return Err(damaged(format!("the adapter has two tensors of the layer of `{}`", other.name)));
        }
    }
    Ok(layers)
}

/// The matrices of a layer, and their rank.
struct Checked {
    published: String,
    a: Tensor,
    b: Tensor,
    rank: usize,
}

impl Layer {
    fn checked(self, kind: &Kind, max_rank: usize) -> Result<Checked, Error> {
        let (a, b) = match (self.a, self.b) {
            (Some(a), Some(b)) => (a, b),
            (Some(one), None) | (None, Some(one)) => {
                return Err(damaged(format!("`{}` is there without its counterpart", one.name)));
            }
            (None, None) => return Err(damaged("a layer without matrices")),
        };
        let rank = match a.sizes[..] {
            [rank, _] => rank,
            _ => 0,
        };
        if rank == 0 || rank > max_rank {
            return Err(Error::unsupported(format!("`{}` has a rank that the program does not take", a.name))
                .expected(format!("from 1 to {max_rank}"))
                .got(rank)
                .help("compile the model with a larger --lora-rank"));
        }
        Ok(Checked {
            published: self.published,
            a: a.of_sizes(&[rank, kind.inputs])?,
            b: b.of_sizes(&[kind.outputs, rank])?,
            rank,
        })
    }
}

/// Concatenates the matrices of all layers, with zeros up to the largest rank.
fn stacked(kind: &Kind, layers: &[Option<Checked>], scaling: &Scaling<'_>, scale: f32) -> Result<Matrices, Error> {
    let rank = layers.iter().flatten().map(|layer| layer.rank).max().unwrap_or(1);
    let zeros = |columns: usize| {
        let len = columns.checked_mul(rank).and_then(|len| len.checked_mul(layers.len()));
        let mut all = Vec::new();
        match len.map(|len| all.try_reserve_exact(len).map(|()| len)) {
            Some(Ok(len)) => {
                all.resize(len, 0.0f32);
                Ok(all)
            }
            _ => Err(Error::unsupported("the matrices of the adapter do not fit into memory")),
        }
    };
    let (mut a, mut b) = (zeros(kind.inputs)?, zeros(kind.outputs)?);
    let parts = a.chunks_exact_mut(rank * kind.inputs).zip(b.chunks_exact_mut(rank * kind.outputs));
    for (layer, (a, b)) in layers.iter().zip(parts) {
        let Some(layer) = layer else { continue };
        a.iter_mut().zip(layer.a.floats()).for_each(|(to, from)| *to = from);
        let factor = scale * scaling.of_layer(&layer.published, layer.rank);
        if !factor.is_finite() {
            return Err(damaged(format!("`lora_alpha` of `{}` is too large", layer.published)).got(factor));
        }
        let floats = layer.b.floats();
        let rows = b.chunks_exact_mut(rank).zip(floats.chunks_exact(layer.rank));
        rows.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, from)| *to = factor * from));
    }
    Ok(Matrices { rank, a, b })
}
