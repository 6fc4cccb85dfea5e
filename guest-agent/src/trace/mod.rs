//! Counting and recording what the kernel does, through tracefs in an instance
//! of our own, so that a user's tracing and ours leave each other alone.

pub mod hist;
pub mod text;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use hist::Histogram;

/// Why something cannot be traced. All of these say that the guest lacks what a
/// monitor or workload needs.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is no tracefs.
    #[error(
        "no tracing at {} (the kernel needs CONFIG_FTRACE and a tracer, such as \
         CONFIG_ENABLE_DEFAULT_TRACERS)", path.display()
    )]
    NoTracefs {
        /// Where it would be.
        path: PathBuf,
    },
    /// The kernel has no such event.
    #[error("this kernel has no trace event {event}")]
    NoEvent {
        /// `GROUP:NAME`.
        event: String,
    },
    /// The function cannot be probed.
    #[error(
        "cannot count calls of {function}: {source} (the kernel needs CONFIG_KPROBE_EVENTS, and \
         the function must exist and not be inlined)"
    )]
    NoProbe {
        /// The function.
        function: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The kernel does not take a histogram of this event.
    #[error("cannot count {event} by {keys}: {source} (the kernel needs CONFIG_HIST_TRIGGERS)")]
    NoHistogram {
        /// `GROUP:NAME`.
        event: String,
        /// The keys asked for.
        keys: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The kernel does not take this filter.
    #[error("{event} cannot be filtered by {filter:?}: {source}")]
    BadFilter {
        /// `GROUP:NAME`.
        event: String,
        /// The filter.
        filter: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A file of tracefs cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write`, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A histogram had no room for all its entries.
    #[error("the histogram of {event} dropped {dropped} events: its count is not whole")]
    Dropped {
        /// `GROUP:NAME`.
        event: String,
        /// How many.
        dropped: u64,
    },
}

/// Group of the kernel's probe events that are ours.
const PROBES: &str = "topolab";

/// A tracing instance. Dropping it removes the instance and its probes.
pub struct Instance {
    tracefs: PathBuf,
    folder: PathBuf,
    probes: Vec<String>,
}

/// An event of an instance that can be counted or recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    group: String,
    name: String,
}

impl Event {
    fn full(&self) -> String {
        format!("{}:{}", self.group, self.name)
    }
}

impl Instance {
    /// Makes an instance called `name` below the tracefs of `root`.
    ///
    /// # Errors
    /// Without tracefs, or when the kernel refuses.
    pub fn new(root: &Path, name: &str) -> Result<Self, TraceError> {
        let places = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
        let tracefs = places
            .iter()
            .map(|place| root.join(place))
            .find(|place| place.join("instances").is_dir())
            .ok_or_else(|| TraceError::NoTracefs {
                path: root.join(places[0]),
            })?;
        let folder = tracefs.join("instances").join(name);
        // Left over from an agent that died.
        if folder.is_dir() {
            let _ = fs::remove_dir(&folder);
        }
        fs::create_dir(&folder).map_err(|source| TraceError::Io {
            action: "make",
            path: folder.clone(),
            source,
        })?;
        Ok(Self {
            tracefs,
            folder,
            probes: Vec::new(),
        })
    }

    /// A tracepoint written `GROUP:NAME`.
    ///
    /// # Errors
    /// When the kernel does not have it.
    pub fn event(&self, full: &str) -> Result<Event, TraceError> {
        let missing = || TraceError::NoEvent { event: full.into() };
        let (group, name) = full.split_once(':').ok_or_else(missing)?;
        let event = Event {
            group: group.into(),
            name: name.into(),
        };
        if self.file(&event, "").is_dir() {
            Ok(event)
        } else {
            Err(missing())
        }
    }

    /// An event at the entry of a kernel function.
    ///
    /// # Errors
    /// When the function cannot be probed.
    pub fn probe(&mut self, function: &str) -> Result<Event, TraceError> {
        let name: String = function
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let failed = |source| TraceError::NoProbe {
            function: function.into(),
            source,
        };
        self.append("kprobe_events", &format!("p:{PROBES}/{name} {function}"))
            .map_err(failed)?;
        self.probes.push(name.clone());
        Ok(Event {
            group: PROBES.into(),
            name,
        })
    }

    /// Counts an event by `keys` (`common_cpu`, `cpu`, …) from now on.
    ///
    /// # Errors
    /// When the kernel takes no such histogram or filter.
    pub fn count(&self, event: &Event, keys: &str, filter: Option<&str>) -> Result<(), TraceError> {
        let condition = filter.map(|f| format!(" if {f}")).unwrap_or_default();
        let trigger = format!("hist:keys={keys}{condition}");
        put(&self.file(event, "trigger"), &trigger).map_err(|source| match filter {
            Some(filter) if source.raw_os_error() == Some(libc::EINVAL) => TraceError::BadFilter {
                event: event.full(),
                filter: filter.into(),
                source,
            },
            _ => TraceError::NoHistogram {
                event: event.full(),
                keys: keys.into(),
                source,
            },
        })
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// When it cannot be read, or the kernel dropped some.
    pub fn counted(&self, event: &Event) -> Result<Histogram, TraceError> {
        let histogram = Histogram::parse(&self.read_file(&self.file(event, "hist"))?);
        match histogram.dropped {
            0 => Ok(histogram),
            dropped => Err(TraceError::Dropped {
                event: event.full(),
                dropped,
            }),
        }
    }

    /// Records an event into the instance's buffer from now on.
    ///
    /// # Errors
    /// When the kernel takes no such filter or does not enable it.
    pub fn record(&self, event: &Event, filter: Option<&str>) -> Result<(), TraceError> {
        if let Some(filter) = filter {
            put(&self.file(event, "filter"), filter).map_err(|source| TraceError::BadFilter {
                event: event.full(),
                filter: filter.into(),
                source,
            })?;
        }
        self.write("enable", &self.file(event, "enable"), "1")
    }

    /// Sizes the buffer of each CPU.
    ///
    /// # Errors
    /// When there is not that much memory.
    pub fn buffer_kb(&self, kb: u32) -> Result<(), TraceError> {
        let path = self.folder.join("buffer_size_kb");
        self.write("size", &path, &kb.to_string())
    }

    /// Stops or goes on recording; counting goes on anyway.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn recording(&self, on: bool) -> Result<(), TraceError> {
        let path = self.folder.join("tracing_on");
        self.write("switch", &path, if on { "1" } else { "0" })
    }

    /// The recorded events as text, oldest first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn text(&self) -> Result<String, TraceError> {
        let path = self.folder.join("trace");
        let bytes = fs::read(&path).map_err(|source| TraceError::Io {
            action: "read",
            path,
            source,
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Events lost because the buffer was full, all CPUs together.
    pub fn lost(&self) -> u64 {
        let cpus = fs::read_dir(self.folder.join("per_cpu"))
            .into_iter()
            .flatten()
            .flatten();
        cpus.filter_map(|cpu| fs::read_to_string(cpu.path().join("stats")).ok())
            .map(|stats| text::lost(&stats))
            .sum()
    }

    fn file(&self, event: &Event, file: &str) -> PathBuf {
        self.folder
            .join("events")
            .join(&event.group)
            .join(&event.name)
            .join(file)
    }

    fn read_file(&self, path: &Path) -> Result<String, TraceError> {
        fs::read_to_string(path).map_err(|source| TraceError::Io {
            action: "read",
            path: path.into(),
            source,
        })
    }

    fn write(&self, action: &'static str, path: &Path, text: &str) -> Result<(), TraceError> {
        put(path, text).map_err(|source| TraceError::Io {
            action,
            path: path.into(),
            source,
        })
    }

    fn append(&self, file: &str, line: &str) -> std::io::Result<()> {
        OpenOptions::new()
            .append(true)
            .open(self.tracefs.join(file))?
            .write_all(line.as_bytes())
    }
}

fn put(path: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The instance holds the probes; what fails here stays until the guest
        // is off, and hurts nobody but the next user of the same names.
        let _ = fs::remove_dir(&self.folder);
        for name in &self.probes {
            let _ = self.append("kprobe_events", &format!("-:{PROBES}/{name}"));
        }
    }
}
