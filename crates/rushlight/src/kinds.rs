//! Errors for files of another kind than expected, with advice.

use std::path::Path;

use rushlight_format::{ErrorKind, FileKind, FormatError};
use rushlight_runtime::Code;

use crate::error::Error;

/// The expected kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Program,
    Data,
    Bundled,
    #[cfg(feature = "pt2")]
    Exported,
}

impl Wanted {
    fn kind(self) -> FileKind {
        match self {
            Self::Program => FileKind::Program,
            Self::Data => FileKind::Data,
            Self::Bundled => FileKind::Bundled,
            #[cfg(feature = "pt2")]
            Self::Exported => FileKind::Exported,
        }
    }

    fn code(self) -> Code {
        if self == Self::Data { Code::InvalidExternalData } else { Code::InvalidProgram }
    }
}

/// Explains that a file is of another kind than expected. `None` if its first bytes are as expected.
pub(crate) fn mistaken(wanted: Wanted, bytes: &[u8], path: Option<&Path>) -> Option<Error> {
    let kind = FileKind::of(bytes);
    if kind == wanted.kind() {
        return None;
    }
    let name = path.map_or_else(|| "these bytes are".to_owned(), |path| format!("`{}` is", path.display()));
    let error = Error::new(wanted.code(), format!("{name} {kind}, not {}", wanted.kind()));
    let error = match kind {
        FileKind::TruncatedZip { needed } => {
            error.expected(format!("at least {needed} bytes")).got(format!("{} bytes", bytes.len()))
        }
        _ => error,
    };
    Some(error.help(advice(wanted, kind, path)))
}

/// Returns the next command for a file of a kind.
fn advice(wanted: Wanted, kind: FileKind, path: Option<&Path>) -> String {
    let named = |default: &str| path.map_or_else(|| default.to_owned(), |path| path.display().to_string());
    match kind {
        FileKind::Exported if wanted == Wanted::Program => {
            let (model, program) = (named("model.pt2"), named("model.pt2"));
            let program = Path::new(&program).with_extension("pte");
            format!(
                "compile it first: `rushlight compile {model} -o {}`, `rushlight.compile` in Python, `Compiler` in Rust",
                program.display()
            )
        }
        FileKind::Program if wanted == Wanted::Data => {
            "give the .ptd file that was written with the program; a .pte has its own constants".to_owned()
        }
        FileKind::Program => format!(
            "it is compiled already: `rushlight run {}`; to compile it in another way, give the .pt2 file that it was \
             made of, or use `compile_pte` in Rust",
            named("model.pte")
        ),
        FileKind::Data => format!(
            "give the program that it belongs to, and this file beside it: `rushlight run model.pte --data {}`, \
             `data=` in Python, `ModuleBuilder::external_data` in Rust",
            named("model.ptd")
        ),
        FileKind::Bundled => {
            format!("it is compiled already, with test cases: `rushlight run {}`", named("model.bpte"))
        }
        FileKind::Npy | FileKind::Npz | FileKind::Image => {
            format!("an input is given beside the model: `rushlight run model.pte --input {}`", named("x.npy"))
        }
        FileKind::Safetensors => {
            let folder = path.and_then(Path::parent).map(|folder| folder.display().to_string());
            let folder = folder.filter(|folder| !folder.is_empty()).unwrap_or_else(|| "FOLDER".to_owned());
            format!(
                "compile the folder with it and the model's config.json, if it is a decoder: `rushlight compile {folder} -o \
                 model.pte`; export other models from PyTorch"
            )
        }
        FileKind::Gguf => format!("compile it first: `rushlight compile {} -o model.pte`", named("model.gguf")),
        FileKind::TorchScript
        | FileKind::Checkpoint
        | FileKind::Pickle
        | FileKind::Onnx
        | FileKind::Tflite
        | FileKind::Hdf5 => "export the model from PyTorch, with its weights: \
                             torch.export.save(torch.export.export(model, inputs), \"model.pt2\"); then `rushlight compile \
                             model.pt2`"
            .to_owned(),
        FileKind::Gzip | FileKind::Zip => "unpack it, and give the model that is in it".to_owned(),
        FileKind::LfsPointer => "fetch the file itself: `git lfs pull`".to_owned(),
        FileKind::Html => "look at it in a browser: it may say why the download failed".to_owned(),
        FileKind::TruncatedZip { .. } | FileKind::Empty | FileKind::Zeros => {
            "the file is not whole: copy, download or export it again".to_owned()
        }
        _ => match wanted {
            Wanted::Program | Wanted::Bundled => "give a .pte file, such as `rushlight compile` writes".to_owned(),
            Wanted::Data => "give the .ptd file that was written with the program".to_owned(),
            #[cfg(feature = "pt2")]
            Wanted::Exported => "give a .pt2 file, which torch.export.save(torch.export.export(model, inputs), \
                                 \"model.pt2\") writes"
                .to_owned(),
        },
    }
}

/// Explains why a file of the expected kind cannot be read.
pub(crate) fn damaged(wanted: Wanted, fault: &FormatError) -> Error {
    match fault.kind {
        // The header has the length of the file.
        ErrorKind::Truncated { needed, available } if fault.table() == "header" => {
            Error::new(wanted.code(), format!("the file is truncated: it should be {}", wanted.kind()))
                .expected(format!("at least {needed} bytes"))
                .got(format!("{available} bytes"))
                .help("copy, download or export it again")
        }
        ErrorKind::Duplicate => Error::new(wanted.code(), "the program has two methods of one name")
            .got(fault.to_string())
            .help("compile it again, with a name of its own for each method"),
        _ => Error::new(wanted.code(), format!("the file is damaged: it should be {}", wanted.kind()))
            .got(fault.to_string())
            .help("copy, download or export it again"),
    }
}
