//! Workload `lru-drain`: pages are moved between nodes while real-time tasks
//! keep isolated CPUs busy, and who moves them waits.

mod parts;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use topolab_protocol::message::ExitStatus;
use topolab_protocol::sample::{Better, MetricKind};
use topolab_protocol::settings::{Scalar, Settings};
use topolab_protocol::workload::{Isolation, LruDrain, parse_size};

use super::own_child::Part;
use super::{Session, Stopped, own_child, plain};
use crate::cpulist;
use crate::kmsg;
use crate::settings::{Journal, group_folder};
use crate::trace::{Event, Instance, TraceError};
use parts::{AnchorPart, ChurnPart};
use writer::{Waiter, blocked_stacks, fork_into, write_mems};

pub use parts::{anchor, churn};

/// Names of the children's parts.
pub const ANCHOR: &str = "lru-drain-anchor";
/// See [`ANCHOR`].
pub const CHURNER: &str = "lru-drain-churner";

/// Groups the workload makes and removes.
const ANCHOR_GROUP: &str = "topolab-anchor";
const OTHER_GROUP: &str = "topolab-other";
const ISOLATED_GROUP: &str = "topolab-isolated";

/// The work that empties one CPU's batches (`mm/swap.c`).
const DRAIN: &str = "lru_add_drain_per_cpu";

/// How long a child may take to get ready.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Between the partition and the churners that take its CPUs over.
const SETTLE: Duration = Duration::from_secs(1);
/// Between two looks at who waits.
const LOOK: Duration = Duration::from_millis(20);
/// The fork comes this long after the write, when the move has begun.
const FORK_AFTER: Duration = Duration::from_millis(300);
/// How long those who wait have, once nothing stands in their way any more.
const RELEASE_LIMIT: Duration = Duration::from_secs(300);

/// What was checked of the parameters.
struct Plan {
    anchor_bytes: usize,
    churn_bytes: usize,
    churn_cpus: BTreeSet<usize>,
    limit: Duration,
}

/// Moves the anchor's pages and watches who waits.
pub fn run(session: &Session, parameters: &LruDrain) -> Result<ExitStatus, Stopped> {
    let plan = plan(session, parameters).map_err(Stopped::Failed)?;
    let mut journal = Journal::new(Path::new("/"));
    let result = measure(session, parameters, &plan, &mut journal);
    for failed in journal.undo() {
        session.note(format!("not restored: {failed}"));
    }
    result
}

fn plan(session: &Session, parameters: &LruDrain) -> Result<Plan, String> {
    let size = |name: &str, text: &str| {
        parse_size(text)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .filter(|bytes| *bytes >= 1 << 20)
            .ok_or_else(|| format!("{name}: {text:?} is no size of at least 1M"))
    };
    let cpus = parameters
        .churn_cpus
        .as_ref()
        .or_else(|| session.sets.get("isolated"));
    let churn_cpus = match cpus {
        Some(list) => {
            cpulist::parse(list).ok_or_else(|| format!("churn_cpus {list:?} is no CPU list"))?
        }
        None => return Err("no churn_cpus, and the topology has no set `isolated`".into()),
    };
    Ok(Plan {
        anchor_bytes: size("anchor", &parameters.anchor)?,
        churn_bytes: size("churn_memory", &parameters.churn_memory)?,
        churn_cpus,
        limit: Duration::try_from_secs_f64(parameters.limit)
            .map_err(|error| format!("limit: {error}"))?,
    })
}

fn measure(
    session: &Session,
    parameters: &LruDrain,
    plan: &Plan,
    journal: &mut Journal,
) -> Result<ExitStatus, Stopped> {
    session.phase("prepare");
    let lacking = |error: TraceError| Stopped::NotTestable(error.to_string());
    let instance = Instance::new(Path::new("/"), "topolab-lru").map_err(lacking)?;
    let queued = instance
        .event("workqueue:workqueue_queue_work")
        .map_err(lacking)?;
    let mut log = kmsg::Reader::open(Path::new("/")).map_err(Stopped::failed)?;
    make_groups(parameters, plan, journal)?;
    empty_batches();

    let mut anchor = own_child::start(
        session,
        ANCHOR,
        &AnchorPart {
            bytes: plan.anchor_bytes,
            node: parameters.from_node,
            avoid: plan.churn_cpus.clone(),
        },
        Some(ANCHOR_GROUP),
    )?;
    session.control.attach(&session.children, anchor.pid());
    anchor.line(READY_LIMIT)?;
    let mut churners = Vec::new();
    if parameters.churn {
        churners = start_churners(session, parameters, plan)?;
    }
    if parameters.isolation == Isolation::Partition {
        make_partition(journal)?;
        // A kernel that empties the batches of CPUs as they become isolated
        // does so in the background.
        std::thread::sleep(SETTLE);
        for churner in &mut churners {
            churner.go_on()?;
            churner.line(READY_LIMIT)?;
        }
    }
    instance
        .count(&queued, "function.sym,cpu", None)
        .map_err(lacking)?;
    log.records();

    session.phase("measure");
    let mut watched = Watched::start(parameters)?;
    watched.wait(parameters, plan, &anchor)?;
    let works = drain_works(&instance, &queued)?;
    let (moved, all) = pages(&anchor, parameters.to_node);
    let hung = log
        .records()
        .iter()
        .filter(|record| record.by_kernel() && record.text.contains("blocked for more than"))
        .count();
    let stacks = watched.stacks();
    let stalled = !watched.writer.is_over();
    let fork_stalled = watched.forker.as_ref().is_some_and(|f| !f.is_over());

    session.phase("release");
    sample(
        session,
        plan,
        &watched,
        &works,
        (moved, all),
        hung,
        (stalled, fork_stalled),
    );
    if let Some(stacks) = stacks {
        session.evidence("blocked.txt", &stacks);
    }
    drop(churners);
    watched.finish()?;
    session.control.detach();
    anchor.stop::<()>()?;
    Ok(ExitStatus::Exited { code: 0 })
}

/// Fetches what booting left in the CPUs' batches, so that only what the
/// churners put there is counted later. Dropping clean caches drains first
/// (`fs/drop_caches.c`); a kernel that does not offer it keeps its leftovers,
/// which the sample then shows.
fn empty_batches() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "1");
}

/// A setting of our own that cannot be put in place says that the guest lacks it.
fn put(journal: &mut Journal, group: &str, files: &[(&str, String)]) -> Result<(), Stopped> {
    let files: BTreeMap<String, Scalar> = files
        .iter()
        .map(|(file, value)| ((*file).to_string(), Scalar::Text(value.clone())))
        .collect();
    let settings = Settings {
        cgroups: [(group.to_string(), files)].into(),
        ..Settings::default()
    };
    journal
        .apply(&settings)
        .map(|_| ())
        .map_err(|error| Stopped::NotTestable(error.to_string()))
}

fn make_groups(parameters: &LruDrain, plan: &Plan, journal: &mut Journal) -> Result<(), Stopped> {
    let both = format!("{},{}", parameters.from_node, parameters.to_node);
    put(journal, ANCHOR_GROUP, &[("cpuset.mems", both.clone())])?;
    if parameters.fork {
        put(journal, OTHER_GROUP, &[("cpuset.mems", both)])?;
    }
    if parameters.isolation == Isolation::Partition {
        let cpus: Vec<String> = plan.churn_cpus.iter().map(ToString::to_string).collect();
        put(journal, ISOLATED_GROUP, &[("cpuset.cpus", cpus.join(","))])?;
    }
    Ok(())
}

fn make_partition(journal: &mut Journal) -> Result<(), Stopped> {
    let isolated = ("cpuset.cpus.partition", "isolated".to_string());
    put(journal, ISOLATED_GROUP, &[isolated])
}

fn start_churners(
    session: &Session,
    parameters: &LruDrain,
    plan: &Plan,
) -> Result<Vec<Part>, Stopped> {
    let group = match parameters.isolation {
        Isolation::Boot => None,
        Isolation::Partition => Some(ISOLATED_GROUP),
    };
    let mut churners = Vec::new();
    for cpu in &plan.churn_cpus {
        let part = ChurnPart {
            bytes: plan.churn_bytes,
            cpu: *cpu,
            pages: parameters.churn_pages as usize,
            spin_us: parameters.churn_spin_us,
            mlock: parameters.churn_mlock,
            fill_first: parameters.isolation == Isolation::Partition,
            priority: parameters.churn_priority,
        };
        churners.push(own_child::start(session, CHURNER, &part, group)?);
    }
    for churner in &mut churners {
        churner.line(READY_LIMIT)?;
    }
    Ok(churners)
}

/// Who waits.
struct Watched {
    writer: Waiter,
    forker: Option<Waiter>,
    begin: Instant,
}

impl Watched {
    fn start(parameters: &LruDrain) -> Result<Self, Stopped> {
        let file = group_folder(Path::new("/"), ANCHOR_GROUP).join("cpuset.mems");
        let nodes = parameters.to_node.to_string();
        let writer = write_mems(file, nodes, parameters.write).map_err(Stopped::failed)?;
        Ok(Self {
            writer,
            forker: None,
            begin: Instant::now(),
        })
    }

    /// Watches until everything is over and all pages have moved, or the limit
    /// is reached.
    fn wait(&mut self, parameters: &LruDrain, plan: &Plan, anchor: &Part) -> Result<(), Stopped> {
        let mut looked = 0u32;
        while self.begin.elapsed() < plan.limit {
            self.look()?;
            if parameters.fork && self.forker.is_none() && self.begin.elapsed() > FORK_AFTER {
                let group = group_folder(Path::new("/"), OTHER_GROUP);
                self.forker = Some(fork_into(&group).map_err(Stopped::failed)?);
            }
            let forked = !parameters.fork || self.forker.as_ref().is_some_and(Waiter::is_over);
            // Reading the page counts takes the anchor's locks: not too often.
            looked += 1;
            if self.writer.is_over() && forked && looked.is_multiple_of(10) {
                let (moved, all) = pages(anchor, parameters.to_node);
                if moved >= all {
                    return Ok(());
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Stopped> {
        self.writer
            .look()
            .map_err(|error| Stopped::failed(format!("cannot write cpuset.mems: {error}")))?;
        if let Some(forker) = &mut self.forker {
            forker
                .look()
                .map_err(|error| Stopped::failed(format!("cannot fork: {error}")))?;
        }
        Ok(())
    }

    /// Kernel stacks of those who wait and of whom they wait for.
    fn stacks(&self) -> Option<String> {
        let writer = self.writer.stack.as_deref()?;
        Some(format!("writer\n{writer}\n{}", blocked_stacks()))
    }

    /// Waits until nobody waits any more.
    fn finish(&mut self) -> Result<(), Stopped> {
        let begin = Instant::now();
        while !self.writer.is_over() || self.forker.as_ref().is_some_and(|f| !f.is_over()) {
            self.look()?;
            if begin.elapsed() > RELEASE_LIMIT {
                return Err(Stopped::failed(
                    "the write did not return even after the churners had ended",
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Drain works queued so far, by CPU.
fn drain_works(instance: &Instance, queued: &Event) -> Result<BTreeMap<usize, u64>, Stopped> {
    let histogram = instance.counted(queued).map_err(Stopped::failed)?;
    let mut works = BTreeMap::new();
    for entry in &histogram.entries {
        let drain = entry.keys.get("function").is_some_and(|f| f == DRAIN);
        if let (true, Some(cpu)) = (drain, entry.keys.get("cpu").and_then(|c| c.parse().ok())) {
            *works.entry(cpu).or_default() += entry.hits;
        }
    }
    Ok(works)
}

/// Pages of the anchor on a node, and all of them, from `/proc/PID/numa_maps`.
fn pages(anchor: &Part, node: u32) -> (u64, u64) {
    let maps = fs::read_to_string(format!("/proc/{}/numa_maps", anchor.pid())).unwrap_or_default();
    count_pages(&maps, node)
}

/// Anonymous memory only: the program's own file pages do not move.
fn count_pages(maps: &str, node: u32) -> (u64, u64) {
    let here = format!("N{node}");
    let (mut on_node, mut all) = (0, 0);
    for line in maps
        .lines()
        .filter(|line| line.contains(" anon=") && !line.contains(" file="))
    {
        for word in line.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                continue;
            };
            let Ok(pages) = value.parse::<u64>() else {
                continue;
            };
            if key
                .strip_prefix('N')
                .is_some_and(|n| n.parse::<u32>().is_ok())
            {
                all += pages;
                on_node += if key == here { pages } else { 0 };
            }
        }
    }
    (on_node, all)
}

fn sample(
    session: &Session,
    plan: &Plan,
    watched: &Watched,
    works: &BTreeMap<usize, u64>,
    (moved, all): (u64, u64),
    hung: usize,
    (stalled, fork_stalled): (bool, bool),
) {
    let on = |isolated: bool| -> f64 {
        let works = works
            .iter()
            .filter(|(cpu, _)| plan.churn_cpus.contains(cpu) == isolated);
        works.map(|(_, hits)| *hits).sum::<u64>() as f64
    };
    let (count, lower) = (MetricKind::Count, Better::Lower);
    let number = |on: bool| f64::from(u8::from(on));
    session.sample(plain(
        "drain_works_isolated",
        on(true),
        count,
        "count",
        lower,
    ));
    session.sample(plain(
        "drain_works_other",
        on(false),
        count,
        "count",
        Better::Neither,
    ));
    session.sample(plain(
        "write_stalled",
        number(stalled),
        count,
        "count",
        lower,
    ));
    session.sample(plain("hung_tasks", hung as f64, count, "count", lower));
    let share = moved as f64 / all.max(1) as f64;
    session.sample(plain(
        "pages_moved",
        moved as f64,
        MetricKind::Size,
        "pages",
        Better::Higher,
    ));
    session.sample(plain(
        "share_moved",
        share,
        MetricKind::Ratio,
        "share",
        Better::Higher,
    ));
    let time = |metric: &str, value: Duration| {
        let ns = value.as_nanos() as f64;
        session.sample(plain(metric, ns, MetricKind::Duration, "ns", lower));
    };
    time("write_time", watched.writer.took());
    time("write_blocked", watched.writer.blocked);
    if let Some(forker) = &watched.forker {
        session.sample(plain(
            "fork_stalled",
            number(fork_stalled),
            count,
            "count",
            lower,
        ));
        time("fork_time", forker.took());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_per_node() {
        let maps = "5500 bind:1 anon=4096 dirty=4096 N0=1000 N1=3096 kernelpagesize_kB=4\n\
            5600 default file=/init anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n\
            7ffc default stack anon=3 dirty=3 N1=3 kernelpagesize_kB=4\n";
        assert_eq!(count_pages(maps, 0), (1000, 4099));
        assert_eq!(count_pages(maps, 1), (3099, 4099));
    }
}
