//! Reads the `.pt2` archives of `torch.export.save`: the program as typed data, and weights borrowed from the archive.
//!
//! [`Archive::parse`] checks the container; the program, weights and sample inputs of a model are read when they are
//! asked for. Only [`import`] knows operators and the compiler's graph.
#![deny(clippy::indexing_slicing)]

mod crc32;
mod error;
pub mod expr;
#[allow(clippy::indexing_slicing, reason = "ids of an arena that the importer itself gave out")]
mod import;
pub mod pickle;
mod sample_inputs;
pub mod schema;
mod stored_tensor;
mod weights;
mod zip;

#[cfg(test)]
mod tests;

pub use error::{Error, ErrorKind};
pub use import::{ImportOptions, import};
pub use sample_inputs::SampleInputs;
pub use schema::ExportedProgram;
pub use stored_tensor::{Storage, StorageData, StoredTensor};
pub use weights::{Weight, Weights};
pub use zip::Zip;

use rushlight_graph::Bytes;

/// A `.pt2` archive: one or several models, and files that the user added.
///
/// Archives of torch 2.9 and later, whose weights are entries, and those of 2.6 to 2.8, whose weights are a pickle, are
/// read alike.
#[derive(Clone, Debug)]
pub struct Archive {
    zip: Zip,
    models: Vec<String>,
    is_flat: bool,
}

/// A model of an archive.
#[derive(Debug)]
pub struct Model<'z> {
    name: &'z str,
    entry: String,
    text: Bytes,
    zip: &'z Zip,
    is_flat: bool,
}

impl Archive {
    const FORMAT: &'static str = "archive_format";
    const VERSION: &'static str = "archive_version";
    const MODELS: &'static str = "models/";
    const EXTRA: &'static str = "extra/";
    /// The program, in the container that torch wrote before it had archives of several models.
    const FLAT_PROGRAM: &'static str = "serialized_exported_program.json";

    /// Reads the directory of an archive.
    pub fn parse(bytes: Bytes) -> Result<Self, Error> {
        let zip = Zip::parse(bytes)?;
        if zip.contains(Self::FLAT_PROGRAM) {
            return Ok(Self { zip, models: vec!["model".to_owned()], is_flat: true });
        }
        if !zip.contains(Self::FORMAT) {
            return Err(Error::new("", ErrorKind::NotPt2 { kind: kind_of(&zip) }));
        }
        let format = zip.get_text(Self::FORMAT)?;
        if format.trim_ascii() != b"pt2" {
            return Err(Error::new(Self::FORMAT, ErrorKind::NotPt2 { kind: "another kind of archive" }));
        }
        if zip.contains(Self::VERSION) {
            let version = zip.get_text(Self::VERSION)?;
            if version.trim_ascii() != b"0" {
                let got = String::from_utf8_lossy(&version).into_owned();
                return Err(Error::new(Self::VERSION, ErrorKind::ArchiveVersion { got }));
            }
        }
        zip.check_byte_order()?;
        let models = zip.names().filter_map(|name| name.strip_prefix(Self::MODELS)?.strip_suffix(".json"));
        let models = models.map(str::to_owned).collect();
        Ok(Self { zip, models, is_flat: false })
    }

    /// Names of the models; `torch.export.save` writes one called `model`.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(String::as_str)
    }

    /// The only model.
    pub fn model(&self) -> Result<Model<'_>, Error> {
        match &*self.models {
            [name] => self.model_named(name),
            [] => Err(Error::new("", ErrorKind::NoModel { holds: contents_of(&self.zip) })),
            names => Err(Error::new("", ErrorKind::SeveralModels { names: names.to_vec() })),
        }
    }

    /// One of the models.
    pub fn model_named(&self, name: &str) -> Result<Model<'_>, Error> {
        let found = self.models.iter().find(|model| **model == name);
        let unknown = || ErrorKind::UnknownModel { name: name.to_owned(), known: self.models.clone() };
        let name = found.ok_or_else(|| Error::new("", unknown()))?;
        let entry = if self.is_flat { Self::FLAT_PROGRAM.to_owned() } else { format!("{}{name}.json", Self::MODELS) };
        let text = self.zip.get_text(&entry)?;
        let quoted = std::str::from_utf8(&text).ok().and_then(schema::quoted);
        let text = quoted.map_or(text, |quoted| quoted.into_bytes().into());
        Ok(Model { name, entry, text, zip: &self.zip, is_flat: self.is_flat })
    }

    /// Files that the user added (`extra_files`), by name.
    pub fn extra_files(&self) -> impl Iterator<Item = (&str, Result<Bytes, Error>)> {
        let names = self.zip.names().filter_map(|name| Some((name, name.strip_prefix(Self::EXTRA)?)));
        names.map(|(entry, name)| (name, self.zip.get_checked(entry)))
    }

    /// All entries.
    pub fn zip(&self) -> &Zip {
        &self.zip
    }
}

/// The contents of an archive of `torch.export` that has no program.
fn contents_of(zip: &Zip) -> &'static str {
    let has = |folder: &str| zip.names().any(|name| name.starts_with(folder));
    if has("data/aotinductor/") {
        "code that AOTInductor compiled for one kind of machine"
    } else if has("data/weights/") {
        "weights alone"
    } else {
        "other files"
    }
}

/// Guesses the kind of an archive that has no program.
fn kind_of(zip: &Zip) -> &'static str {
    if zip.contains("constants.pkl") {
        "a TorchScript model (torch.jit.save)"
    } else if zip.contains(pickle::PICKLE) {
        "a checkpoint without a program (torch.save)"
    } else {
        "another zip archive"
    }
}

impl<'z> Model<'z> {
    pub fn name(&self) -> &'z str {
        self.name
    }

    /// Parses the program. It borrows its names from the model, and is parsed anew at each call.
    pub fn program(&self) -> Result<ExportedProgram<'_>, Error> {
        // The entry was found to be UTF-8 when it was read.
        ExportedProgram::parse(std::str::from_utf8(&self.text).unwrap_or_default(), &self.entry)
    }

    /// Parameters and persistent buffers.
    pub fn weights(&self) -> Result<Weights<'z>, Error> {
        self.payloads(Weights::WEIGHTS, "weights", "serialized_state_dict.pt")
    }

    /// Tensor constants, buffers that are not persistent, and custom objects.
    pub fn constants(&self) -> Result<Weights<'z>, Error> {
        self.payloads(Weights::CONSTANTS, "constants", "serialized_constants.pt")
    }

    fn payloads(&self, folder: &'static str, what: &str, flat: &str) -> Result<Weights<'z>, Error> {
        let config = format!("{folder}{}_{what}_config.json", self.name);
        let pickle = if self.is_flat { flat.to_owned() } else { format!("{folder}{}.pt", self.name) };
        if self.zip.contains(&config) {
            Weights::from_config(self.zip, folder, &config)
        } else if self.zip.contains(&pickle) {
            Weights::from_pickle(self.zip, &pickle)
        } else {
            // A program without any may leave the entry out; one that has some finds each missing by name.
            Ok(Weights::empty(self.zip))
        }
    }

    /// The inputs that the model was exported with, if the archive has them.
    pub fn sample_inputs(&self) -> Result<Option<SampleInputs>, Error> {
        let entry = if self.is_flat {
            "serialized_example_inputs.pt".to_owned()
        } else {
            format!("data/sample_inputs/{}.pt", self.name)
        };
        if !self.zip.contains(&entry) {
            return Ok(None);
        }
        let file = self.zip.get(&entry)?;
        if file.is_empty() { Ok(None) } else { SampleInputs::parse(file, &entry).map(Some) }
    }
}
