//! Printed output: errors of standard output, the numbers, and JSON with the requested contents.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::command::{CORPUS, EXAMPLE, at, fails, folder, run, rushlight, succeeds};
use serde_json::Value as Json;

fn json<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Json {
    serde_json::from_str(&succeeds(arguments)).expect("JSON")
}

/// Compiles the classifier, with its debug map, to a file in a folder.
fn compiled(folder: &Path) -> String {
    let program = at(folder, "digits.pte");
    succeeds(&["compile", &format!("{EXAMPLE}/digits.pt2"), "-o", &program]);
    program
}

/// One call of each subcommand that prints.
fn calls(folder: &Path) -> Vec<Vec<String>> {
    let (model, program, output) = (format!("{EXAMPLE}/digits.pt2"), compiled(folder), &*at(folder, "x.pte"));
    let calls: [&[&str]; 18] = [
        &["compile", &model, "-o", output],
        &["compile", &model, "-o", output, "--json"],
        &["compile", &model, "-o", output, "--report", "-"],
        &["quantize", &model, "--scheme", "int8-dynamic", "-o", output],
        &["compare", &model, &program],
        &["run", &program],
        &["run", &program, "--json"],
        &["bench", &program, "-n", "1"],
        &["inspect", &program],
        &["inspect", &model],
        &["ops"],
        &["ops", &program],
        &["validate", &program],
        &["size", &program],
        &["doctor"],
        &["demo"],
        &["completions", "bash"],
        &["--help"],
    ];
    calls.map(|call| call.iter().map(ToString::to_string).collect()).to_vec()
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_an_error() {
    let folder = folder("full-device");
    for call in calls(&folder) {
        let full = fs::File::options().write(true).open("/dev/full").expect("the device");
        let output = rushlight().args(&call).stdout(full).stderr(Stdio::piped()).output().expect("the command");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{call:?}: {error}");
        assert!(error.contains("cannot write to standard output"), "{call:?}: {error}");
    }
}

/// If a reader closes the pipe, as `head` does, the exit code and the rest of the output do not change.
#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = folder("gone-reader");
    let mut calls: Vec<_> = calls(&folder).into_iter().map(|call| (call, 0)).collect();
    calls.push((vec!["ops".into(), format!("{CORPUS}/1.5.1/no-such.pte")], 3));
    for (call, code) in calls {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = rushlight().args(&call).stdout(writer).stderr(Stdio::piped()).output().expect("the command");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{call:?}: {error}");
        assert!(code != 0 || error.lines().all(|line| line.starts_with("note: ")), "{call:?}: {error}");
    }
}

/// If errors cannot be printed, the exit code still reports them.
#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_error_keeps_the_exit_code() {
    let missing = format!("{CORPUS}/1.5.1/no-such.pte");
    for arguments in [&["ops", &*missing][..], &["run", &missing], &["--no-such-option"], &["inspect"]] {
        let seen = run(arguments);
        let full = fs::File::options().write(true).open("/dev/full").expect("the device");
        let unseen = rushlight().args(arguments).stdout(Stdio::null()).stderr(full).status().expect("the command");
        assert_eq!((unseen.code(), seen.stderr.is_empty()), (seen.status.code(), false), "{arguments:?}");
    }
}

/// A program on standard output is the only output there; messages go to standard error.
#[cfg(target_os = "linux")]
#[test]
fn a_program_on_standard_output_is_alone_there() {
    let folder = folder("program-on-stdout");
    let model = format!("{EXAMPLE}/digits.pt2");
    let calls: [&[&str]; 2] = [&["compile", &model], &["quantize", &model, "--scheme", "int8-dynamic"]];
    for call in calls {
        let program = at(&folder, "program.pte");
        succeeds(&[call, &["-o", &program]].concat());
        let piped = run(&[call, &["-o", "/dev/stdout"]].concat());
        let said = String::from_utf8_lossy(&piped.stderr);
        assert!(piped.status.success() && said.contains("/dev/stdout"), "{call:?}: {said}");
        assert!(piped.stdout == fs::read(program).expect("the program"), "{call:?}: something else is in the program");
        for result in [&["--json"][..], &["--report", "-"]] {
            fails(&[call, &["-o", "/dev/stdout"], result].concat(), 2, &["where the program is written"]);
        }
    }
}

/// A `.npy` file of `f32`.
fn array(path: &str, shape: &str, values: &[f32]) {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    fs::write(path, bytes).expect("a file");
}

#[test]
fn small_and_large_numbers_are_printed_as_they_are() {
    let folder = folder("numbers");
    let program = format!("{CORPUS}/1.5.1/add.pte");
    let meta = json(&["inspect", &program, "--json"]);
    let inputs = meta["methods"][0]["inputs"].as_array().expect("inputs").len();
    let shape: Vec<usize> = serde_json::from_value(meta["methods"][0]["inputs"][0]["sizes"].clone()).expect("a shape");
    let count: usize = shape.iter().product();
    let shape = format!("({},)", shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    let values = [1e-10, -2.5e-7, 0.0, 0.125, 1e30, f32::NAN, f32::NEG_INFINITY, 3.0];
    let values: Vec<f32> = values.iter().copied().cycle().take(count).collect();
    let (x, zero) = (at(&folder, "x.npy"), at(&folder, "zero.npy"));
    array(&x, &shape, &values);
    array(&zero, &shape, &vec![0.0; count]);
    let mut call = vec!["run", &program, "-i", &x];
    call.extend((1..inputs).flat_map(|_| ["-i", &*zero]));
    let text = succeeds(&call);
    let shown = ["1e-10", "-2.5e-7", "0", "0.125", "1e30", "NaN", "-inf", "3"];
    for (value, _) in shown.iter().zip(&values) {
        assert!(text.contains(&format!("{value},")) || text.contains(&format!("{value}]")), "{value}: {text}");
    }
    let largest = succeeds(&[&call[..], &["--top", "8"]].concat());
    assert!(largest.contains(" 1e30") && (count < 8 || largest.contains(" 1e-10")), "{largest}");
}

/// Options that limit the shown results also do so in JSON.
#[test]
fn json_shows_what_is_asked_for() {
    let folder = folder("json");
    let (model, program) = (format!("{EXAMPLE}/digits.pt2"), compiled(&folder));
    let image = format!("{EXAMPLE}/images/7.png");
    let output = &json(&["run", &program, "-i", &image, "--top", "3", "--limit", "2", "--json"])["outputs"][0];
    let top = output["top"].as_array().expect("the largest elements");
    assert_eq!((top.len(), top[0]["index"].as_u64()), (3, Some(7)), "{output}");
    assert!(top.is_sorted_by(|a, b| a["value"].as_f64() >= b["value"].as_f64()), "{output}");
    assert_eq!(output["elements"].as_array().map(Vec::len), Some(2), "{output}");
    let labels = at(&folder, "labels.json");
    let names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    fs::write(&labels, format!("{names:?}")).expect("a file");
    let named = ["run", &program, "-i", &image, "--top", "1", "--labels", &labels];
    let best = &json(&[&named[..], &["--json"]].concat())["outputs"][0]["top"][0];
    assert_eq!(best["label"].as_str(), Some("seven"), "{best}");
    assert!(best["softmax"].as_f64().is_some_and(|share| (0.5..=1.0).contains(&share)), "{best}");
    let text = succeeds(&named);
    assert!(text.contains("softmax") && text.contains(" % ") && text.contains("seven"), "{text}");

    let arrays = at(&folder, "arrays");
    let saved = json(&["run", &program, "-i", &image, "-o", &arrays, "--json"]);
    assert_eq!(saved["outputs"][0]["file"].as_str(), Some(&*format!("{arrays}/output_0.npy")), "{saved}");

    let profile = ["run", &program, "--lower", "off", "--profile", "--json"];
    let all = json(&profile)["profile"]["instructions"].as_array().expect("instructions").len();
    assert!(all > 2, "{all}");
    let some = json(&[&profile[..], &["--slowest", "2"]].concat());
    assert_eq!(some["profile"]["instructions"].as_array().map(Vec::len), Some(2), "{some}");

    let compare = ["compare", &model, &program, "--json"];
    let all = json(&compare)["results"].as_array().expect("results").len();
    assert!(all > 2, "{all}");
    let some = json(&[&compare[..], &["--worst", "2"]].concat());
    assert_eq!(some["results"].as_array().map(Vec::len), Some(2), "{some}");
    assert_eq!(some["first_difference"], Json::Null, "{some}");
}

/// `rushlight backends` lists each backend with its options.
#[test]
fn backends_are_listed_with_their_options() {
    let list = json(&["backends", "--json"]);
    let names: Vec<_> = list.as_array().expect("a list").iter().map(|backend| &backend["name"]).collect();
    assert_eq!(names, ["cpu", "cortex-m", "portable"]);
    let precision = &list[0]["options"][0];
    assert_eq!((&precision["name"], &precision["default"]), (&"precision".into(), &"f32".into()));
    assert_eq!(precision["choices"], serde_json::json!(["f32", "f16", "bf16"]));
    assert_eq!((&list[0]["options"][1]["default"], &list[2]["options"]), (&0.into(), &serde_json::json!([])));
    let text = succeeds(&["backends"]);
    for part in ["cpu ", "precision=f32|f16|bf16", "[default: f32]", "threads=N", "cpu=m4|m0+", "portable "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// `compare` fails if results differ, and reports only differences that it saw.
#[test]
fn compare_says_what_it_saw_and_fails_where_numbers_part() {
    let folder = folder("compare");
    let model = format!("{EXAMPLE}/digits.pt2");
    let exact = compiled(&folder);
    let rounded = at(&folder, "bf16.pte");
    succeeds(&["compile", &model, "--backend", "cpu:precision=bf16", "-o", &rounded]);
    assert!(succeeds(&["compare", &model, &exact]).contains("no result differs"));
    succeeds(&["compare", &model, &exact, "--fail-below", "60"]);
    let noted = |more: &[&str]| {
        String::from_utf8_lossy(&run(&[&["compare", &model, &exact][..], more].concat()).stderr).into_owned()
    };
    assert!(noted(&[]).contains("using the example inputs of the export"), "{}", noted(&[]));
    for generated in [&["--seed", "1"], &["--fill", "random"], &["--shape", "0=1x1x8x8"]] {
        assert!(noted(generated).contains("filled with random numbers"), "{generated:?}");
    }
    fails(&["compare", &model, &rounded], 7, &["a result differs by more than 1e-4 of its scale"]);
    fails(&["compare", &model, &rounded, "--fail-below", "90"], 7, &["is below 90 dB"]);
    let text = succeeds(&["compare", &model, &rounded, "--fail-below", "10"]);
    // The CPU backend shows its results only, not the values inside its delegate.
    assert!(text.contains("results diverge between the inputs and `linear`"), "{text}");
    let json = run(&["compare", &model, &rounded, "--json"]);
    assert_eq!(json.status.code(), Some(7));
    let json: Json = serde_json::from_slice(&json.stdout).expect("JSON");
    let unseen = json["only_in_reference"].as_array().expect("names").len();
    assert_eq!(json["first_difference"]["unseen_before"], unseen, "{json}");
    let names = text.lines().find(|line| line.contains("only in the reference")).expect("a line");
    assert!(names.contains("conv2d, "), "{names}");
}

/// `doctor` names the nodes that stay on the reference operators, and does not say that the machine is slow.
#[test]
fn doctor_names_nodes_and_reasons() {
    let folder = folder("doctor");
    let machine = succeeds(&["doctor"]);
    assert!(machine.contains("  backends   cpu, cortex-m, portable\n") && !machine.contains("no vector"), "{machine}");

    // A program that is too small to be lowered.
    let small = at(&folder, "small.pte");
    succeeds(&["compile", &format!("{EXAMPLE}/digits.pt2"), "-o", &small]);
    let text = succeeds(&["doctor", &small]);
    let expected = ["7 calls run on the reference operators", "    2 x aten::convolution\n        conv2d  conv1\n"];
    for part in expected {
        assert!(text.contains(part), "{part}: {text}");
    }

    // Compiled for the CPU backend as a whole.
    let whole = at(&folder, "whole.pte");
    succeeds(&["compile", &format!("{EXAMPLE}/digits.pt2"), "--backend", "cpu", "-o", &whole]);
    assert!(succeeds(&["doctor", &whole]).contains("nothing to report"));
}

/// Methods come first, and what the file has besides comes last.
#[test]
fn inspect_shows_methods_before_segments() {
    let text = succeeds(&["inspect", &compiled(&folder("inspect"))]);
    let places = ["method forward", "  input 0", "  operator", "in the file", "  named data", "  segment 0"];
    let places: Vec<_> = places.iter().map(|part| text.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {text}");
}

/// An image of another size is resized with a note, and a map has no classes to rank with a warning.
#[test]
fn images_are_resized_and_maps_not_ranked_with_a_word() {
    let program = compiled(&folder("words"));
    let said = |arguments: &[&str]| String::from_utf8_lossy(&run(arguments).stderr).into_owned();
    let other = format!("{CORPUS}/../images/0.png");
    let note = said(&["run", &program, "-i", &other]);
    assert!(note.contains("note: `") && note.contains(" is resized from ") && note.contains(" to 8 x 8"), "{note}");
    let same = format!("{EXAMPLE}/images/7.png");
    assert_eq!(said(&["run", &program, "-i", &same, "--top", "1"]), "");

    let maps = format!("{CORPUS}/1.5.1/images.pte");
    let warning = said(&["run", &maps, "--top", "3"]);
    assert!(
        warning.contains("warning: output 0 is a map, f32 [") && warning.contains("no classes to rank"),
        "{warning}"
    );
    let text = succeeds(&["run", &maps, "--top", "3"]);
    assert!(text.starts_with("output 0  f32 ["), "{text}");
}
