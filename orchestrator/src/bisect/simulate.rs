//! Bisections of invented histories with a known culprit: how often the engine
//! names the right commit, and what it spends.
//!
//! Every draw follows from the seed, the campaign, the place and the number of
//! the run, so two ways of searching see the same numbers at the same places.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::engine::{AnswerError, Costs, Engine, Step};
use super::history::{History, HistoryError};
use super::observation::{Observation, Place, Rules, Sought};
use super::verdict::Verdict;

/// What is invented.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    /// Commits between the ends, in one line.
    pub commits: u32,
    /// What runs show.
    pub signal: Signal,
    /// Share (0 to 1) of trees that do not build.
    pub broken: f64,
    /// Broken trees in a row, on average.
    pub broken_stretch: f64,
    /// The culprit and its parent build, so that it can be named at all.
    pub nameable: bool,
}

/// What runs of an invented tree show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Signal {
    /// A metric around 100 on good trees.
    Level {
        /// Standard deviation over mean.
        cov: f64,
        /// Share by which bad trees are higher.
        effect: f64,
        /// How the noise is distributed.
        shape: Shape,
    },
    /// An outcome that shows at these rates.
    Event {
        /// On bad trees.
        bad: f64,
        /// On good trees.
        good: f64,
    },
}

/// How noise is distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Normal.
    Normal,
    /// Log-normal: skewed, with a long upper tail.
    Skewed,
    /// Normal, and this share of runs is off by up to ten standard deviations.
    Wild(f64),
}

/// What came of one campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The culprit alone was named.
    Right,
    /// A set of commits that cannot be told apart was named, with the culprit in it.
    Among,
    /// Another commit was named, or a set without the culprit.
    Wrong,
    /// The engine said that it does not know.
    Undecided,
}

/// One campaign.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Campaign {
    /// What came of it.
    pub ending: Ending,
    /// Runs, ends included.
    pub runs: u32,
    /// Trees that were built (broken ones too), ends included.
    pub builds: u32,
}

/// Many campaigns, summed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// Campaigns.
    pub campaigns: u32,
    /// Named alone.
    pub right: u32,
    /// Named in a set.
    pub among: u32,
    /// Something else named.
    pub wrong: u32,
    /// Said not to know.
    pub undecided: u32,
    /// Runs over all campaigns.
    pub runs: u64,
    /// Builds over all campaigns.
    pub builds: u64,
}

/// Why a simulation could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// No commits.
    #[error("the invented history is unusable")]
    History(#[from] HistoryError),
    /// An answer was refused.
    #[error("an invented answer was refused")]
    Answer(#[from] AnswerError),
}

impl Totals {
    /// Adds one campaign.
    pub fn add(&mut self, campaign: Campaign) {
        self.campaigns += 1;
        *match campaign.ending {
            Ending::Right => &mut self.right,
            Ending::Among => &mut self.among,
            Ending::Wrong => &mut self.wrong,
            Ending::Undecided => &mut self.undecided,
        } += 1;
        self.runs += u64::from(campaign.runs);
        self.builds += u64::from(campaign.builds);
    }
}

/// A history with a culprit, as one campaign sees it.
#[derive(Debug, Clone)]
pub struct World {
    scenario: Scenario,
    seed: u64,
    culprit: u32,
    broken: Vec<bool>,
}

impl World {
    /// The history of campaign `number`.
    pub fn new(scenario: Scenario, seed: u64, number: u32) -> Self {
        let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(number);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let n = scenario.commits;
        let culprit = random.random_range(0..n);
        // A two-state chain whose stationary share and mean stretch are as asked.
        let ends = 1.0 / scenario.broken_stretch.max(1.0);
        let begins = (ends * scenario.broken / (1.0 - scenario.broken)).min(1.0);
        let mut is_broken = random.random_bool(scenario.broken);
        let mut broken = Vec::new();
        for _ in 0..n {
            broken.push(is_broken);
            is_broken = random.random_bool(if is_broken { 1.0 - ends } else { begins });
        }
        // The ends were built by whoever saw the regression.
        broken[n as usize - 1] = false;
        if scenario.nameable {
            broken[culprit as usize] = false;
            if let Some(parent) = culprit.checked_sub(1) {
                broken[parent as usize] = false;
            }
        }
        Self {
            scenario,
            seed,
            culprit,
            broken,
        }
    }

    fn is_bad(&self, place: Place) -> bool {
        match place {
            Place::GoodEnd => false,
            Place::BadEnd => true,
            Place::At(candidate) => candidate >= self.culprit,
        }
    }

    fn is_broken(&self, place: Place) -> bool {
        matches!(place, Place::At(candidate) if self.broken[candidate as usize])
    }

    /// What run number `run` of a place shows.
    fn draw(&self, place: Place, run: u32) -> f64 {
        let place_number = match place {
            Place::GoodEnd => u64::from(u32::MAX),
            // The newest commit's tree is the bad end.
            Place::BadEnd => u64::from(self.scenario.commits - 1),
            Place::At(candidate) => u64::from(candidate),
        };
        let stream = (place_number << 32) | u64::from(run);
        let mut random =
            ChaCha8Rng::seed_from_u64(self.seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95));
        let bad = self.is_bad(place);
        match self.scenario.signal {
            Signal::Event { bad: b, good: g } => {
                f64::from(u8::from(random.random_bool(if bad { b } else { g })))
            }
            Signal::Level { cov, effect, shape } => {
                let mean = if bad { 100.0 * (1.0 + effect) } else { 100.0 };
                let z = normal(&mut random);
                match shape {
                    Shape::Normal => mean * (1.0 + cov * z),
                    Shape::Skewed => {
                        let sigma = (1.0 + cov * cov).ln().sqrt();
                        mean * (sigma * z - sigma * sigma / 2.0).exp()
                    }
                    Shape::Wild(share) if random.random_bool(share) => {
                        mean * (1.0 + cov * random.random_range(-10.0..10.0))
                    }
                    Shape::Wild(_) => mean * (1.0 + cov * z),
                }
            }
        }
    }

    /// Lets the engine search.
    ///
    /// # Errors
    /// The scenario is unusable.
    pub fn search(&self, rules: Rules, costs: Costs) -> Result<Campaign, SimulationError> {
        let mut engine = self.engine(rules)?;
        loop {
            match engine.next(costs) {
                Step::Done(verdict) => return Ok(self.judge(&engine, &verdict)),
                Step::Ask(question) => {
                    let shown = self.draw(question.place, question.run);
                    let observation = match self.scenario.signal {
                        _ if self.is_broken(question.place) => Observation::Untestable {
                            reason: "does not build".to_owned(),
                        },
                        Signal::Event { .. } => Observation::Event { seen: shown > 0.5 },
                        Signal::Level { .. } => Observation::Value { value: shown },
                    };
                    engine.answer(question.place, observation)?;
                }
            }
        }
    }

    /// What `git bisect run` does with a script that makes one run per step,
    /// calls a value beyond the true middle of the two levels (or the outcome)
    /// bad, and exits with 125 where the build is broken. The ends are believed.
    ///
    /// # Errors
    /// The scenario is unusable.
    pub fn plain(&self) -> Result<Campaign, SimulationError> {
        let mut engine = self.engine(Rules::new(Sought::Certain))?;
        engine.answer(Place::GoodEnd, Observation::Good)?;
        engine.answer(Place::BadEnd, Observation::Bad)?;
        let middle = match self.scenario.signal {
            Signal::Event { .. } => 0.5,
            Signal::Level { effect, .. } => 100.0 * (1.0 + effect / 2.0),
        };
        loop {
            match engine.next(Costs::default()) {
                Step::Done(verdict) => {
                    let mut campaign = self.judge(&engine, &verdict);
                    campaign.runs -= 2;
                    campaign.builds -= 2;
                    return Ok(campaign);
                }
                Step::Ask(question) => {
                    let observation = if self.is_broken(question.place) {
                        Observation::Untestable {
                            reason: "exit code 125".to_owned(),
                        }
                    } else if self.draw(question.place, 1) > middle {
                        Observation::Bad
                    } else {
                        Observation::Good
                    };
                    engine.answer(question.place, observation)?;
                }
            }
        }
    }

    fn engine(&self, rules: Rules) -> Result<Engine, SimulationError> {
        let ids = (0..self.scenario.commits).map(|i| i.to_string()).collect();
        Ok(Engine::new(History::linear(ids)?, rules))
    }

    fn judge(&self, engine: &Engine, verdict: &Verdict) -> Campaign {
        let ending = match verdict {
            Verdict::Found { culprit } if culprit.candidate == self.culprit => Ending::Right,
            Verdict::FoundAmong { suspects }
                if suspects.iter().any(|s| s.candidate == self.culprit) =>
            {
                Ending::Among
            }
            Verdict::Found { .. } | Verdict::FoundAmong { .. } => Ending::Wrong,
            _ => Ending::Undecided,
        };
        Campaign {
            ending,
            runs: engine.spent(),
            builds: u32::try_from(engine.places().count()).unwrap_or(u32::MAX),
        }
    }
}

/// A standard normal number (Box and Muller 1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let radius: f64 = 1.0 - random.random::<f64>();
    let angle: f64 = random.random::<f64>() * std::f64::consts::TAU;
    (-2.0 * radius.ln()).sqrt() * angle.cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_trees_have_the_asked_share_and_stretch() {
        let scenario = Scenario {
            commits: 20_000,
            signal: Signal::Event {
                bad: 1.0,
                good: 0.0,
            },
            broken: 0.1,
            broken_stretch: 4.0,
            nameable: false,
        };
        let world = World::new(scenario, 3, 0);
        let broken = world.broken.iter().filter(|b| **b).count();
        let stretches = world.broken.windows(2).filter(|w| !w[0] && w[1]).count();
        assert!((1700..2300).contains(&broken), "{broken}");
        assert!(
            (3..=5).contains(&(broken / stretches)),
            "{broken} in {stretches}"
        );
    }

    #[test]
    fn draws_are_repeatable_and_differ_by_run() {
        let scenario = Scenario {
            commits: 10,
            signal: Signal::Level {
                cov: 0.1,
                effect: 0.15,
                shape: Shape::Normal,
            },
            broken: 0.0,
            broken_stretch: 1.0,
            nameable: true,
        };
        let world = World::new(scenario, 3, 0);
        assert_eq!(
            world.draw(Place::At(4), 1).to_bits(),
            world.draw(Place::At(4), 1).to_bits()
        );
        assert_ne!(
            world.draw(Place::At(4), 1).to_bits(),
            world.draw(Place::At(4), 2).to_bits()
        );
        assert_ne!(
            world.draw(Place::At(4), 1).to_bits(),
            world.draw(Place::At(5), 1).to_bits()
        );
    }
}
