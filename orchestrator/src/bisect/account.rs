//! A bisection as it is told afterwards: the ends, the path taken, the culprit,
//! what it took. Everything a report shows, as data.

use serde::Serialize;

use super::ends::{Comparison, Ends};
use super::git::{CommitFacts, short};
use super::judge::Judge;
use super::observation::{Observation, Place};
use super::session::{Entry, Session, Target};
use super::verdict::{Suspect, Verdict};
use crate::store::record::Environment;

/// Everything a report shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    /// What was sought, in words.
    pub sought: String,
    /// What was searched, in words.
    pub searched: String,
    /// The cell that was measured, in words; absent for a script.
    pub cell: Option<String>,
    /// Candidates.
    pub candidates: usize,
    /// The two ends in numbers, once they were compared.
    pub ends: Option<Comparison>,
    /// Every place that was measured or tried, in the order it was first asked.
    pub steps: Vec<Stop>,
    /// How it ended; absent while it goes on.
    pub verdict: Option<Verdict>,
    /// The culprit, or every suspect.
    pub suspects: Vec<Named>,
    /// Share of the ends' difference that lies between the culprit and its parent,
    /// where both were measured. Far below 1 another commit changes the metric too.
    pub explains: Option<f64>,
    /// Whether a fresh comparison of culprit and parent agreed.
    pub confirmation: Vec<Confirmation>,
    /// Why the numbers deserve less trust than they claim.
    pub caution: Option<String>,
    /// What it took.
    pub spent: Spent,
    /// What the runs ran on.
    pub environment: Option<Environment>,
    /// Revision to tell regzbot: a commit, or a range `A..B`; absent for a series
    /// and before there is one.
    pub introduced: Option<String>,
}

/// One place of the path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stop {
    /// Where.
    pub place: Place,
    /// A commit id, or a variant.
    pub tree: String,
    /// Subject of the commit or patch.
    pub subject: String,
    /// Runs, or looks that decide.
    pub runs: u32,
    /// The metric of each run, or 1 and 0 for an outcome seen and not seen.
    pub values: Vec<f64>,
    /// What the place counts as.
    pub mark: Mark,
    /// Probability that it is bad; absent before the ends were told apart.
    pub bad: Option<f64>,
    /// Why it was skipped, or whose image it shares.
    pub remark: String,
    /// Seconds of building.
    pub build_seconds: f64,
    /// Seconds of running.
    pub run_seconds: f64,
}

/// What a place counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// As the good end.
    Good,
    /// As the bad end.
    Bad,
    /// Could not be tested.
    Skip,
    /// Measured, and not clear by itself.
    Unclear,
}

impl Mark {
    /// As in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Skip => "skip",
            Self::Unclear => "?",
        }
    }
}

/// A suspect with what is known of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Named {
    /// Probability (0 to 1).
    pub probability: f64,
    /// The commit; of a patch, its number, subject and author.
    pub facts: CommitFacts,
}

/// A fresh comparison after the search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Confirmation {
    /// What was compared, in words.
    pub what: String,
    /// Whether it agrees; absent when it could not be made or stayed undecided.
    pub agrees: Option<bool>,
    /// In numbers, or why not.
    pub detail: String,
    /// Its runs.
    pub runs: u32,
    /// Seconds of building it took.
    pub build_seconds: f64,
    /// Seconds of running it took.
    pub run_seconds: f64,
}

/// What a search took; what confirming it took is kept with each [`Confirmation`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spent {
    /// Runs, ends included.
    pub runs: u32,
    /// Trees that were made ready or tried, ends included.
    pub trees: u32,
    /// Candidates that were measured or tried.
    pub steps: u32,
    /// Seconds of building.
    pub build_seconds: f64,
    /// Seconds of running.
    pub run_seconds: f64,
    /// Seconds from the start of the command to its end, the confirmation included;
    /// absent for a search that was gone on with.
    pub wall_seconds: Option<f64>,
}

impl Account {
    /// Share (0 to 1) of the whole time in which kernels were built or guests ran;
    /// the rest is this program's and git's. Absent when the whole is not known.
    pub fn busy_share(&self) -> Option<f64> {
        let wall = self.spent.wall_seconds.filter(|wall| *wall > 0.0)?;
        let confirming: f64 = self
            .confirmation
            .iter()
            .map(|c| c.build_seconds + c.run_seconds)
            .sum();
        let busy = self.spent.build_seconds + self.spent.run_seconds + confirming;
        Some((busy / wall).min(1.0))
    }

    /// Of a session. `subject` tells the subject of a tree, `facts` what is known
    /// of the suspects of the verdict, in its order.
    pub fn of(
        session: &Session,
        verdict: Option<&Verdict>,
        subject: &dyn Fn(Place) -> String,
        facts: &[CommitFacts],
    ) -> Self {
        let plan = session.plan();
        let suspects: Vec<Named> = verdict
            .map(suspects)
            .unwrap_or_default()
            .into_iter()
            .zip(facts)
            .map(|(suspect, facts)| Named {
                probability: suspect.probability,
                facts: facts.clone(),
            })
            .collect();
        let steps = steps(session, subject);
        Self {
            sought: sought(&plan.judge),
            searched: searched(&plan.target),
            cell: plan.cell.as_ref().map(|cell| {
                [
                    &cell.topology,
                    &cell.cmdline,
                    &cell.settings,
                    &cell.workload,
                ]
                .map(String::as_str)
                .join(" · ")
            }),
            candidates: plan.target.history().len(),
            ends: session.engine().comparison(),
            explains: explains(session, verdict),
            introduced: introduced(&plan.target, verdict),
            verdict: verdict.cloned(),
            suspects,
            confirmation: Vec::new(),
            caution: None,
            spent: spent(session.entries(), &steps),
            steps,
            environment: None,
        }
    }
}

/// The candidates a verdict names.
pub fn suspects(verdict: &Verdict) -> Vec<Suspect> {
    match verdict {
        Verdict::Found { culprit } => vec![culprit.clone()],
        Verdict::FoundAmong { suspects } | Verdict::Undecided { suspects, .. } => suspects.clone(),
        _ => Vec::new(),
    }
}

fn sought(judge: &Judge) -> String {
    let titled = |what: &str, title: &Option<String>| match title {
        Some(title) => format!("{what} '{title}'"),
        None => what.to_owned(),
    };
    match judge {
        Judge::Metric { metric, .. } => format!("a change of {metric}"),
        Judge::Outcome { class, title } => titled(class, title),
        Judge::Build { complaint } => titled("a build failure", complaint),
        Judge::Subtest { name } => format!("a failure of sub-test '{name}'"),
        Judge::Script { command } => format!("a failure of '{}'", command.join(" ")),
    }
}

fn searched(target: &Target) -> String {
    match target {
        Target::Git { request, .. } => {
            let mut text = format!("{}..{}", request.good, request.bad);
            if request.first_parent {
                text.push_str(" (first parents)");
            }
            if !request.paths.is_empty() {
                text.extend([" -- ", &request.paths.join(" ")]);
            }
            text
        }
        Target::Series { kernel, series, .. } => format!("{kernel}+{series}"),
        Target::Pair { good, bad, .. } => format!("{good} and {bad}"),
    }
}

fn steps(session: &Session, subject: &dyn Fn(Place) -> String) -> Vec<Stop> {
    let engine = session.engine();
    let posterior = engine.posterior();
    let told_apart = posterior.is_some() || matches!(engine.ends(), Ends::Swapped(_));
    let doubt = (1.0 - engine.rules().confidence).max(0.01);
    let mut steps: Vec<Stop> = Vec::new();
    for entry in session.entries() {
        let at = match steps.iter().position(|step| step.place == entry.place) {
            Some(at) => at,
            None => {
                let bad = match entry.place {
                    Place::GoodEnd => Some(0.0),
                    Place::BadEnd => Some(1.0),
                    Place::At(c) => posterior.as_ref().map(|p| p.bad[c as usize]),
                };
                steps.push(Stop {
                    place: entry.place,
                    tree: session.plan().target.tree(entry.place),
                    subject: subject(entry.place),
                    runs: 0,
                    values: Vec::new(),
                    mark: match bad {
                        Some(p) if p <= doubt => Mark::Good,
                        Some(p) if p >= 1.0 - doubt => Mark::Bad,
                        _ => Mark::Unclear,
                    },
                    bad: bad.filter(|_| told_apart),
                    remark: String::new(),
                    build_seconds: 0.0,
                    run_seconds: 0.0,
                });
                steps.len() - 1
            }
        };
        let step = &mut steps[at];
        step.build_seconds += entry.build_seconds;
        step.run_seconds += entry.run_seconds;
        step.runs += u32::from(is_run(entry));
        match &entry.observation {
            Observation::Value { value } => step.values.push(*value),
            Observation::Event { seen } => step.values.push(f64::from(u8::from(*seen))),
            Observation::Untestable { reason } => {
                step.remark.clone_from(reason);
                if step.values.is_empty() {
                    step.mark = Mark::Skip;
                    step.bad = None;
                }
            }
            Observation::SameAs { place } => {
                let tree = session.plan().target.tree(*place);
                step.remark = format!("same image as {}", short(&tree));
            }
            Observation::Good => step.mark = Mark::Good,
            Observation::Bad => step.mark = Mark::Bad,
            Observation::Abort { .. } => {}
        }
    }
    steps
}

/// The mean at the culprit minus the mean at its parents, as a share of the ends'
/// difference.
fn explains(session: &Session, verdict: Option<&Verdict>) -> Option<f64> {
    let Some(Verdict::Found { culprit }) = verdict else {
        return None;
    };
    let engine = session.engine();
    let ends = engine.comparison().filter(|c| c.interval.is_some())?;
    let mean = |place: Place| -> Option<f64> {
        let values = &engine.tally(place)?.values;
        let n = u32::try_from(values.len()).ok().filter(|n| *n > 0)?;
        Some(values.iter().sum::<f64>() / f64::from(n))
    };
    let last = u32::try_from(engine.history().len()).ok()? - 1;
    let at_culprit = mean(Place::At(culprit.candidate)).or_else(|| {
        (culprit.candidate == last)
            .then(|| mean(Place::BadEnd))
            .flatten()
    })?;
    let before = match engine.history().parents(culprit.candidate) {
        [] => mean(Place::GoodEnd)?,
        [parent, ..] => mean(Place::At(*parent))?,
    };
    Some((at_culprit - before) / (ends.bad - ends.good))
}

/// Whether an answer took a run that told something.
pub(super) fn is_run(entry: &Entry) -> bool {
    matches!(
        entry.observation,
        Observation::Value { .. }
            | Observation::Event { .. }
            | Observation::Good
            | Observation::Bad
    )
}

fn spent(entries: &[Entry], steps: &[Stop]) -> Spent {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Spent {
        runs: count(entries.iter().filter(|entry| is_run(entry)).count()),
        trees: count(steps.len()),
        steps: count(
            steps
                .iter()
                .filter(|s| matches!(s.place, Place::At(_)))
                .count(),
        ),
        build_seconds: entries.iter().map(|e| e.build_seconds).sum(),
        run_seconds: entries.iter().map(|e| e.run_seconds).sum(),
        wall_seconds: None,
    }
}

fn introduced(target: &Target, verdict: Option<&Verdict>) -> Option<String> {
    let Target::Git { range, .. } = target else {
        return None;
    };
    let id = |candidate: u32| range.history.id(candidate);
    match verdict? {
        Verdict::Found { culprit } => Some(id(culprit.candidate).to_owned()),
        Verdict::FoundAmong { suspects } => {
            let first = suspects.first()?.candidate;
            let before = match range.history.parents(first) {
                [] => range.good.as_str(),
                [parent, ..] => id(*parent),
            };
            Some(format!("{before}..{}", id(suspects.last()?.candidate)))
        }
        _ => None,
    }
}
