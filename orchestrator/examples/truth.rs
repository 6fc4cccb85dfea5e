//! How often the verdicts are right: campaigns in which nothing changed, and
//! campaigns with a planted shift. Prints the tables of `docs/statistics.md`.
//!
//!     cargo run --release --example truth [RESULTS…]
//!
//! With results folders, each of their cells is dealt into two halves at random
//! and compared with itself instead.

use std::path::Path;

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use topolab::{
    compare::metric_names,
    stats::{
        Sample,
        judge::{CompareSpec, Effect},
        sequential::{Next, next},
        verdict::{Doubt, Measured, Rules, Verdict, judge, measure},
    },
    store,
};
use topolab_protocol::sample::Better;

/// Campaigns of each kind.
const CAMPAIGNS: usize = 2000;

type Draw = fn(&mut ChaCha8Rng) -> f64;

fn normal(random: &mut ChaCha8Rng) -> f64 {
    // Box and Muller.
    let (u, v): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

fn poisson(random: &mut ChaCha8Rng, mean: f64) -> f64 {
    // Knuth's product of uniforms.
    let limit = (-mean).exp();
    let (mut count, mut product) = (0.0, random.random::<f64>());
    while product > limit {
        count += 1.0;
        product *= random.random::<f64>();
    }
    count
}

const SHAPES: [(&str, Draw); 6] = [
    ("normal, CoV 3 %", |r| 50_000.0 * (1.0 + 0.03 * normal(r))),
    ("log-normal, CoV 30 %", |r| (8.0 + 0.294 * normal(r)).exp()),
    ("log-normal, CoV 130 %", |r| (8.0 + normal(r)).exp()),
    ("Poisson, mean 2", |r| poisson(r, 2.0)),
    ("80 % zeros", |r| {
        if r.random::<f64>() < 0.8 {
            0.0
        } else {
            poisson(r, 9.0)
        }
    }),
    ("two groups, 0 and 65 000", |r| {
        if r.random::<f64>() < 0.5 {
            0.0
        } else {
            65_000.0 * (1.0 + 0.01 * normal(r))
        }
    }),
];

fn values(random: &mut ChaCha8Rng, n: usize, draw: impl Fn(&mut ChaCha8Rng) -> f64) -> Vec<f64> {
    (0..n).map(|_| draw(random)).collect()
}

fn rules(min_effect: f64, look: u32) -> Rules {
    let mut rules = Rules::of(&CompareSpec::default(), "m", Better::Lower).at_look(look);
    rules.min_effect = Effect::Relative(min_effect);
    rules.bootstrap.resamples = 4000;
    rules
}

fn row(base: &Sample, new: &Sample, rules: &Rules) -> Measured {
    measure(base, &rules.bootstrap.means(base, 0), new, &rules.bootstrap)
}

fn is_change(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Better | Verdict::Worse)
}

fn share(part: usize, whole: usize) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole as f64)
}

fn nothing_changed() {
    println!("Nothing changed: share of comparisons called better or worse (stated level 5 %)\n");
    println!("| values | runs | alone | in tables of 10 | same |");
    println!("|---|---:|---:|---:|---:|");
    for (name, draw) in SHAPES {
        for n in [4, 5, 10, 20] {
            let mut random = ChaCha8Rng::seed_from_u64(n as u64);
            let rules = rules(0.05, 0);
            let rows: Vec<Measured> = (0..CAMPAIGNS)
                .map(|_| {
                    let base = Sample::independent(&values(&mut random, n, draw));
                    let new = Sample::independent(&values(&mut random, n, draw));
                    row(&base, &new, &rules)
                })
                .collect();
            let alone: Vec<Verdict> = rows
                .iter()
                .map(|row| judge(std::slice::from_ref(row), &rules).remove(0).1)
                .collect();
            let tables: usize = rows
                .chunks(10)
                .map(|table| {
                    judge(table, &rules)
                        .iter()
                        .filter(|(_, v)| is_change(v))
                        .count()
                })
                .sum();
            let same = alone
                .iter()
                .filter(|v| matches!(v, Verdict::Same { .. }))
                .count();
            println!(
                "| {name} | {n} | {} | {} | {} |",
                share(alone.iter().filter(|v| is_change(v)).count(), CAMPAIGNS),
                share(tables, CAMPAIGNS),
                share(same, CAMPAIGNS),
            );
        }
    }
    let mut random = ChaCha8Rng::seed_from_u64(77);
    let rules = rules(0.05, 0);
    let boots = |random: &mut ChaCha8Rng| {
        Sample::grouped(
            (0..6)
                .map(|_| {
                    let boot = 1.0 + 0.05 * normal(random);
                    values(random, 5, |r| 1000.0 * boot * (1.0 + 0.01 * normal(r)))
                })
                .collect(),
        )
    };
    let (mut grouped, mut taken_as_runs) = (0, 0);
    for _ in 0..CAMPAIGNS {
        let (base, new) = (boots(&mut random), boots(&mut random));
        grouped += usize::from(is_change(&judge(&[row(&base, &new, &rules)], &rules)[0].1));
        let (base, new) = (
            Sample::independent(&base.values()),
            Sample::independent(&new.values()),
        );
        taken_as_runs += usize::from(is_change(&judge(&[row(&base, &new, &rules)], &rules)[0].1));
    }
    println!(
        "\n6 boots of 5 runs a side, boots 5 % apart: {} (runs taken as independent: {})",
        share(grouped, CAMPAIGNS),
        share(taken_as_runs, CAMPAIGNS)
    );
}

/// One campaign that starts with `start` runs a side and follows the tool's own
/// requests at most `most` times. Returns the last verdict and the runs.
fn followed(
    random: &mut ChaCha8Rng,
    shift: f64,
    cov: f64,
    min_effect: f64,
    start: usize,
    requests: Requests,
) -> (Verdict, usize) {
    let mut draw = |n, mean: f64| values(random, n, |r| mean * (1.0 + cov * normal(r)));
    let (mut base, mut new) = (draw(start, 1000.0), draw(start, 1000.0 * (1.0 + shift)));
    for look in 1.. {
        let rules = rules(
            min_effect,
            if requests == Requests::UntilDecided {
                look
            } else {
                0
            },
        );
        let sides = (Sample::independent(&base), Sample::independent(&new));
        let verdict = judge(&[row(&sides.0, &sides.1, &rules)], &rules)
            .remove(0)
            .1;
        let Verdict::Undecided { more_runs, .. } = verdict else {
            return (verdict, base.len());
        };
        if requests == Requests::One && look == 2 {
            return (verdict, base.len());
        }
        let more = match requests {
            Requests::One => more_runs.unwrap_or(0),
            Requests::UntilDecided => match next(&[more_runs], base.len() as u32, 2000) {
                Next::Rounds(rounds) => rounds as usize,
                _ => return (verdict, base.len()),
            },
        };
        base.extend(draw(more, 1000.0));
        new.extend(draw(more, 1000.0 * (1.0 + shift)));
    }
    unreachable!("every look returns or adds runs")
}

#[derive(Clone, Copy, PartialEq)]
enum Requests {
    One,
    UntilDecided,
}

fn planted(shift: f64, cov: f64) {
    println!(
        "\nShift of {:.0} % planted at CoV {:.0} %: what is said after the runs the tool asks for\n",
        shift * 100.0,
        cov * 100.0
    );
    println!(
        "| min_effect | first runs | requests followed | found | wrong | undecided | runs, median | 95 % |"
    );
    println!("|---:|---:|---|---:|---:|---:|---:|---:|");
    for min_effect in [0.02, 0.05] {
        for start in [5, 10] {
            for requests in [Requests::One, Requests::UntilDecided] {
                let mut random = ChaCha8Rng::seed_from_u64(start as u64);
                let (mut found, mut undecided, mut runs) = (0, 0, Vec::new());
                for _ in 0..CAMPAIGNS {
                    let (verdict, n) =
                        followed(&mut random, shift, cov, min_effect, start, requests);
                    runs.push(n);
                    match verdict {
                        Verdict::Worse if shift > 0.0 => found += 1,
                        Verdict::Same { .. } if shift == 0.0 => found += 1,
                        Verdict::Undecided {
                            reason: Doubt::Noise { .. } | Doubt::Comparisons { .. },
                            ..
                        } => {
                            undecided += 1;
                        }
                        _ => {}
                    }
                }
                runs.sort_unstable();
                println!(
                    "| {:.0} % | {start} | {} | {} | {} | {} | {} | {} |",
                    min_effect * 100.0,
                    if requests == Requests::One {
                        "one"
                    } else {
                        "until decided"
                    },
                    share(found, CAMPAIGNS),
                    share(CAMPAIGNS - found - undecided, CAMPAIGNS),
                    share(undecided, CAMPAIGNS),
                    runs[CAMPAIGNS / 2],
                    runs[CAMPAIGNS * 95 / 100],
                );
            }
        }
    }
}

/// Each cell of real results against itself.
fn real(folder: &Path) -> Result<(), store::StoreError> {
    let results = store::load(folder)?;
    let rules = rules(0.05, 0);
    let mut random = ChaCha8Rng::seed_from_u64(9);
    println!("\n{}: cells dealt into two halves\n", folder.display());
    println!("| metric | comparisons | called better or worse |");
    println!("|---|---:|---:|");
    for metric in metric_names(&results.records) {
        let (mut all, mut false_verdicts) = (0, 0);
        for cell in &results.meta.cells {
            let mut runs: Vec<f64> = results
                .records
                .iter()
                .filter(|record| record.cell == *cell && record.outcome.has_result())
                .map(|record| {
                    let samples = record
                        .samples
                        .iter()
                        .filter(|sample| sample.metric == metric);
                    samples.map(|sample| sample.value).sum()
                })
                .collect();
            if runs.len() < 8 {
                continue;
            }
            for _ in 0..1000 {
                runs.shuffle(&mut random);
                let (base, new) = runs.split_at(runs.len() / 2);
                let sides = (Sample::independent(base), Sample::independent(new));
                all += 1;
                let verdict = &judge(&[row(&sides.0, &sides.1, &rules)], &rules)[0].1;
                false_verdicts += usize::from(is_change(verdict));
            }
        }
        if all > 0 {
            println!("| {metric} | {all} | {} |", share(false_verdicts, all));
        }
    }
    Ok(())
}

fn main() -> Result<(), store::StoreError> {
    let folders: Vec<_> = std::env::args_os().skip(1).collect();
    if folders.is_empty() {
        nothing_changed();
        planted(0.05, 0.03);
        planted(0.0, 0.03);
    }
    for folder in &folders {
        real(Path::new(folder))?;
    }
    Ok(())
}
