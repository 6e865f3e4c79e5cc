//! Arguments of a call, bound to parameters.

use std::rc::Rc;

use super::failure::{Result, fail};
use super::value::{Text, Value};

#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(Rc<str>, Value)>,
}

impl Args {
    /// Binds the arguments to the parameters `names`; the first `required` must be given.
    pub(super) fn bind<const N: usize>(
        self,
        function: &str,
        names: [&str; N],
        required: usize,
    ) -> Result<[Option<Value>; N]> {
        let mut bound = [const { None }; N];
        let given = self.positional.len();
        if given > N {
            fail!("{function}() takes at most {N} arguments ({given} given)");
        }
        for (place, value) in bound.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            let index = names.iter().position(|known| **known == *name);
            match index.and_then(|index| bound.get_mut(index)) {
                None => fail!("{function}() got an unexpected keyword argument '{name}'"),
                Some(Some(_)) => fail!("{function}() got multiple values for argument '{name}'"),
                Some(place) => *place = Some(value),
            }
        }
        for (name, value) in names.iter().zip(&bound).take(required) {
            if value.is_none() {
                fail!("{function}() missing required argument: '{name}'");
            }
        }
        Ok(bound)
    }

    /// Checks that a function without parameters has no arguments.
    pub(super) fn none(self, function: &str) -> Result<()> {
        self.bind::<0>(function, [], 0).map(|_| ())
    }
}

/// An integer argument, or its default. A float is none.
pub(super) fn int(value: Option<&Value>, default: i128) -> Result<i128> {
    match value {
        None => Ok(default),
        Some(value) => match (value, value.as_int()) {
            (_, Some(int)) => Ok(int),
            (Value::Undefined(message), _) => fail!("{message}"),
            _ => fail!("'{}' object cannot be interpreted as an integer", value.type_name()),
        },
    }
}

/// An integer that is None by default.
pub(super) fn optional_int(value: Option<&Value>) -> Result<Option<i128>> {
    match value {
        None | Some(Value::None) => Ok(None),
        value => int(value, 0).map(Some),
    }
}

/// A count: negative ones are 0.
pub(super) fn count(value: Option<&Value>, default: usize) -> Result<usize> {
    Ok(usize::try_from(int(value, default as i128)?.max(0)).unwrap_or(usize::MAX))
}

pub(super) fn is_true(value: Option<&Value>, default: bool) -> bool {
    value.map_or(default, Value::is_true)
}

/// A string argument.
pub(super) fn text(value: Option<&Value>) -> Result<Option<Rc<Text>>> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text.clone())),
        Some(Value::Undefined(message)) => fail!("{message}"),
        Some(other) => fail!("must be str, not {}", other.type_name()),
    }
}

pub(super) fn required_text(value: Option<&Value>) -> Result<Rc<Text>> {
    match value {
        Some(Value::Text(text)) => Ok(text.clone()),
        Some(Value::Undefined(message)) => fail!("{message}"),
        other => fail!("must be str, not {}", other.map_or("NoneType", Value::type_name)),
    }
}
