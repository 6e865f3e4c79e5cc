//! Inputs of a calibration, from files.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use rushlight::{Tensor, Value, ValueInfo};
use rushlight_devtools::npy;
use rushlight_devtools::samples::samples;

use crate::failure::Failure;
use crate::inputs::{self, Normalize, extension, is_image};

/// The inputs of a calibration.
#[derive(Args)]
pub struct Calibration {
    /// Inputs from which the ranges of activations are measured: a .npz file with an array for each input, a .npy file, an image, or a
    /// folder of images. Arrays hold many inputs along their first dimension. NAME= gives them to a method. May be repeated
    #[arg(long, value_name = "[NAME=]FILE|FOLDER")]
    calibrate: Vec<String>,

    /// Normalization of the images of --calibrate after the division by 255
    #[arg(long, value_enum, default_value = "none", requires = "calibrate")]
    normalize: Normalize,
}

/// A file of the calibration, with the method that takes the inputs in it.
pub struct File {
    pub method: String,
    pub path: PathBuf,
}

impl Calibration {
    /// True if there are inputs.
    pub fn is_given(&self) -> bool {
        !self.calibrate.is_empty()
    }

    /// Returns the files, with the images of folders.
    pub fn files(&self, methods: &[&str]) -> Result<Vec<File>, Failure> {
        let mut all = Vec::new();
        for text in &self.calibrate {
            let (method, path) = method_and_path(text, methods)?;
            let images = if path.is_dir() { images(path)? } else { vec![path.to_owned()] };
            all.extend(images.into_iter().map(|path| File { method: method.to_owned(), path }));
        }
        Ok(all)
    }

    /// Returns the inputs of each call that a file holds. `inputs` are those of the method.
    pub fn read(&self, file: &File, inputs: &[ValueInfo]) -> Result<Vec<Vec<Value>>, Failure> {
        let path = &file.path;
        let wrong = |what: String| Failure::Input(format!("`{}`: {what}", path.display()));
        let bytes = inputs::read(path)?;
        let arrays: Vec<(String, Tensor)> = match extension(path).as_str() {
            "npz" => npy::read_archive(&bytes).map_err(|error| wrong(error.to_string()))?,
            "npy" => vec![("array".to_owned(), npy::read(&bytes).map_err(|error| wrong(error.to_string()))?)],
            _ if is_image(path) => {
                let info = inputs.iter().find_map(ValueInfo::as_tensor);
                let info = info.ok_or_else(|| wrong("the model takes no tensor".to_owned()))?;
                vec![("image".to_owned(), inputs::image(path, &bytes, info, self.normalize)?)]
            }
            _ => return Err(wrong("expected a .npz, .npy, .png or .jpg file, or a folder of images".to_owned())),
        };
        samples(&arrays, inputs).map_err(wrong)
    }
}

/// The method and the file of `[METHOD=]FILE`. A single method needs no name.
fn method_and_path<'t>(text: &'t str, methods: &[&'t str]) -> Result<(&'t str, &'t Path), Failure> {
    if let Some((name, path)) = text.split_once('=')
        && methods.contains(&name)
        && !Path::new(text).exists()
    {
        return Ok((name, Path::new(path)));
    }
    match methods {
        [only] => Ok((only, Path::new(text))),
        _ => Err(Failure::arguments(
            format!("`--calibrate {text}` does not name one of the methods"),
            format!("write `--calibrate NAME={text}`, where NAME is {}", methods.join(" or ")),
        )),
    }
}

/// The images of a folder, by name.
fn images(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| Failure::read(folder, error))?;
    let images = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut images: Vec<PathBuf> = images.filter(|file| is_image(file)).collect();
    images.sort();
    if images.is_empty() {
        let what = format!("`{}` has no images: files that end in .png, .jpg or .jpeg", folder.display());
        return Err(Failure::Input(what));
    }
    // A pipe or device with the name of an image may never end.
    if let Some(file) = images.iter().find(|file| !file.is_file()) {
        let what = format!("`{}` is not a regular file: move it out of the folder", file.display());
        return Err(Failure::Input(what));
    }
    Ok(images)
}
