//! Campaigns to which rounds are added until something is decided, and what a
//! plan costs before it is carried out.

mod faked;

use std::process::Output;

use faked::Place;
use topolab::store;

/// A value that is always the same, and values that are scattered widely; the
/// scattered ones differ from each other by chance only.
const EXPERIMENT: &str = "\
name: grows
kernels: [fake]
topologies: [one-core]
cmdlines: {scattered: fake=works, too: fake=works again, constant: fake=good}
workloads: {run: {command: {argv: [\"true\"]}}}
rounds: 4
compare: {baseline: {cmdlines: scattered}, metrics: {things: {better: lower}}}
";

fn run(place: &Place, args: &[&str]) -> (Output, String) {
    let output = place.topolab(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

fn until_decided(place: &Place, only: &[&str], most: &str, results: &str) -> (Output, String) {
    let mut args = vec!["run", "faked", "--seed", "7", "--accel", "tcg"];
    args.extend(only.iter().flat_map(|cell| ["--only", cell]));
    args.extend(["--until", "decided", "--max-rounds", most]);
    args.extend(["--output", results]);
    run(place, &args)
}

#[test]
fn rounds_are_added_until_the_difference_is_plain() {
    let place = Place::new(EXPERIMENT);
    let (output, said) = until_decided(&place, &["scattered", "constant"], "40", "plain");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let results = store::load(&place.path("plain")).unwrap();
    let looks = &results.meta.looks;
    // Four runs a side cannot pass the level of a first look.
    assert_eq!(looks[0], 4, "{said}");
    assert!(looks.len() >= 2 && results.meta.rounds < 40, "{looks:?}");
    assert_eq!(looks.last(), Some(&results.meta.rounds));
    let per_cell = results.records.len() / 2;
    assert_eq!(per_cell, results.meta.rounds as usize);
    assert!(said.contains("undecided after 4 rounds, "), "{said}");
    assert!(said.contains("decided after "), "{said}");
}

#[test]
fn what_no_number_of_rounds_in_reach_decides_is_named() {
    let place = Place::new(EXPERIMENT);
    let (output, said) = until_decided(&place, &["scattered", "too"], "7", "hopeless");
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(
        said.contains("undecided after 7 rounds: things in "),
        "{said}"
    );
    let results = store::load(&place.path("hopeless")).unwrap();
    assert_eq!(results.meta.looks, [4, 7]);
    assert_eq!(results.records.len(), 14);
    // Going on with it neither runs anything nor spends another look.
    let (output, said) = run(&place, &["run", "--resume", "hopeless", "--accel", "tcg"]);
    assert_eq!(output.status.code(), Some(6), "{said}");
    let again = store::load(&place.path("hopeless")).unwrap();
    assert_eq!(again.meta.looks, [4, 7]);
    assert_eq!(again.records, results.records);
}

#[test]
fn more_rounds_extend_the_order_and_change_none_of_it() {
    let place = Place::new(EXPERIMENT);
    until_decided(&place, &["scattered", "too"], "7", "grown");
    let fixed = [
        "run",
        "faked",
        "--seed",
        "7",
        "--accel",
        "tcg",
        "--only",
        "scattered",
        "--only",
        "too",
        "--rounds",
        "7",
        "--output",
        "fixed",
    ];
    run(&place, &fixed);
    let order = |name: &str| {
        let results = store::load(&place.path(name)).unwrap();
        let records = results.records.into_iter();
        records
            .map(|record| (record.index, record.cell, record.samples))
            .collect::<Vec<_>>()
    };
    assert_eq!(order("grown"), order("fixed"));
}

#[test]
fn rounds_are_not_added_to_warm_campaigns() {
    let place = Place::new(&format!("{EXPERIMENT}boot: warm\n"));
    let (output, said) = until_decided(&place, &[], "7", "warm");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("write more `boots:`"), "{said}");
    assert!(!place.path("warm").exists());
}
