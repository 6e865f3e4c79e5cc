//! `rushlight quantize`: inputs from arrays and images, reports in three forms, and errors.

use std::fs;

use crate::command::{EXAMPLE, folder, run, succeeds};

#[test]
fn digits_are_quantized_and_reported() {
    let folder = folder("quantize");
    let path = |name: &str| folder.join(name).to_str().expect("a name").to_owned();
    let (model, arrays) = (format!("{EXAMPLE}/digits.pt2"), format!("{EXAMPLE}/images/images.npz"));
    let images = format!("{EXAMPLE}/images");
    let quantize = ["quantize", &model, "-o", &path("digits.pte"), "--calibrate"];
    let text = succeeds(&[&quantize[..], &[&arrays, "--report", "-"]].concat());
    assert!(text.contains("3 of 3 layers quantized, 10 inputs seen"), "{text}");
    assert!(succeeds(&["run", &path("digits.pte"), "--input", &format!("{images}/7.png"), "--top", "1"]).contains('7'));
    succeeds(&[&quantize[..], &[&images, "--report", &path("report.json")]].concat());
    let report = fs::read_to_string(path("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((report["samples"].as_u64(), report["layers_in_integers"].as_u64()), (Some(10), Some(3)), "{report}");
    assert!(report["layers"][0]["snr"].as_f64().is_some_and(|ratio| ratio > 20.0), "{report}");
    succeeds(&[&quantize[..], &[&arrays, "--keep", "conv1", "--report", &path("report.html")]].concat());
    let page = fs::read_to_string(path("report.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.contains("`conv1` is to be kept"), "{page}");
    let json = succeeds(&[&quantize[..], &[&arrays, "--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["quantization"]["scheme"].as_str(), Some("int8"));
    let json = succeeds(&["quantize", &model, "-o", &path("digits.pte"), "--scheme", "8da4w", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let named = ["scheme", "observer", "rounding"].map(|what| json["quantization"][what].as_str());
    assert_eq!(named, [Some("8da4w"), Some("histogram"), Some("mse")], "as they are given");
}

/// Without a calibration, ranges come from the example inputs of the export, and the result says so.
#[test]
fn a_model_without_a_calibration_is_measured_on_its_example() {
    let folder = folder("quantize-example");
    let path = |name: &str| folder.join(name).to_str().expect("a name").to_owned();
    let model = format!("{EXAMPLE}/digits.pt2");
    for (command, scheme) in [("quantize", "--scheme"), ("compile", "--quantize")] {
        let result = run(&[command, &model, scheme, "int8", "-o", &path("x.pte"), "--json"]);
        let warning = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(
            warning.contains("no calibration: the ranges of activations are those of the example inputs"),
            "{warning}"
        );
        let json: serde_json::Value = serde_json::from_slice(&result.stdout).expect("JSON");
        let report = &json["quantization"];
        assert_eq!(
            (report["samples"].as_u64(), report["calibrated_on"].as_str()),
            (Some(0), Some("example")),
            "{json}"
        );
        assert!(report["output_snr"].as_f64().is_some_and(|ratio| ratio > 20.0), "{json}");
    }
    let text = succeeds(&["quantize", &model, "-o", &path("x.pte"), "--report", "-"]);
    assert!(text.contains("by histogram, on the example inputs of the export, without a calibration"), "{text}");
    let images = format!("{EXAMPLE}/images");
    let text = succeeds(&["quantize", &model, "-o", &path("x.pte"), "--calibrate", &images, "--report", "-"]);
    assert!(text.contains("by histogram, on the inputs of the calibration"), "{text}");
}

/// `quantize` takes the options of `compile`, and `compile` the calibration of `quantize`.
#[test]
fn both_commands_have_the_same_options() {
    let folder = folder("quantize-options");
    let path = |name: &str| folder.join(name).to_str().expect("a name").to_owned();
    let (model, images) = (format!("{EXAMPLE}/digits.pt2"), format!("{EXAMPLE}/images"));
    let methods = [format!("a={model}"), format!("b={model}")];
    let calibration = [format!("--calibrate=a={images}"), format!("--calibrate=b={images}")];
    let options = "--constant n=3 --external-weights --alignment 64 --observer minmax --weights nearest --keep classifier \
                   --no-bias-correction --no-plan-inputs --stack-traces --share-state --backend portable --json";
    let run = |command: &str, output: &str| -> serde_json::Value {
        let words = command.split(' ').chain(options.split_whitespace()).map(str::to_owned);
        let all = words.chain(methods.clone()).chain(calibration.clone()).chain(["-o".to_owned(), path(output)]);
        serde_json::from_str(&succeeds(&all.collect::<Vec<_>>())).expect("JSON")
    };
    let (one, other) = (run("quantize", "q.pte"), run("compile --quantize int8", "c.pte"));
    for what in ["bytes", "bytes_exported", "methods", "backends", "quantization"] {
        assert_eq!(one[what], other[what], "{what}");
    }
    assert_eq!(fs::read(path("q.ptd")).expect("weights"), fs::read(path("c.ptd")).expect("weights"));
    assert_eq!(one["quantization"]["samples"].as_u64(), Some(20));
    let listed = succeeds(&["inspect".to_owned(), path("q.pte")]);
    assert!(["method a", "method b", "method n"].iter().all(|method| listed.contains(method)), "{listed}");
}

#[test]
fn errors_say_what_to_give() {
    let folder = folder("quantize-errors");
    let model = format!("{EXAMPLE}/digits.pt2");
    let output = folder.join("digits.pte");
    let quantize = ["quantize", &model, "-o", output.to_str().expect("a name")];
    let fails = |more: &[&str], code: i32, what: &str| {
        let result = run(&[&quantize[..], more].concat());
        let text = String::from_utf8_lossy(&result.stderr).into_owned();
        assert_eq!(result.status.code(), Some(code), "{text}");
        assert!(text.contains(what), "{text}");
    };
    fails(&["--scheme", "int3"], 2, "int8-dynamic");
    fails(&["--calibrate", "no-such-file.npz"], 3, "no-such-file.npz");
    fails(&["--calibrate", &model], 6, "expected a .npz");
    fails(&["--calibrate", folder.to_str().expect("a name")], 6, "has no images");
    fails(&["--scheme", "8da4w", "--keep", "classifier"], 1, "nothing in this model");
    fails(&["--scheme", "8da4w", "--keep", "clasifier*"], 6, "a name such as `classifier`");
    fails(&["--scheme", "int8-dynamic", "--embeddings", "5"], 2, "0, 4, 8");
    fails(&["--scheme", "int8-dynamic", "--min-snr", "30"], 6, "leave out the least signal-to-noise");
    let npy = |name: &str, element: &str, elements: Vec<u8>| {
        let header = format!("{{'descr': '{element}', 'fortran_order': False, 'shape': (1, 1, 8, 8), }}");
        let file = folder.join(name);
        let content = [b"\x93NUMPY\x01\x00\x46\x00", format!("{header:<69}\n").as_bytes(), &elements].concat();
        fs::write(&file, content).expect("an array");
        file.to_str().expect("a name").to_owned()
    };
    let doubles = npy("doubles.npy", "<f8", vec![0; 8 * 64]);
    fails(&["--calibrate", &doubles], 6, "the input `image` is f32 [1, 1, 8, 8]; convert the array to float32");
    let nan = npy("nan.npy", "<f4", [vec![0; 4 * 56], [f32::NAN.to_le_bytes(); 8].concat()].concat());
    fails(&["--calibrate", &nan], 6, "NaN");
    assert!(!output.exists());
}
