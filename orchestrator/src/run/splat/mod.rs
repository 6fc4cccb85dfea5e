//! What a kernel prints when something is wrong with it, found in console
//! lines and given a title that is the same for the same bug.

mod lines;
mod title;

use std::sync::LazyLock;

use regex::Regex;

pub use title::title;

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

/// Finds complaints line by line.
///
/// Where the kernel names the caller of each line (CONFIG_PRINTK_CALLER), what
/// several CPUs print at once is taken apart by it.
#[derive(Debug, Default)]
pub struct Scanner {
    found: Vec<Splat>,
    /// Callers with a complaint that may go on, and which one it is.
    open: Vec<(Option<String>, usize)>,
}

impl Scanner {
    /// Looks at a line. What carries no time stamp of the kernel, or was written
    /// by user space through `/dev/kmsg`, was said by somebody else and is
    /// passed over.
    pub fn line(&mut self, line: &str) {
        for part in lines::split(line) {
            self.part(&part);
        }
    }

    fn part(&mut self, line: &lines::KernelLine<'_>) {
        let text = line.text.trim_end();
        let starts = PATTERNS.iter().find(|pattern| pattern.regex.is_match(text));
        let Some(pattern) = starts else {
            return self.add(line.caller, text);
        };
        // The oops that follows `BUG: unable to handle …` is the same event.
        if let Some(at) = self.continues(line.caller, pattern.kind) {
            if pattern.kind == SplatKind::Int3 {
                self.found[at].kind = SplatKind::Int3;
            }
            return self.add(line.caller, text);
        }
        let caller = line.caller.map(String::from);
        self.open.retain(|(other, _)| *other != caller);
        if self.found.len() == FOUND {
            return;
        }
        self.open.push((caller, self.found.len()));
        self.found.push(Splat {
            kind: pattern.kind,
            title: title(text),
            lines: vec![text.into()],
        });
    }

    fn of(&self, caller: Option<&str>) -> Option<usize> {
        let mut open = self.open.iter();
        let found = open.find(|(other, _)| other.as_deref() == caller);
        found.map(|(_, at)| *at)
    }

    fn continues(&self, caller: Option<&str>, kind: SplatKind) -> Option<usize> {
        let oops = |kind| matches!(kind, SplatKind::Oops | SplatKind::Int3);
        let at = self.of(caller)?;
        (oops(kind) && oops(self.found[at].kind)).then_some(at)
    }

    fn add(&mut self, caller: Option<&str>, text: &str) {
        let Some(at) = self.of(caller) else {
            return;
        };
        let splat = &mut self.found[at];
        if let Some(place) = text.strip_prefix("RIP: ")
            && !splat.title.contains(" in ")
            && !splat.title.contains(" at ")
            && let Some(function) = title::function(place)
        {
            splat.title += " in ";
            splat.title += function;
        }
        if splat.lines.len() < LINES {
            splat.lines.push(text.into());
        }
        if text.starts_with("---[ end ") {
            self.open.retain(|(_, open)| *open != at);
        }
    }

    /// No more lines follow.
    pub fn finish(&mut self) {
        self.open.clear();
    }

    /// What was found, in order.
    pub fn found(&self) -> &[Splat] {
        &self.found
    }
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
    fn two_cpus_at_once_are_taken_apart_by_their_callers() {
        let found = scan(
            "[  3.0][  T88] WARNING: CPU: 2 PID: 88 at a.c:1 first+0x1/0x2\n\
             [  3.0][   C1] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [x:7]\n\
             [  3.0][  T88] RIP: 0010:first+0x1/0x2\n\
             [  3.0][   C1] RIP: 0010:spin+0x1/0x2\n\
             [  3.0][  T88] ---[ end trace 0000000000000000 ]---\n\
             [  3.0][   C1] Call Trace:\n",
        );
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].lines.len(), 3);
        assert_eq!(
            found[1].title,
            "watchdog: BUG: soft lockup - CPU N stuck for N! [TASK] in spin"
        );
        assert_eq!(found[1].lines[2], "Call Trace:");
    }

    #[test]
    fn a_line_that_begins_within_another_is_found() {
        let found = scan("login: [    9.5] BUG: unable to handle page fault for address: ff\n");
        assert_eq!(found.len(), 1);
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
