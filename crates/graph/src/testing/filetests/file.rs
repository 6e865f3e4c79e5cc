//! The parts of a test file.

/// The line between the model and the expected output.
const SEPARATOR: &str = "---";

/// A parsed file.
#[derive(Debug)]
pub struct File<'t> {
    /// Everything above the separator.
    pub input: &'t str,
    pub steps: Vec<Step>,
    /// The text below the separator, without blank lines around it.
    pub expected: &'t str,
}

/// A step of `# run:`, such as `fold-constants small=8`.
#[derive(Debug)]
pub struct Step {
    pub name: String,
    /// Pairs of `KEY=VALUE`.
    pub options: Vec<(String, String)>,
}

impl<'t> File<'t> {
    /// Parses a file. The expectation of a file without a separator is empty.
    ///
    /// # Errors
    /// The part that is missing or malformed.
    pub fn parse(text: &'t str) -> Result<Self, String> {
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let commands: Vec<&str> = head.iter().filter_map(|line| line.strip_prefix("# run:")).collect();
        let [command] = commands[..] else {
            return Err(format!("{} lines `# run: STEP, …` in the comment at the top, not one", commands.len()));
        };
        if head.len() < 2 {
            return Err("the comment at the top does not say what the file shows".into());
        }
        let separator = format!("\n{SEPARATOR}\n");
        let (input, expected) = text.split_once(&separator).unwrap_or((text, ""));
        let steps = command.split(',').map(Step::parse).collect::<Result<_, _>>()?;
        Ok(Self { input, steps, expected: expected.trim_start_matches('\n') })
    }

    /// The text of the file with another expectation.
    pub fn with_expected(&self, expected: &str) -> String {
        format!("{}\n\n{SEPARATOR}\n\n{expected}", self.input.trim_end())
    }
}

impl Step {
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let name = words.next().ok_or("a step without a name in `# run:`")?.to_owned();
        let options = words.map(|word| {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not KEY=VALUE"))?;
            Ok::<_, String>((key.to_owned(), value.to_owned()))
        });
        Ok(Self { name, options: options.collect::<Result<_, _>>()? })
    }
}

#[test]
fn files_without_a_purpose_or_one_command_are_refused() {
    let text = "# Shows it.\n# run: fold-constants small=8 allowance=0, dead-code\n\nmethod m { return }\n\n---\n\nx\n";
    let file = File::parse(text).unwrap();
    let names: Vec<_> = file.steps.iter().map(|step| (step.name.as_str(), step.options.len())).collect();
    assert_eq!(names, [("fold-constants", 2), ("dead-code", 0)]);
    assert_eq!(file.expected, "x\n");
    assert_eq!(file.with_expected("x\n"), text);
    let without = File::parse("# Shows it.\n# run: dead-code\nmethod m { return }\n").unwrap();
    assert_eq!(without.expected, "");
    for text in [
        "# run: dead-code\n",
        "# Shows it.\n",
        "# Shows it.\n# run: a\n# run: b\n",
        "# Shows it.\n# run: a,\n",
        "# Shows it.\n# run: a b\n",
    ] {
        assert!(File::parse(text).is_err(), "{text}");
    }
}
