//! Console lines as the kernel began them. Several CPUs and programs write to
//! one console, so that a line of the kernel may begin within another.

use std::sync::LazyLock;

use regex::Regex;

/// A line of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelLine<'a> {
    /// Thread or CPU that printed it (`T88`, `C1`), when the kernel says.
    pub caller: Option<&'a str>,
    /// What follows the time stamp.
    pub text: &'a str,
}

/// `[    1.234567]`, with the caller that CONFIG_PRINTK_CALLER adds (`[   T12]`,
/// `[    C3]`) and the syslog priority of `console_msg_format=syslog`
/// (`info_print_prefix` in `kernel/printk/printk.c`).
static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:<(\d{1,3})>)?\[ *\d+\.\d+\](?:\[ *([TC]\d+)\])? ").expect("a sound expression")
});

/// Highest syslog priority of facility 0, which only the kernel can write with.
const KERNEL: u32 = 7;

/// The kernel's lines within one line of the console. Text before the first
/// time stamp, and what user space wrote through `/dev/kmsg` (as far as the
/// priority is shown), is left out.
pub fn split(line: &str) -> Vec<KernelLine<'_>> {
    let starts: Vec<_> = PREFIX.captures_iter(line).collect();
    let mut parts = Vec::with_capacity(starts.len());
    for (index, start) in starts.iter().enumerate() {
        let whole = start.get(0).expect("group 0 is the match");
        let end = starts
            .get(index + 1)
            .and_then(|next| next.get(0))
            .map_or(line.len(), |next| next.start());
        let priority = start.get(1).and_then(|text| text.as_str().parse().ok());
        if priority.is_none_or(|priority: u32| priority <= KERNEL) {
            parts.push(KernelLine {
                caller: start.get(2).map(|caller| caller.as_str()),
                text: &line[whole.end()..end],
            });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<(Option<&str>, &str)> {
        split(line)
            .iter()
            .map(|part| (part.caller, part.text))
            .collect()
    }

    #[test]
    fn every_form_of_the_prefix() {
        assert_eq!(texts("[    1.234567] text"), [(None, "text")]);
        assert_eq!(
            texts("[12345.678901][   T88] text"),
            [(Some("T88"), "text")]
        );
        assert_eq!(texts("<4>[    1.2][    C1] text"), [(Some("C1"), "text")]);
        assert_eq!(texts("<12>[    1.2] by a program"), []);
        assert_eq!(texts("no time stamp"), []);
        assert_eq!(texts("[not] a [1] stamp"), []);
    }

    #[test]
    fn a_line_within_another_is_its_own() {
        assert_eq!(
            texts("abc[    1.2] one [    1.3][   C0] two"),
            [(None, "one "), (Some("C0"), "two")]
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken(line in "\\PC{0,200}") {
            for part in split(&line) {
                proptest::prop_assert!(line.contains(part.text));
            }
        }
    }
}
