//! Cases that do not run, by name, each with its reason. They are rows of the support table.

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

/// Operators that have no cases, and why.
pub const WITHOUT_CASES: &[Skip] = &[
    Skip {
        op: "aten::empty_strided.out",
        cases: "",
        reason: "names strides, which a program cannot hold; not expected in an edge program",
    },
    Skip { op: "aten::resize_", cases: "", reason: "changes a tensor's storage; not expected in an edge program" },
];

/// The skip that a case falls under.
pub fn find(op: &str, case: &str) -> Option<&'static Skip> {
    SKIPS.iter().find(|skip| skip.op == op && case.starts_with(skip.cases))
}
