//! What the documents show is held against the program.

use std::{fs, path::Path, process::Command};

use topolab::{document::Document, plan::ExperimentSpec};

fn checkout() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(fence.as_str())
        .skip(1)
        .filter_map(|rest| rest.split("\n```").next())
        .collect()
}

#[test]
fn experiments_in_the_readme_are_sound() {
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    let experiments = blocks(&readme, "yaml");
    assert!(!experiments.is_empty());
    for text in experiments {
        let document = Document::from_text("README.md", text).unwrap();
        ExperimentSpec::from_document(&document).unwrap_or_else(|problems| panic!("{problems}"));
    }
}

#[test]
fn the_topology_in_the_readme_is_what_show_prints() {
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    let block = blocks(&readme, "text")
        .into_iter()
        .find(|block| block.starts_with("$ topolab topology show"))
        .unwrap();
    let (command, shown) = block.split_once('\n').unwrap();
    let words: Vec<&str> = command.split_whitespace().skip(2).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .current_dir(checkout())
        .args(words)
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.starts_with(shown),
        "the README shows:\n{shown}\nthe program prints:\n{printed}"
    );
}

#[test]
fn every_shipped_experiment_is_sound() {
    let folder = checkout().join("experiments");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let spec = ExperimentSpec::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
            assert_eq!(
                Some(&*spec.name.value),
                path.file_stem().and_then(|stem| stem.to_str())
            );
            seen += 1;
        }
    }
    assert!(seen > 0);
}
