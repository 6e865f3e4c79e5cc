//! Cases that do not run, by name, each with its reason. They are rows of the support table, as are the operators
//! that the manifest lists as having no cases.

/// An operator, or some of its cases, that the suite leaves out.
#[derive(Clone, Copy, Debug)]
pub struct Skip {
    pub op: &'static str,
    /// Start of the names of the cases; empty for all.
    pub cases: &'static str,
    pub reason: &'static str,
}

/// All of them.
pub const SKIPS: &[Skip] = &[];

/// The skip that a case falls under.
pub fn find(op: &str, case: &str) -> Option<&'static Skip> {
    SKIPS.iter().find(|skip| skip.op == op && case.starts_with(skip.cases))
}
