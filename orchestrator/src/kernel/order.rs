//! In which order variants are built so that least is recompiled. Going from one to
//! the next, make compiles what the patches touch that only one of them has.

use std::collections::{BTreeMap, BTreeSet};

use super::fetch::read_series;
use super::patch::Patch;
use super::spec::{Kernel, Recipe};
use super::tools::Tools;
use super::variant::KernelRef;

/// A patch: series and number.
type Id<'a> = (&'a str, u32);

/// The order in which to build variants of one kernel, as indices into `points`. A
/// series that cannot be read counts each patch alike: its build will say why.
pub async fn order(kernel: &Kernel, points: &[KernelRef], tools: &Tools) -> Vec<usize> {
    let mut weights: BTreeMap<Id<'_>, u64> = BTreeMap::new();
    let mut lengths: BTreeMap<&str, u32> = BTreeMap::new();
    if let Recipe::Build { series: all, .. } = &kernel.recipe {
        for name in points.iter().filter_map(|point| point.series.as_deref()) {
            if lengths.contains_key(name) {
                continue;
            }
            let series = match all.get(name) {
                Some(source) => read_series(source, tools).await.unwrap_or_default(),
                None => continue,
            };
            lengths.insert(name, series.len());
            for (number, patch) in (1..).zip(&series.patches) {
                weights.insert((name, number), weight(patch));
            }
        }
    }
    let sets: Vec<BTreeSet<Id<'_>>> = points
        .iter()
        .map(|point| {
            let name = point.series.as_deref().unwrap_or_default();
            let len = lengths.get(name).copied().unwrap_or(0);
            let patches = point.variant.patches(len).unwrap_or_default();
            patches.into_iter().map(|number| (name, number)).collect()
        })
        .collect();
    nearest_first(&sets, &weights)
}

/// About how many objects a patch recompiles: a header is included by many, a
/// Kconfig or Makefile changes commands.
fn weight(patch: &Patch) -> u64 {
    let files: BTreeSet<&str> = patch.touches().collect();
    files
        .into_iter()
        .map(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            if path.ends_with(".h") {
                // Headers of one folder reach less far than those of all.
                if path.contains("include/") { 200 } else { 20 }
            } else if name.starts_with("Kconfig") || name.starts_with("Makefile") {
                10
            } else {
                u64::from(path.ends_with(".c") || path.ends_with(".S"))
            }
        })
        .sum()
}

/// From the tree without patches always on to the nearest that is left.
fn nearest_first(sets: &[BTreeSet<Id<'_>>], weights: &BTreeMap<Id<'_>, u64>) -> Vec<usize> {
    let mut left: Vec<usize> = (0..sets.len()).collect();
    let mut order = Vec::new();
    let mut here: &BTreeSet<Id<'_>> = &BTreeSet::new();
    while !left.is_empty() {
        let cost = |to: &BTreeSet<Id<'_>>| -> u64 {
            here.symmetric_difference(to)
                .map(|id| weights.get(id).copied().unwrap_or(1).max(1))
                .sum()
        };
        let next = *left
            .iter()
            .min_by_key(|index| (cost(&sets[**index]), **index))
            .expect("something is left");
        left.retain(|index| *index != next);
        here = &sets[next];
        order.push(next);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(list: &[&[u32]]) -> Vec<BTreeSet<Id<'static>>> {
        list.iter()
            .map(|patches| patches.iter().map(|n| ("s", *n)).collect())
            .collect()
    }

    #[test]
    fn each_step_goes_to_the_nearest() {
        let sets = sets(&[&[1, 2, 3], &[3], &[], &[1], &[1, 2]]);
        assert_eq!(nearest_first(&sets, &BTreeMap::new()), [2, 1, 0, 4, 3]);
    }

    #[test]
    fn a_patch_to_a_header_is_laid_once() {
        let weights = BTreeMap::from([(("s", 1), 200), (("s", 2), 1), (("s", 3), 1)]);
        // With the header patch: 0, 2 and 3; without it: 1 and 4.
        let sets = sets(&[&[1], &[2], &[1, 2], &[1, 3], &[3]]);
        let order = nearest_first(&sets, &weights);
        let heavy: Vec<bool> = order.iter().map(|i| [0, 2, 3].contains(i)).collect();
        assert_eq!(heavy, [false, false, true, true, true]);
    }

    #[tokio::test]
    async fn it_reads_the_series() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("p")).unwrap();
        std::fs::create_dir_all(folder.path().join("linux")).unwrap();
        for file in ["linux/Makefile", "linux/Kconfig"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        for (name, path) in [("1.patch", "include/a.h"), ("2.patch", "b.c")] {
            let diff = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x\n+y\n");
            std::fs::write(folder.path().join("p").join(name), diff).unwrap();
        }
        let file = folder.path().join("k.yaml");
        let yaml = "name: k\nsource: {dir: linux}\nconfig: {base: allnoconfig}\nseries: {p: p}\n";
        std::fs::write(&file, yaml).unwrap();
        let kernel = Kernel::read(&file).unwrap();
        let points: Vec<KernelRef> = ["k+p@1", "k+p@all", "k+p@2", "k"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let tools = Tools::in_path(std::env::var_os("PATH").as_deref());
        // base, then b.c alone, then the header with it, then the header alone.
        assert_eq!(order(&kernel, &points, &tools).await, [3, 2, 1, 0]);
    }
}
