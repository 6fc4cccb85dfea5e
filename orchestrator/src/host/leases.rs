//! Which host CPUs belong to which guest, across processes.
//!
//! A lease is a lock (flock(2)) on a file `cpuN` in a folder that all of a
//! user's campaigns share. The kernel releases it when the holder dies, however
//! it dies, so that there are no stale leases: the files that stay mean nothing.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::topology::CpuList;

/// CPUs that are ours until this is dropped.
#[derive(Debug)]
pub struct Lease {
    cpus: CpuList,
    /// Open files whose locks are the lease.
    _locks: Vec<File>,
}

impl Lease {
    /// The CPUs.
    pub fn cpus(&self) -> &CpuList {
        &self.cpus
    }
}

/// Why CPUs could not be leased.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Somebody else has one of them.
    #[error("host CPU {cpu} is leased to process {holder}")]
    Taken {
        /// The CPU.
        cpu: u32,
        /// Whoever has it, as far as it told.
        holder: String,
    },
    /// The folder of locks cannot be used.
    #[error("cannot lock `{}`", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The folder in which leases lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    folder: PathBuf,
}

impl Leases {
    /// Leases in `folder`, which is made when the first one is taken.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Looks which of `candidates` others have, lets `choose` pick from the
    /// rest, and leases what it picked. Nobody else plans meanwhile.
    ///
    /// # Errors
    /// When the folder cannot be used; what `choose` refuses.
    pub fn take<T, E: From<LeaseError>>(
        &self,
        candidates: &CpuList,
        choose: impl FnOnce(&CpuList) -> Result<(CpuList, T), E>,
    ) -> Result<(Lease, T), E> {
        fs::create_dir_all(&self.folder).map_err(|source| LeaseError::Io {
            path: self.folder.clone(),
            source,
        })?;
        // Held for the few system calls of planning.
        let _planning = self.lock_file("planning", FlockOperation::LockExclusive)?;
        let mut leased = CpuList::new();
        for cpu in candidates.iter() {
            if let Err(LeaseError::Taken { .. }) = self.lock(cpu) {
                leased.insert(cpu);
            }
        }
        let (cpus, made) = choose(&leased)?;
        let locks = cpus.iter().map(|cpu| self.lock(cpu));
        let locks = locks.collect::<Result<Vec<File>, LeaseError>>()?;
        let lease = Lease {
            cpus,
            _locks: locks,
        };
        Ok((lease, made))
    }

    fn lock(&self, cpu: u32) -> Result<File, LeaseError> {
        let name = format!("cpu{cpu}");
        let mut file = self.lock_file(&name, FlockOperation::NonBlockingLockExclusive)?;
        // For whoever finds it taken.
        let told = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        told.map_err(|source| LeaseError::Io {
            path: self.folder.join(name),
            source,
        })?;
        Ok(file)
    }

    fn lock_file(&self, name: &str, how: FlockOperation) -> Result<File, LeaseError> {
        let path = self.folder.join(name);
        let opened = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = opened.map_err(|source| LeaseError::Io {
            path: path.clone(),
            source,
        })?;
        match flock(&file, how) {
            Ok(()) => Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let cpu = name.strip_prefix("cpu").and_then(|cpu| cpu.parse().ok());
                Err(LeaseError::Taken {
                    cpu: cpu.unwrap_or_default(),
                    holder: match holder.trim() {
                        "" => "unknown".into(),
                        known => known.into(),
                    },
                })
            }
            Err(errno) => Err(LeaseError::Io {
                path,
                source: errno.into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuList {
        CpuList::parse(text, 64).unwrap()
    }

    /// Leases the first `count` free ones of 0-3.
    fn first(leases: &Leases, count: usize) -> Result<(Lease, CpuList), LeaseError> {
        leases.take(&cpus("0-3"), |leased| {
            let free: CpuList = cpus("0-3").without(leased).iter().take(count).collect();
            Ok((free, leased.clone()))
        })
    }

    #[test]
    fn two_holders_never_share_a_cpu_and_a_dropped_lease_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let leases = Leases::new(&folder.path().join("cores"));
        let (one, seen) = first(&leases, 2).unwrap();
        assert_eq!((one.cpus(), &seen), (&cpus("0-1"), &CpuList::new()));
        let (other, seen) = first(&leases, 2).unwrap();
        assert_eq!((other.cpus(), &seen), (&cpus("2-3"), &cpus("0-1")));
        drop(one);
        let (third, seen) = first(&leases, 1).unwrap();
        assert_eq!((third.cpus(), &seen), (&cpus("0"), &cpus("2-3")));
    }

    #[test]
    fn a_cpu_that_is_insisted_on_is_refused_with_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let leases = Leases::new(folder.path());
        let (_held, _) = first(&leases, 1).unwrap();
        let error = leases
            .take::<(), LeaseError>(&CpuList::new(), |_| Ok((cpus("0"), ())))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("host CPU 0 is leased to process {}", std::process::id())
        );
    }

    #[test]
    fn a_lock_file_of_a_dead_process_means_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cpu0"), "999999\n").unwrap();
        let (lease, seen) = first(&Leases::new(folder.path()), 1).unwrap();
        assert_eq!((lease.cpus(), &seen), (&cpus("0"), &CpuList::new()));
    }
}
