//! Writes a constant for each operator of `src/schemas.txt`, by which code names it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// The full name and the documentation of each constant.
type Constants<'a> = BTreeMap<String, (&'a str, String)>;

/// The constants of a namespace: operators, and packets without a default overload.
#[derive(Default)]
struct Namespace<'a> {
    operators: Constants<'a>,
    packets: Constants<'a>,
}

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/schemas.txt");
    let table = fs::read_to_string("src/schemas.txt")?;
    let mut namespaces: BTreeMap<&str, Namespace<'_>> = BTreeMap::new();
    for line in table.lines() {
        let mut fields = line.split('\t');
        let schema = fields.next().unwrap_or_default();
        let name = schema.split('(').next().unwrap_or_default();
        let (namespace, constant) = constant(name)?;
        let operators = &mut namespaces.entry(namespace).or_default().operators;
        operators.insert(constant, (name, format!("`{schema}`")));
        if let Some(out) = fields.next().filter(|out| *out != "-") {
            let (namespace, constant) = self::constant(out)?;
            let operators = &mut namespaces.entry(namespace).or_default().operators;
            operators.entry(constant).or_insert((out, format!("The out variant of `{name}`.")));
        }
    }
    for line in table.lines() {
        let name = line.split('(').next().unwrap_or_default();
        let Some((packet, _)) = name.split_once('.') else { continue };
        let (namespace, constant) = constant(packet)?;
        let known = namespaces.entry(namespace).or_default();
        if !known.operators.contains_key(&constant) {
            known.packets.insert(constant, (packet, format!("The overloads of `{packet}`.")));
        }
    }
    let mut text = String::new();
    for (namespace, Namespace { operators, packets }) in &namespaces {
        let _ = writeln!(text, "/// Operators of the namespace `{namespace}`.\npub mod {namespace} {{");
        write_constants(&mut text, operators);
        if !packets.is_empty() {
            text.push_str("/// Names without an overload, of operators that have no default one.\npub mod packet {\n");
            write_constants(&mut text, packets);
            text.push_str("}\n");
        }
        text.push_str("}\n");
    }
    let folder = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo names no OUT_DIR"))?;
    fs::write(Path::new(&folder).join("operators.rs"), text)
}

/// Returns the namespace of `aten::add.Tensor` and the name of its constant, `ADD_TENSOR`.
fn constant(operator: &str) -> io::Result<(&str, String)> {
    let parts = operator.split_once("::").ok_or_else(|| io::Error::other(format!("`{operator}` has no namespace")))?;
    Ok((parts.0, parts.1.replace('.', "_").to_uppercase()))
}

fn write_constants(text: &mut String, constants: &Constants<'_>) {
    for (constant, (operator, doc)) in constants {
        let _ = writeln!(text, "#[doc = {doc:?}]\npub const {constant}: &str = {operator:?};");
    }
}
