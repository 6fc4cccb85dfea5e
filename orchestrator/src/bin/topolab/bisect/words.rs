//! What a person is told: failures with their next step, and progress.

use std::process::ExitCode;

use topolab::bisect::{
    DriveError, Observation, Place, Progress, Verdict,
    git::{RangeError, short},
    session::SessionError,
    text::duration,
};
use topolab::report::number::number;

use crate::{
    failure::{Failure, Kind},
    terminal::Terminal,
};

/// A range that cannot be searched.
pub fn range(error: &RangeError) -> Failure {
    let failure = match error {
        RangeError::Git(_) => Failure::of(Kind::Lab, error),
        // What git says there adds nothing to "not in a git repository".
        RangeError::NotARepository { .. } => Failure::request(error),
        _ => Failure::of(Kind::Request, error),
    };
    match error {
        RangeError::NotARepository { .. } => failure.hint("--repo DIR"),
        RangeError::Unknown { repo, shallow: true, .. } | RangeError::Unrelated { repo, shallow: true, .. } => {
            failure.hint(format_args!(
                "the repository is shallow, it holds only a part of its history: git -C {} fetch --unshallow",
                repo.display()
            ))
        }
        RangeError::Unknown { repo, .. } | RangeError::UnknownSkip { repo, .. } => failure.hint(format_args!(
            "git -C {} fetch --tags; git -C {} log --oneline -5",
            repo.display(),
            repo.display()
        )),
        RangeError::Swapped { good, bad } => {
            failure.hint(format_args!("--good {bad} --bad {good}"))
        }
        RangeError::Apart { base, .. } => failure.hint(format_args!(
            "if the place where they part is good: --good {base}"
        )),
        RangeError::NothingTouches { good, bad, .. } => {
            failure.hint(format_args!("git log --oneline --stat {good}..{bad}"))
        }
        _ => failure,
    }
}

/// A folder that cannot be used.
pub fn session(error: &SessionError) -> Failure {
    let kind = match error {
        SessionError::NotABisection(_) | SessionError::Version { .. } => Kind::Request,
        _ => Kind::Lab,
    };
    Failure::of(kind, error)
}

/// A search that did not come to its end.
pub fn drive(error: &DriveError, folder: &std::path::Path) -> Failure {
    let failure = match error {
        DriveError::Session(inner) => session(inner),
        DriveError::Interrupted { .. } => Failure::of(Kind::Lab, error),
    };
    failure.hint(format_args!("topolab bisect --resume {}", folder.display()))
}

/// The exit code of a verdict: found is good, an end that is not what it was said
/// to be was a wrong request.
pub fn exit_code(verdict: &Verdict) -> ExitCode {
    ExitCode::from(match verdict {
        Verdict::Found { .. } | Verdict::FoundAmong { .. } => 0,
        Verdict::EndsSwapped { .. } | Verdict::EndRefused { .. } => 2,
        Verdict::Aborted { .. } => 5,
        Verdict::EndsAlike { .. } | Verdict::Undecided { .. } | Verdict::Contradiction { .. } => 6,
    })
}

/// Tells how the search goes on.
pub fn progress(progress: &Progress, json: bool, terminal: Terminal) {
    if json {
        if let Ok(line) = serde_json::to_string(progress) {
            terminal.say(line);
        }
        return;
    }
    match progress {
        Progress::Asked {
            place,
            tree,
            run,
            suspects,
            runs_left,
            seconds_left,
        } => {
            let left = match (runs_left, seconds_left) {
                (Some(runs), Some(seconds)) => format!(
                    "; {suspects} suspects, about {} and {} left",
                    plural(runs.ceil().max(1.0)),
                    duration(*seconds)
                ),
                _ => String::new(),
            };
            terminal.detail(format_args!(
                "measuring {} (run {run}){left}",
                name(*place, tree)
            ));
            if *run == 1 {
                terminal.say(format_args!("{}{left}", name(*place, tree)));
            }
        }
        Progress::Built { tree, seconds } if *seconds >= 1.0 => {
            terminal.say(format_args!(
                "  {} is ready after {}",
                short(tree),
                duration(*seconds)
            ));
        }
        Progress::Built { .. } => {}
        Progress::Again { attempt, reason } => {
            terminal.warn(format_args!("try {attempt} gave no answer: {reason}"));
        }
        Progress::Answered { tree, entry } => {
            let what = match &entry.observation {
                Observation::Value { value } => number(*value),
                Observation::Event { seen: true } => "seen".to_owned(),
                Observation::Event { seen: false } => "not seen".to_owned(),
                Observation::Good => "good".to_owned(),
                Observation::Bad => "bad".to_owned(),
                Observation::Untestable { reason } => format!("skipped: {reason}"),
                Observation::SameAs { place } => match place {
                    Place::GoodEnd => "same image as the good end".to_owned(),
                    Place::BadEnd => "same image as the bad end".to_owned(),
                    Place::At(_) => "same image as an earlier one".to_owned(),
                },
                Observation::Abort { reason } => format!("stopped: {reason}"),
            };
            terminal.say(format_args!("  {}: {what}", short(tree)));
        }
    }
}

fn plural(runs: f64) -> String {
    if runs > 1.0 {
        format!("{runs:.0} runs")
    } else {
        "1 run".to_owned()
    }
}

fn name(place: Place, tree: &str) -> String {
    match place {
        Place::GoodEnd => format!("good end {}", short(tree)),
        Place::BadEnd => format!("bad end {}", short(tree)),
        Place::At(_) => short(tree).to_owned(),
    }
}
