//! Constants outside of the program: `.ptd` files, whose tensors programs find by name.

use std::collections::HashMap;

use indexmap::IndexMap;
use rushlight_format::Blob;
use rushlight_format::ptd::{FlatTensorModel, LayoutModel, NamedTensorModel};
use rushlight_format::pte::TensorModel;

use crate::pattern::{matches, near};
use rushlight_graph::{Constant, Model};
use rushlight_graph::{Error, ErrorKind};

use super::deduplicate::Pool;

/// The rules by which constants go to `.ptd` files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalWeights {
    /// Patterns of names of constants, each with the file that they go to. The first match counts; what matches none
    /// stays in the program. `*` in a pattern matches any text. A file without a name is called as the program.
    pub rules: Vec<(String, Option<String>)>,
    /// Maximum bytes of tensors in one file: a file that would hold more becomes several. A tensor is never divided, so
    /// that a larger one has a file of its own.
    pub max_bytes: Option<u64>,
}

/// The content of a `.ptd` file.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalData {
    /// The file name of the rule; `None` for that of the program.
    pub file: Option<String>,
    /// The number of this part, counted from 1, and the number of parts.
    pub part: (usize, usize),
    pub data: FlatTensorModel<'static>,
}

/// Constants being gathered.
pub(super) struct External {
    options: ExternalWeights,
    data: Pool,
    files: IndexMap<Option<String>, Vec<ExternalTensor>>,
    /// The file and entry of each key.
    keys: HashMap<String, (usize, usize)>,
}

struct ExternalTensor {
    key: String,
    layout: LayoutModel,
    /// Index in the pool.
    data: u32,
}

impl ExternalWeights {
    /// All constants in one file, which is called as the program.
    pub fn all() -> Self {
        Self { rules: vec![("*".to_owned(), None)], max_bytes: None }
    }

    /// Checks that each pattern fits the name of a constant of the model, wherever that constant ends up.
    ///
    /// # Errors
    /// `Output` for a pattern that fits none, with the names that are nearest to it.
    pub(super) fn check_names(&self, model: &Model) -> Result<(), Error> {
        let names = || model.constants.iter().map(|(_, constant)| constant.name.as_str());
        // A model may have no weights at all.
        let patterns = self.rules.iter().map(|(pattern, _)| pattern).filter(|pattern| *pattern != "*");
        match patterns.into_iter().find(|pattern| !names().any(|name| matches(pattern, name))) {
            None => Ok(()),
            Some(pattern) => {
                let near = near(pattern, names().filter(|name| !name.is_empty()));
                let expected = if near.is_empty() {
                    "no rule: there are no weights".to_owned()
                } else {
                    format!("a name such as {}", near.join(", "))
                };
                let error =
                    Error::new(ErrorKind::Output, format!("no weight is called `{pattern}`, which is to be external"));
                Err(error.expected(expected).got(format!("`{pattern}`")).help(
                    "names are those of parameters and buffers, as `state_dict()` has them; `*` stands for any text",
                ))
            }
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self.rules.iter().filter_map(|(_, file)| file.as_deref()).find(|file| !is_file_name(file)) {
            None => Ok(()),
            Some(file) => Err(Error::new(
                ErrorKind::Output,
                format!("`{}` cannot be the name of a .ptd file", file.escape_debug()),
            )
            .expected("a name without a folder: the file is written beside the program")),
        }
    }
}

/// True for a file name without a folder, valid on every system.
fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(|c: char| matches!(c, '/' | '\\' | ':') || c.is_control())
}

impl ExternalData {
    /// The name of the file beside a program whose name without its ending is `program`: `model.ptd`, or
    /// `model-00001-of-00003.ptd` where it is one of several.
    pub fn file_name(&self, program: &str) -> String {
        let (stem, ending) = match &self.file {
            None => (program, "ptd"),
            Some(file) => file.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).unwrap_or((file, "ptd")),
        };
        match self.part {
            (_, 0 | 1) => format!("{stem}.{ending}"),
            (part, parts) => format!("{stem}-{part:05}-of-{parts:05}.{ending}"),
        }
    }
}

impl External {
    pub fn new(options: &ExternalWeights) -> Result<Self, Error> {
        options.check()?;
        Ok(Self { options: options.clone(), data: Pool::default(), files: IndexMap::new(), keys: HashMap::new() })
    }

    /// Adds a constant to the file of its rule, and returns the key by which the program finds it. `tensor` is how the
    /// program declares it.
    pub fn insert(&mut self, constant: &Constant, tensor: &TensorModel) -> Result<Option<String>, Error> {
        let mut rules = self.options.rules.iter();
        let Some((_, file)) = rules.find(|(pattern, _)| matches(pattern, &constant.name)) else { return Ok(None) };
        if constant.is_empty() {
            return Ok(None);
        }
        let data = self.data.insert(constant)?;
        let layout = LayoutModel {
            scalar_type: tensor.scalar_type,
            sizes: tensor.sizes.clone(),
            dim_order: tensor.dim_order.clone(),
        };
        let mut key = constant.name.clone();
        let mut number = 0;
        // Passes make constants of constants, which keep the name: a transposed weight beside the weight itself.
        while let Some((file, entry)) = self.keys.get(&key) {
            let known = self.files.get_index(*file).and_then(|(_, entries)| entries.get(*entry));
            if known.is_some_and(|known| known.data == data && known.layout == layout) {
                return Ok(Some(key));
            }
            number += 1;
            key = format!("{}~{number}", constant.name);
        }
        let slot = self.files.entry(file.clone());
        let index = slot.index();
        let entries = slot.or_default();
        self.keys.insert(key.clone(), (index, entries.len()));
        entries.push(ExternalTensor { key: key.clone(), layout, data });
        Ok(Some(key))
    }

    pub fn into_data(self) -> Vec<ExternalData> {
        let limit = self.options.max_bytes.unwrap_or(u64::MAX);
        let data = self.data.into_data();
        let mut all = Vec::new();
        for (file, entries) in self.files {
            let mut parts: Vec<FlatTensorModel<'static>> = Vec::new();
            let mut room = 0;
            for ExternalTensor { key, layout, data: index } in entries {
                let data = data.get(index as usize).cloned().unwrap_or_else(|| Blob::from([].as_slice()));
                if parts.is_empty() || data.size() > room {
                    parts.push(FlatTensorModel::default());
                    room = limit;
                }
                room = room.saturating_sub(data.size());
                if let Some(part) = parts.last_mut() {
                    part.entries.push(NamedTensorModel { key, layout: Some(layout), data });
                }
            }
            let count = parts.len();
            let part = |(index, data)| ExternalData { file: file.clone(), part: (index + 1, count), data };
            all.extend(parts.into_iter().enumerate().map(part));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;

    use super::*;
    use rushlight_graph::TensorType;

    fn constant(name: &str, bytes: &[u8]) -> Constant {
        Constant::dense(name, TensorType::of(ScalarType::Byte, &[bytes.len() as i64]), bytes.to_vec()).unwrap()
    }

    fn insert(external: &mut External, constant: &Constant) -> Option<String> {
        let tensor = TensorModel::new(ScalarType::Byte, &[constant.len().unwrap() as i32]);
        external.insert(constant, &tensor).unwrap()
    }

    #[test]
    fn rules_choose_the_file_and_names_stay_unique() {
        let rules = vec![("body.*".into(), Some("body.ptd".into())), ("*.weight".into(), None)];
        let options = ExternalWeights { rules, max_bytes: None };
        let mut external = External::new(&options).unwrap();
        assert_eq!(insert(&mut external, &constant("body.bias", &[1])).as_deref(), Some("body.bias"));
        assert_eq!(insert(&mut external, &constant("head.weight", &[1, 2])).as_deref(), Some("head.weight"));
        assert_eq!(insert(&mut external, &constant("head.weight", &[2, 1])).as_deref(), Some("head.weight~1"));
        assert_eq!(insert(&mut external, &constant("head.weight", &[2, 1])).as_deref(), Some("head.weight~1"));
        assert_eq!(insert(&mut external, &constant("head.bias", &[3])), None);
        assert_eq!(insert(&mut external, &constant("head.weight", &[])), None);
        let files = external.into_data();
        let names: Vec<_> = files.iter().map(|file| (file.file_name("model"), file.data.entries.len())).collect();
        assert_eq!(names, [("body.ptd".to_owned(), 1), ("model.ptd".to_owned(), 2)]);
    }

    #[test]
    fn a_file_over_the_limit_becomes_several() {
        let options = ExternalWeights { max_bytes: Some(4), ..ExternalWeights::all() };
        let mut external = External::new(&options).unwrap();
        for (name, bytes) in [("a", [0; 3].as_slice()), ("b", &[1]), ("c", &[2]), ("d", &[3; 9]), ("e", &[4])] {
            insert(&mut external, &constant(name, bytes));
        }
        let files = external.into_data();
        let keys = |file: &ExternalData| file.data.entries.iter().map(|entry| entry.key.clone()).collect::<String>();
        assert_eq!(files.iter().map(keys).collect::<Vec<_>>(), ["ab", "c", "d", "e"]);
        assert_eq!(files[1].file_name("model"), "model-00002-of-00004.ptd");
    }

    #[test]
    fn files_lie_beside_the_program() {
        for name in ["", "..", "a/b.ptd", "..\\b", "C:x", "a\n"] {
            let options = ExternalWeights { rules: vec![("*".into(), Some(name.into()))], max_bytes: None };
            assert!(External::new(&options).is_err(), "{name:?}");
        }
        let data =
            |file: &str| ExternalData { file: Some(file.into()), part: (1, 1), data: FlatTensorModel::default() };
        assert_eq!(data("weights").file_name("model"), "weights.ptd");
        assert_eq!(data("weights.data").file_name("model"), "weights.data");
        assert_eq!(data(".hidden").file_name("model"), ".hidden.ptd");
    }
}
