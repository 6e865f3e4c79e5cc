//! Inputs and outputs by the names of the exported function, in every command that accepts or shows them.

use std::fs;

use rushlight::Tensor;
use rushlight::runtime::Bool8;
use rushlight_devtools::npy;
use rushlight_devtools::numbers::doubles;

use crate::command::{CORPUS, at, fails, folder, succeeds};

/// A compiled sample with nested keyword arguments, its folder, and files of its inputs.
struct Sample {
    folder: std::path::PathBuf,
    model: String,
    program: String,
}

impl Sample {
    fn new(name: &str) -> Self {
        let folder = folder(name);
        let (model, program) = (format!("{CORPUS}/pt2/keywords.pt2"), at(&folder, "keywords.pte"));
        succeeds(&["compile", &model, "-o", &program]);
        for (name, tensor) in arrays() {
            let mut bytes = Vec::new();
            npy::write(&tensor, &mut bytes).expect("an array");
            fs::write(folder.join(format!("{name}.npy")), bytes).expect("a file");
        }
        Self { folder, model, program }
    }

    /// `name=file`.
    fn named(&self, name: &str) -> String {
        format!("{name}={}", at(&self.folder, &format!("{name}.npy")))
    }
}

fn arrays() -> Vec<(&'static str, Tensor)> {
    let floats = |numbers: &[f32; 4]| Tensor::of(&[4], numbers).expect("four numbers");
    vec![
        ("batch.boxes.1", floats(&[2.0, -2.0, 4.0, 0.5])),
        ("image", floats(&[0.5, -1.0, 2.0, 4.0])),
        ("batch.boxes.0", floats(&[1.0, 2.0, 3.0, 4.0])),
        ("batch.mask", Tensor::of(&[2], &[Bool8(0), Bool8(0)]).expect("two bools")),
    ]
}

/// Names and elements of PyTorch's results for these inputs.
const EXPECTED: [(&str, &str); 4] = [
    ("logits", "[1.5,-3.0,8.0,5.0]"),
    ("stats.mean", "[2.875]"),
    ("stats.parts.0", "[true,true]"),
    ("stats.parts.1.0", "[1.5,3.0,8.0,5.0]"),
];

fn check(text: &str) {
    let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
    for (index, (name, elements)) in EXPECTED.into_iter().enumerate() {
        let output = &json["outputs"][index];
        assert_eq!(
            (output["name"].as_str(), output["elements"].to_string().as_str()),
            (Some(name), elements),
            "{text}"
        );
    }
}

#[test]
fn inputs_are_given_by_name() {
    let sample = Sample::new("names-run");
    let named: Vec<String> = arrays().iter().flat_map(|(name, _)| ["-i".to_owned(), sample.named(name)]).collect();
    let with = |more: &[&str], inputs: &[String]| -> Vec<String> {
        more.iter().map(|argument| (*argument).to_owned()).chain(inputs.iter().cloned()).collect()
    };
    check(&succeeds(&with(&["run", &sample.program, "--json"], &named)));
    check(&succeeds(&with(&["run", &sample.program, "--json", "-i", "scale=0.5"], &named)));
    // The first by position, the others by name.
    let image = at(&sample.folder, "image.npy");
    let rest: Vec<String> = named.chunks(2).filter(|pair| !pair[1].starts_with("image=")).flatten().cloned().collect();
    check(&succeeds(&with(&["run", &sample.program, "--json", "-i", &image], &rest)));
    let text = succeeds(&with(&["run", &sample.program], &named));
    assert!(text.contains("output 0 (logits)  f32 [4]") && text.contains("output 3 (stats.parts.1.0)"), "{text}");
    let results = at(&sample.folder, "results");
    succeeds(&with(&["run", &sample.program, "-o", &results], &named));
    for (name, elements) in EXPECTED {
        let bytes = fs::read(sample.folder.join("results").join(format!("{name}.npy"))).expect("a file");
        let written = doubles(&npy::read(&bytes).expect("an array"));
        let expected: Vec<f64> = serde_json::from_str(&elements.replace("true", "1")).expect("numbers");
        assert_eq!(written, expected, "{name}");
    }
    succeeds(&with(&["bench", &sample.program, "--runs", "1", "--warmup", "0"], &named));
    let text = succeeds(&with(&["compare", &sample.model, &sample.program], &named));
    assert!(text.contains("logits") && text.contains("stats.parts.1.0"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(&with(&["compare", &sample.model, &sample.program, "--json"], &named)))
            .expect("JSON");
    assert_eq!(json["outputs"][1]["name"], "stats.mean", "{json}");
}

#[test]
fn arrays_of_an_archive_are_found_by_name() {
    let sample = Sample::new("names-npz");
    let path = at(&sample.folder, "inputs.npz");
    let mut file = std::io::Cursor::new(Vec::new());
    let arrays = arrays();
    npy::write_archive(arrays.iter().map(|(name, tensor)| (*name, tensor)), &mut file).expect("an archive");
    fs::write(&path, file.into_inner()).expect("a file");
    check(&succeeds(&["run", &sample.program, "--json", "-i", &path]));
    fails(&["run", &sample.program, "-i", &format!("image={path}")], 6, &["has several arrays"]);
}

#[test]
fn wrong_names_are_errors() {
    let sample = Sample::new("names-errors");
    let (mask, image) = (sample.named("batch.mask"), sample.named("image"));
    let wrong = mask.replacen("batch.mask", "batch.masks", 1);
    fails(&["run", &sample.program, "-i", &wrong], 6, &["no input `batch.masks`", "did you mean `batch.mask`?"]);
    fails(
        &["run", &sample.program, "-i", &mask, "-i", &mask],
        6,
        &["input 1 (batch.mask) of `forward` is given twice"],
    );
    fails(
        &["run", &sample.program, "-i", &image, "-i", "image=1"],
        6,
        &["input 0 (image) of `forward` is given twice"],
    );
    fails(&["run", &sample.program, "-i", "scale=2"], 6, &["input 4 (scale) of `forward`"]);
    fails(&["run", &sample.program, "--shape", "imag=4"], 6, &["no input `imag`", "did you mean `image`?"]);
    fails(&["run", &sample.program, "--shape", "scale=4"], 6, &["input 4 (scale) of `forward` is not a tensor"]);
    let output = crate::command::run(&["run", &sample.program, "-i", &image]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && text.contains("not given of `forward`: input 1 (batch.mask), input 2"),
        "{text}"
    );
    assert!(!text.contains("scale"), "what was fixed at export is not made up: {text}");
    let told = |more: &[&str]| {
        let output = crate::command::run(&[&["run", &sample.program][..], more].concat());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(
        told(&["--seed", "7"]).contains("no inputs of `forward` are given: filled with random numbers, of the seed 7")
    );
    assert_eq!(told(&["-q"]), "");
}

#[test]
fn names_are_shown() {
    let sample = Sample::new("names-shown");
    let text = succeeds(&["inspect", &sample.program]);
    let signature =
        "signature  (image, batch: {mask, boxes: [_, _]}, scale) -> {logits, stats: {mean, parts: (_, [_])}}";
    assert!(text.contains(signature), "{text}");
    assert!(
        text.contains("input 2    f32 [4]  batch.boxes.0") && text.contains("input 4    double, always 0.5  scale"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(&["inspect", &sample.program, "--json"])).expect("JSON");
    assert_eq!(json["methods"][0]["inputs"][4]["name"], "scale");
    assert_eq!(json["methods"][0]["outputs"][1]["name"], "stats.mean");
    for file in [&sample.model, &sample.program] {
        let page = at(&sample.folder, "graph.html");
        succeeds(&["inspect", file, "--html", &page]);
        let html = fs::read_to_string(&page).expect("the page");
        for name in ["batch.boxes.0", "scale", "stats.mean", "stats.parts.1.0"] {
            assert!(html.contains(&format!("\"name\":\"{name}\"")), "{name} is not in the page of {file}");
        }
    }
}

#[test]
fn lowered_programs_keep_names() {
    let sample = Sample::new("names-lowered");
    let named: Vec<String> = arrays().iter().flat_map(|(name, _)| ["-i".to_owned(), sample.named(name)]).collect();
    let arguments = ["run", &sample.program, "--lower", "cpu", "--json"].map(str::to_owned);
    check(&succeeds(&[&arguments[..], &named[..]].concat()));
}
