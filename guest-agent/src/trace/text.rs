//! Recorded events as the `trace` file writes them.

/// One recorded event.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// CPU it was recorded on.
    pub cpu: usize,
    /// Seconds on the trace clock.
    pub time: f64,
    /// Name of the task that ran there.
    pub comm: String,
    /// Its thread id; 0 for the idle task.
    pub pid: i32,
    /// Name of the event, without its group.
    pub event: String,
    /// The rest of the line: the event's own text.
    pub text: String,
}

/// Reads one line, `comm-pid [cpu] flags time: event: text`; `None` for
/// headers and anything else.
pub fn record(line: &str) -> Option<Record> {
    if line.starts_with('#') {
        return None;
    }
    // A task's name may hold any character but NUL, so look for a CPU in
    // brackets, at least three digits wide, and go on from there.
    let (task, cpu, rest) = line.match_indices(" [").find_map(|(at, _)| {
        let (cpu, rest) = line[at + 2..].split_once(']')?;
        let number = cpu.len() >= 3 && cpu.bytes().all(|byte| byte.is_ascii_digit());
        number.then_some((&line[..at], cpu, rest))
    })?;
    let (comm, pid) = task.trim().rsplit_once('-')?;
    let mut words = rest.trim_start().splitn(2, ' ');
    let _flags = words.next()?;
    let (time, rest) = words.next()?.trim_start().split_once(": ")?;
    let (event, text) = rest.split_once(':')?;
    Some(Record {
        cpu: cpu.parse().ok()?,
        time: time.parse().ok()?,
        comm: comm.to_string(),
        pid: pid.parse().ok()?,
        event: event.to_string(),
        text: text.trim().to_string(),
    })
}

impl Record {
    /// The value of `name=` in the event's text, up to the next space.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut at = 0;
        while let Some(found) = self.text[at..].find(name) {
            let start = at + found;
            let before = self.text[..start].chars().next_back();
            let after = &self.text[start + name.len()..];
            if let (None | Some(' '), Some(value)) = (before, after.strip_prefix('=')) {
                return Some(value.split(' ').next().unwrap_or(value));
            }
            at = start + name.len();
        }
        None
    }

    /// A numeric field.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.field(name)?.parse().ok()
    }
}

/// Events lost on one CPU, from its `stats` file: those overwritten before they
/// were read and those dropped.
pub fn lost(stats: &str) -> u64 {
    stats
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            matches!(name, "overrun" | "commit overrun" | "dropped events")
                .then(|| value.trim().parse::<u64>().ok())?
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_whatever_the_task_is_called() {
        let line = "          <idle>-0       [006] d..2.   123.456789: sched_switch: prev_comm=swapper/6 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=worker next_pid=77 next_prio=120";
        let record = record(line).unwrap();
        assert_eq!((record.cpu, record.pid, record.time), (6, 0, 123.456_789));
        assert_eq!(record.comm, "<idle>");
        assert_eq!(record.event, "sched_switch");
        assert_eq!(record.number("next_pid"), Some(77));
        assert_eq!(record.number::<i32>("pid"), None);
        assert_eq!(record.field("prev_state"), Some("R"));

        let odd = " a [b] -9-42      [012] d.h2.     1.000001: sched_wakeup: comm=x y pid=5 prio=120 target_cpu=003";
        let record = super::record(odd).unwrap();
        assert_eq!(
            (record.comm.as_str(), record.pid, record.cpu),
            ("a [b] -9", 42, 12)
        );
        assert_eq!(record.number::<usize>("target_cpu"), Some(3));
        assert_eq!(record.number("pid"), Some(5));
    }

    #[test]
    fn headers_are_no_records() {
        assert_eq!(record("# tracer: nop"), None);
        assert_eq!(record(""), None);
        assert_eq!(record("CPU:1 [LOST 5 EVENTS]"), None);
    }

    #[test]
    fn losses_add_up() {
        let stats = "entries: 10\noverrun: 3\ncommit overrun: 1\nbytes: 99\ndropped events: 2\nread events: 7\n";
        assert_eq!(lost(stats), 6);
    }
}
