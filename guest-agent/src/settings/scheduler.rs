//! Scheduler switches that moved between kernels.

use std::fs;
use std::path::{Path, PathBuf};

use topolab_protocol::settings::SettingRecord;

use super::{Journal, SettingError, Undo, put, read};
use crate::observe::itmt_files;

/// Turns a scheduler feature on or off.
pub fn feature(journal: &mut Journal, name: &str, on: bool) -> Result<SettingRecord, SettingError> {
    let debug = journal.root.join("sys/kernel/debug");
    // debugfs/sched/features since 5.13, debugfs/sched_features before.
    let path = first_of(
        "list of scheduler features",
        vec![debug.join("sched/features"), debug.join("sched_features")],
    )?;
    let before = state(&path, name)?;
    let word = |on: bool| {
        if on {
            name.to_string()
        } else {
            format!("NO_{name}")
        }
    };
    put(&path, &word(on))?;
    journal.undo.push(Undo::Write {
        path: path.clone(),
        value: word(before),
    });
    let now = state(&path, name)?;
    if now != on {
        return Err(SettingError::NotTaken {
            path,
            wanted: word(on),
            got: word(now),
        });
    }
    Ok(SettingRecord {
        what: format!("{} {name}", journal.shown(&path)),
        before: Some(word(before)),
        wanted: word(on),
        got: word(now),
    })
}

fn state(path: &Path, name: &str) -> Result<bool, SettingError> {
    let text = read(path)?;
    let mut words = text.split_whitespace();
    words
        .find_map(|word| match word.strip_prefix("NO_") {
            Some(off) if off == name => Some(false),
            _ => (word == name).then_some(true),
        })
        .ok_or_else(|| SettingError::NoFeature {
            name: name.to_string(),
            known: text
                .split_whitespace()
                .map(|word| word.strip_prefix("NO_").unwrap_or(word).to_string())
                .collect(),
        })
}

/// Sets the fair server's runtime on every CPU (kernels from 6.12 on).
pub fn fair_server(journal: &mut Journal, runtime_ns: u64) -> Result<SettingRecord, SettingError> {
    let folder = journal.root.join("sys/kernel/debug/sched/fair_server");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|cpu| cpu.path().join("runtime"))
        .filter(|file| file.exists())
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(SettingError::NoSwitch {
            what: "fair server",
            places: vec![folder],
        });
    }
    let wanted = runtime_ns.to_string();
    let mut befores = Vec::new();
    for file in &files {
        let record = journal.write(file, &wanted)?;
        befores.extend(record.before);
    }
    befores.dedup();
    Ok(SettingRecord {
        what: format!("{}/cpu*/runtime", journal.shown(&folder)),
        before: Some(befores.join(" ")),
        wanted: wanted.clone(),
        got: wanted,
    })
}

/// Turns the preferred-core ranking on or off.
pub fn itmt(journal: &mut Journal, on: bool) -> Result<SettingRecord, SettingError> {
    let path = first_of("ITMT switch", itmt_files(&journal.root).into())?;
    journal.write(&path, if on { "1" } else { "0" })
}

fn first_of(what: &'static str, places: Vec<PathBuf>) -> Result<PathBuf, SettingError> {
    match places.iter().find(|place| place.exists()) {
        Some(place) => Ok(place.clone()),
        None => Err(SettingError::NoSwitch { what, places }),
    }
}

#[cfg(test)]
mod tests {
    use topolab_protocol::settings::Settings;

    use super::*;

    fn with(path: &str, content: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        root
    }

    #[test]
    fn features_are_found_in_both_layouts() {
        for layout in ["sched/features", "sched_features"] {
            let path = format!("sys/kernel/debug/{layout}");
            let root = with(&path, "PLACE_LAG NO_RT_PUSH_IPI\n");
            let mut journal = Journal::new(root.path());
            // A plain file shows the word that was written.
            let record = feature(&mut journal, "RT_PUSH_IPI", true).unwrap();
            assert_eq!(record.before.as_deref(), Some("NO_RT_PUSH_IPI"));
            assert_eq!(record.got, "RT_PUSH_IPI");
            assert!(journal.undo().is_empty());
            let now = fs::read_to_string(root.path().join(&path)).unwrap();
            assert_eq!(now, "NO_RT_PUSH_IPI");
        }
    }

    #[test]
    fn a_feature_the_kernel_lacks_is_not_testable() {
        let root = with("sys/kernel/debug/sched/features", "PLACE_LAG NO_HRTICK");
        let mut journal = Journal::new(root.path());
        let error = feature(&mut journal, "DELAY_DEQUEUE", false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this kernel has no scheduler feature DELAY_DEQUEUE; it has PLACE_LAG HRTICK"
        );
    }

    #[test]
    fn missing_switches_say_where_they_were_looked_for() {
        let root = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(root.path());
        let error = itmt(&mut journal, true).unwrap_err().to_string();
        assert!(error.contains("sched_itmt_enabled and "), "{error}");
        let error = fair_server(&mut journal, 0).unwrap_err().to_string();
        assert!(
            error.starts_with("this kernel has no fair server"),
            "{error}"
        );
    }

    #[test]
    fn the_fair_server_is_set_on_every_cpu() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/kernel/debug/sched/fair_server");
        for cpu in 0..3 {
            fs::create_dir_all(folder.join(format!("cpu{cpu}"))).unwrap();
            fs::write(folder.join(format!("cpu{cpu}/runtime")), "50000000").unwrap();
        }
        let mut journal = Journal::new(root.path());
        let settings = Settings {
            fair_server_runtime_ns: Some(0),
            ..Settings::default()
        };
        let records = journal.apply(&settings).unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].before.as_deref(), Some("50000000"));
        let now = |cpu| fs::read_to_string(folder.join(format!("cpu{cpu}/runtime"))).unwrap();
        assert_eq!(now(2), "0");
        assert!(journal.undo().is_empty());
        assert_eq!(now(0), "50000000");
    }
}
