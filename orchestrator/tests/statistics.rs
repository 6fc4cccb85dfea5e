//! Our statistics against those of scipy, numpy and statsmodels
//! (`tests/fixtures/statistics.py` made the values and says how).

use serde_json::Value;
use topolab::stats::{
    Sample,
    bootstrap::{Bootstrap, t_quantile},
    correction::Correction,
    permutation,
    power::runs_needed,
    rank::{mann_whitney, trend},
    summary::{Summary, geometric_mean, quantile, sorted},
};

fn fixtures(part: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("fixtures/statistics.json")).unwrap();
    let list = all[part].as_array().unwrap().clone();
    assert!(!list.is_empty());
    list
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect()
}

#[track_caller]
fn close(ours: f64, theirs: &Value, tolerance: f64, about: &Value) {
    let theirs = theirs.as_f64().unwrap();
    let scale = theirs.abs().max(1e-12);
    assert!(
        (ours - theirs).abs() <= tolerance * scale,
        "ours {ours}, theirs {theirs}: {about}"
    );
}

#[test]
fn summaries() {
    for case in fixtures("summaries") {
        let values = numbers(&case["values"]);
        let summary = Summary::of(&values).unwrap();
        close(summary.mean, &case["mean"], 1e-12, &case);
        close(summary.sd, &case["sd"], 1e-12, &case);
        match summary.cov {
            Some(cov) => close(cov, &case["cov"], 1e-12, &case),
            None => assert!(case["cov"].is_null(), "{case}"),
        }
        let sorted = sorted(&values);
        for (p, theirs) in case["quantiles"].as_object().unwrap() {
            close(quantile(&sorted, p.parse().unwrap()), theirs, 1e-12, &case);
        }
        match geometric_mean(&values) {
            Some(mean) => close(mean, &case["geometric_mean"], 1e-12, &case),
            None => assert!(case["geometric_mean"].is_null(), "{case}"),
        }
    }
}

#[test]
fn mann_whitney_and_exact_permutations() {
    let mut exact = 0;
    for case in fixtures("pairs") {
        let (base, new) = (numbers(&case["base"]), numbers(&case["new"]));
        let rank = mann_whitney(&base, &new).unwrap();
        close(rank.u, &case["mann_whitney_u"], 1e-12, &case);
        close(rank.p, &case["mann_whitney_p"], 1e-9, &case);
        if !case["permutation_p"].is_null() {
            exact += 1;
            close(
                permutation::p_value(&base, &new, 1),
                &case["permutation_p"],
                1e-9,
                &case,
            );
        }
    }
    assert!(exact >= 6);
}

#[test]
fn corrections() {
    for case in fixtures("corrections") {
        let p = numbers(&case["p"]);
        for (correction, name) in [
            (Correction::Holm, "holm"),
            (Correction::BenjaminiHochberg, "benjamini_hochberg"),
        ] {
            for (ours, theirs) in correction
                .adjust(&p)
                .iter()
                .zip(case[name].as_array().unwrap())
            {
                close(*ours, theirs, 1e-12, &case);
            }
        }
    }
}

#[test]
fn quantiles_of_t() {
    for case in fixtures("quantiles_of_t") {
        let ours = t_quantile(
            case["p"].as_f64().unwrap(),
            case["freedom"].as_f64().unwrap(),
        );
        let theirs = case["t"].as_f64().unwrap();
        assert!(
            (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1.0),
            "ours {ours}: {case}"
        );
    }
}

/// The classic formula with t quantiles against the noncentral t: at most one
/// run apart, and never fewer.
#[test]
fn runs_for_a_power() {
    for case in fixtures("runs_needed") {
        let (cov, shift) = (
            case["cov"].as_f64().unwrap(),
            case["shift"].as_f64().unwrap(),
        );
        let ours = runs_needed(cov * 2f64.sqrt(), shift, 0.05, 0.95).unwrap() as f64;
        let theirs = case["runs"].as_f64().unwrap().ceil();
        assert!(
            ours >= theirs && ours <= theirs + 1.0,
            "ours {ours}: {case}"
        );
    }
}

#[test]
fn trends() {
    for case in fixtures("trends") {
        let (rho, p) = trend(&numbers(&case["values"])).unwrap();
        close(rho, &case["rho"], 1e-9, &case);
        close(p, &case["p"], 1e-6, &case);
    }
}

#[test]
fn bootstrap_intervals_of_many_values() {
    let bootstrap = Bootstrap {
        resamples: 20_000,
        seed: 1,
        alpha: 0.05,
    };
    for case in fixtures("bootstraps") {
        let sample = |side: &str| Sample::independent(&numbers(&case[side]));
        let change = bootstrap.change(&sample("base"), &sample("new")).unwrap();
        let (low, high) = (
            case["low"].as_f64().unwrap(),
            case["high"].as_f64().unwrap(),
        );
        let slack = 0.03 * (high - low);
        assert!(
            (change.interval.low - low).abs() < slack,
            "{:?} {low} {high}",
            change.interval
        );
        assert!(
            (change.interval.high - high).abs() < slack,
            "{:?} {low} {high}",
            change.interval
        );
    }
}
