//! Whether the parameters of a workload can work at all on the topology and
//! with the settings they meet. What is wrong here would otherwise be found in
//! the guest, once per run.

use std::collections::BTreeMap;

use topolab_protocol::{
    settings::Settings,
    workload::{ItmtStall, LruDrain, NumaScan, Pattern, RtPushIpi, RtTask, Workload, parse_size},
};

use crate::{
    readings,
    topology::{CpuList, Topology},
};

/// Something wrong with one parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wrong {
    /// The keys below the workload's name; empty: the workload itself.
    pub path: Vec<&'static str>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// Everything wrong with a workload whose `{sets}` are filled in.
pub fn wrong(workload: &Workload, settings: &Settings, topology: &Topology) -> Vec<Wrong> {
    let mut check = Check {
        settings,
        topology,
        found: Vec::new(),
    };
    match workload {
        Workload::NumaScan(scan) => check.numa_scan(scan),
        Workload::LruDrain(drain) => check.lru_drain(drain),
        Workload::RtPushIpi(push) => check.rt_push_ipi(push),
        Workload::ItmtStall(stall) => check.itmt_stall(stall),
        Workload::Command(command) => {
            check.program(&command.argv, command.timeout, command.cgroup.as_deref());
            check.patterns(&command.metrics);
        }
        Workload::Ktap(ktap) => {
            check.program(&ktap.argv, ktap.timeout, ktap.cgroup.as_deref());
        }
        Workload::Script(script) => {
            if script.text.trim().is_empty() {
                check.tell(&["text"], "the script is empty", None);
            }
            check.not_negative("timeout", script.timeout);
            check.cgroup(script.cgroup.as_deref());
            check.patterns(&script.metrics);
        }
    }
    check.found
}

struct Check<'a> {
    settings: &'a Settings,
    topology: &'a Topology,
    found: Vec<Wrong>,
}

impl Check<'_> {
    fn tell(&mut self, path: &[&'static str], message: impl Into<String>, help: Option<String>) {
        self.found.push(Wrong {
            path: path.to_vec(),
            message: message.into(),
            help,
        });
    }

    fn numa_scan(&mut self, scan: &NumaScan) {
        let all: u64 = self.topology.nodes.iter().map(|node| node.memory).sum();
        let whole = format!("`{}`", self.topology.name);
        self.size("memory", &scan.memory, all, &whole);
        self.positive("seconds", scan.seconds);
        self.at_least_one("threads", scan.threads);
        self.cgroup(scan.cgroup.as_deref());
    }

    fn lru_drain(&mut self, drain: &LruDrain) {
        for (key, node) in [("from_node", drain.from_node), ("to_node", drain.to_node)] {
            let Some(known) = self.topology.nodes.get(node as usize) else {
                let nodes = self.topology.nodes.len();
                let message = format!(
                    "`{key}` is {node}, but `{}` has the nodes 0 to {}",
                    self.topology.name,
                    nodes.saturating_sub(1)
                );
                self.tell(&[key], message, None);
                continue;
            };
            let place = format!("node {node} of `{}`", self.topology.name);
            self.size("anchor", &drain.anchor, known.memory, &place);
        }
        if drain.from_node == drain.to_node {
            let message = format!("the pages would move from node {0} to {0}", drain.to_node);
            self.tell(&["to_node"], message, None);
        }
        if drain.churn {
            let all: u64 = self.topology.nodes.iter().map(|node| node.memory).sum();
            let whole = format!("`{}`", self.topology.name);
            self.size("churn_memory", &drain.churn_memory, all, &whole);
            self.at_least_one("churn_pages", drain.churn_pages);
            self.not_negative("churn_spin_us", drain.churn_spin_us);
            self.priority(&["churn_priority"], drain.churn_priority);
            match &drain.churn_cpus {
                Some(cpus) => self.cpus(&["churn_cpus"], cpus),
                None if !self.topology.sets.contains_key("isolated") => {
                    let message = format!("`{}` has no CPU set `isolated`", self.topology.name);
                    let help = "name the churners' CPUs with `churn_cpus`, or give the topology \
                                `sets: {isolated: …}`";
                    self.tell(&[], message, Some(help.into()));
                }
                None => {}
            }
        }
        self.positive("limit", drain.limit);
    }

    fn rt_push_ipi(&mut self, push: &RtPushIpi) {
        self.at_least_one("intervals", push.intervals);
        self.positive("interval_seconds", push.interval_seconds);
        self.task("victim", &push.victim);
        self.task("busy", &push.busy);
        self.task("sleeper", &push.sleeper);
        if push.migrate_disable && !self.settings.modules.contains_key("mdspin") {
            let message = "`migrate_disable` needs the module `mdspin`, which no settings load";
            let help = "add `modules: {mdspin: \"\"}` to the settings";
            self.tell(&["migrate_disable"], message, Some(help.into()));
        }
    }

    fn patterns(&mut self, metrics: &BTreeMap<String, Pattern>) {
        for (metric, pattern) in metrics {
            if let Err(reason) = readings::check(pattern) {
                self.tell(&["metrics"], format!("`{metric}`: {reason}"), None);
            }
        }
    }

    fn task(&mut self, name: &'static str, task: &RtTask) {
        self.cpus(&[name, "cpus"], &task.cpus);
        self.priority(&[name, "priority"], task.priority);
        if !(task.work_us > 0.0 && task.work_us.is_finite()) {
            let message = format!("`work_us` is {}, not more than nothing", task.work_us);
            self.tell(&[name, "work_us"], message, None);
        }
        if !(task.sleep_us >= 0.0 && task.sleep_us.is_finite()) {
            let message = format!("`sleep_us` is {}, less than nothing", task.sleep_us);
            self.tell(&[name, "sleep_us"], message, None);
        }
    }

    fn itmt_stall(&mut self, stall: &ItmtStall) {
        self.at_least_one("workers", stall.workers);
        if let Some(cpus) = &stall.cpus {
            self.cpus(&["cpus"], cpus);
        }
        let count = self.topology.cpus.count();
        if stall.waker_cpu >= count {
            let message = format!(
                "`waker_cpu` is {}, but the last CPU of `{}` is {}",
                stall.waker_cpu,
                self.topology.name,
                count - 1
            );
            self.tell(&["waker_cpu"], message, None);
        }
        self.positive("burst_us", stall.burst_us);
        self.not_negative("gap_us", stall.gap_us);
        self.positive("seconds", stall.seconds);
        if stall.disturbers > 0 {
            self.positive("disturb_us", stall.disturb_us);
            self.positive("disturb_every_us", stall.disturb_every_us);
        }
    }

    fn program(&mut self, argv: &[String], timeout: f64, cgroup: Option<&str>) {
        if argv.first().is_none_or(|program| program.is_empty()) {
            let help = "`argv: [./my-test, --argument]`";
            self.tell(&["argv"], "no program is named", Some(help.into()));
        }
        self.not_negative("timeout", timeout);
        self.cgroup(cgroup);
    }

    fn cgroup(&mut self, cgroup: Option<&str>) {
        let Some(group) = cgroup else { return };
        let known = &self.settings.cgroups;
        // Where systemd is PID 1 it makes these.
        if group.contains(".slice") {
            return;
        }
        if known.contains_key(group.trim_matches('/')) || known.contains_key(group) {
            return;
        }
        let named: Vec<&str> = known.keys().map(String::as_str).collect();
        let message = format!("no settings make the cgroup `{group}`");
        let help = if named.is_empty() {
            format!("add `cgroups: {{{group}: {{}}}}` to the settings")
        } else {
            format!("they make: {}", named.join(", "))
        };
        self.tell(&["cgroup"], message, Some(help));
    }

    fn size(&mut self, key: &'static str, text: &str, room: u64, place: &str) {
        match parse_size(text) {
            None => {
                let message = format!("`{key}` is `{text}`, which is no size");
                let help = "a whole number, alone or with K, M, G or T: `64M`";
                self.tell(&[key], message, Some(help.into()));
            }
            Some(0) => self.tell(&[key], format!("`{key}` is nothing"), None),
            Some(bytes) if bytes >= room => {
                let message = format!("`{key}` is {text}, but {place} has {} MiB", room >> 20);
                self.tell(&[key], message, None);
            }
            Some(_) => {}
        }
    }

    fn cpus(&mut self, path: &[&'static str], text: &str) {
        let count = self.topology.cpus.count();
        match CpuList::parse(text, count) {
            Ok(cpus) if cpus.is_empty() => self.tell(path, "no CPU is named", None),
            Ok(_) => {}
            Err(error) => {
                let message = format!("`{text}` on `{}`: {error}", self.topology.name);
                self.tell(path, message, None);
            }
        }
    }

    fn priority(&mut self, path: &[&'static str], priority: u32) {
        if !(1..=99).contains(&priority) {
            let message = format!("a SCHED_FIFO priority is 1 to 99, not {priority}");
            self.tell(path, message, None);
        }
    }

    fn positive(&mut self, key: &'static str, value: f64) {
        if !(value > 0.0 && value.is_finite()) {
            self.tell(
                &[key],
                format!("`{key}` is {value}, not more than nothing"),
                None,
            );
        }
    }

    fn not_negative(&mut self, key: &'static str, value: f64) {
        if !(value >= 0.0 && value.is_finite()) {
            self.tell(
                &[key],
                format!("`{key}` is {value}, less than nothing"),
                None,
            );
        }
    }

    fn at_least_one(&mut self, key: &'static str, value: u32) {
        if value == 0 {
            self.tell(&[key], format!("`{key}` is 0; one is the least"), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Topology {
        let text = "name: t\ncpus: {sockets: 2, cores: 2}\nnodes:\n\
                    - {cpus: 0-1, memory: 512M}\n- {cpus: 2-3, memory: 512M}\n";
        Topology::from_text("t", text).unwrap()
    }

    fn told(yaml: serde_json::Value) -> Vec<String> {
        let workload: Workload = serde_json::from_value(yaml).unwrap();
        wrong(&workload, &Settings::default(), &machine())
            .into_iter()
            .map(|wrong| format!("{}: {}", wrong.path.join("."), wrong.message))
            .collect()
    }

    #[test]
    fn defaults_work_where_their_sets_and_modules_are() {
        assert_eq!(told(serde_json::json!({"numa-scan": {}})), [""; 0]);
        assert_eq!(told(serde_json::json!({"itmt-stall": {}})), [""; 0]);
        assert_eq!(
            told(serde_json::json!({"lru-drain": {}})),
            [": `t` has no CPU set `isolated`"]
        );
        assert_eq!(
            told(serde_json::json!({"rt-push-ipi": {}})),
            [
                "migrate_disable: `migrate_disable` needs the module `mdspin`, which no settings load"
            ]
        );
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        assert_eq!(
            told(serde_json::json!({"numa-scan":
                {"memory": "64Q", "seconds": -1.0, "threads": 0, "cgroup": "wrk"}})),
            [
                "memory: `memory` is `64Q`, which is no size",
                "seconds: `seconds` is -1, not more than nothing",
                "threads: `threads` is 0; one is the least",
                "cgroup: no settings make the cgroup `wrk`",
            ]
        );
        assert_eq!(
            told(serde_json::json!({"lru-drain":
                {"anchor": "600M", "from_node": 2, "churn_cpus": "2-9", "churn_priority": 100}})),
            [
                "from_node: `from_node` is 2, but `t` has the nodes 0 to 1",
                "anchor: `anchor` is 600M, but node 0 of `t` has 512 MiB",
                "churn_priority: a SCHED_FIFO priority is 1 to 99, not 100",
                "churn_cpus: `2-9` on `t`: `2-9` names CPU 9, but the last CPU is 3",
            ]
        );
        assert_eq!(
            told(serde_json::json!({"itmt-stall": {"waker_cpu": 4, "burst_us": 0.0}})),
            [
                "waker_cpu: `waker_cpu` is 4, but the last CPU of `t` is 3",
                "burst_us: `burst_us` is 0, not more than nothing",
            ]
        );
        assert_eq!(
            told(serde_json::json!({"command": {"argv": []}})),
            ["argv: no program is named"]
        );
    }
}
