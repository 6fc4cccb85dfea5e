//! The comparison as one JSON document.

use serde::Serialize;

use crate::compare::Comparison;

/// Version of the document: raised when a field changes its meaning or leaves;
/// new fields come without notice.
pub const VERSION: u32 = 1;

/// The document.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    /// [`VERSION`].
    pub topolab_comparison: u32,
    /// Everything that was compared, every run's value included.
    #[serde(flatten)]
    pub comparison: &'a Comparison,
}

/// Wraps a comparison.
pub fn document(comparison: &Comparison) -> Document<'_> {
    Document {
        topolab_comparison: VERSION,
        comparison,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{compared, demo, demo_spec};

    #[test]
    fn values_verdicts_and_the_answer_are_there() {
        let comparison = compared(&demo(5), &demo_spec());
        let json = serde_json::to_value(document(&comparison)).unwrap();
        assert_eq!(json["topolab_comparison"], 1);
        assert_eq!(json["answer"], "good");
        let row = &json["tables"][0]["rows"][0];
        assert_eq!(row["verdict"]["class"], "better");
        assert_eq!(row["change"]["scale"], "relative");
        assert_eq!(row["new"]["runs"][0]["value"], 0.0);
        assert_eq!(
            json["tables"][1]["rows"][0]["verdict"]["reason"]["because"],
            "untrusted-timing"
        );
    }
}
