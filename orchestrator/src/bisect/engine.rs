//! The machine that asks and is answered.
//!
//! [`Engine::next`] says which place to measure next, or how it ended;
//! [`Engine::answer`] takes what the measurement said. It runs nothing, and what
//! it asks follows from the answers alone: the same answers lead to the same
//! question, which is what makes a saved bisection resumable.
//!
//! Both ends come first. Then each question goes where a run is expected to teach
//! most about the culprit per second of work (mutual information over cost; with
//! noise this is probabilistic bisection: Horstein, "Sequential transmission using
//! noiseless feedback", IEEE Trans. Inf. Theory 9 (1963); Burnashev and Zigangirov
//! (1974)). A tree that is built already costs a run, another one a build as well,
//! so runs stay with a tree until the next halving is worth a build: a sequential
//! test whose stopping point moves with the costs. Nothing is final: when later
//! runs contradict an earlier step the search goes back to it.

use std::collections::BTreeMap;

use super::channel::{Channel, InformationTable};
use super::ends::{self, Comparison, Ends};
use super::history::History;
use super::noise::{Group, Noise};
use super::observation::{Answer, Observation, Place, Rules, Sought};
use super::posterior::{self, Evidence, Known, Posterior, Same};
use super::verdict::{Suspect, Verdict};

/// A bisection: candidates, rules and the answers so far.
#[derive(Debug, Clone)]
pub struct Engine {
    history: History,
    rules: Rules,
    excluded: Vec<bool>,
    tallies: BTreeMap<Place, Tally>,
    answers: Vec<Answer>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Measure a place once.
    Ask(Question),
    /// It ended.
    Done(Verdict),
}

/// One measurement that is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Where.
    pub place: Place,
    /// Which run of this place it will be, from 1.
    pub run: u32,
    /// Candidates that together still hold the wanted confidence.
    pub suspects: usize,
    /// Rough number of further runs; `None` before the ends are told apart.
    pub runs_left: Option<f64>,
}

/// What measuring costs, in one unit (seconds, or runs).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Making a tree that was not built yet ready to run.
    pub build: f64,
    /// One run of a tree that is ready.
    pub run: f64,
}

impl Default for Costs {
    /// A build costs as much as three runs: an incremental kernel build against a
    /// boot and a workload of ten seconds.
    fn default() -> Self {
        Self {
            build: 3.0,
            run: 1.0,
        }
    }
}

/// An answer that does not fit the question.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// The wrong kind of answer for what is sought.
    #[error("{observation:?} is no answer when {sought:?} is sought")]
    Kind {
        /// The answer.
        observation: Observation,
        /// What is sought.
        sought: Sought,
    },
    /// A value that is no number.
    #[error("{value} is not a value a metric can have")]
    NotFinite {
        /// It.
        value: f64,
    },
    /// A candidate that does not exist.
    #[error("there is no candidate {candidate}: the history has {len}")]
    Place {
        /// Index asked for.
        candidate: u32,
        /// Candidates there are.
        len: usize,
    },
}

/// What one place answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// The metric of each run, or 1 and 0 for an outcome seen and not seen.
    pub values: Vec<f64>,
    /// Good or bad beyond doubt.
    pub sure: Option<bool>,
    /// Why it cannot be tested.
    pub untestable: Option<String>,
    /// Another place with the same image.
    pub same_as: Option<Place>,
}

impl Tally {
    fn runs(&self) -> usize {
        self.values.len() + usize::from(self.sure.is_some())
    }
}

impl Engine {
    /// Nothing answered yet.
    pub fn new(history: History, rules: Rules) -> Self {
        let excluded = vec![false; history.len()];
        Self {
            history,
            rules,
            excluded,
            tallies: BTreeMap::new(),
            answers: Vec::new(),
        }
    }

    /// Takes candidates out of what may be measured; they stay suspects.
    #[must_use]
    pub fn without(mut self, candidates: &[u32]) -> Self {
        for &candidate in candidates {
            self.excluded[candidate as usize] = true;
        }
        self
    }

    /// Goes on under other rules, such as more runs.
    pub fn allow(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// The candidates.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Every answer, in order.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// What a place answered so far; the place whose image it shares answers for it.
    pub fn tally(&self, place: Place) -> Option<&Tally> {
        self.tallies.get(&self.canonical(place))
    }

    /// The places that were measured or tried.
    pub fn places(&self) -> impl Iterator<Item = (Place, &Tally)> {
        self.tallies.iter().map(|(place, tally)| (*place, tally))
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// The answer does not fit what is sought, or the place does not exist.
    pub fn answer(&mut self, place: Place, observation: Observation) -> Result<(), AnswerError> {
        let outside = |place: Place| match place {
            Place::At(candidate) if candidate as usize >= self.history.len() => {
                Err(AnswerError::Place {
                    candidate,
                    len: self.history.len(),
                })
            }
            _ => Ok(()),
        };
        outside(place)?;
        let at = self.canonical(place);
        match (&observation, self.rules.sought) {
            (Observation::Value { value }, Sought::Level { .. }) => {
                if !value.is_finite() {
                    return Err(AnswerError::NotFinite { value: *value });
                }
                self.tallies.entry(at).or_default().values.push(*value);
            }
            (Observation::Event { seen }, Sought::Event) => {
                let number = f64::from(u8::from(*seen));
                self.tallies.entry(at).or_default().values.push(number);
            }
            (Observation::Good | Observation::Bad, Sought::Certain) => {
                self.tallies.entry(at).or_default().sure = Some(observation == Observation::Bad);
            }
            (Observation::Untestable { reason }, _) => {
                self.tallies.entry(place).or_default().untestable = Some(reason.clone());
            }
            (Observation::SameAs { place: other }, _) => {
                outside(*other)?;
                let other = self.canonical(*other);
                if other != place {
                    self.tallies.entry(other).or_default();
                    self.tallies.entry(place).or_default().same_as = Some(other);
                }
            }
            (Observation::Abort { .. }, _) => {}
            _ => {
                return Err(AnswerError::Kind {
                    observation,
                    sought: self.rules.sought,
                });
            }
        }
        self.answers.push(Answer { place, observation });
        Ok(())
    }

    /// Forgets an abort at the end, so that the question is asked again.
    pub fn resume(&mut self) {
        while let Some(Answer {
            observation: Observation::Abort { .. },
            ..
        }) = self.answers.last()
        {
            self.answers.pop();
        }
    }

    fn canonical(&self, mut place: Place) -> Place {
        while let Some(other) = self.tallies.get(&place).and_then(|t| t.same_as) {
            place = other;
        }
        place
    }

    fn values(&self, place: Place) -> &[f64] {
        self.tally(place).map_or(&[], |t| &t.values)
    }

    /// What the ends say so far.
    pub fn ends(&self) -> Ends {
        ends::compare(
            &self.rules,
            self.values(Place::GoodEnd),
            self.values(Place::BadEnd),
        )
    }

    /// The ends in numbers, once they were told apart.
    pub fn comparison(&self) -> Option<Comparison> {
        match self.ends() {
            Ends::Differ(_, facts) | Ends::Swapped(facts) | Ends::Alike(facts) => Some(facts),
            Ends::More => None,
        }
    }

    /// The posterior over the culprit, once the ends were told apart.
    pub fn posterior(&self) -> Option<Posterior> {
        match self.ends() {
            Ends::Differ(noise, _) => self.weigh(Some(&noise)),
            _ if self.rules.sought == Sought::Certain => self.weigh(None),
            _ => None,
        }
    }

    /// The next question, or the end.
    pub fn next(&self, costs: Costs) -> Step {
        match self.ends_phase() {
            Err(step) => step,
            Ok(noise) => self.search(noise.as_ref(), costs),
        }
    }

    /// The noise model (none when answers are certain), or what to do first.
    fn ends_phase(&self) -> Result<Option<Noise>, Step> {
        if let Some(Answer {
            observation: Observation::Abort { reason },
            ..
        }) = self.answers.last()
        {
            let reason = reason.clone();
            return Err(Step::Done(Verdict::Aborted { reason }));
        }
        let refuse = |reason: String| Err(Step::Done(Verdict::EndRefused { reason }));
        for (place, name) in [(Place::GoodEnd, "good"), (Place::BadEnd, "bad")] {
            let Some(tally) = self.tallies.get(&place) else {
                continue;
            };
            if let Some(reason) = &tally.untestable {
                return refuse(format!("the {name} end cannot be tested: {reason}"));
            }
            if matches!(tally.same_as, Some(Place::GoodEnd | Place::BadEnd)) {
                return refuse("both ends give the same image".to_owned());
            }
            match (tally.sure, place) {
                (Some(true), Place::GoodEnd) => return refuse("the good end is bad".to_owned()),
                (Some(false), Place::BadEnd) => return refuse("the bad end is good".to_owned()),
                _ => {}
            }
        }
        let runs = |place| self.tally(place).map_or(0, Tally::runs);
        let (good, bad) = (runs(Place::GoodEnd), runs(Place::BadEnd));
        let ask = |place, done: usize| {
            if self.spent() >= self.rules.max_runs {
                return Err(Step::Done(Verdict::Undecided {
                    suspects: Vec::new(),
                    reason: format!(
                        "{} runs are spent and the ends are not told apart yet",
                        self.rules.max_runs
                    ),
                }));
            }
            Err(Step::Ask(Question {
                place,
                run: count(done) + 1,
                suspects: self.history.len(),
                runs_left: None,
            }))
        };
        if self.rules.sought == Sought::Certain {
            return match (good, bad) {
                (0, _) => ask(Place::GoodEnd, 0),
                (_, 0) => ask(Place::BadEnd, 0),
                _ => Ok(None),
            };
        }
        match self.ends() {
            Ends::Differ(noise, _) => Ok(Some(noise)),
            Ends::Swapped(ends) => Err(Step::Done(Verdict::EndsSwapped { ends })),
            Ends::Alike(ends) => Err(Step::Done(Verdict::EndsAlike { ends })),
            Ends::More if good <= bad => ask(Place::GoodEnd, good),
            Ends::More => ask(Place::BadEnd, bad),
        }
    }

    fn search(&self, noise: Option<&Noise>, costs: Costs) -> Step {
        let Some(posterior) = self.weigh(noise) else {
            return Step::Done(Verdict::Contradiction {
                reason: "a commit answered good although a commit it contains answered bad"
                    .to_owned(),
            });
        };
        let testable = self.testable();
        let best = most_probable(&posterior.culprit);
        let block = self.history.inseparable(best, &testable);
        let mass: f64 = block.iter().map(|c| posterior.culprit[*c as usize]).sum();
        let channel = noise.map_or(Channel::Clear, |noise| {
            noise.channel(posterior.good_side, posterior.bad_side)
        });
        let ask = |place: Place, information: f64| {
            Step::Ask(Question {
                place,
                run: count(self.tally(place).map_or(0, Tally::runs)) + 1,
                suspects: self.suspects(&posterior).len(),
                runs_left: (information > 0.0)
                    .then(|| entropy(&posterior.culprit) / channel.information(0.5)),
            })
        };
        let spent_all = self.spent() >= self.rules.max_runs;
        if mass >= self.rules.confidence {
            if !spent_all && let Some(place) = self.thin_decider(best, &block, &testable) {
                return ask(place, 0.0);
            }
            let suspect = |candidate: u32| Suspect {
                candidate,
                probability: posterior.culprit[candidate as usize],
            };
            return Step::Done(match block.as_slice() {
                [only] => Verdict::Found {
                    culprit: suspect(*only),
                },
                _ => Verdict::FoundAmong {
                    suspects: block.into_iter().map(suspect).collect(),
                },
            });
        }
        let undecided = |reason: String| {
            Step::Done(Verdict::Undecided {
                suspects: self.suspects(&posterior),
                reason,
            })
        };
        if spent_all {
            return undecided(format!(
                "the allowed {} runs are spent",
                self.rules.max_runs
            ));
        }
        match self.most_telling(&posterior, &channel, &testable, costs) {
            Some((place, information)) => ask(place, information),
            None => undecided(format!(
                "every commit that could still decide was skipped or had its {} runs",
                self.rules.max_step_runs
            )),
        }
    }

    /// The candidate whose next run teaches most for its cost.
    fn most_telling(
        &self,
        posterior: &Posterior,
        channel: &Channel,
        testable: &[bool],
        costs: Costs,
    ) -> Option<(Place, f64)> {
        let table = InformationTable::new(channel);
        let risk = self.breakage_risk(testable);
        let mut best: Option<(f64, f64, Place)> = None;
        for candidate in 0..count(self.history.len()) {
            let at = candidate as usize;
            let place = Place::At(candidate);
            let tally = self.tallies.get(&place);
            if !testable[at]
                || tally.is_some_and(|t| {
                    t.same_as.is_some() || t.sure.is_some() || t.untestable.is_some()
                })
                || tally.map_or(0, Tally::runs) >= self.rules.max_step_runs as usize
            {
                continue;
            }
            let information = table.at(posterior.bad[at]);
            let score = if tally.is_some_and(|t| t.runs() > 0) {
                information / costs.run
            } else {
                information * (1.0 - risk[at]) / (costs.run + costs.build)
            };
            // Rounding must not decide between places that teach the same.
            if best.is_none_or(|(known, _, _)| score > known * (1.0 + 1e-9)) {
                best = Some((score, information, place));
            }
        }
        // Below this a thousand runs would not move the posterior.
        best.filter(|(_, information, _)| *information > 1e-6)
            .map(|(_, information, place)| (place, information))
    }

    /// A measured place that the verdict rests on, with too few runs to rest on.
    fn thin_decider(&self, culprit: u32, block: &[u32], testable: &[bool]) -> Option<Place> {
        let wanted = self.rules.decisive_runs.min(self.rules.max_step_runs) as usize;
        self.tallies.iter().find_map(|(place, tally)| {
            let Place::At(candidate) = *place else {
                return None;
            };
            let thin = tally.sure.is_none() && (1..wanted).contains(&tally.values.len());
            if !thin || tally.untestable.is_some() || !testable[candidate as usize] {
                return None;
            }
            let mut without = testable.to_vec();
            without[candidate as usize] = false;
            let grown = self.history.inseparable(culprit, &without);
            (grown.len() > block.len()).then_some(*place)
        })
    }

    /// Chance that a tree cannot be tested either, from its distance to one that
    /// could not: breakage comes in stretches.
    fn breakage_risk(&self, testable: &[bool]) -> Vec<f64> {
        let n = testable.len();
        let mut distance = vec![usize::MAX; n];
        let mut since = usize::MAX;
        for at in 0..n {
            since = if testable[at] {
                since.saturating_add(1)
            } else {
                0
            };
            distance[at] = since;
        }
        since = usize::MAX;
        for at in (0..n).rev() {
            since = if testable[at] {
                since.saturating_add(1)
            } else {
                0
            };
            distance[at] = distance[at].min(since);
        }
        distance
            .into_iter()
            .map(|d| match d {
                usize::MAX => 0.0,
                d => 0.6 * 0.8f64.powi(i32::try_from(d.min(1000)).unwrap_or(1000) - 1),
            })
            .collect()
    }

    fn testable(&self) -> Vec<bool> {
        let mut testable: Vec<bool> = self.excluded.iter().map(|e| !e).collect();
        for place in self.tallies.keys() {
            // Runs made before it failed stay evidence, so it still tells trees
            // apart. What shares an image shares its fate.
            if let Place::At(candidate) = *place
                && let Some(tally) = self.tally(*place)
                && tally.untestable.is_some()
                && tally.runs() == 0
            {
                testable[candidate as usize] = false;
            }
        }
        testable
    }

    fn weigh(&self, noise: Option<&Noise>) -> Option<Posterior> {
        let held: BTreeMap<Place, Vec<bool>> = self
            .tallies
            .keys()
            .map(|place| (*place, self.held(*place)))
            .collect();
        let mut evidence = Vec::new();
        let mut same = Vec::new();
        for (place, tally) in &self.tallies {
            if let Some(other) = tally.same_as {
                same.push(Same {
                    one: &held[place],
                    other: &held[&other],
                });
                continue;
            }
            let known = match (tally.sure, noise) {
                (Some(bad), _) => Known::Sure { bad },
                (None, Some(noise)) if !tally.values.is_empty() => {
                    let numbers: Vec<f64> = tally.values.iter().map(|v| noise.number(*v)).collect();
                    Known::Runs(Group::of(&numbers))
                }
                _ => continue,
            };
            evidence.push(Evidence {
                held: &held[place],
                known,
            });
        }
        posterior::weigh(&self.history, noise, &evidence, &same)
    }

    fn held(&self, place: Place) -> Vec<bool> {
        match place {
            Place::GoodEnd => vec![false; self.history.len()],
            Place::BadEnd => vec![true; self.history.len()],
            Place::At(candidate) => self.history.ancestors(&[candidate]),
        }
    }

    /// The smallest set of candidates that reaches the wanted confidence.
    fn suspects(&self, posterior: &Posterior) -> Vec<Suspect> {
        let mut all: Vec<Suspect> = (0u32..)
            .zip(&posterior.culprit)
            .filter(|(_, p)| **p > 0.0)
            .map(|(candidate, probability)| Suspect {
                candidate,
                probability: *probability,
            })
            .collect();
        all.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        let mut mass = 0.0;
        let enough = all
            .iter()
            .position(|suspect| {
                mass += suspect.probability;
                mass >= self.rules.confidence
            })
            .map_or(all.len(), |at| at + 1);
        all.truncate(enough);
        all
    }

    /// Runs spent so far.
    pub fn spent(&self) -> u32 {
        count(self.tallies.values().map(Tally::runs).sum())
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn most_probable(weights: &[f64]) -> u32 {
    let best = weights
        .iter()
        .enumerate()
        .fold((0, f64::NEG_INFINITY), |best, (at, w)| {
            if *w > best.1 { (at, *w) } else { best }
        });
    count(best.0)
}

/// In nats.
fn entropy(weights: &[f64]) -> f64 {
    weights
        .iter()
        .filter(|w| **w > 0.0)
        .map(|w| -w * w.ln())
        .sum()
}
