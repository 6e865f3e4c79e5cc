//! Folders of models as Hugging Face publishes them.

use std::collections::BTreeSet;

use rushlight_graph::{Bytes, Error};

use crate::config::{self, Config};
use crate::tensors::damaged;

/// The files of a model as Hugging Face publishes it.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// `config.json`.
    pub config: Vec<u8>,
    /// `generation_config.json`, if there is one.
    pub generation_config: Option<Vec<u8>>,
    /// The `.safetensors` files, by name.
    pub weights: Vec<(String, Bytes)>,
}

/// The files that an index, `model.safetensors.index.json`, lists.
///
/// # Errors
/// `Input` for an index that is damaged, and for names that lead out of the folder.
pub fn indexed_files(index: &[u8]) -> Result<BTreeSet<String>, Error> {
    let file = config::parse("model.safetensors.index.json", index)?;
    let Some(map) = Config(&file).object("weight_map")? else {
        return Err(damaged("`model.safetensors.index.json` has no `weight_map`"));
    };
    let mut files = BTreeSet::new();
    for name in map.0.values() {
        match name.as_str().filter(|name| !name.contains(['/', '\\', '\0']) && name.ends_with(".safetensors")) {
            Some(name) => files.insert(name.to_owned()),
            None => {
                return Err(damaged("the index lists a file that it cannot have")
                    .expected("names of .safetensors files in the same folder")
                    .got(name.to_string()));
            }
        };
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn indexes_name_files_of_the_folder_alone() {
        let index = |name: &str| serde_json::to_vec(&json!({"weight_map": {"a": name}})).unwrap();
        assert_eq!(
            indexed_files(&index("m-1.safetensors")).unwrap().into_iter().collect::<Vec<_>>(),
            ["m-1.safetensors"]
        );
        for name in ["../m.safetensors", "/m.safetensors", "a\\m.safetensors", "m.bin"] {
            assert!(indexed_files(&index(name)).is_err(), "{name}");
        }
        assert!(indexed_files(b"{}").is_err());
        assert!(indexed_files(b"[").is_err());
    }
}
