//! One letter per named set, shown below the cores that are in it.

use crate::topology::{CpuList, Topology};

/// A set and its letter.
pub(super) struct Mark {
    pub letter: char,
    pub name: String,
    pub cpus: CpuList,
}

/// Gives each set a letter: one of its name if it is free, else any that is.
pub(super) fn assign(topology: &Topology) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for (name, cpus) in &topology.sets {
        let own = name.chars().filter(char::is_ascii_alphabetic);
        let upper = name.chars().map(|c| c.to_ascii_uppercase());
        let letter = own
            .chain(upper.filter(char::is_ascii_alphabetic))
            .chain(('a'..='z').chain('A'..='Z').chain('0'..='9'))
            .find(|c| marks.iter().all(|mark| mark.letter != *c))
            .unwrap_or('*');
        marks.push(Mark {
            letter,
            name: name.clone(),
            cpus: cpus.clone(),
        });
    }
    marks
}

/// Letters of the sets that some of these CPUs are in.
pub(super) fn of(marks: &[Mark], cpus: &CpuList) -> String {
    marks
        .iter()
        .filter(|mark| !mark.cpus.and(cpus).is_empty())
        .map(|mark| mark.letter)
        .collect()
}
