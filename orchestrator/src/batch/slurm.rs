//! Slurm's commands: how they are called and what they answer.
//!
//! Only the client programs are used, as a person would type them; their texts are
//! asked for in fixed formats. Facts: sbatch(1), squeue(1), sinfo(1), scontrol(1).

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::Command,
};

use super::plan::Limits;

/// Slurm's client programs.
#[derive(Debug, Clone)]
pub struct Slurm {
    programs: BTreeMap<&'static str, PathBuf>,
}

const PROGRAMS: [&str; 5] = ["sbatch", "squeue", "scontrol", "sinfo", "scancel"];

/// Why Slurm did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// Programs that are not there.
    #[error("Slurm's client programs are not installed: no {} in PATH", missing.join(", no "))]
    NotInstalled {
        /// Their names.
        missing: Vec<&'static str>,
    },
    /// A program could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's words.
        #[source]
        source: io::Error,
    },
    /// The controller does not answer. It may come back.
    #[error("Slurm's controller does not answer: {said}")]
    Unreachable {
        /// The client's words.
        said: String,
    },
    /// The controller takes no more for now: a limit on jobs is reached.
    #[error("Slurm takes no more jobs for now: {said}")]
    Full {
        /// The client's words.
        said: String,
    },
    /// It was refused.
    #[error("{program}: {said}")]
    Refused {
        /// The program.
        program: &'static str,
        /// Its words.
        said: String,
    },
}

/// A node as `sinfo` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<String>,
    /// CPUs.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Such as `idle` or `down*`.
    pub state: String,
    /// Features, as `--constraint` takes them.
    pub features: Vec<String>,
}

/// What a cluster is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// The partition that is used when none is named.
    pub default_partition: Option<String>,
    /// Its limits.
    pub limits: Limits,
}

/// A task that waits or runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Name of the job.
    pub name: String,
    /// Its index in the array; absent for a job that is none.
    pub task: Option<usize>,
    /// Such as `PENDING` or `RUNNING`.
    pub state: String,
    /// Why it waits.
    pub reason: String,
}

/// How a task ended, as long as the controller remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// Such as `NODE_FAIL`, `TIMEOUT`, `OUT_OF_MEMORY`.
    pub state: String,
    /// Exit code and signal, `75:0`.
    pub exit: String,
    /// Where it ran.
    pub node: String,
}

impl Queued {
    /// Whether Slurm gave up starting it and waits for somebody to decide. A
    /// controller that was killed before it wrote down that a task runs starts
    /// it twice, drains the node and holds the task.
    pub fn is_held(&self) -> bool {
        self.state == "PENDING" && self.reason == "launch failed requeued held"
    }
}

impl Slurm {
    /// Finds the client programs.
    ///
    /// # Errors
    /// The names of those that are not there.
    pub fn find(path: &OsStr) -> Result<Self, SlurmError> {
        let mut programs = BTreeMap::new();
        let mut missing = Vec::new();
        for name in PROGRAMS {
            let mut places = std::env::split_paths(path).map(|folder| folder.join(name));
            match places.find(|place| place.is_file()) {
                Some(place) => {
                    programs.insert(name, place);
                }
                None => missing.push(name),
            }
        }
        if missing.is_empty() {
            Ok(Self { programs })
        } else {
            Err(SlurmError::NotInstalled { missing })
        }
    }

    fn ask<S: AsRef<OsStr>>(
        &self,
        program: &'static str,
        args: &[S],
    ) -> Result<String, SlurmError> {
        let path = &self.programs[program];
        let output = Command::new(path)
            .args(args)
            .env("LC_ALL", "C")
            // Of the user's own settings for these programs none may change what they say.
            .env_remove("SQUEUE_FORMAT")
            .env_remove("SINFO_FORMAT")
            .env_remove("SLURM_TIME_FORMAT")
            .output()
            .map_err(|source| SlurmError::Start {
                program: path.clone(),
                source,
            })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(refusal(program, &said))
    }

    /// Looks at the cluster.
    ///
    /// # Errors
    /// The controller does not answer.
    pub fn cluster(&self) -> Result<Cluster, SlurmError> {
        let config = self.ask("scontrol", &["show", "config"])?;
        let nodes = self.ask("sinfo", &["-h", "-N", "-a", "-o", "%N|%P|%c|%m|%T|%f"])?;
        Ok(cluster(&config, &nodes))
    }

    /// Asks whether a job would be taken, without submitting it.
    ///
    /// # Errors
    /// It would not.
    pub fn test(&self, script: &Path, args: &[String]) -> Result<(), SlurmError> {
        let mut words: Vec<&OsStr> = vec!["--test-only".as_ref()];
        words.extend(args.iter().map(OsStr::new));
        words.push(script.as_os_str());
        self.ask("sbatch", &words).map(|_| ())
    }

    /// Submits a script and tells the job's number.
    ///
    /// # Errors
    /// It was not taken.
    pub fn submit(
        &self,
        script: &Path,
        after: Option<&str>,
        args: &[String],
    ) -> Result<String, SlurmError> {
        let dependency = after.map(|job| format!("--dependency=afterok:{job}"));
        let mut words: Vec<&OsStr> = vec!["--parsable".as_ref()];
        words.extend(dependency.as_deref().map(OsStr::new));
        words.extend(args.iter().map(OsStr::new));
        words.push(script.as_os_str());
        let said = self.ask("sbatch", &words)?;
        // `JOB` or `JOB;CLUSTER`.
        let job = said.trim().split(';').next().unwrap_or_default();
        Ok(job.into())
    }

    /// What of these jobs waits or runs.
    ///
    /// # Errors
    /// The controller does not answer.
    pub fn queue(&self, names: &[String]) -> Result<Vec<Queued>, SlurmError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let text = self.ask(
            "squeue",
            &[
                "-h",
                "-r",
                "-a",
                "-n",
                &names.join(","),
                "-o",
                "%j|%K|%T|%r",
            ],
        )?;
        Ok(text.lines().filter_map(queued).collect())
    }

    /// How the tasks of a job ended, as far as it is remembered.
    ///
    /// # Errors
    /// The controller does not answer.
    pub fn fates(&self, job: &str) -> Result<BTreeMap<Option<usize>, Fate>, SlurmError> {
        match self.ask("scontrol", &["-o", "show", "job", job]) {
            Ok(text) => Ok(text.lines().filter_map(fate).collect()),
            // It forgets a job some minutes after its end (`MinJobAge`).
            Err(SlurmError::Refused { .. }) => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    /// Cancels one task of an array.
    ///
    /// # Errors
    /// It was refused.
    pub fn cancel_task(&self, job: &str, task: usize) -> Result<(), SlurmError> {
        self.ask("scancel", &["--quiet", &format!("{job}_{task}")])
            .map(|_| ())
    }

    /// Cancels jobs by name and no others.
    ///
    /// # Errors
    /// It was refused.
    pub fn cancel(&self, names: &[String]) -> Result<(), SlurmError> {
        for name in names {
            self.ask("scancel", &["--quiet", &format!("--name={name}")])?;
        }
        Ok(())
    }
}

/// Tells what passes from what stays.
fn refusal(program: &'static str, said: &str) -> SlurmError {
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let said = lines.join("; ");
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&[
        "Unable to contact slurm controller",
        "Socket timed out",
        "Connection refused",
        "Zero Bytes were transmitted",
        "Unable to establish a configuration source",
        "backup controller in standby",
        "Communication connection failure",
        "Unspecified error",
    ]) {
        return SlurmError::Unreachable { said };
    }
    if has(&[
        "submit limit",
        "QOSMaxSubmit",
        "AssocMaxSubmit",
        "temporarily unable to accept",
        "Resource temporarily unavailable",
        "Too many jobs",
    ]) {
        return SlurmError::Full { said };
    }
    SlurmError::Refused { program, said }
}

fn cluster(config: &str, nodes: &str) -> Cluster {
    let number = |name: &str, otherwise: usize| {
        config
            .lines()
            .filter_map(|line| line.split_once('='))
            .find(|(key, _)| key.trim() == name)
            .and_then(|(_, value)| value.trim().parse().ok())
            .unwrap_or(otherwise)
    };
    let mut found: Vec<Node> = Vec::new();
    let mut default_partition = None;
    for line in nodes.lines() {
        let fields: Vec<&str> = line.trim().split('|').collect();
        let [name, partition, cpus, memory, state, features] = fields[..] else {
            continue;
        };
        let plain = partition.trim_end_matches('*');
        if plain != partition {
            default_partition = Some(plain.to_string());
        }
        if let Some(known) = found.iter_mut().find(|node| node.name == name) {
            known.partitions.push(plain.into());
            continue;
        }
        // `8+` where nodes of a line differ; with -N they do not.
        let digits = |text: &str| text.trim_end_matches('+').parse::<u64>().unwrap_or(0);
        found.push(Node {
            name: name.into(),
            partitions: vec![plain.into()],
            cpus: u32::try_from(digits(cpus)).unwrap_or(u32::MAX),
            memory_mib: digits(memory),
            state: state.into(),
            features: features
                .split(',')
                .filter(|feature| !feature.is_empty() && *feature != "(null)")
                .map(String::from)
                .collect(),
        });
    }
    Cluster {
        nodes: found,
        default_partition,
        // The defaults of slurm.conf(5).
        limits: Limits {
            array_size: number("MaxArraySize", 1001),
            jobs: number("MaxJobCount", 10_000),
        },
    }
}

fn queued(line: &str) -> Option<Queued> {
    let mut fields = line.trim().split('|');
    Some(Queued {
        name: fields.next()?.into(),
        task: fields.next()?.parse().ok(),
        state: fields.next()?.into(),
        reason: fields.next().unwrap_or_default().into(),
    })
}

fn fate(line: &str) -> Option<(Option<usize>, Fate)> {
    let field = |name: &str| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let fate = Fate {
        state: field("JobState")?.into(),
        exit: field("ExitCode").unwrap_or_default().into(),
        node: field("NodeList").unwrap_or_default().into(),
    };
    Some((
        field("ArrayTaskId").and_then(|task| task.parse().ok()),
        fate,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_read_from_two_answers() {
        let config = "Configuration data as of 2026-12-01T03:00:00\nMaxArraySize            = 501\nMaxJobCount             = 9000\n";
        let nodes = "n1|lab*|64|515000|idle|kvm,rome\nn1|night|64|515000|idle|kvm,rome\nn2|night|8|16000|down*|(null)\n";
        let found = cluster(config, nodes);
        assert_eq!(found.default_partition.as_deref(), Some("lab"));
        assert_eq!(
            found.limits,
            Limits {
                array_size: 501,
                jobs: 9000
            }
        );
        assert_eq!(found.nodes.len(), 2);
        assert_eq!(found.nodes[0].partitions, ["lab", "night"]);
        assert_eq!(found.nodes[0].features, ["kvm", "rome"]);
        assert_eq!(
            (found.nodes[1].cpus, found.nodes[1].memory_mib),
            (8, 16_000)
        );
        assert!(found.nodes[1].features.is_empty());
    }

    #[test]
    fn what_passes_is_told_from_what_stays() {
        let class = |said: &str| match refusal("sbatch", said) {
            SlurmError::Unreachable { .. } => "unreachable",
            SlurmError::Full { .. } => "full",
            SlurmError::Refused { .. } => "refused",
            _ => "other",
        };
        assert_eq!(
            class(
                "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n"
            ),
            "unreachable"
        );
        assert_eq!(
            class(
                "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
            ),
            "full"
        );
        assert_eq!(
            class("sbatch: error: invalid partition specified: nope"),
            "refused"
        );
    }

    #[test]
    fn tasks_and_their_ends_are_read() {
        assert_eq!(
            queued("topolab-1-a0-s0|17|PENDING|Dependency"),
            Some(Queued {
                name: "topolab-1-a0-s0".into(),
                task: Some(17),
                state: "PENDING".into(),
                reason: "Dependency".into(),
            })
        );
        let held = queued("topolab-1-a0-s0|2|PENDING|launch failed requeued held").unwrap();
        assert!(held.is_held());
        assert!(
            !queued("topolab-1-a0-s0|2|PENDING|BeginTime")
                .unwrap()
                .is_held()
        );
        assert_eq!(
            queued("topolab-1-build-s0|N/A|RUNNING|None").unwrap().task,
            None
        );
        let line = "JobId=9 ArrayJobId=4 ArrayTaskId=2 JobName=x JobState=NODE_FAIL Reason=NodeDown ExitCode=1:0 ReqNodeList=(null) NodeList=n2 NumCPUs=5";
        assert_eq!(
            fate(line),
            Some((
                Some(2),
                Fate {
                    state: "NODE_FAIL".into(),
                    exit: "1:0".into(),
                    node: "n2".into(),
                }
            ))
        );
    }
}
