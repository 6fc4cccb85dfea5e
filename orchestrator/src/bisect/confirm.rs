//! After the search: a fresh comparison of two trees, measured in turn.

use std::path::Path;

use super::account::{Confirmation, is_run};
use super::drive::{DriveError, Progress, Ready, Run, Tree, drive};
use super::history::History;
use super::session::{Plan, Session, Target};
use super::text::ends_line;
use super::verdict::Verdict;
use crate::run::Cancel;

/// Two trees of which the second is said to be the first with the culprit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// What is compared, in words.
    pub what: String,
    /// The good one: a commit or a variant.
    pub good: String,
    /// The bad one.
    pub bad: String,
}

/// Compares a pair as the ends of a bisection are compared, with nothing of the
/// search reused but the built trees. `folder` is made, or gone on with.
///
/// # Errors
/// The folder cannot be used, or the user interrupted.
pub async fn confirm(
    folder: &Path,
    plan: &Plan,
    pair: Pair,
    ready: &impl AsyncFn(&Tree) -> Ready,
    run: &impl AsyncFn(&Tree, u32) -> Run,
    cancel: &Cancel,
    tell: &mut dyn FnMut(Progress),
) -> Result<Confirmation, DriveError> {
    let mut session = if folder.join("bisect.json").is_file() {
        Session::open(folder)?
    } else {
        let history = History::linear(vec![pair.bad.clone()])
            .expect("a history of one candidate is never refused");
        let target = Target::Pair {
            good: pair.good,
            bad: pair.bad,
            history,
        };
        let mut plan = plan.clone();
        plan.target = target;
        plan.started = jiff::Timestamp::now().to_string();
        Session::create(folder, plan)?
    };
    let verdict = drive(&mut session, ready, run, cancel, tell).await?;
    Ok(read(pair.what, &session, &verdict))
}

fn read(what: String, session: &Session, verdict: &Verdict) -> Confirmation {
    let numbers = session.engine().comparison().map(|ends| ends_line(&ends));
    let (agrees, detail) = match verdict {
        Verdict::Found { .. } => (
            Some(true),
            numbers.unwrap_or_else(|| "the one is good, the other bad".to_owned()),
        ),
        Verdict::EndsAlike { ends } => {
            // A difference that more runs might show is no proof of the contrary.
            let agrees = if ends.runs_needed.is_some() {
                None
            } else {
                Some(false)
            };
            (agrees, ends_line(ends))
        }
        Verdict::EndsSwapped { ends } => (Some(false), ends_line(ends)),
        Verdict::EndRefused { reason } => (Some(false), reason.clone()),
        Verdict::Aborted { reason } | Verdict::Undecided { reason, .. } => (None, reason.clone()),
        Verdict::FoundAmong { .. } | Verdict::Contradiction { .. } => {
            (None, "the answers contradict each other".to_owned())
        }
    };
    let entries = session.entries();
    Confirmation {
        what,
        agrees,
        detail,
        runs: u32::try_from(entries.iter().filter(|e| is_run(e)).count()).unwrap_or(u32::MAX),
        build_seconds: entries.iter().map(|e| e.build_seconds).sum(),
        run_seconds: entries.iter().map(|e| e.run_seconds).sum(),
    }
}
