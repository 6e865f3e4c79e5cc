//! The software bill of materials (SBOM) of a program or library, and the licences of its dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::command::{command, output};

/// A crate that is linked.
#[derive(Debug)]
struct Component {
    name: String,
    version: String,
    licence: String,
    folder: PathBuf,
}

impl Component {
    /// The package URL, which tools look up advisories by.
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// The crates that a program or library links on a target, and which need which.
#[derive(Debug)]
pub struct Bill {
    /// By their URLs.
    components: BTreeMap<String, Component>,
    needs: BTreeMap<String, BTreeSet<String>>,
    /// The URL of the package itself.
    root: String,
}

impl Bill {
    /// Asks cargo about a package of the sources in a folder.
    pub fn of(package: &str, source: &Path, triple: &str) -> Result<Self> {
        let mut tree = command("cargo", &["tree", "--locked", "--package", package, "--target", triple]);
        // Macros that compute at build time are no part of it.
        tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
        let tree = output(tree.current_dir(source))?;
        let linked: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
        let mut metadata = command("cargo", &["metadata", "--locked", "--format-version", "1"]);
        let metadata = output(metadata.args(["--filter-platform", triple]).current_dir(source))?;
        let metadata: Value = serde_json::from_str(&metadata)?;
        let mut bill = Self { components: BTreeMap::new(), needs: BTreeMap::new(), root: String::new() };
        let mut urls = BTreeMap::new();
        for described in metadata["packages"].as_array().context("cargo's metadata has no packages")? {
            let text = |key: &str| described[key].as_str().unwrap_or_default();
            if !linked.contains(&(text("name"), text("version"))) {
                continue;
            }
            let component = Component {
                name: text("name").into(),
                version: text("version").into(),
                licence: text("license").into(),
                folder: Path::new(text("manifest_path")).parent().unwrap_or(source).into(),
            };
            let url = component.url();
            if component.name == package {
                bill.root.clone_from(&url);
            }
            urls.insert(text("id").to_owned(), url.clone());
            bill.components.insert(url, component);
        }
        for node in metadata["resolve"]["nodes"].as_array().context("cargo's metadata has no dependencies")? {
            let url = |id: &Value| id.as_str().and_then(|id| urls.get(id)).cloned();
            if let Some(from) = url(&node["id"]) {
                let needs = node["dependencies"].as_array().into_iter().flatten().filter_map(url);
                bill.needs.insert(from, needs.collect());
            }
        }
        Ok(bill)
    }

    /// The bill as CycloneDX 1.5. Without a time and a serial number, so that it is the same for the same sources.
    pub fn cyclonedx(&self) -> Result<String> {
        let describe = |(url, component): (&String, &Component)| {
            let kind = if *url == self.root { "application" } else { "library" };
            // Older manifests put a slash where SPDX has `OR`.
            let licence = component.licence.replace('/', " OR ").replace("  ", " ");
            json!({
                "type": kind, "bom-ref": url, "name": component.name, "version": component.version, "purl": url,
                "licenses": [{ "expression": licence }],
            })
        };
        let root = self.components.get_key_value(&self.root).context("cargo does not list the package")?;
        let others = self.components.iter().filter(|(url, _)| **url != self.root);
        let needs = self.needs.iter().map(|(url, needs)| json!({ "ref": url, "dependsOn": needs }));
        let bill = json!({
            "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": { "component": describe(root) },
            "components": others.map(describe).collect::<Vec<_>>(),
            "dependencies": needs.collect::<Vec<_>>(),
        });
        Ok(serde_json::to_string_pretty(&bill)? + "\n")
    }

    /// The licences of the crates that are not the project's own, in the words that these came with.
    pub fn licences(&self, source: &Path) -> Result<String> {
        let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut page = String::from("Crates that are part of this file, and their licences.\n\n");
        for component in self.components.values().filter(|component| !component.folder.starts_with(source)) {
            writeln!(page, "{} {}: {}", component.name, component.version, component.licence)?;
            for text in licence_texts(&component.folder)? {
                holders.entry(text).or_default().push(component.name.clone());
            }
        }
        for (text, names) in holders {
            writeln!(page, "\n---- {}\n\n{}", names.join(", "), text.trim_end())?;
        }
        Ok(page)
    }
}

/// Name and version of a line such as `half v2.6.0 (path)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.split_once(" v")?;
    Some((name, rest.split(' ').next()?))
}

/// The texts of files that are named as licences are, in the order of their names.
fn licence_texts(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_licence =
            ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|word| name.starts_with(word));
        if is_licence && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    files.iter().map(|file| Ok(String::from_utf8_lossy(&std::fs::read(file)?).replace("\r\n", "\n"))).collect()
}
