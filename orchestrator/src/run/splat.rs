//! What a kernel prints when something is wrong with it, found in console
//! lines and given a title that is the same for the same bug.

use std::sync::LazyLock;

use regex::Regex;

/// One complaint of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splat {
    /// What kind of complaint.
    pub kind: SplatKind,
    /// Without addresses, CPU and process numbers.
    pub title: String,
    /// The lines that belong to it, bounded.
    pub lines: Vec<String>,
}

/// Kinds of complaints, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SplatKind {
    /// `Kernel panic - not syncing`.
    Panic,
    /// An emulator that patched text under running CPUs: `Oops: int3`.
    Int3,
    /// An oops, a bad access, a failed `BUG_ON`.
    Oops,
    /// A lock-up, a stall or a hung task.
    Hang,
    /// A warning, a sanitizer's report, a corrupted list.
    Warning,
    /// The out-of-memory killer took a process.
    OutOfMemory,
}

/// Lines kept of one complaint.
const LINES: usize = 120;
/// Complaints kept of one guest; a storm repeats itself.
const FOUND: usize = 64;

struct Pattern {
    kind: SplatKind,
    regex: Regex,
}

/// The beginnings of complaints, as in the kernel's `printk` calls
/// (`kernel/panic.c`, `arch/x86/kernel/traps.c`, `arch/x86/mm/fault.c`,
/// `lib/bug.c`, `lib/list_debug.c`, `mm/kasan/report.c`, `kernel/watchdog.c`,
/// `kernel/hung_task.c`, `kernel/rcu/tree_stall.h`, `mm/oom_kill.c`).
static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let table: [(SplatKind, &str); 13] = [
        (SplatKind::Panic, r"^Kernel panic - not syncing: "),
        (SplatKind::Int3, r"^Oops: int3: "),
        (SplatKind::Hang, r"^watchdog: BUG: (soft|hard) lockup "),
        (
            SplatKind::Hang,
            r"^(watchdog: )?Watchdog detected hard LOCKUP ",
        ),
        (
            SplatKind::Hang,
            r"^(rcu: )?INFO: rcu_\w+ (self-)?detected (expedited )?stalls? on ",
        ),
        (
            SplatKind::Hang,
            r"^INFO: task .* blocked for more than \d+ seconds",
        ),
        (SplatKind::Warning, r"^BUG: (KASAN|KCSAN|KMSAN|KFENCE): "),
        (SplatKind::Oops, r"^BUG: "),
        (SplatKind::Oops, r"^kernel BUG at "),
        (
            SplatKind::Oops,
            r"^(Oops|general protection fault|invalid opcode|divide error|stack segment|double fault|traps: PANIC)\b",
        ),
        (SplatKind::Warning, r"^WARNING: "),
        (
            SplatKind::Warning,
            r"^(UBSAN: |list_(add|del) (double|corruption)|refcount_t: )",
        ),
        (
            SplatKind::OutOfMemory,
            r"^(Out of memory|Memory cgroup out of memory): Killed process ",
        ),
    ];
    table
        .into_iter()
        .map(|(kind, regex)| Pattern {
            kind,
            regex: Regex::new(regex).expect("the table holds sound expressions"),
        })
        .collect()
});

/// `[    1.234567]`, with the caller that CONFIG_PRINTK_CALLER adds
/// (`[T12]`, `[C3]`) and the level of `console_msg_format=syslog`.
static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?:<\d+>)?\[ *(\d+\.\d+)\](?:\[ *([TC]\d+)\])? ").expect("a sound expression")
});

static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"([A-Za-z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+").expect("sound"));

/// Finds complaints line by line.
#[derive(Debug, Default)]
pub struct Scanner {
    found: Vec<Splat>,
    open: bool,
}

impl Scanner {
    /// Looks at a line. Lines without the kernel's time stamp were printed by
    /// somebody else and are passed over.
    pub fn line(&mut self, line: &str) {
        let Some(prefix) = PREFIX.find(line) else {
            return;
        };
        let text = line[prefix.end()..].trim_end();
        let starts = PATTERNS.iter().find(|pattern| pattern.regex.is_match(text));
        match starts {
            // The oops that follows `BUG: unable to handle …` is the same event.
            Some(pattern) if self.continues(pattern.kind) => {
                if pattern.kind == SplatKind::Int3
                    && let Some(last) = self.found.last_mut()
                {
                    last.kind = SplatKind::Int3;
                }
                self.add(text);
            }
            Some(pattern) => {
                self.open = self.found.len() < FOUND;
                if self.open {
                    self.found.push(Splat {
                        kind: pattern.kind,
                        title: title(text),
                        lines: vec![text.into()],
                    });
                }
            }
            None => self.add(text),
        }
    }

    fn continues(&self, kind: SplatKind) -> bool {
        let oops = |kind| matches!(kind, SplatKind::Oops | SplatKind::Int3);
        self.open && oops(kind) && self.found.last().is_some_and(|last| oops(last.kind))
    }

    fn add(&mut self, text: &str) {
        let Some(last) = self.found.last_mut().filter(|_| self.open) else {
            return;
        };
        if let Some(at) = text.strip_prefix("RIP: ")
            && !last.title.contains(" in ")
            && !last.title.contains(" at ")
            && let Some(function) = FUNCTION.captures(at)
        {
            last.title += " in ";
            last.title += &function[1];
        }
        if last.lines.len() < LINES {
            last.lines.push(text.into());
        }
        if text.starts_with("---[ end ") {
            self.open = false;
        }
    }

    /// No more lines follow.
    pub fn finish(&mut self) {
        self.open = false;
    }

    /// What was found, in order.
    pub fn found(&self) -> &[Splat] {
        &self.found
    }
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
        (regex(r"\b\d+(\.\d+)?s?\b"), "N"),
    ]
});

/// A title without what differs between two occurrences of one bug.
pub fn title(text: &str) -> String {
    if let Some(rest) = text.strip_prefix("WARNING: ")
        && let Some(function) = FUNCTION.captures(rest)
    {
        return format!("WARNING in {}", &function[1]);
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

    fn scan(text: &str) -> Vec<Splat> {
        let mut scanner = Scanner::default();
        for line in text.lines() {
            scanner.line(line);
        }
        scanner.finish();
        scanner.found
    }

    #[test]
    fn a_panic_of_init() {
        let found = scan(
            "[    1.2] Run /init as init process\n\
             [    1.3] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\n\
             [    1.3] CPU: 0 UID: 0 PID: 1 Comm: init Not tainted 6.12.1 #1\n\
             [    1.4] ---[ end Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100 ]---\n",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].kind, SplatKind::Panic);
        assert_eq!(
            found[0].title,
            "Kernel panic - not syncing: Attempted to kill init! exitcode=ADDR"
        );
    }

    #[test]
    fn an_oops_is_one_complaint_with_its_function() {
        let found = scan(
            "[   10.1] BUG: kernel NULL pointer dereference, address: 0000000000000010\n\
             [   10.1] #PF: supervisor read access in kernel mode\n\
             [   10.2] Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI\n\
             [   10.2] CPU: 3 UID: 0 PID: 99 Comm: x Not tainted\n\
             [   10.2] RIP: 0010:do_thing+0x12/0x80\n\
             [   10.3] ---[ end trace 0000000000000000 ]---\n\
             [   11.0] hello\n",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].title,
            "BUG: kernel NULL pointer dereference, address: ADDR in do_thing"
        );
        assert!(!found[0].lines.contains(&"hello".into()));
    }

    #[test]
    fn the_emulators_breakpoint_is_a_kind_of_its_own() {
        let found =
            scan("[    0.5] Oops: int3: 0000 [#1] PREEMPT SMP\n[    0.5] RIP: 0010:foo+0x1/0x5\n");
        assert_eq!(found[0].kind, SplatKind::Int3);
    }

    #[test]
    fn lockups_stalls_and_hung_tasks_lose_their_numbers() {
        let titles = |text: &str| {
            let found = scan(text);
            assert_eq!(found[0].kind, SplatKind::Hang);
            found[0].title.clone()
        };
        assert_eq!(
            titles("[ 40.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [spin:77]"),
            titles("[ 90.0] watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [other:123]")
        );
        assert_eq!(
            titles("[ 40.0] INFO: task cat:77 blocked for more than 120 seconds."),
            titles("[ 40.0] INFO: task dd:8 blocked for more than 241 seconds.")
        );
        assert_eq!(
            titles("[ 40.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks"
        );
    }

    #[test]
    fn warnings_are_named_by_their_function() {
        let found = scan(
            "[  3.0] ------------[ cut here ]------------\n\
             [  3.0] WARNING: CPU: 2 PID: 88 at kernel/sched/core.c:1234 set_task_cpu+0x1f/0x30\n",
        );
        assert_eq!(found[0].title, "WARNING in set_task_cpu");
    }

    #[test]
    fn text_of_others_is_passed_over() {
        assert_eq!(
            scan("Kernel panic - not syncing: made up\n# BUG: in a test\n"),
            []
        );
    }

    #[test]
    fn a_storm_is_bounded() {
        let line = "[  3.0] WARNING: CPU: 2 PID: 88 at a.c:1 f+0x1/0x2\n";
        assert_eq!(scan(&line.repeat(10_000)).len(), FOUND);
    }
}
