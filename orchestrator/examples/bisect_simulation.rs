//! Prints the tables of `docs/bisect.md`: noise × effect → right, wrong,
//! undecided, and what it cost, against plain `git bisect run`.
//!
//! `cargo run --release --example bisect_simulation [CAMPAIGNS] [SEED]`

use std::error::Error;

use topolab::bisect::simulate::{Scenario, Shape, Signal, Totals, World};
use topolab::bisect::{Costs, Rules, Sought};
use topolab::stats::judge::Effect;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let campaigns: u32 = arguments.next().map_or(Ok(1000), |a| a.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(1), |a| a.parse())?;

    let base = Scenario {
        commits: 1000,
        signal: level(0.10, 0.15),
        broken: 0.0,
        broken_stretch: 3.0,
        nameable: true,
    };
    println!("{campaigns} campaigns a row, seed {seed}, 1000 commits\n");
    println!(
        "| signal | broken builds | way | right | in a set | wrong | undecided | runs | builds |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut rows: Vec<(String, Scenario)> = Vec::new();
    for cov in [0.02, 0.05, 0.10, 0.20] {
        for effect in [0.0, 0.05, 0.15, 0.50] {
            rows.push((
                format!("CoV {:.0} %, effect {:.0} %", cov * 100.0, effect * 100.0),
                Scenario {
                    signal: level(cov, effect),
                    ..base
                },
            ));
        }
    }
    for (name, shape) in [
        ("log-normal", Shape::Skewed),
        ("3 % wild runs", Shape::Wild(0.03)),
    ] {
        let signal = Signal::Level {
            cov: 0.10,
            effect: 0.15,
            shape,
        };
        rows.push((
            format!("CoV 10 %, effect 15 %, {name}"),
            Scenario { signal, ..base },
        ));
    }
    for (bad, good) in [(1.0, 0.0), (0.3, 0.0), (0.1, 0.0), (0.3, 0.02)] {
        let signal = Signal::Event { bad, good };
        rows.push((
            format!(
                "crash in {:.0} % of bad runs, {:.0} % of good",
                bad * 100.0,
                good * 100.0
            ),
            Scenario { signal, ..base },
        ));
    }
    for nameable in [true, false] {
        let broken = Scenario {
            broken: 0.10,
            nameable,
            ..base
        };
        let which = if nameable {
            "culprit and parent build"
        } else {
            "any commit may be broken"
        };
        rows.push((format!("CoV 10 %, effect 15 % ({which})"), broken));
        let signal = Signal::Event {
            bad: 0.3,
            good: 0.0,
        };
        rows.push((
            format!("crash in 30 % of bad runs ({which})"),
            Scenario { signal, ..broken },
        ));
    }
    for (name, scenario) in rows {
        let sought = match scenario.signal {
            Signal::Level { .. } => Sought::Level {
                min_effect: Effect::Relative(0.02),
                worse: None,
            },
            Signal::Event { .. } => Sought::Event,
        };
        let mut ours = Totals::default();
        let mut plain = Totals::default();
        for number in 0..campaigns {
            let world = World::new(scenario, seed, number);
            ours.add(world.search(Rules::new(sought), Costs::default())?);
            plain.add(world.plain()?);
        }
        print_row(&name, &scenario, "topolab", &ours);
        print_row(&name, &scenario, "git bisect run", &plain);
    }
    Ok(())
}

fn level(cov: f64, effect: f64) -> Signal {
    Signal::Level {
        cov,
        effect,
        shape: Shape::Normal,
    }
}

fn print_row(name: &str, scenario: &Scenario, way: &str, totals: &Totals) {
    let share = |n: u32| 100.0 * f64::from(n) / f64::from(totals.campaigns);
    #[expect(clippy::cast_precision_loss, reason = "sums of small counts")]
    let mean = |n: u64| n as f64 / f64::from(totals.campaigns);
    println!(
        "| {name} | {:.0} % | {way} | {:.1} % | {:.1} % | {:.1} % | {:.1} % | {:.1} | {:.1} |",
        100.0 * scenario.broken,
        share(totals.right),
        share(totals.among),
        share(totals.wrong),
        share(totals.undecided),
        mean(totals.runs),
        mean(totals.builds),
    );
}
