//! The model of a project, with its samples and labels.

use std::fs;
use std::path::Path;

use rushlight::{Lower, MethodMeta, Module, ScalarType, TensorInfo, ValueInfo};

use super::projects::Template;
use crate::failure::Failure;
use crate::firmware;
use crate::ops;

/// The parts of a project that depend on its model.
pub struct Chosen {
    /// Paths in the project, with their content.
    pub files: Vec<(String, Vec<u8>)>,
    /// The path of a sample, if there is one, for the command that runs the project.
    pub sample: String,
    /// Samples a second, if the model takes sound.
    pub rate: u32,
    pub method: String,
}

const DIGITS: &[u8] = include_bytes!("../../../../examples/cortex-m/digits.pte");
/// Ten images of 8 x 8 pixels as little-endian f32: the digits 0 to 9.
const DIGIT_IMAGES: &[u8] = include_bytes!("../../../../examples/cortex-m/images/images.bin");
const DIGIT_BYTES: usize = 8 * 8 * 4;
const DETECTOR: &[u8] = include_bytes!("../../templates/detect/model.pte");
const SCENE: &[u8] = include_bytes!("../../templates/detect/shapes.pgm");
const KEYS: &[u8] = include_bytes!("../../templates/transcribe/model.pte");
const DIALED: &[u8] = include_bytes!("../../templates/transcribe/dialed.wav");

const SHAPE_LABELS: &str = "circle\nsquare\ntriangle\n";

/// The blank, and the keys of a telephone in the order of their tones: `tools/template_models.py` trains the model.
const KEY_LABELS: &str = "<blank>\n1\n2\n3\nA\n4\n5\n6\nB\n7\n8\n9\nC\n*\n0\n#\nD\n";

impl Chosen {
    /// Takes the model of a file, or the template's own, and checks that the template's program can run it.
    pub fn of(template: Template, model: Option<&Path>, labels: Option<&Path>) -> Result<Self, Failure> {
        let mut chosen = match model {
            Some(path) => Self::of_file(template, path)?,
            None => Self::of_template(template)?,
        };
        if let Some(path) = labels {
            let labels = fs::read(path).map_err(|error| Failure::read(path, error))?;
            chosen.add("labels.txt", labels);
        } else if model.is_some() && template == Template::Transcribe {
            return Err(Failure::Arguments(
                "the tokens of the model are not known\n  help      pass `--labels FILE` with a token a line, the blank of CTC first".to_owned(),
            ));
        }
        Ok(chosen)
    }

    fn of_file(template: Template, path: &Path) -> Result<Self, Failure> {
        let module = Module::builder().lower(Lower::Off).load(path)?;
        let method = only_method(&module);
        let meta = module.meta(&method)?;
        check(template, &meta).map_err(|expected| misfit(path, &meta, expected))?;
        // 16 kHz is the rate of Wav2Vec2 and nearly all others.
        let mut chosen = Self { files: Vec::new(), sample: String::new(), rate: 16000, method };
        match template {
            Template::Classify | Template::Detect => "IMAGE".clone_into(&mut chosen.sample),
            Template::Transcribe => "RECORDING.wav".clone_into(&mut chosen.sample),
            #[cfg(feature = "llm")]
            Template::Chat => check_generates(path)?,
            #[cfg(not(feature = "llm"))]
            Template::Chat => {}
            Template::Firmware => firmware::check(path, module.program())?,
        }
        let bytes = fs::read(path).map_err(|error| Failure::read(path, error))?;
        if template == Template::Firmware {
            let zeros = input(&meta).map(|info| vec![0; info.nbytes as usize]).unwrap_or_default();
            chosen.add_firmware(module, &meta, zeros)?;
        }
        chosen.add("model.pte", bytes);
        Ok(chosen)
    }

    fn of_template(template: Template) -> Result<Self, Failure> {
        let mut chosen = Self { files: Vec::new(), sample: String::new(), rate: 8000, method: "forward".to_owned() };
        match template {
            Template::Classify => {
                "samples/7.pgm".clone_into(&mut chosen.sample);
                chosen.add("model.pte", DIGITS);
                let digits: String = "0123456789".chars().flat_map(|digit| [digit, '\n']).collect();
                chosen.add("labels.txt", digits);
                for (digit, image) in DIGIT_IMAGES.chunks_exact(DIGIT_BYTES).enumerate() {
                    chosen.add(&format!("samples/{digit}.pgm"), pgm(image));
                }
            }
            Template::Detect => {
                "samples/shapes.pgm".clone_into(&mut chosen.sample);
                chosen.add("model.pte", DETECTOR);
                chosen.add("labels.txt", SHAPE_LABELS);
                chosen.add("samples/shapes.pgm", SCENE);
            }
            Template::Transcribe => {
                "samples/dialed.wav".clone_into(&mut chosen.sample);
                chosen.add("model.pte", KEYS);
                chosen.add("labels.txt", KEY_LABELS);
                chosen.add("samples/dialed.wav", DIALED);
            }
            Template::Chat => {
                return Err(Failure::Arguments(
                    "a chat needs a language model\n  help      compile one with `rushlight compile Qwen3-0.6B/ --quantize 8da4w --backend cpu -o \
                     llama.pte`, and pass `--model llama.pte`"
                        .to_owned(),
                ));
            }
            Template::Firmware => {
                let module = Module::builder().lower(Lower::Off).load_bytes(DIGITS)?;
                let meta = module.meta("forward")?;
                chosen.add_firmware(module, &meta, DIGIT_IMAGES.to_vec())?;
                chosen.add("model.pte", DIGITS);
            }
        }
        Ok(chosen)
    }

    fn add(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.files.push((path.to_owned(), bytes.into()));
    }

    /// Adds the module that embeds the program, with its operators and its memory, and the inputs.
    fn add_firmware(&mut self, mut module: Module, meta: &MethodMeta, inputs: Vec<u8>) -> Result<(), Failure> {
        let total = module.method(&self.method)?.memory_use_on_32_bit().total;
        let operators = ops::rust_constant(meta.operators.iter().map(|op| &*op.name))?;
        let shape = input(meta).map(|info| info.sizes.clone()).unwrap_or_default();
        let text = format!(
            "//! The program with its operators, its memory and its inputs. `rushlight new` wrote this file.\n\n\
             pub static PROGRAM: &[u8] = rushlight::include_program!(\"../model.pte\");\n\n\
             /// The inputs, one behind the other, as little-endian floats.\n\
             pub static INPUTS: &[u8] = rushlight::include_program!(\"../inputs.bin\");\n\n\
             pub const SHAPE: [usize; {}] = {shape:?};\n\n\
             /// As large as `rushlight size model.pte` prints it.\n\
             pub static ARENA: rushlight::Arena<{total}> = rushlight::Arena::new();\n\n\
             {}\n",
            shape.len(),
            // A static has one address, as the registry needs it.
            operators.replace("pub const OPS", "pub static OPS")
        );
        self.add("src/model.rs", text);
        self.add("inputs.bin", inputs);
        Ok(())
    }
}

/// `forward`, or the only method.
fn only_method(module: &Module) -> String {
    let names: Vec<&str> = module.method_names().collect();
    match names[..] {
        [only] => only.to_owned(),
        _ => "forward".to_owned(),
    }
}

/// The first input that the caller passes, if it is a tensor.
fn input(meta: &MethodMeta) -> Option<&TensorInfo> {
    match meta.inputs.first() {
        Some(ValueInfo::Tensor(info)) => Some(info),
        _ => None,
    }
}

/// Checks that a program of a template can run the method. The error is what the template expects.
fn check(template: Template, meta: &MethodMeta) -> Result<(), &'static str> {
    let is_float = |value: &ValueInfo| matches!(value, ValueInfo::Tensor(info) if info.dtype == ScalarType::Float);
    let outputs = meta.outputs.iter().take_while(|value| is_float(value)).count();
    let sizes = input(meta).filter(|info| info.dtype == ScalarType::Float).map_or(&[][..], |info| &info.sizes);
    let is_image = matches!(sizes, [1, 1 | 3, _, _]) && meta.inputs.len() == 1 && meta.name == "forward";
    let is_sound = matches!(sizes, [1, _]) && meta.inputs.len() == 1 && meta.name == "forward";
    match template {
        Template::Classify if !is_image || outputs == 0 => {
            Err("`forward` with one input f32 [1, 1 or 3, height, width] and an output f32 of logits")
        }
        Template::Detect if !is_image || outputs < 2 => Err(
            "`forward` with one input f32 [1, 1 or 3, height, width] and the outputs f32 [N, 4] of boxes and f32 [N, classes] of scores",
        ),
        Template::Transcribe if !is_sound || outputs == 0 => {
            Err("`forward` with one input f32 [1, samples] and an output f32 [1, steps, tokens]")
        }
        Template::Chat if meta.name != "forward" || meta.inputs.len() < 2 => {
            Err("a language model: `forward` with the inputs i64 [1, T] of tokens and i64 [1] of a position")
        }
        Template::Firmware if sizes.is_empty() || meta.inputs.len() != 1 || outputs == 0 => {
            Err("a method with one input and one output of f32")
        }
        _ => Ok(()),
    }
}

/// Checks that the program of a language model generates text.
#[cfg(feature = "llm")]
fn check_generates(path: &Path) -> Result<(), Failure> {
    let model = rushlight_llm::Model::new(Module::builder().lower(Lower::Off).load(path)?)?;
    if model.embedding_size().is_none() {
        return Ok(());
    }
    Err(Failure::input(
        format_args!("the template cannot run `{}`: it computes embeddings, and generates nothing", path.display()),
        "compile it without `--hidden-states`",
    ))
}

fn misfit(path: &Path, meta: &MethodMeta, expected: &str) -> Failure {
    let list = |values: &[ValueInfo]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Failure::Input(format!(
        "the template cannot run `{}`\n  expected  {expected}\n  got       `{}`: ({}) -> ({})\n  help      choose another template, or wrap the \
         model before you export it, as the README.md of the template's own project shows",
        path.display(),
        meta.name,
        list(&meta.inputs),
        list(&meta.outputs)
    ))
}

/// An image of 8 x 8 floats as a PGM file.
fn pgm(image: &[u8]) -> Vec<u8> {
    let pixels = image.as_chunks().0.iter().map(|float| (f32::from_le_bytes(*float) * 255.0).round() as u8);
    b"P5 8 8 255\n".iter().copied().chain(pixels).collect()
}
