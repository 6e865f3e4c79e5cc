//! `rushlight new`.

mod model;
mod projects;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::output;
use model::Chosen;
use projects::{Language, Project, Template};

/// Writes a small project that loads a model and runs it.
///
/// `classify`, `detect` and `transcribe` have a small model of their own. `--model` chooses another.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rushlight new digits --template classify --lang python
  rushlight new photos --template classify --lang rust --model mobilenet.pte --labels classes.txt
  rushlight new talk --template chat --lang js --model llama.pte
  rushlight new sensor --template firmware --lang rust --model model.pte")]
pub struct New {
    /// The folder to write; its name is the name of the project
    folder: PathBuf,

    /// The purpose of the project
    #[arg(long, short, value_enum)]
    template: Template,

    /// The language of the project
    #[arg(long, short, value_enum)]
    lang: Language,

    /// A .pte file to run instead of the template's own
    #[arg(long, value_name = "FILE.pte")]
    model: Option<PathBuf>,

    /// The names of the model's classes or tokens, one a line
    #[arg(long, value_name = "FILE", requires = "model")]
    labels: Option<PathBuf>,

    /// A clone of Rushlight, from which the project takes its packages instead of the published ones
    #[arg(long, value_name = "FOLDER", env = "RUSHLIGHT_SOURCE")]
    source: Option<PathBuf>,
}

impl New {
    pub fn run(self) -> Result<(), Failure> {
        let project = Project::find(self.template, self.lang).ok_or_else(|| self.no_such_project())?;
        let name = self.name()?;
        let source = self.source.as_deref().map(clone).transpose()?;
        let chosen = Chosen::of(self.template, self.model.as_deref(), self.labels.as_deref())?;
        let commands = project.commands(&name, &chosen.sample, source.as_deref());
        let listed = |prefix: &str| -> String {
            commands.iter().map(|line| format!("{prefix}{line}")).collect::<Vec<_>>().join("\n")
        };
        let values = [
            ("name", name),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("rushlight", self.lang.dependency("rushlight", source.as_deref())),
            ("rushlight-llm", self.lang.dependency("rushlight-llm", source.as_deref())),
            ("rate", chosen.rate.to_string()),
            ("method", chosen.method.clone()),
            ("commands", listed("$ ")),
        ];

        self.create()?;
        let mut count = 0;
        for (path, text) in project.files() {
            self.write(path, filled(text, &values).as_bytes())?;
            count += 1;
        }
        for (path, bytes) in &chosen.files {
            self.write(path, bytes)?;
            count += 1;
        }
        let folder = self.folder.display().to_string();
        output::print(&format!("{folder}  {}: {count} files\n", project.title()));
        output::print(&format!("  cd {}\n{}", projects::in_shell(&self.folder), listed("  ")));
        if let Some(note) = project.note(source.as_deref()) {
            output::note(&note);
        }
        Ok(())
    }

    /// The project's name, which is also a package's.
    fn name(&self) -> Result<String, Failure> {
        let name = self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut letters = name.chars();
        let is_name = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_".contains(letter));
        if is_name && !projects::RESERVED.contains(&name) {
            return Ok(name.to_owned());
        }
        Err(Failure::Arguments(format!(
            "`{name}` cannot be the name of a package\n  help      choose a folder whose name has lower-case letters, digits, `-` and `_`, and \
             begins with a letter, such as `my-model`"
        )))
    }

    fn no_such_project(&self) -> Failure {
        let mut text = format!(
            "there is no template `{}` in the language `{}`\n  expected  one of these:",
            self.template.to_possible_value().unwrap_or_default().get_name(),
            self.lang.to_possible_value().unwrap_or_default().get_name()
        );
        for template in Template::value_variants() {
            let languages: Vec<String> = Language::value_variants()
                .iter()
                .filter(|language| Project::find(*template, **language).is_some())
                .filter_map(|language| Some(language.to_possible_value()?.get_name().to_owned()))
                .collect();
            let name = template.to_possible_value().unwrap_or_default();
            // Writing to a text cannot fail.
            let _ = write!(text, "\n            --template {:<10} --lang {}", name.get_name(), languages.join("|"));
        }
        Failure::Arguments(text)
    }

    /// Makes the folder, which must be new or empty.
    fn create(&self) -> Result<(), Failure> {
        fs::create_dir_all(&self.folder).map_err(|error| Failure::make(&self.folder, error))?;
        let mut entries = fs::read_dir(&self.folder).map_err(|error| Failure::read(&self.folder, error))?;
        match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::Arguments(format!(
                "the folder `{}` is not empty\n  help      choose a new folder: nothing is overwritten",
                self.folder.display()
            ))),
        }
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.folder.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| Failure::make(folder, error))?;
        }
        Ok(rushlight::write_file(&path, bytes)?)
    }
}

/// The absolute path of a clone of Rushlight.
fn clone(folder: &Path) -> Result<PathBuf, Failure> {
    let path = fs::canonicalize(folder).map_err(|error| Failure::read(folder, error))?;
    if path.join("crates/rushlight/Cargo.toml").is_file() {
        return Ok(path);
    }
    Err(Failure::Arguments(format!(
        "`{}` is not a clone of Rushlight\n  expected  a folder with `crates/rushlight/Cargo.toml`\n  \
         help      name the clone's top folder",
        folder.display()
    )))
}

/// The text with each `{{name}}` replaced by its value.
fn filled(text: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
}
