//! LoRA adapters of a model.

use std::io::{self, Read};
use std::path::Path;

use rushlight::ValueInfo;
use rushlight_checkpoint::lora::{self, Targets, peft};
use rushlight_format::tokenizer::MAX_SETTINGS;

use super::Model;
use crate::adapter::Adapter;
use crate::error::{Error, Result};
use crate::tokenizer::regular_file;

/// Inputs of the method before those of an adapter.
const TOKEN_INPUTS: usize = 2;

/// Maximum bytes of the matrices.
const MAX_WEIGHTS: u64 = 16 << 30;

impl Adapter {
    /// Reads the folder of an adapter as PEFT saves it, with `adapter_config.json` and `adapter_model.safetensors`, for a model that
    /// was compiled with a rank for it. `scale` multiplies the effect of the adapter; it was trained for 1.
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
        if self.adapter_targets()? == *adapter.targets() { Ok(()) } else { Err(Error::AdapterOfAnotherModel) }
    }
}
