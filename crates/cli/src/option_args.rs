//! Arguments of the command line for tables of options.

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use rushlight::options::{Field, OptionSpec, OptionValue, Options};

/// Rows of the table of `T`.
pub struct OptionArgs<T: 'static>(Vec<&'static OptionSpec<T>>);

impl<T: Options> OptionArgs<T> {
    /// All rows.
    pub fn all() -> Self {
        Self(T::table().iter().collect())
    }

    /// The rows of these names.
    pub fn only(mut self, names: &[&str]) -> Self {
        self.0.retain(|spec| names.contains(&spec.name));
        self
    }

    /// All rows except those of these names.
    pub fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|spec| !names.contains(&spec.name));
        self
    }

    /// Adds an argument for each row. `adjust` gets the name and the argument.
    pub fn augment(&self, command: Command, adjust: impl Fn(&str, Arg) -> Arg) -> Command {
        self.0.iter().fold(command, |command, spec| command.arg(adjust(spec.name, arg(spec))))
    }

    /// Reads the options that were given.
    pub fn read(&self, matches: &ArgMatches) -> Result<T, clap::Error> {
        let mut options = T::default();
        for spec in &self.0 {
            if !matches!(matches.value_source(spec.name), Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
                continue;
            }
            let set = if matches!(spec.field, Field::Flag(_)) {
                spec.set(&mut options, true.into())
            } else {
                let mut texts = matches.get_many::<String>(spec.name).into_iter().flatten();
                texts.try_for_each(|text| spec.set_text(&mut options, text))
            };
            set.map_err(|error| clap::Error::raw(clap::error::ErrorKind::ValueValidation, error))?;
        }
        Ok(options)
    }
}

fn arg<T: Options>(spec: &'static OptionSpec<T>) -> Arg {
    let arg = Arg::new(spec.name).long(spec.name.replace('_', "-")).help(spec.help);
    let arg = match &spec.field {
        Field::Flag(_) => return arg.action(ArgAction::SetTrue),
        Field::Version(known, _) => arg.value_parser(PossibleValuesParser::new(known.iter().map(ToString::to_string))),
        Field::Choice(known, _) => arg.value_parser(PossibleValuesParser::new(known())),
        field if field.is_list() => arg.action(ArgAction::Append).value_parser(checked(spec)),
        _ => arg.allow_negative_numbers(true).value_parser(checked(spec)),
    };
    let arg = arg.value_name(spec.unit);
    match spec.default() {
        OptionValue::None | OptionValue::Texts(_) | OptionValue::Biases(_) => arg,
        default => arg.default_value(default.to_string()),
    }
}

/// Returns a parser that accepts only values that the option takes.
fn checked<T: Options>(
    spec: &'static OptionSpec<T>,
) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| match spec.set_text(&mut T::default(), text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(format!("expected {}", error.expected())),
    }
}

/// Rows of a table that a command has as arguments.
pub trait Selection: 'static {
    type Of: Options + Clone + Send + Sync;

    /// The rows.
    fn rows() -> OptionArgs<Self::Of>;

    /// Changes the argument of a row.
    fn adjust(name: &str, arg: Arg) -> Arg {
        let _ = name;
        arg
    }
}

/// The arguments of a selection.
pub struct Chosen<S: Selection> {
    pub options: S::Of,
}

impl<S: Selection> Args for Chosen<S> {
    fn augment_args(command: Command) -> Command {
        S::rows().augment(command, S::adjust)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Selection> FromArgMatches for Chosen<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { options: S::rows().read(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
