//! Work on lists by every CPU of the bench: reading and judging large campaigns.

/// Maps a list on as many threads as the bench has CPUs, in order.
pub fn in_parallel<T: Sync, R: Send>(list: &[T], map: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = list.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = list
            .chunks(part)
            .map(|part| scope.spawn(|| part.iter().map(&map).collect::<Vec<R>>()))
            .collect();
        let joined = parts
            .into_iter()
            .map(|part| part.join().expect("the map does not panic"));
        joined.flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_come_in_order() {
        let list: Vec<u32> = (0..1001).collect();
        let doubled = super::in_parallel(&list, |n| n * 2);
        assert!(doubled.iter().zip(&list).all(|(d, n)| *d == n * 2) && doubled.len() == 1001);
        assert!(super::in_parallel(&[] as &[u32], |n| *n).is_empty());
    }
}
