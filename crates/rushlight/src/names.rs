//! Inputs and outputs by their names.

use rushlight_runtime::Input;

use crate::error::Error;
use crate::meta::{MethodMeta, ValueInfo};

/// Names that differ in more than this part of their letters are not suggested.
const MIN_SIMILARITY: f64 = 0.6;

impl MethodMeta {
    /// Returns the position of the input of this name.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown name. The error lists the known names and the nearest one.
    pub fn input_index(&self, name: &str) -> Result<usize, Error> {
        self.index("input", &self.input_names, name)
    }

    /// Returns the position of the output of this name.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown name. The error lists the known names and the nearest one.
    pub fn output_index(&self, name: &str) -> Result<usize, Error> {
        self.index("output", &self.output_names, name)
    }

    /// An input for messages: `input 0 (image)`, or `input 0` without a name.
    pub fn input_label(&self, index: usize) -> String {
        label("input", index, &self.input_names)
    }

    /// An output for messages: `output 0 (logits)`, or `output 0` without a name.
    pub fn output_label(&self, index: usize) -> String {
        label("output", index, &self.output_names)
    }

    /// Arranges inputs as a call takes them. Values that were fixed at export may be left out.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that the method does not have, one that is given twice, and inputs that are missing.
    pub fn inputs_by_name<'n, 'i: 'm, 'm>(
        &'m self,
        given: impl IntoIterator<Item = (&'n str, Input<'i>)>,
    ) -> Result<Vec<Input<'m>>, Error> {
        Ok(self.filled(self.arranged(given)?))
    }

    /// Adds the values that the export fixed to [arranged](Self::arranged) inputs.
    pub(crate) fn filled<'i: 'm, 'm>(&'m self, arranged: Vec<Option<Input<'i>>>) -> Vec<Input<'m>> {
        arranged.into_iter().zip(&self.inputs).filter_map(|(input, info)| input.or_else(|| fixed(info))).collect()
    }

    /// Arranges inputs as a call takes them; `None` for values that were fixed at export and are left out.
    ///
    /// # Errors
    /// Those of [`inputs_by_name`](Self::inputs_by_name).
    pub(crate) fn arranged<'n, 'i>(
        &self,
        given: impl IntoIterator<Item = (&'n str, Input<'i>)>,
    ) -> Result<Vec<Option<Input<'i>>>, Error> {
        let mut inputs: Vec<Option<Input<'i>>> = self.inputs.iter().map(|_| None).collect();
        for (name, input) in given {
            let index = self.input_index(name)?;
            let Some(slot) = inputs.get_mut(index) else { continue };
            if slot.is_some() {
                return Err(Error::invalid(format!("the input `{name}` of `{}` is given twice", self.name)));
            }
            *slot = Some(input);
        }
        let all = inputs.iter().zip(&self.inputs).zip(&self.input_names);
        let absent = all.filter(|((input, info), _)| input.is_none() && fixed(info).is_none());
        let absent: Vec<String> = absent.map(|((_, info), name)| format!("{name}: {info}")).collect();
        if absent.is_empty() {
            return Ok(inputs);
        }
        let (count, s) = (absent.len(), if absent.len() == 1 { "" } else { "s" });
        Err(Error::invalid(format!("{count} input{s} of `{}` not given", self.name)).expected(absent.join("; ")))
    }

    fn index(&self, what: &str, names: &[String], name: &str) -> Result<usize, Error> {
        if let Some(index) = names.iter().position(|known| known == name) {
            return Ok(index);
        }
        let error = Error::invalid(format!("`{}` has no {what} `{name}`", self.name));
        if names.is_empty() {
            let text = format!("the program does not record the names of its {what}s");
            return Err(error.got(text).help("give them in order, or compile the exported model with Rushlight"));
        }
        let error = error.expected(format!("one of: {}", names.join(", ")));
        Err(match nearest(name, names.iter().map(String::as_str)) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        })
    }
}

fn label(what: &str, index: usize, names: &[String]) -> String {
    match names.get(index).filter(|name| !name.is_empty()) {
        Some(name) => format!("{what} {index} ({name})"),
        None => format!("{what} {index}"),
    }
}

/// The value that an export fixed.
pub(crate) fn fixed(info: &ValueInfo) -> Option<Input<'_>> {
    match info {
        ValueInfo::Int(value) => Some(Input::Int(*value)),
        ValueInfo::Double(value) => Some(Input::Double(*value)),
        ValueInfo::Bool(value) => Some(Input::Bool(*value)),
        ValueInfo::String(value) => Some(Input::String(value)),
        ValueInfo::None => Some(Input::None),
        ValueInfo::Tensor(_) | ValueInfo::List => None,
    }
}

/// The known name that is most like another, by itself or by its last part.
pub(crate) fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let similarity = |known: &str| {
        let last = known.rsplit('.').next().unwrap_or(known);
        strsim::jaro_winkler(name, known).max(strsim::jaro_winkler(name, last))
    };
    let scored = known.into_iter().map(|known| (similarity(known), known));
    let (score, near) = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (score >= MIN_SIMILARITY).then_some(near)
}
