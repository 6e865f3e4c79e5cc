//! LoRA adapters of a model.

use std::hash::Hasher;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rushlight::{Input, TensorView, ValueInfo};
use rushlight_checkpoint::lora::{self, Targets, peft};
use rushlight_format::tokenizer::MAX_SETTINGS;
use rustc_hash::FxHasher;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::tokenizer::regular_file;

/// Inputs of the method before those of an adapter.
const TOKEN_INPUTS: usize = 2;

/// Maximum bytes of the matrices.
const MAX_WEIGHTS: u64 = 16 << 30;

/// A LoRA adapter: low-rank matrices that change the answers of the sessions that have it ([`Model::session_with`]). Any number of
/// adapters and sessions shares the weights of one model, and copies of an adapter share its matrices.
#[derive(Clone, Debug)]
pub struct Adapter(Arc<Inputs>);

#[derive(Debug)]
struct Inputs {
    /// The matrices in the order of the method's inputs.
    matrices: Vec<Matrix>,
    targets: Targets,
    /// Hash of the sizes and elements, which saved sessions have.
    fingerprint: u64,
}

#[derive(Debug)]
struct Matrix {
    sizes: [usize; 3],
    elements: Vec<f32>,
}

impl Adapter {
    /// Reads the folder of an adapter as PEFT saves it, with `adapter_config.json` and `adapter_model.safetensors`, for a model that
    /// was compiled with a rank for it. `scale` multiplies what the adapter adds; 1 is what it was trained for.
    ///
    /// # Errors
    /// `NoAdapters` for a model without a rank, `AdapterScale` for a scale that is not finite, `File`, and `Module` for adapters that
    /// are damaged, not supported, or of another model.
    pub fn open(model: &Model, folder: impl AsRef<Path>, scale: f32) -> Result<Self> {
        if !scale.is_finite() {
            return Err(Error::AdapterScale(scale));
        }
        let folder = folder.as_ref();
        let targets = model.adapter_targets()?;
        let read = |name: &str, max: u64| {
            let path = folder.join(name);
            let mut bytes = Vec::new();
            let read = regular_file(&path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes));
            match read {
                Ok(len) if len as u64 <= max => Ok(bytes),
                Ok(_) => {
                    let problem = format!("it has more than {max} bytes, which no adapter has");
                    Err(Error::file(&path, io::Error::new(io::ErrorKind::FileTooLarge, problem)))
                }
                Err(error) => Err(Error::file(&path, error)),
            }
        };
        let (config, weights) = (read(peft::CONFIG, MAX_SETTINGS)?, read(peft::WEIGHTS, MAX_WEIGHTS)?);
        let matrices = peft::read(&config, &weights.into(), &targets, scale);
        let matrices = matrices.map_err(|error| error.at(format!("adapter `{}`", folder.display())));
        Ok(Self::of(targets, matrices.map_err(rushlight::Error::from)?))
    }

    fn of(targets: Targets, matrices: Vec<peft::Matrices>) -> Self {
        let each = targets.kinds.iter().zip(matrices).flat_map(|(kind, peft::Matrices { rank, a, b })| {
            let layers = kind.modules.len();
            [
                Matrix { sizes: [layers, rank, kind.inputs], elements: a },
                Matrix { sizes: [layers, kind.outputs, rank], elements: b },
            ]
        });
        let matrices: Vec<Matrix> = each.collect();
        let mut hasher = FxHasher::default();
        for Matrix { sizes, elements } in &matrices {
            sizes.iter().for_each(|size| hasher.write_usize(*size));
            elements.iter().for_each(|element| hasher.write_u32(element.to_bits()));
        }
        Self(Arc::new(Inputs { matrices, targets, fingerprint: hasher.finish() }))
    }

    /// The method's inputs after the tokens and their position.
    pub(crate) fn inputs(&self) -> Result<impl Iterator<Item = Input<'_>>> {
        let views = self.0.matrices.iter().map(|matrix| TensorView::of(&matrix.sizes, &matrix.elements));
        let views = views.collect::<std::result::Result<Vec<_>, _>>().map_err(rushlight::Error::from)?;
        Ok(views.into_iter().map(Input::from))
    }

    /// Hash of the sizes and elements.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }

    /// True for copies of one adapter.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Bytes of the matrices.
    pub fn size(&self) -> usize {
        self.0.matrices.iter().map(|matrix| size_of_val(&matrix.elements[..])).sum()
    }
}

impl Model {
    /// The layers that adapters change, as the inputs of the method for adapters have them.
    fn adapter_targets(&self) -> Result<Targets> {
        let data = self.program().parsed().named(lora::KEY).ok_or(Error::NoAdapters)?;
        let targets = Targets::parse(data).map_err(rushlight::Error::from)?;
        let inputs = self.method_inputs(lora::METHOD).ok_or(Error::NoAdapters)?;
        let sizes = |input: &ValueInfo| match input {
            ValueInfo::Tensor(info) => info.sizes.clone(),
            _ => Vec::new(),
        };
        let rank = targets.max_rank;
        let expected = targets.kinds.iter().flat_map(|kind| {
            let layers = kind.modules.len();
            [vec![layers, rank, kind.inputs], vec![layers, kind.outputs, rank]]
        });
        if inputs.iter().skip(TOKEN_INPUTS).map(sizes).eq(expected) {
            Ok(targets)
        } else {
            Err(Error::not_a_model(format!("`{}` has other inputs than `{}` says", lora::METHOD, lora::KEY)))
        }
    }

    /// Checks that an adapter is for this model, or one of the same layers.
    pub(crate) fn check_adapter(&self, adapter: &Adapter) -> Result<()> {
        if self.adapter_targets()? == adapter.0.targets { Ok(()) } else { Err(Error::AdapterOfAnotherModel) }
    }
}
