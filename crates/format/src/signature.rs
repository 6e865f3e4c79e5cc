//! Names and nesting of a method's inputs and outputs, as in the exported function.
//!
//! ExecuTorch's programs number their inputs and outputs. A blob among the named data adds the rest of `torch.export`'s
//! information; other runtimes ignore it. It holds the function's parameters with their names, and the containers of
//! its tensors and other values.
//!
//! The blob is a magic number and an entry for each method. An entry is its name, the length of the rest, the count of
//! parameters (each a name and a [`Structure`]), and the structure of the outputs. A structure is a byte for the kind,
//! the name if it is a class, the count of children, and the children. The children of dictionaries and records follow
//! their keys. Each text follows its length. Counts and lengths of texts are 16 bits, little-endian.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::blob_reader::Reader;

pub use crate::blob_reader::Damaged;

/// The key of the signatures among a program's named data.
pub const SIGNATURE_KEY: &str = "rushlight.signature";

/// The key of shared state among a program's named data. If it is present, states of the same name are one state of all
/// methods, which then must share their planned memory. ExecuTorch ignores it.
pub const SHARED_STATE_KEY: &str = "rushlight.shared_state";

/// The value under [`SHARED_STATE_KEY`].
pub const SHARED_STATE: &[u8] = b"1";

const MAGIC: [u8; 4] = *b"RLG1";

/// Maximum nesting of structures that are written or read.
const MAX_DEPTH: usize = 64;

/// The inputs and outputs of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The parameters of the exported function that the export gave a value, in the order of the method's inputs.
    pub parameters: Vec<Parameter>,
    pub outputs: Structure,
}

/// A parameter of the exported function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub structure: Structure,
}

/// A value, or a container of others. The values, from left to right, are the method's inputs or outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Structure {
    /// A tensor, a number, a text or `None`. If no key names it, it has the name of its node in the exported graph.
    Leaf(Option<String>),
    Tuple(Vec<Self>),
    List(Vec<Self>),
    Dict(Vec<(Key, Self)>),
    /// An instance of a class with named fields.
    Record {
        kind: RecordKind,
        /// Full name of the class.
        class: String,
        fields: Vec<(String, Self)>,
    },
}

/// The classes of [`Structure::Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    NamedTuple,
    /// A class that is registered with PyTorch, such as a dataclass or a `ModelOutput` of transformers.
    Registered,
}

/// A key of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Text(String),
    Int(i64),
    /// Another key, as JSON.
    Other(String),
}

impl Key {
    /// The unescaped text of the key; its `Display` escapes it for a terminal.
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) | Self::Other(text) => text.clone(),
            Self::Int(number) => number.to_string(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Other(text) => Visible(text).fmt(f),
            Self::Int(number) => number.fmt(f),
        }
    }
}

impl Signature {
    /// Finds the signature of a method in a blob.
    ///
    /// # Errors
    /// The blob is damaged.
    pub fn of(blob: &[u8], method: &str) -> Result<Option<Self>, Damaged> {
        let mut reader = Reader { rest: blob };
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(Damaged);
        }
        while !reader.rest.is_empty() {
            let name = reader.text()?;
            let len = u32::from_le_bytes(reader.array()?);
            let mut body = Reader { rest: reader.take(usize::try_from(len).map_err(|_| Damaged)?)? };
            if name == method {
                return body.signature().map(Some);
            }
        }
        Ok(None)
    }

    /// A signature without containers: a parameter for each input, and one output or a tuple of outputs.
    pub fn flat(inputs: impl IntoIterator<Item = String>, outputs: impl IntoIterator<Item = Option<String>>) -> Self {
        let parameter = |name| Parameter { name, structure: Structure::Leaf(None) };
        let mut outputs: Vec<Structure> = outputs.into_iter().map(Structure::Leaf).collect();
        let single = if outputs.len() == 1 { outputs.pop() } else { None };
        Self {
            parameters: inputs.into_iter().map(parameter).collect(),
            outputs: single.unwrap_or(Structure::Tuple(outputs)),
        }
    }

    /// True if the signature has these numbers of inputs and outputs.
    pub fn fits(&self, inputs: usize, outputs: usize) -> bool {
        let taken: usize = self.parameters.iter().map(|parameter| parameter.structure.num_leaves()).sum();
        (taken, self.outputs.num_leaves()) == (inputs, outputs)
    }

    /// A name for each input: the parameter's name, then the keys and positions in its containers, separated by points,
    /// such as `batch.images.0`. All names are different.
    pub fn input_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for parameter in &self.parameters {
            parameter.structure.add_names(&Visible(&parameter.name).to_string(), &mut names);
        }
        distinct(names)
    }

    /// A name for each output: the keys and positions that lead to it, such as `logits` or `boxes.0`. If these are only
    /// positions, it is the name of the output's node. All names are different.
    pub fn output_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.outputs.add_names("", &mut names);
        distinct(names)
    }
}

/// Appends numbers to repeated names until all are different.
fn distinct(mut names: Vec<String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    for (index, name) in names.iter_mut().enumerate() {
        while !known.insert(name.clone()) {
            // Writing to a string does not fail.
            let _ = write!(name, "#{index}");
        }
    }
    names
}

fn is_distinct<T: Ord>(names: impl IntoIterator<Item = T>) -> bool {
    let mut known = BTreeSet::new();
    names.into_iter().all(|name| known.insert(name))
}

/// A text of the export. Characters that move, hide or colour other text on a terminal are escaped.
struct Visible<'a>(&'a str);

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Unicode does not class the characters that set the direction of text as control characters.
        let is_hidden = |c: char| {
            c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        for c in self.0.chars() {
            if is_hidden(c) { c.escape_default().fmt(f)? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

impl Structure {
    /// Count of values.
    pub fn num_leaves(&self) -> usize {
        match self {
            Self::Leaf(_) => 1,
            Self::Tuple(children) | Self::List(children) => children.iter().map(Self::num_leaves).sum(),
            Self::Dict(entries) => entries.iter().map(|(_, child)| child.num_leaves()).sum(),
            Self::Record { fields, .. } => fields.iter().map(|(_, child)| child.num_leaves()).sum(),
        }
    }

    fn add_names(&self, path: &str, names: &mut Vec<String>) {
        let join = |part: &dyn fmt::Display| {
            let mut longer = path.to_owned();
            if !path.is_empty() {
                longer.push('.');
            }
            // Writing to a string does not fail.
            let _ = write!(longer, "{part}");
            longer
        };
        match self {
            Self::Leaf(Some(name)) => names.push(Visible(name).to_string()),
            Self::Leaf(None) => names.push(path.to_owned()),
            Self::Tuple(children) | Self::List(children) => {
                children.iter().enumerate().for_each(|(index, child)| child.add_names(&join(&index), names));
            }
            Self::Dict(entries) => entries.iter().for_each(|(key, child)| child.add_names(&join(key), names)),
            Self::Record { fields, .. } => {
                fields.iter().for_each(|(field, child)| child.add_names(&join(&Visible(field)), names));
            }
        }
    }
}

impl fmt::Display for Signature {
    /// `(images, sizes: {height, width}) -> {boxes: [_, _], scores}`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |parameter: &Parameter| match &parameter.structure {
            Structure::Leaf(_) => Visible(&parameter.name).to_string(),
            structure => format!("{}: {structure}", Visible(&parameter.name)),
        };
        let parameters: Vec<String> = self.parameters.iter().map(shown).collect();
        write!(f, "({}) -> {}", parameters.join(", "), self.outputs)
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |children: &[Self]| children.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let entry = |key: &dyn fmt::Display, child: &Self, by: &str| match child {
            Self::Leaf(_) => key.to_string(),
            child => format!("{key}{by}{child}"),
        };
        match self {
            Self::Leaf(name) => Visible(name.as_deref().unwrap_or("_")).fmt(f),
            Self::Tuple(children) if children.len() == 1 => write!(f, "({},)", all(children)),
            Self::Tuple(children) => write!(f, "({})", all(children)),
            Self::List(children) => write!(f, "[{}]", all(children)),
            Self::Dict(entries) => {
                let entries: Vec<String> = entries.iter().map(|(key, child)| entry(key, child, ": ")).collect();
                write!(f, "{{{}}}", entries.join(", "))
            }
            Self::Record { class, fields, .. } => {
                let fields: Vec<String> =
                    fields.iter().map(|(field, child)| entry(&Visible(field), child, "=")).collect();
                write!(f, "{}({})", Visible(class.rsplit('.').next().unwrap_or(class)), fields.join(", "))
            }
        }
    }
}

const LEAF: u8 = 0;
const NAMED_LEAF: u8 = 1;
const TUPLE: u8 = 2;
const LIST: u8 = 3;
const DICT: u8 = 4;
const NAMED_TUPLE: u8 = 5;
const REGISTERED: u8 = 6;

const TEXT_KEY: u8 = 0;
const INT_KEY: u8 = 1;
const OTHER_KEY: u8 = 2;

// Reading takes memory in proportion to the bytes read.
impl Reader<'_> {
    fn count(&mut self) -> Result<u16, Damaged> {
        self.array().map(u16::from_le_bytes)
    }

    fn owned(&mut self) -> Result<String, Damaged> {
        self.text().map(ToOwned::to_owned)
    }

    fn several<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, Damaged>) -> Result<Vec<T>, Damaged> {
        (0..self.count()?).map(|_| one(self)).collect()
    }

    fn signature(&mut self) -> Result<Signature, Damaged> {
        let parameters =
            self.several(|reader| Ok(Parameter { name: reader.owned()?, structure: reader.structure(MAX_DEPTH)? }))?;
        let outputs = self.structure(MAX_DEPTH)?;
        if !is_distinct(parameters.iter().map(|parameter| &parameter.name)) || !self.rest.is_empty() {
            return Err(Damaged);
        }
        Ok(Signature { parameters, outputs })
    }

    fn structure(&mut self, depth: usize) -> Result<Structure, Damaged> {
        let depth = depth.checked_sub(1).ok_or(Damaged)?;
        let structure = match self.byte()? {
            LEAF => Structure::Leaf(None),
            NAMED_LEAF => Structure::Leaf(Some(self.owned()?)),
            TUPLE => Structure::Tuple(self.several(|reader| reader.structure(depth))?),
            LIST => Structure::List(self.several(|reader| reader.structure(depth))?),
            DICT => Structure::Dict(self.several(|reader| Ok((reader.key()?, reader.structure(depth)?)))?),
            kind @ (NAMED_TUPLE | REGISTERED) => Structure::Record {
                kind: if kind == NAMED_TUPLE { RecordKind::NamedTuple } else { RecordKind::Registered },
                class: self.owned()?,
                fields: self.several(|reader| Ok((reader.owned()?, reader.structure(depth)?)))?,
            },
            _ => return Err(Damaged),
        };
        let keys_differ = match &structure {
            Structure::Dict(entries) => is_distinct(entries.iter().map(|(key, _)| key)),
            Structure::Record { fields, .. } => is_distinct(fields.iter().map(|(field, _)| field)),
            _ => true,
        };
        if keys_differ { Ok(structure) } else { Err(Damaged) }
    }

    fn key(&mut self) -> Result<Key, Damaged> {
        Ok(match self.byte()? {
            TEXT_KEY => Key::Text(self.owned()?),
            INT_KEY => Key::Int(i64::from_le_bytes(self.array()?)),
            OTHER_KEY => Key::Other(self.owned()?),
            _ => return Err(Damaged),
        })
    }
}

/// Writes the signatures of methods, by name. A method has no names if its signature does not fit the format (texts and
/// counts above 65,535, containers more than 63 deep).
pub fn write<'m>(methods: impl IntoIterator<Item = (&'m str, &'m Signature)>) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for (method, signature) in methods {
        let mut entry = Vec::new();
        if put_entry(&mut entry, method, signature).is_some() {
            out.extend(entry);
        }
    }
    out
}

fn put_entry(out: &mut Vec<u8>, method: &str, signature: &Signature) -> Option<()> {
    let mut body = Vec::new();
    put_count(&mut body, signature.parameters.len())?;
    for Parameter { name, structure } in &signature.parameters {
        put_text(&mut body, name)?;
        put_structure(&mut body, structure, MAX_DEPTH)?;
    }
    put_structure(&mut body, &signature.outputs, MAX_DEPTH)?;
    put_text(out, method)?;
    out.extend(u32::try_from(body.len()).ok()?.to_le_bytes());
    out.extend(body);
    Some(())
}

fn put_count(out: &mut Vec<u8>, count: usize) -> Option<()> {
    out.extend(u16::try_from(count).ok()?.to_le_bytes());
    Some(())
}

fn put_text(out: &mut Vec<u8>, text: &str) -> Option<()> {
    put_count(out, text.len())?;
    out.extend(text.as_bytes());
    Some(())
}

fn put_structure(out: &mut Vec<u8>, structure: &Structure, depth: usize) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match structure {
        Structure::Leaf(None) => out.push(LEAF),
        Structure::Leaf(Some(name)) => {
            out.push(NAMED_LEAF);
            put_text(out, name)?;
        }
        Structure::Tuple(children) | Structure::List(children) => {
            out.push(if matches!(structure, Structure::Tuple(_)) { TUPLE } else { LIST });
            put_count(out, children.len())?;
            children.iter().try_for_each(|child| put_structure(out, child, depth))?;
        }
        Structure::Dict(entries) => {
            out.push(DICT);
            put_count(out, entries.len())?;
            for (key, child) in entries {
                put_key(out, key)?;
                put_structure(out, child, depth)?;
            }
        }
        Structure::Record { kind, class, fields } => {
            out.push(if *kind == RecordKind::NamedTuple { NAMED_TUPLE } else { REGISTERED });
            put_text(out, class)?;
            put_count(out, fields.len())?;
            for (field, child) in fields {
                put_text(out, field)?;
                put_structure(out, child, depth)?;
            }
        }
    }
    Some(())
}

fn put_key(out: &mut Vec<u8>, key: &Key) -> Option<()> {
    match key {
        Key::Text(text) => {
            out.push(TEXT_KEY);
            put_text(out, text)?;
        }
        Key::Int(number) => {
            out.push(INT_KEY);
            out.extend(number.to_le_bytes());
        }
        Key::Other(text) => {
            out.push(OTHER_KEY);
            put_text(out, text)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;

    use super::*;

    fn signature() -> Signature {
        let leaf = || Structure::Leaf(None);
        let pair = Structure::Record {
            kind: RecordKind::NamedTuple,
            class: "models.Pair".into(),
            fields: vec![("mean".into(), leaf()), ("rest".into(), Structure::List(vec![leaf(), leaf()]))],
        };
        let batch = Structure::Dict(vec![
            (Key::Text("ids".into()), leaf()),
            (Key::Int(-3), Structure::Tuple(vec![leaf()])),
            (Key::Other("[1, 2]".into()), leaf()),
        ]);
        let parameter = |name: &str, structure| Parameter { name: name.into(), structure };
        Signature {
            parameters: vec![parameter("x", leaf()), parameter("batch", batch), parameter("pair", pair)],
            outputs: Structure::Tuple(vec![
                Structure::Leaf(Some("add_1".into())),
                Structure::Dict(vec![(Key::Text("logits".into()), leaf())]),
                Structure::Record {
                    kind: RecordKind::Registered,
                    class: "Out".into(),
                    fields: vec![("loss".into(), leaf())],
                },
            ]),
        }
    }

    fn blob() -> Vec<u8> {
        let flat = Signature::flat(["a".into()], [Some("add".into())]);
        write([("first", &flat), ("forward", &signature())])
    }

    #[test]
    fn what_is_written_is_read() {
        let blob = blob();
        assert_eq!(Signature::of(&blob, "forward"), Ok(Some(signature())));
        let first = Signature::of(&blob, "first").unwrap().unwrap();
        assert_eq!((first.outputs, first.parameters.len()), (Structure::Leaf(Some("add".into())), 1));
        assert_eq!(Signature::of(&blob, "absent"), Ok(None));
        assert_eq!(Signature::of(b"RLS1", "forward"), Err(Damaged));
    }

    #[test]
    fn keys_that_come_twice_are_damage() {
        let leaf = || Structure::Leaf(None);
        let key = || Key::Text("a".into());
        let record = |fields| Structure::Record { kind: RecordKind::Registered, class: "Out".into(), fields };
        let twice = [
            Structure::Dict(vec![(key(), leaf()), (key(), leaf())]),
            record(vec![("a".into(), leaf()), ("a".into(), leaf())]),
        ];
        for outputs in twice {
            let signature = Signature { parameters: Vec::new(), outputs };
            assert_eq!(Signature::of(&write([("forward", &signature)]), "forward"), Err(Damaged));
        }
    }

    #[test]
    fn names_move_nothing_on_a_terminal() {
        let outputs = Structure::Dict(vec![(Key::Text("m\u{1b}[31m\n\u{202e}é".into()), Structure::Leaf(None))]);
        let parameters = vec![Parameter { name: "\r".into(), structure: Structure::Leaf(None) }];
        let signature = Signature { parameters, outputs };
        assert_eq!(signature.to_string(), r"(\r) -> {m\u{1b}[31m\n\u{202e}é}");
        assert_eq!(signature.input_names(), [r"\r"]);
        assert_eq!(signature.output_names(), [r"m\u{1b}[31m\n\u{202e}é"]);
    }

    #[test]
    fn names_are_paths_and_differ() {
        let signature = signature();
        let names = ["x", "batch.ids", "batch.-3.0", "batch.[1, 2]", "pair.mean", "pair.rest.0", "pair.rest.1"];
        assert_eq!(signature.input_names(), names);
        assert_eq!(signature.output_names(), ["add_1", "1.logits", "2.loss"]);
        let twice = Signature::flat([], [Some("x".into()), Some("x".into()), None]);
        assert_eq!(twice.output_names(), ["x", "x#1", "2"]);
        let numbered = ["0", "0", "", "0#1", "0#1"].map(|name| Some(name.to_owned()));
        assert_eq!(Signature::flat([], numbered).output_names(), ["0", "0#1", "", "0#1#3", "0#1#4"]);
        assert_eq!(
            signature.to_string(),
            "(x, batch: {ids, -3: (_,), [1, 2]}, pair: Pair(mean, rest=[_, _])) -> (add_1, {logits}, Out(loss))"
        );
    }

    #[test]
    fn damaged_blobs_are_refused() {
        let blob = blob();
        let end_of_first = blob.len() - write([("forward", &signature())]).len() + MAGIC.len();
        for len in (0..blob.len()).filter(|len| *len != end_of_first && *len != MAGIC.len()) {
            assert_eq!(Signature::of(&blob[..len], "forward"), Err(Damaged), "{len}");
        }
        for at in 0..blob.len() {
            for bit in 0..8 {
                let mut changed = blob.clone();
                changed[at] ^= 1 << bit;
                if let Ok(Some(read)) = Signature::of(&changed, "forward") {
                    // Reading returns exactly the written signature.
                    assert_eq!(Signature::of(&write([("forward", &read)]), "forward"), Ok(Some(read)));
                }
            }
        }
        let twice = Signature::flat(["x".into(), "x".into()], [None]);
        assert_eq!(Signature::of(&write([("forward", &twice)]), "forward"), Err(Damaged));
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let nested = |depth: usize| {
            let outputs = (1..depth).fold(Structure::Leaf(None), |child, _| Structure::List(vec![child]));
            Box::new(Signature { parameters: Vec::new(), outputs })
        };
        let deepest = nested(MAX_DEPTH);
        assert_eq!(Signature::of(&write([("f", &*deepest)]), "f"), Ok(Some(*deepest)));
        assert_eq!(write([("f", &*nested(MAX_DEPTH + 1))]), MAGIC);
        let long = Signature::flat(["n".repeat(1 << 16)], [None]);
        assert_eq!(write([("f", &long)]), MAGIC);
    }
}
