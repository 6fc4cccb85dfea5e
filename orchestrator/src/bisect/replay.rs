//! A bisection as `git bisect log` writes it, for `git bisect replay`.

use super::engine::Engine;
use super::git::{Range, RangeRequest};
use super::observation::Place;
use super::verdict::Verdict;

/// Writes the marks of a bisection over git. A commit is marked good or bad when
/// its probability says so at the confidence that was asked for, else as skipped.
/// `subject` tells a commit's subject.
pub fn git_log(
    engine: &Engine,
    request: &RangeRequest,
    range: &Range,
    verdict: Option<&Verdict>,
    subject: &dyn Fn(&str) -> String,
) -> String {
    let mut text = String::new();
    let remark = |text: &mut String, what: &str, id: &str| {
        text.extend(["# ", what, ": [", id, "] ", &subject(id), "\n"]);
    };
    remark(&mut text, "bad", &range.bad);
    remark(&mut text, "good", &range.good);
    text.push_str("git bisect start");
    if request.first_parent {
        text.push_str(" '--first-parent'");
    }
    text.extend([" '", &range.bad, "' '", &range.good, "'"]);
    if !request.paths.is_empty() {
        text.push_str(" '--'");
        for path in &request.paths {
            text.extend([" '", &path.replace('\'', "'\\''"), "'"]);
        }
    }
    text.push('\n');
    let posterior = engine.posterior();
    let mut told = std::collections::BTreeSet::new();
    let asked = engine.answers().iter().map(|answer| answer.place);
    let left_out = range.skipped.iter().map(|c| Place::At(*c));
    for place in left_out.chain(asked) {
        let Place::At(candidate) = place else {
            continue;
        };
        if !told.insert(candidate) {
            continue;
        }
        let id = engine.history().id(candidate);
        let doubt = 1.0 - engine.rules().confidence;
        let has_runs = engine
            .tally(place)
            .is_some_and(|t| !t.values.is_empty() || t.sure.is_some());
        let mark = match posterior.as_ref().map(|p| p.bad[candidate as usize]) {
            Some(bad) if has_runs && bad >= 1.0 - doubt => "bad",
            Some(bad) if has_runs && bad <= doubt => "good",
            _ => "skip",
        };
        remark(&mut text, mark, id);
        text.extend(["git bisect ", mark, " ", id, "\n"]);
    }
    match verdict {
        Some(Verdict::Found { culprit }) => {
            remark(
                &mut text,
                "first bad commit",
                engine.history().id(culprit.candidate),
            );
        }
        Some(Verdict::FoundAmong { suspects }) => {
            text.push_str("# only skipped commits left to test\n");
            for suspect in suspects {
                remark(
                    &mut text,
                    "possible first bad commit",
                    engine.history().id(suspect.candidate),
                );
            }
        }
        _ => {}
    }
    text
}
