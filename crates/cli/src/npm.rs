//! `rushlight ops --npm`: the npm package with some of its operators.
//!
//! A kernel is referenced by the function table only. Another one in its place therefore makes it dead code. Function
//! indices do not change: a dead function keeps a body of three bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use wasmparser::{ElementItems, ElementKind, ExternalKind, Operator, Parser, Payload, TypeRef};

use crate::failure::Failure;

/// Operators by name, with the table index of their kernels. The kernel that replaces others has no name.
type Places = BTreeMap<String, u32>;

/// Minimum bytes of a body that is replaced: LLVM may have merged shorter bodies of different functions.
const MIN_BODY: usize = 8;

/// A function that only traps.
const DEAD: &[u8] = &[0x00, 0x00, 0x0b];

/// Copies the package in `from` to a folder, with these operators only. Returns the modules with their sizes before and
/// after.
pub fn write(from: &Path, to: &Path, needed: &BTreeSet<&str>) -> Result<Vec<(String, usize, usize)>, Failure> {
    if !from.join("wasm/run-simd.operators.json").exists() {
        let text = format!(
            "`{}` is not the npm package `rushlight`: `npm install rushlight` puts it into node_modules, and --package says where else it is",
            from.display()
        );
        return Err(Failure::Input(text));
    }
    if to.exists() {
        return Err(Failure::Input(format!("`{}` is there already", to.display())));
    }
    if is_within(to, from)? {
        return Err(Failure::Input(format!("`{}` is in the package that is copied to it", to.display())));
    }
    copy(from, to)?;
    let mut modules = Vec::new();
    for name in names(&to.join("wasm"))? {
        let Some(name) = name.strip_suffix(".operators.json") else { continue };
        let file = |ending: &str| to.join("wasm").join(format!("{name}.{ending}"));
        let places = serde_json::from_slice(&read(&file("operators.json"))?);
        let places: Places = places.map_err(|error| Failure::Input(format!("{name}.operators.json: {error}")))?;
        let module = read(&file("wasm"))?;
        let smaller = without(&module, &places, needed)
            .map_err(|error| Failure::Input(format!("{name}.wasm is not as it was built: {error}")))?;
        save(&file("wasm"), &smaller)?;
        // The list is removed, because removed operators cannot be restored.
        fs::remove_file(file("operators.json"))
            .map_err(|error| failure("cannot remove", &file("operators.json"), error))?;
        modules.push((format!("{name}.wasm"), module.len(), smaller.len()));
    }
    Ok(modules)
}

/// Functions of a module with their references.
#[derive(Default)]
struct Functions {
    imported: u32,
    /// The body of each function that is not imported.
    bodies: Vec<Range<usize>>,
    /// The functions that each body refers to.
    named: Vec<Vec<u32>>,
    /// The functions that are used with any contents of the table.
    roots: Vec<u32>,
    /// Functions of the table, and the place of their index in the module.
    table: BTreeMap<u32, (u32, Range<usize>)>,
    /// The code section, with its header.
    code: Range<usize>,
}

/// The module without the kernels of operators that are not needed.
fn without(module: &[u8], places: &Places, needed: &BTreeSet<&str>) -> Result<Vec<u8>, String> {
    let mut functions = read_functions(module).map_err(|error| error.to_string())?;
    let place = places.get("").and_then(|at| functions.table.get(at));
    let stand_in = place.ok_or("it has no kernel for what is left out")?.0;
    let kept: BTreeSet<u32> = places
        .iter()
        .filter(|(name, _)| name.is_empty() || needed.contains(name.as_str()))
        .map(|(_, at)| *at)
        .collect();
    let mut changed = module.to_vec();
    for at in places.values().filter(|at| !kept.contains(at)) {
        let (function, index) = functions.table.get_mut(at).ok_or("an operator is not in its table")?;
        let body = function.checked_sub(functions.imported).and_then(|own| functions.bodies.get(own as usize));
        let is_small = body.is_none_or(|body| body.len() < MIN_BODY);
        if is_small || !write_index(stand_in, changed.get_mut(index.clone()).unwrap_or_default()) {
            continue;
        }
        *function = stand_in;
    }
    let used = used(&functions);
    let mut code = Vec::new();
    write_leb(functions.bodies.len(), &mut code);
    for (own, body) in functions.bodies.iter().enumerate() {
        let body = if used.contains(&(functions.imported + own as u32)) { &changed[body.clone()] } else { DEAD };
        write_leb(body.len(), &mut code);
        code.extend_from_slice(body);
    }
    let mut smaller = changed[..functions.code.start].to_vec();
    smaller.push(10);
    write_leb(code.len(), &mut smaller);
    smaller.extend(code);
    smaller.extend_from_slice(&changed[functions.code.end..]);
    Ok(smaller)
}

fn read_functions(module: &[u8]) -> wasmparser::Result<Functions> {
    let mut found = Functions::default();
    let mut section_end = 8;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        match &payload {
            Payload::ImportSection(imports) => {
                for import in imports.clone() {
                    found.imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports.clone() {
                    let export = export?;
                    if export.kind == ExternalKind::Func {
                        found.roots.push(export.index);
                    }
                }
            }
            Payload::StartSection { func, .. } => found.roots.push(*func),
            Payload::GlobalSection(globals) => {
                for global in globals.clone() {
                    names_of(global?.init_expr.get_operators_reader(), &mut found.roots)?;
                }
            }
            Payload::ElementSection(elements) => {
                for element in elements.clone() {
                    read_element(element?, &mut found)?;
                }
            }
            Payload::CodeSectionStart { range, .. } => found.code = section_end..range.end,
            Payload::CodeSectionEntry(body) => {
                found.bodies.push(body.range());
                let mut named = Vec::new();
                names_of(body.get_operators_reader()?, &mut named)?;
                found.named.push(named);
            }
            _ => {}
        }
        if let Some((_, range)) = payload.as_section() {
            section_end = range.end;
        }
    }
    Ok(found)
}

/// Adds the functions that code calls or takes the address of.
fn names_of(operators: wasmparser::OperatorsReader<'_>, named: &mut Vec<u32>) -> wasmparser::Result<()> {
    for operator in operators {
        match operator? {
            Operator::Call { function_index }
            | Operator::ReturnCall { function_index }
            | Operator::RefFunc { function_index } => named.push(function_index),
            _ => {}
        }
    }
    Ok(())
}

fn read_element(element: wasmparser::Element<'_>, found: &mut Functions) -> wasmparser::Result<()> {
    let start = match &element.kind {
        ElementKind::Active { offset_expr, table_index: None | Some(0) } => {
            match offset_expr.get_operators_reader().read()? {
                Operator::I32Const { value } => u32::try_from(value).ok(),
                _ => None,
            }
        }
        _ => None,
    };
    match element.items {
        ElementItems::Functions(functions) => {
            let mut end = element.range.end;
            let all: Vec<(usize, u32)> = functions.into_iter_with_offsets().collect::<Result<_, _>>()?;
            for (at, (offset, function)) in all.iter().enumerate().rev() {
                match start {
                    Some(start) => {
                        found.table.insert(start + at as u32, (*function, *offset..end));
                    }
                    None => found.roots.push(*function),
                }
                end = *offset;
            }
        }
        ElementItems::Expressions(_, expressions) => {
            for expression in expressions {
                names_of(expression?.get_operators_reader(), &mut found.roots)?;
            }
        }
    }
    Ok(())
}

/// The functions that are reachable from outside and through the table.
fn used(functions: &Functions) -> BTreeSet<u32> {
    let table = functions.table.values().map(|(function, _)| *function);
    let mut waiting: Vec<u32> = functions.roots.iter().copied().chain(table).collect();
    let mut used = BTreeSet::new();
    while let Some(function) = waiting.pop() {
        if used.insert(function)
            && let Some(named) =
                function.checked_sub(functions.imported).and_then(|own| functions.named.get(own as usize))
        {
            waiting.extend(named);
        }
    }
    used
}

/// Overwrites an index with the same number of bytes; false if the new one needs more.
fn write_index(mut index: u32, to: &mut [u8]) -> bool {
    if to.is_empty() || (to.len() < 5 && index >> (7 * to.len()) != 0) {
        return false;
    }
    let last = to.len() - 1;
    for (at, byte) in to.iter_mut().enumerate() {
        *byte = (index & 0x7f) as u8 | if at < last { 0x80 } else { 0 };
        index >>= 7;
    }
    true
}

fn write_leb(mut value: usize, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// True if a folder, which may not exist yet, is inside another one. Symbolic links are followed.
fn is_within(to: &Path, from: &Path) -> Result<bool, Failure> {
    let whole = |path: &Path| fs::canonicalize(path).map_err(|error| failure("cannot read", path, error));
    let to = std::path::absolute(to).map_err(|error| failure("cannot create", to, error))?;
    let existing = to.ancestors().find(|folder| folder.exists()).unwrap_or(&to);
    Ok(whole(existing)?.starts_with(whole(from)?))
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to).map_err(|error| failure("cannot create", to, error))?;
    for name in names(from)? {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to).map_err(|error| failure("cannot copy", &from, error))?;
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| failure("cannot read", folder, error))?;
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names: Result<Vec<String>, _> = entries.map(name).collect();
    names.map_err(|error| failure("cannot read", folder, error))
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| failure("cannot read", file, error))
}

fn save(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(file, bytes).map_err(|error| failure("cannot write", file, error))
}

fn failure(what: &str, file: &Path, error: std::io::Error) -> Failure {
    Failure::File { what: format!("{what} `{}`", file.display()), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        let mut section = vec![id];
        write_leb(content.len(), &mut section);
        section.extend_from_slice(content);
        section
    }

    /// Four functions without arguments: 0 and 1 are operators, 1 calls 2, and 3 replaces removed kernels. The table
    /// has 0, 1 and 3 from index 1 on.
    fn module() -> Vec<u8> {
        let long = |end: &[u8]| [&[0x00][..], &[0x01; 80], end, &[0x0b]].concat();
        let bodies = [long(&[]), long(&[0x10, 0x02]), long(&[]), long(&[])];
        let mut code = vec![bodies.len() as u8];
        for body in bodies {
            write_leb(body.len(), &mut code);
            code.extend(body);
        }
        [
            b"\0asm\x01\0\0\0".to_vec(),
            section(1, &[1, 0x60, 0, 0]),
            section(3, &[4, 0, 0, 0, 0]),
            section(4, &[1, 0x70, 0, 4]),
            section(9, &[1, 0, 0x41, 1, 0x0b, 3, 0, 1, 3]),
            section(10, &code),
        ]
        .concat()
    }

    #[test]
    fn functions_of_operators_that_are_left_out_are_dead() {
        let places = [("", 3), ("aten::a", 1), ("aten::b", 2)].map(|(name, at)| (name.to_owned(), at));
        let whole = without(&module(), &places.clone().into(), &["aten::a", "aten::b"].into()).expect("a module");
        assert_eq!(whole, module());
        let smaller = without(&module(), &places.into(), &["aten::a"].into()).expect("a module");
        let functions = read_functions(&smaller).expect("a module");
        let table: Vec<u32> = functions.table.values().map(|(function, _)| *function).collect();
        assert_eq!(table, [0, 3, 3]);
        let lengths: Vec<usize> = functions.bodies.iter().map(Range::len).collect();
        assert_eq!(lengths, [82, 3, 3, 82]);
    }

    #[test]
    fn other_modules_are_refused() {
        let places: Places = [(String::new(), 3), ("aten::a".to_owned(), 9)].into();
        assert!(without(&module(), &places, &BTreeSet::new()).expect_err("no such index").contains("table"));
        assert!(without(&module()[..40], &places, &BTreeSet::new()).is_err());
        assert!(without(&module(), &Places::new(), &BTreeSet::new()).is_err());
    }

    #[test]
    fn a_package_is_not_copied_into_itself() {
        let folder = std::env::temp_dir().join(format!("rushlight-npm-{}", std::process::id()));
        fs::create_dir_all(folder.join("wasm")).expect("a folder");
        fs::write(folder.join("wasm/run-simd.operators.json"), "{}").expect("a file");
        let refused = write(&folder, &folder.join("a/b"), &BTreeSet::new()).expect_err("it is in the package");
        assert!(matches!(refused, Failure::Input(text) if text.contains("in the package")));
        assert!(!folder.join("a").exists());
        assert!(matches!(is_within(&folder.with_extension("smaller"), &folder), Ok(false)));
        fs::remove_dir_all(folder).expect("a folder");
    }

    #[test]
    fn an_index_keeps_its_length() {
        let mut index = [0x85, 0x01];
        assert!(write_index(3, &mut index));
        assert_eq!(index, [0x83, 0x00]);
        assert!(!write_index(200, &mut [0]));
    }
}
