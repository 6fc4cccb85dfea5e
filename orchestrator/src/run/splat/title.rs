//! Titles: the same bug has the same one, whichever CPU, process or address it
//! hit this time.

use std::sync::LazyLock;

use regex::Regex;

static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"([A-Za-z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+").expect("sound"));

/// The function of `name+0x12/0x80`.
pub(super) fn function(text: &str) -> Option<&str> {
    let found = FUNCTION.captures(text)?;
    found.get(1).map(|name| name.as_str())
}

static NUMBERS: LazyLock<[(Regex, &'static str); 7]> = LazyLock::new(|| {
    let regex = |text: &str| Regex::new(text).expect("a sound expression");
    [
        (regex(r"\+0x[0-9a-f]+/0x[0-9a-f]+"), ""),
        (regex(r"\b0x[0-9a-f]+\b|\b[0-9a-f]{8,}\b"), "ADDR"),
        (regex(r"\bCPU[:#]? ?\d+\b"), "CPU N"),
        (regex(r"\bPID: \d+\b"), "PID N"),
        (regex(r"\[[^\]]*:\d+\]"), "[TASK]"),
        (regex(r"\btask \S+:\d+"), "task TASK"),
        (regex(r"\b\d+(\.\d+)?(s|kB|MB)?\b"), "N"),
    ]
});

/// A title without what differs between two occurrences of one bug.
pub fn title(text: &str) -> String {
    if let Some(rest) = text.strip_prefix("WARNING: ")
        && let Some(function) = function(rest)
    {
        return format!("WARNING in {function}");
    }
    let mut title = text.to_string();
    // Line numbers of the source stay: they name the assertion.
    if !text.starts_with("kernel BUG at ") {
        for (regex, with) in NUMBERS.iter() {
            title = regex.replace_all(&title, *with).into_owned();
        }
    }
    let mut words = title.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.len() > 200 {
        words = words.chars().take(200).collect();
    }
    words.trim_end_matches(['!', ':', ' ']).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_two_occurrences_goes() {
        for (one, other) in [
            (
                "BUG: KASAN: slab-out-of-bounds in foo+0x12/0x80",
                "BUG: KASAN: slab-out-of-bounds in foo+0x34/0x90",
            ),
            (
                "Out of memory: Killed process 88 (hog) total-vm:1234kB, anon-rss:12kB",
                "Out of memory: Killed process 99 (hog) total-vm:9999kB, anon-rss:77kB",
            ),
            (
                "list_add corruption. next->prev should be prev (ffff888001234567), but was dead",
                "list_add corruption. next->prev should be prev (ffff88800fedcba9), but was dead",
            ),
            (
                "general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] SMP",
                "general protection fault, probably for non-canonical address 0xbeef000000000100: 0000 [#2] SMP",
            ),
        ] {
            assert_eq!(title(one), title(other));
            assert!(!title(one).is_empty());
        }
    }

    #[test]
    fn the_line_of_an_assertion_stays() {
        assert_eq!(
            title("kernel BUG at mm/slub.c:433!"),
            "kernel BUG at mm/slub.c:433"
        );
    }

    #[test]
    fn titles_are_bounded_on_a_character() {
        assert_eq!(title(&"é".repeat(500)).chars().count(), 200);
    }
}
