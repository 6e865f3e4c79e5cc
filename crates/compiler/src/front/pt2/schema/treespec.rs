//! The nested structure of inputs and outputs, as `torch.utils._pytree` writes it.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::error::{Error, ErrorKind};
use super::NamedTupleDef;
use super::text::Text;

/// A tree whose leaves are tensors and literals; nothing (`None`) is a leaf as well.
#[derive(Clone, Debug, PartialEq)]
pub enum TreeSpec {
    Leaf,
    Tuple(Vec<Self>),
    List(Vec<Self>),
    /// A dictionary, ordered or not, in the order in which its leaves stand.
    Dict(Vec<(TreeKey, Self)>),
    /// Fields may have no names if the program does not tell them.
    NamedTuple {
        name: String,
        fields: Vec<String>,
        children: Vec<Self>,
    },
    /// A class that another library has registered, by the name of its type. `context` is JSON.
    Other {
        kind: String,
        context: String,
        children: Vec<Self>,
    },
}

/// A key of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Key")]
pub enum TreeKey {
    String(String),
    Int(i64),
    /// Another key, as JSON.
    Other(String),
}

impl TreeSpec {
    /// Reads `[1, tree]`.
    pub(super) fn parse(text: &str, named_tuples: &IndexMap<Text<'_>, NamedTupleDef<'_>>) -> Result<Self, Error> {
        let (version, tree) =
            serde_json::from_str::<(i64, SerializedNode<'_>)>(text).map_err(|error| fault(&error.to_string()))?;
        if version != 1 {
            return Err(fault(&format!("version {version} of its notation is not known, only 1 is")));
        }
        tree.into_spec(named_tuples)
    }

    pub fn children(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        match self {
            Self::Leaf => Box::new(std::iter::empty()),
            Self::Tuple(children)
            | Self::List(children)
            | Self::NamedTuple { children, .. }
            | Self::Other { children, .. } => Box::new(children.iter()),
            Self::Dict(entries) => Box::new(entries.iter().map(|(_, child)| child)),
        }
    }

    pub fn num_leaves(&self) -> usize {
        if *self == Self::Leaf { 1 } else { self.children().map(Self::num_leaves).sum() }
    }
}

/// A tree as it is written. The parser bounds its depth.
#[derive(Deserialize)]
struct SerializedNode<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Text<'a>>,
    /// JSON in a string, or nothing.
    #[serde(default)]
    context: Option<Text<'a>>,
    #[serde(default)]
    children_spec: Vec<Self>,
}

impl SerializedNode<'_> {
    fn into_spec(self, named_tuples: &IndexMap<Text<'_>, NamedTupleDef<'_>>) -> Result<TreeSpec, Error> {
        let context = self.context.as_deref().unwrap_or("null").to_owned();
        let children = self.children_spec.into_iter().map(|child| child.into_spec(named_tuples));
        let children = children.collect::<Result<Vec<_>, _>>()?;
        Ok(match self.kind.as_deref() {
            None => TreeSpec::Leaf,
            Some("builtins.tuple") => TreeSpec::Tuple(children),
            Some("builtins.list") => TreeSpec::List(children),
            Some("builtins.dict" | "collections.OrderedDict") => {
                let keys = serde_json::from_str::<Vec<TreeKey>>(&context).map_err(|error| fault(&error.to_string()))?;
                count("keys", keys.len(), children.len())?;
                TreeSpec::Dict(keys.into_iter().zip(children).collect())
            }
            Some("collections.namedtuple") => {
                // As JSON, or as it is.
                let name = serde_json::from_str::<String>(&context).unwrap_or(context);
                let fields = named_tuples.get(name.as_str()).map(|def| &*def.field_names).unwrap_or_default();
                if !fields.is_empty() {
                    count("fields", fields.len(), children.len())?;
                }
                let fields = fields.iter().map(ToString::to_string).collect();
                TreeSpec::NamedTuple { name, fields, children }
            }
            Some(kind) => TreeSpec::Other { kind: kind.to_owned(), context, children },
        })
    }
}

/// A key as it is written.
#[derive(Deserialize)]
struct Key(Box<RawValue>);

impl From<Key> for TreeKey {
    fn from(Key(raw): Key) -> Self {
        let text = raw.get();
        let other = |_| Self::Other(text.to_owned());
        serde_json::from_str(text)
            .map(Self::String)
            .or_else(|_| serde_json::from_str(text).map(Self::Int))
            .unwrap_or_else(other)
    }
}

fn fault(message: &str) -> Error {
    Error::new("", ErrorKind::TreeSpec { message: message.to_owned() })
}

fn count(what: &str, names: usize, children: usize) -> Result<(), Error> {
    if names == children { Ok(()) } else { Err(fault(&format!("{names} {what} for {children} children"))) }
}
