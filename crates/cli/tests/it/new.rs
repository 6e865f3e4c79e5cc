//! `rushlight new` writes projects, and refuses what would not work. `tests/examples/test_new.py` builds and runs them.

use std::fs;

use crate::command::{CORPUS, EXAMPLE, at, fails, folder, succeeds};

const TEMPLATES: [(&str, &[&str]); 5] = [
    ("classify", &["python", "rust", "c", "cpp", "js"]),
    ("detect", &["python", "rust", "c", "cpp", "js"]),
    ("transcribe", &["python", "rust", "c", "cpp", "js"]),
    ("chat", &["python", "rust", "c", "cpp", "js"]),
    ("firmware", &["rust"]),
];

#[test]
fn every_template_is_written_with_all_its_values() {
    let folder = folder("new");
    let llama = at(&folder, "llama.pte");
    let decoder = format!("{CORPUS}/../decoders/llama");
    succeeds(&["compile", &decoder, "--backend", "portable", "-o", &llama]);
    for (template, languages) in TEMPLATES {
        for language in languages {
            let project = at(&folder, &format!("{template}-{language}"));
            let mut call = vec!["new", &project, "--template", template, "--lang", language];
            if template == "chat" {
                call.extend(["--model", &llama]);
            }
            let printed = succeeds(&call);
            assert!(printed.contains("files") && printed.contains(&format!("cd {project}")), "{printed}");
            for path in ["model.pte", "README.md"] {
                assert!(fs::metadata(format!("{project}/{path}")).is_ok_and(|file| file.len() > 0), "{project}/{path}");
            }
            for entry in fs::read_dir(&project).expect("a folder") {
                let path = entry.expect("an entry").path();
                if let Ok(text) = fs::read_to_string(&path) {
                    assert!(!text.contains("{{"), "{}", path.display());
                }
            }
        }
    }
}

#[test]
fn dependencies_are_published_versions_or_a_clone() {
    let folder = folder("new_source");
    let version = env!("CARGO_PKG_VERSION");
    let manifests = [
        ("python", "requirements.txt", "rushlight=="),
        ("rust", "Cargo.toml", "version = \""),
        ("js", "package.json", "^"),
    ];
    for (language, manifest, before) in manifests {
        let published = at(&folder, &format!("published-{language}"));
        succeeds(&["new", &published, "-t", "classify", "-l", language]);
        let text = fs::read_to_string(format!("{published}/{manifest}")).expect("a manifest");
        assert!(text.contains(&format!("{before}{version}")), "{text}");

        let cloned = at(&folder, &format!("cloned-{language}"));
        let clone = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        succeeds(&["new", &cloned, "-t", "classify", "-l", language, "--source", clone]);
        let text = fs::read_to_string(format!("{cloned}/{manifest}")).expect("a manifest");
        let clone = fs::canonicalize(clone).expect("the repository");
        assert!(text.contains(clone.to_str().expect("a path")), "{text}");
    }
}

/// The first command builds the package for C, C++ or JavaScript in the clone.
#[test]
fn commands_build_the_packages_of_a_clone() {
    let folder = folder("new commands");
    let clone = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).expect("the repository");
    let clone = clone.to_str().expect("a path");
    for (language, chore, package) in [
        ("c", "c-package", "-DCMAKE_PREFIX_PATH="),
        ("cpp", "c-package", "-DCMAKE_PREFIX_PATH="),
        ("js", "npm", "npm install"),
    ] {
        let project = at(&folder, &format!("{language}-digits"));
        let printed = succeeds(&["new", &project, "-t", "classify", "-l", language, "--source", clone]);
        assert!(printed.contains(&format!("  cd '{project}'\n  (cd {clone} && cargo xtask {chore})\n")), "{printed}");
        assert!(printed.contains(package) && !printed.contains("/path/to"), "{printed}");
        let readme = fs::read_to_string(format!("{project}/README.md")).expect("a page");
        assert!(readme.contains(&format!("$ (cd {clone} && cargo xtask {chore})\n")), "{readme}");
    }
}

#[test]
fn what_would_not_work_is_refused() {
    let folder = folder("new_refused");
    let project = at(&folder, "project");
    let firmware = ["new", &project, "-t", "firmware", "-l", "python"];
    let error = fails(&firmware, 2, &["there is no template `firmware` in the language `python`"]);
    for (template, languages) in TEMPLATES {
        let row = format!("--template {template:<10} --lang {}", languages.join("|"));
        assert!(error.contains(&row), "{row}: {error}");
    }
    fails(&["new", &project, "-t", "chat", "-l", "c"], 2, &["a chat needs a language model", "--model llama.pte"]);
    fails(&["new", &at(&folder, "My Project"), "-t", "detect", "-l", "c"], 2, &["cannot be the name of a package"]);

    let embeds = at(&folder, "embeds.pte");
    let decoder = format!("{CORPUS}/../decoders/llama");
    succeeds(&["compile", &decoder, "--hidden-states", "--backend", "cpu", "-o", &embeds]);
    fails(&["new", &project, "-t", "chat", "-l", "c", "--model", &embeds], 6, &["without `--hidden-states`"]);

    let elsewhere = ["new", &project, "-t", "classify", "-l", "c", "--source", EXAMPLE];
    fails(&elsewhere, 2, &["is not a clone of Rushlight", "name the clone's top folder"]);

    // The program of the template could not run the model.
    let digits = format!("{EXAMPLE}/digits.pte");
    let detect = ["new", &project, "-t", "detect", "-l", "js", "--model", &digits];
    fails(&detect, 6, &["the template cannot run", "f32 [N, 4] of boxes", "(f32 [1, 1, 8, 8]) -> (f32 [1, 10])"]);
    let exported = format!("{EXAMPLE}/digits.pt2");
    fails(&["new", &project, "-t", "classify", "-l", "js", "--model", &exported], 4, &["rushlight compile"]);
    assert!(fs::metadata(&project).is_err(), "nothing is written before an error");

    let full = at(&folder, "full");
    fs::create_dir(&full).expect("a folder");
    fs::write(format!("{full}/mine.txt"), "mine").expect("a file");
    fails(&["new", &full, "-t", "classify", "-l", "c"], 2, &["is not empty", "nothing is overwritten"]);
}
