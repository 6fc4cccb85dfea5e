//! CPU lists as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;

/// The CPUs of a list; the empty text is the empty set. `None` for anything
/// that is no list.
pub fn parse(text: &str) -> Option<BTreeSet<usize>> {
    let text = text.trim();
    let mut cpus = BTreeSet::new();
    if text.is_empty() {
        return Some(cpus);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        // More than any kernel's NR_CPUS is no CPU list but a mistake.
        if last < first || last > 65_535 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

fn number(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            parse("0-2,7\n"),
            Some(BTreeSet::from([0, 1, 2, 7])),
            "ranges and single CPUs"
        );
        assert_eq!(parse("\n"), Some(BTreeSet::new()));
        for bad in ["3-1", "a", "1,", "-", "1-2-3", "+1", "0-99999999"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
