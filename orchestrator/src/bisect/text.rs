//! A bisection as text: for the terminal, and as facts for a mail.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::account::{Account, Confirmation, Stop};
use super::ends::Comparison;
use super::git::short;
use super::observation::Place;
use super::verdict::Verdict;
use crate::report::number::number;

/// The whole account, at most `width` columns wide where that is possible.
pub fn render(account: &Account, width: u16) -> String {
    let mut text = format!(
        "Searched {} for {}: {}\n",
        account.searched,
        account.sought,
        plural(account.candidates, "candidate")
    );
    if let Some(cell) = &account.cell {
        let _ = writeln!(text, "Cell: {cell}");
    }
    if let Some(ends) = &account.ends {
        let _ = writeln!(text, "Ends: {}", ends_line(ends));
    }
    if !account.steps.is_empty() {
        let _ = writeln!(text, "\n{}", path(account, width));
    }
    let _ = write!(text, "\n{}", conclusion(account));
    for confirmation in &account.confirmation {
        let _ = writeln!(text, "{}", confirmation_line(confirmation));
    }
    if let Some(caution) = &account.caution {
        let _ = writeln!(text, "caution: {caution}");
    }
    let _ = writeln!(text, "\n{}", spent_line(account));
    text
}

/// What a fresh comparison said.
pub fn confirmation_line(confirmation: &Confirmation) -> String {
    let word = match confirmation.agrees {
        Some(true) => "confirmed",
        Some(false) => "not confirmed",
        None => "undecided",
    };
    format!("{word}: {}: {}", confirmation.what, confirmation.detail)
}

/// How it ended, with the suspects.
pub fn conclusion(account: &Account) -> String {
    let mut text = String::new();
    let Some(verdict) = &account.verdict else {
        return "It is not at its end.\n".to_owned();
    };
    match verdict {
        Verdict::Found { culprit } => {
            let _ = writeln!(
                text,
                "The culprit, with {}:",
                confidence(culprit.probability)
            );
        }
        Verdict::FoundAmong { suspects } => {
            let mass: f64 = suspects.iter().map(|s| s.probability).sum();
            let _ = writeln!(
                text,
                "The culprit is one of {}, with {}; no tree that can be tested tells them apart:",
                plural(suspects.len(), "candidate"),
                confidence(mass)
            );
        }
        Verdict::Undecided { suspects, reason } => {
            let _ = writeln!(text, "Undecided: {reason}.");
            if !suspects.is_empty() {
                let _ = writeln!(
                    text,
                    "Most probable of {}:",
                    plural(suspects.len(), "suspect")
                );
            }
        }
        Verdict::EndsAlike { ends } => text.push_str(&alike(ends)),
        Verdict::EndsSwapped { ends } => {
            let _ = writeln!(
                text,
                "The ends are swapped: the good end is the worse one ({}).",
                ends_line(ends)
            );
        }
        Verdict::EndRefused { reason } => {
            let _ = writeln!(text, "Nothing to search: {reason}.");
        }
        Verdict::Contradiction { reason } => {
            let _ = writeln!(text, "The answers contradict each other: {reason}.");
        }
        Verdict::Aborted { reason } => {
            let _ = writeln!(text, "Stopped: {reason}. Every answer is kept.");
        }
    }
    let is_found = matches!(verdict, Verdict::Found { .. });
    for suspect in account.suspects.iter().take(10) {
        let facts = &suspect.facts;
        let _ = write!(text, "\n  {} (\"{}\")", short(&facts.id), facts.subject);
        if !is_found {
            let _ = write!(text, "  {}", percent(suspect.probability));
        }
        text.push('\n');
        if !facts.author.is_empty() || !facts.date.is_empty() {
            let _ = writeln!(
                text,
                "  {}",
                [facts.author.as_str(), &facts.date].join("  ").trim()
            );
        }
        if is_found && !facts.diffstat.is_empty() {
            for line in facts.diffstat.lines() {
                let _ = writeln!(text, "  {}", line.trim_end());
            }
        }
    }
    if account.suspects.len() > 10 {
        let _ = writeln!(text, "\n  and {} more", account.suspects.len() - 10);
    }
    if let Some(share) = account.explains.filter(|share| *share < 0.7) {
        let _ = writeln!(
            text,
            "\nIt accounts for {} of the difference between the ends: other commits change it too.",
            percent(share)
        );
    }
    text
}

fn alike(ends: &Comparison) -> String {
    let mut text = format!("The ends do not differ: {}.\n", ends_line(ends));
    match ends.runs_needed {
        Some(runs) => {
            let _ = writeln!(
                text,
                "If what was seen is the truth, about {} of each end would show it.",
                plural(runs as usize, "run")
            );
        }
        None if ends.min_effect > 0.0 => {
            let _ = writeln!(
                text,
                "The difference seen is below the smallest one worth finding ({}).",
                number(ends.min_effect)
            );
        }
        None => {
            text.push_str("No number of runs would show a difference as small as the one seen.\n");
        }
    }
    text
}

/// The ends in one line.
pub fn ends_line(ends: &Comparison) -> String {
    let Some((low, high)) = ends.interval else {
        let what = match ends.threshold {
            Some(threshold) => format!("runs beyond {}", number(threshold)),
            None => "runs that show it".to_owned(),
        };
        let of = |share: f64, runs: u32| {
            format!("{} of {runs}", number((share * f64::from(runs)).round()))
        };
        return format!(
            "{what}: good {}, bad {}",
            of(ends.good, ends.good_runs),
            of(ends.bad, ends.bad_runs)
        );
    };
    let side = |mean: f64, sd: f64, runs: u32| {
        format!(
            "{} ± {} ({})",
            number(mean),
            number(sd),
            plural(runs as usize, "run")
        )
    };
    format!(
        "good {}, bad {}, difference {} [{}, {}]",
        side(ends.good, ends.good_sd, ends.good_runs),
        side(ends.bad, ends.bad_sd, ends.bad_runs),
        number(ends.bad - ends.good),
        number(low),
        number(high)
    )
}

fn path(account: &Account, width: u16) -> String {
    let is_rate = account.ends.as_ref().is_none_or(|e| e.interval.is_none());
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header([
            "", "tree", "runs", "seen", "P(bad)", "mark", "build s", "run s", "subject",
        ]);
    for column in [2usize, 3, 4, 6, 7] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for (number_of, step) in account.steps.iter().enumerate() {
        let name = match step.place {
            Place::GoodEnd => "good".to_owned(),
            Place::BadEnd => "bad".to_owned(),
            Place::At(_) => (number_of.saturating_sub(1)).to_string(),
        };
        let subject = if step.remark.is_empty() {
            step.subject.clone()
        } else {
            format!("{} ({})", step.subject, step.remark)
        };
        table.add_row([
            name,
            short(&step.tree).to_owned(),
            step.runs.to_string(),
            seen(step, is_rate),
            step.bad.map(|p| format!("{p:.3}")).unwrap_or_default(),
            step.mark.word().to_owned(),
            format!("{:.0}", step.build_seconds),
            format!("{:.0}", step.run_seconds),
            subject,
        ]);
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// What the runs of a step showed, in few characters.
pub fn seen(step: &Stop, is_rate: bool) -> String {
    let n = u32::try_from(step.values.len()).unwrap_or(u32::MAX);
    if n == 0 {
        return String::new();
    }
    let sum: f64 = step.values.iter().sum();
    if is_rate && step.values.iter().all(|v| *v == 0.0 || *v == 1.0) {
        return format!("{} of {n}", number(sum));
    }
    let mean = sum / f64::from(n);
    if n == 1 {
        return number(mean);
    }
    let squares: f64 = step.values.iter().map(|v| (v - mean).powi(2)).sum();
    format!(
        "{} ± {}",
        number(mean),
        number((squares / f64::from(n - 1)).sqrt())
    )
}

/// What it took: runs, trees and time.
pub fn spent_line(account: &Account) -> String {
    let spent = &account.spent;
    let mut text = format!(
        "{}, {} ({} between the ends); building {}, running {}",
        plural(spent.runs as usize, "run"),
        plural(spent.trees as usize, "tree"),
        spent.steps,
        duration(spent.build_seconds),
        duration(spent.run_seconds),
    );
    let sum = |of: fn(&Confirmation) -> f64| account.confirmation.iter().map(of).sum::<f64>();
    let confirming: u32 = account.confirmation.iter().map(|c| c.runs).sum();
    if confirming > 0 {
        let _ = write!(
            text,
            "; confirming: {}, building {}, running {}",
            plural(confirming as usize, "run"),
            duration(sum(|c| c.build_seconds)),
            duration(sum(|c| c.run_seconds)),
        );
    }
    if let (Some(wall), Some(share)) = (spent.wall_seconds, account.busy_share()) {
        let _ = write!(
            text,
            "; in all {} ({} of it building and running)",
            duration(wall),
            percent(share)
        );
    }
    text
}

/// The facts for a mail, without opinion; empty when there is nothing to tell.
pub fn mail(account: &Account) -> String {
    let (Some(verdict), Some(first)) = (&account.verdict, account.suspects.first()) else {
        return String::new();
    };
    let mut text = String::new();
    let of_runs = format!(
        "{} over {}",
        plural(account.spent.runs as usize, "run"),
        plural(account.spent.trees as usize, "tree")
    );
    match verdict {
        Verdict::Found { culprit } => {
            let _ = writeln!(
                text,
                "{} in {} ({}) first appears with\n\n  {} (\"{}\")\n",
                capital(&account.sought),
                account.searched,
                plural(account.candidates, "candidate"),
                short(&first.facts.id),
                first.facts.subject
            );
            let _ = writeln!(text, "with {}, {of_runs}.", confidence(culprit.probability));
        }
        Verdict::FoundAmong { suspects } => {
            let _ = writeln!(
                text,
                "{} in {} first appears with one of these {}, which no buildable tree tells apart ({of_runs}):\n",
                capital(&account.sought),
                account.searched,
                plural(suspects.len(), "candidate")
            );
            for suspect in &account.suspects {
                let _ = writeln!(
                    text,
                    "  {} (\"{}\")",
                    short(&suspect.facts.id),
                    suspect.facts.subject
                );
            }
        }
        _ => return String::new(),
    }
    if let Some(ends) = &account.ends {
        let _ = writeln!(text, "Ends: {}.", ends_line(ends));
    }
    for confirmation in account
        .confirmation
        .iter()
        .filter(|c| c.agrees == Some(true))
    {
        let _ = writeln!(
            text,
            "Measured again, {}: {}.",
            confirmation.what, confirmation.detail
        );
    }
    if let Some(cell) = &account.cell {
        let _ = writeln!(text, "Guest: {cell}.");
    }
    if let Some(env) = &account.environment {
        let _ = writeln!(
            text,
            "Bench: {}, QEMU {}, {}, host kernel {}; guest configuration {}.",
            env.accel,
            env.qemu,
            env.host_cpu,
            env.host_kernel,
            env.kernel_config.get(..12).unwrap_or(&env.kernel_config)
        );
    }
    if let Some(caution) = &account.caution {
        let _ = writeln!(text, "{}.", capital(caution));
    }
    if let Some(introduced) = &account.introduced {
        let _ = writeln!(text, "\n#regzbot introduced: {introduced}");
    }
    text
}

fn confidence(probability: f64) -> String {
    if probability > 0.9999 {
        "confidence above 99.99 %".to_owned()
    } else {
        format!("confidence {:.2} %", 100.0 * probability)
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Seconds as `48 s`, `12 min 5 s` or `3 h 20 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0);
    let (hours, minutes) = ((whole / 3600.0).floor(), (whole % 3600.0 / 60.0).floor());
    if hours > 0.0 {
        format!("{hours} h {minutes} min")
    } else if minutes > 0.0 {
        format!("{minutes} min {} s", whole % 60.0)
    } else {
        format!("{whole} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        assert_eq!(duration(48.4), "48 s");
        assert_eq!(duration(725.0), "12 min 5 s");
        assert_eq!(duration(12_000.0), "3 h 20 min");
    }
}
