//! The projects that `rushlight new` writes: one for each template and language that fit together.

use std::path::Path;

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Template {
    /// Name the class of an image
    Classify,
    /// Find objects in an image
    Detect,
    /// Write down what a recording says, by CTC
    Transcribe,
    /// Talk to a language model
    Chat,
    /// Run a model on a Cortex-M4, in QEMU
    Firmware,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Python,
    Rust,
    C,
    Cpp,
    /// JavaScript for Node.js
    Js,
}

/// Names that cargo, CMake or Python use themselves.
pub const RESERVED: &[&str] = &["all", "board", "build", "core", "image", "rushlight", "std", "test"];

/// A project: its files, which may have placeholders, and how it is run.
pub struct Project {
    template: Template,
    language: Language,
    /// The files of one project, and those that several share.
    files: &'static [&'static [(&'static str, &'static str)]],
}

/// A path in the project, and the text of a file of `crates/cli/templates`.
macro_rules! files {
    ($($path:literal: $file:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../templates/", $file)))),*]
    };
}

type Files = &'static [(&'static str, &'static str)];

const PYTHON_IMAGES: Files = files!["requirements.txt": "python/requirements.txt", "image.py": "python/image.py"];
const RUST_IMAGES: Files = files!["Cargo.toml": "rust/Cargo.toml.in", "src/picture.rs": "rust/picture.rs"];
const C: Files = files!["CMakeLists.txt": "c/CMakeLists.txt", "check.h": "c/check.h"];
const CPP: Files = files!["CMakeLists.txt": "cpp/CMakeLists.txt"];
const C_LABELS: Files = files!["labels.h": "c/labels.h"];
const C_IMAGES: Files = files!["image.h": "c/image.h"];
const C_WAV: Files = files!["wav.h": "c/wav.h"];
const JS: Files = files!["package.json": "js/package.json"];
const JS_LABELS: Files = files!["labels.js": "js/labels.js"];
const JS_IMAGES: Files = files!["image.js": "js/image.js"];
const CLASSIFY: Files = files!["README.md": "classify/README.md"];
const DETECT: Files = files!["README.md": "detect/README.md"];
const TRANSCRIBE: Files = files!["README.md": "transcribe/README.md"];
const CHAT: Files = files!["README.md": "chat/README.md"];

/// The board is that of the example `cortex-m`.
const BOARD: Files = files![
    ".cargo/config.toml": "../../../examples/cortex-m/.cargo/config.toml",
    "build.rs": "../../../examples/cortex-m/build.rs",
    "memory.x": "../../../examples/cortex-m/memory.x",
    "src/lib.rs": "../../../examples/cortex-m/src/lib.rs",
];

const PROJECTS: &[Project] = &[
    project(
        Template::Classify,
        Language::Python,
        &[CLASSIFY, PYTHON_IMAGES, files!["main.py": "classify/python/main.py"]],
    ),
    project(
        Template::Classify,
        Language::Rust,
        &[CLASSIFY, RUST_IMAGES, files!["src/main.rs": "classify/rust/main.rs"]],
    ),
    project(Template::Classify, Language::C, &[CLASSIFY, C, C_LABELS, C_IMAGES, files!["main.c": "classify/c/main.c"]]),
    project(
        Template::Classify,
        Language::Cpp,
        &[CLASSIFY, CPP, C_LABELS, C_IMAGES, files!["main.cpp": "classify/cpp/main.cpp"]],
    ),
    project(
        Template::Classify,
        Language::Js,
        &[CLASSIFY, JS, JS_LABELS, JS_IMAGES, files!["main.js": "classify/js/main.js"]],
    ),
    project(Template::Detect, Language::Python, &[DETECT, PYTHON_IMAGES, files!["main.py": "detect/python/main.py"]]),
    project(Template::Detect, Language::Rust, &[DETECT, RUST_IMAGES, files!["src/main.rs": "detect/rust/main.rs"]]),
    project(Template::Detect, Language::C, &[DETECT, C, C_LABELS, C_IMAGES, files!["main.c": "detect/c/main.c"]]),
    project(
        Template::Detect,
        Language::Cpp,
        &[DETECT, CPP, C_LABELS, C_IMAGES, files!["main.cpp": "detect/cpp/main.cpp"]],
    ),
    project(
        Template::Detect,
        Language::Js,
        &[DETECT, JS, JS_LABELS, JS_IMAGES, files!["main.js": "detect/js/main.js"]],
    ),
    project(
        Template::Transcribe,
        Language::Python,
        &[
            TRANSCRIBE,
            files!["requirements.txt": "transcribe/python/requirements.txt", "main.py": "transcribe/python/main.py"],
        ],
    ),
    project(
        Template::Transcribe,
        Language::Rust,
        &[
            TRANSCRIBE,
            files![
                "Cargo.toml": "transcribe/rust/Cargo.toml.in",
                "src/main.rs": "transcribe/rust/main.rs",
                "src/wav.rs": "transcribe/rust/wav.rs",
            ],
        ],
    ),
    project(
        Template::Transcribe,
        Language::C,
        &[TRANSCRIBE, C, C_LABELS, C_WAV, files!["main.c": "transcribe/c/main.c"]],
    ),
    project(
        Template::Transcribe,
        Language::Cpp,
        &[TRANSCRIBE, CPP, C_LABELS, C_WAV, files!["main.cpp": "transcribe/cpp/main.cpp"]],
    ),
    project(
        Template::Transcribe,
        Language::Js,
        &[TRANSCRIBE, JS, JS_LABELS, files!["main.js": "transcribe/js/main.js"]],
    ),
    project(
        Template::Chat,
        Language::Python,
        &[CHAT, files!["requirements.txt": "chat/python/requirements.txt", "main.py": "chat/python/main.py"]],
    ),
    project(
        Template::Chat,
        Language::Rust,
        &[CHAT, files!["Cargo.toml": "chat/rust/Cargo.toml.in", "src/main.rs": "chat/rust/main.rs"]],
    ),
    project(Template::Chat, Language::C, &[CHAT, C, files!["main.c": "chat/c/main.c"]]),
    project(Template::Chat, Language::Cpp, &[CHAT, CPP, files!["main.cpp": "chat/cpp/main.cpp"]]),
    project(Template::Chat, Language::Js, &[CHAT, JS, files!["main.js": "chat/js/main.js"]]),
    project(
        Template::Firmware,
        Language::Rust,
        &[
            BOARD,
            files![
                "README.md": "firmware/README.md",
                "Cargo.toml": "firmware/rust/Cargo.toml.in",
                "src/main.rs": "firmware/rust/main.rs",
            ],
        ],
    ),
];

const fn project(template: Template, language: Language, files: &'static [Files]) -> Project {
    Project { template, language, files }
}

impl Project {
    /// Returns the project of a template in a language; `None` if there is none.
    pub fn find(template: Template, language: Language) -> Option<&'static Self> {
        PROJECTS.iter().find(|project| project.template == template && project.language == language)
    }

    /// The paths of its files and their texts.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.files.iter().copied().flatten().copied()
    }

    /// A description, such as `a detector in Rust`.
    pub fn title(&self) -> String {
        let what = match self.template {
            Template::Classify => "a classifier",
            Template::Detect => "a detector",
            Template::Transcribe => "a transcriber",
            Template::Chat => "a chat",
            Template::Firmware => "a firmware",
        };
        let language = match self.language {
            Language::Python => "Python",
            Language::Rust => "Rust",
            Language::C => "C",
            Language::Cpp => "C++",
            Language::Js => "JavaScript",
        };
        format!("{what} in {language}")
    }

    /// The commands that install the packages, build the project, and run it on a sample. With a clone in `source`, the first one
    /// builds the package for C, C++ or JavaScript.
    pub fn commands(&self, name: &str, sample: &str, source: Option<&Path>) -> Vec<String> {
        let with = if sample.is_empty() { String::new() } else { format!(" {sample}") };
        let built = |chore: &str| source.map(|source| format!("(cd {} && cargo xtask {chore})", in_shell(source)));
        match self.language {
            Language::Python => vec!["pip install -r requirements.txt".to_owned(), format!("python main.py{with}")],
            Language::Rust if self.template == Template::Firmware => {
                vec!["rustup target add thumbv7em-none-eabihf".to_owned(), "cargo run --release".to_owned()]
            }
            Language::Rust => vec![format!("cargo run --release{with}")],
            Language::C | Language::Cpp => {
                let package = source.map_or_else(|| "/path/to/rushlight".into(), |source| source.join("target/c"));
                let prefix = in_shell(&package);
                let configure = format!("cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH={prefix}");
                let build = "cmake --build build".to_owned();
                built("c-package").into_iter().chain([configure, build, format!("build/{name}{with}")]).collect()
            }
            Language::Js => {
                built("npm").into_iter().chain(["npm install".to_owned(), format!("node main.js{with}")]).collect()
            }
        }
    }

    /// The note about the origin of the packages; `None` with a clone in `source`.
    pub fn note(&self, source: Option<&Path>) -> Option<String> {
        let version = env!("CARGO_PKG_VERSION");
        match (source, self.language) {
            (Some(_), _) => None,
            (None, Language::C | Language::Cpp) => Some(format!(
                "`/path/to/rushlight` is the folder of the C package {version}; `--source FOLDER` builds it in a clone"
            )),
            (None, _) => Some(format!(
                "the project takes the published packages {version}; `--source FOLDER` takes those of a clone"
            )),
        }
    }
}

/// A path as one word of a shell command.
pub fn in_shell(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:\\".contains(letter);
    if path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

impl Language {
    /// The dependency on a package in the manifest of a project: the published version, or a folder of `source`.
    pub fn dependency(self, package: &str, source: Option<&Path>) -> String {
        let version = env!("CARGO_PKG_VERSION");
        // Manifests have forward slashes on all systems.
        let path = |below: &str| source.map(|source| source.join(below).display().to_string().replace('\\', "/"));
        match self {
            Self::Python => path("bindings/python")
                .map_or_else(|| format!("{package}=={version}"), |path| format!("{package} @ file://{path}")),
            Self::Rust => path(&format!("crates/{}", package.strip_prefix("rushlight-").unwrap_or(package)))
                .map_or_else(|| format!("version = \"{version}\""), |path| format!("path = \"{path}\"")),
            // `cargo xtask npm` of the clone builds the package there.
            Self::Js => {
                path("target/npm/rushlight").map_or_else(|| format!("^{version}"), |path| format!("file:{path}"))
            }
            // CMake finds the package.
            Self::C | Self::Cpp => version.to_owned(),
        }
    }
}
