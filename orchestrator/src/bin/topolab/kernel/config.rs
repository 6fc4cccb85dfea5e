//! `topolab kernel config`: what options became, and why.

use std::{path::Path, process::ExitCode};

use clap::Args;
use topolab::kernel::{self, Ccache, KernelRef, OptionStory, Value};

use super::{builder, failure, find, progress::Progress, runtime};
use crate::{failure::Failure, folders::Folders, terminal::Terminal};

/// Arguments of `topolab kernel config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// KERNEL[+SERIES][@VARIANT]
    #[arg(value_name = "KERNEL")]
    kernel: KernelRef,
    /// Tell where an option comes from, or what keeps it off (can be repeated)
    #[arg(long, value_name = "OPTION")]
    why: Vec<String>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// Configures the kernel and tells. An option that got lost makes the exit code 3.
pub fn run(
    folder: Option<&Path>,
    args: &ConfigArgs,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let builder = builder(&folders, None, Ccache::Use);
    let kernel = find(folder, &args.kernel.kernel)?;
    let progress = Progress::new(*terminal);
    let listen = |event| progress.on(&event);
    let configured = runtime()?
        .block_on(kernel::configure(&builder, &kernel, &args.kernel, &listen))
        .map_err(|error| failure(&error))?;
    let stories: Vec<OptionStory> = args.why.iter().map(|o| configured.story(o)).collect();
    for lost in &configured.lost {
        terminal.warn(lost);
    }
    if args.json {
        let options: serde_json::Map<String, serde_json::Value> = configured
            .config
            .options()
            .map(|(name, value)| (name.to_owned(), value.to_string().into()))
            .collect();
        let lost: Vec<String> = configured.lost.iter().map(ToString::to_string).collect();
        let why: Vec<serde_json::Value> = stories.iter().map(story_json).collect();
        terminal.json(&serde_json::json!({
            "kernel": args.kernel.to_string(),
            "options": options,
            "lost": lost,
            "why": why,
        }));
    } else if stories.is_empty() {
        terminal.answer(configured.text.trim_end());
    } else {
        for story in &stories {
            terminal.answer(story_text(story));
        }
    }
    Ok(if configured.lost.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}

fn story_text(story: &OptionStory) -> String {
    let mut lines = vec![format!("CONFIG_{}={}", story.option, story.value)];
    for wanted in &story.asked {
        lines.push(format!(
            "  asked for as {} in {}:{}",
            wanted.setting.value,
            wanted.file.display(),
            wanted.setting.line
        ));
    }
    if !story.why.defined.is_empty() {
        lines.push(format!("  defined in {}", story.why.defined.join(", ")));
    }
    let verb = if story.value == Value::No {
        "it is off"
    } else {
        "it is on"
    };
    for cause in &story.why.causes {
        match cause {
            kernel::kconfig::Cause::Unclear if story.value != Value::No => {
                let by = if story.asked.is_empty() {
                    "by its default, or because the base configuration says so"
                } else {
                    "because it was asked for"
                };
                lines.push(format!("  {verb}: {by}"));
            }
            kernel::kconfig::Cause::Unclear => {
                let why = if story.asked.is_empty() {
                    "nothing asks for it; its dependencies are met".to_owned()
                } else {
                    cause.to_string()
                };
                lines.push(format!("  {verb}: {why}"));
            }
            cause => lines.push(format!("  {verb}: {cause}")),
        }
    }
    lines.join("\n")
}

fn story_json(story: &OptionStory) -> serde_json::Value {
    let causes: Vec<String> = story.why.causes.iter().map(ToString::to_string).collect();
    let asked: Vec<serde_json::Value> = story
        .asked
        .iter()
        .map(|wanted| {
            serde_json::json!({
                "file": wanted.file,
                "line": wanted.setting.line,
                "value": wanted.setting.value.to_string(),
            })
        })
        .collect();
    serde_json::json!({
        "option": story.option,
        "value": story.value.to_string(),
        "asked": asked,
        "defined": story.why.defined,
        "causes": causes,
    })
}
