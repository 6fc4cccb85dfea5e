//! The children of `lru-drain`: the anchor, whose pages are moved, and the
//! churners, whose CPUs never yield.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::super::own_child;
use crate::realtime::{avoid, fifo, microseconds, pin, spin};

const PAGE: usize = 4096;

/// Parameters of the anchor.
#[derive(Debug, Serialize, Deserialize)]
pub struct AnchorPart {
    /// Bytes.
    pub bytes: usize,
    /// Node they are taken from.
    pub node: u32,
    /// CPUs it keeps away from, so that nothing of its own lies in their batches.
    pub avoid: BTreeSet<usize>,
}

/// Parameters of a churner.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChurnPart {
    /// Bytes.
    pub bytes: usize,
    /// Its CPU.
    pub cpu: usize,
    /// Pages touched before each spin.
    pub pages: usize,
    /// Microseconds of each spin.
    pub spin_us: f64,
    /// Locks its memory, page by page as it is touched.
    pub mlock: bool,
    /// Fills its CPU's batch as an ordinary task first and waits to be told.
    pub fill_first: bool,
    /// Its SCHED_FIFO priority.
    pub priority: u32,
}

/// Private memory of one process.
struct Region {
    start: *mut u8,
    bytes: usize,
}

impl Region {
    fn new(bytes: usize) -> Result<Self, String> {
        // SAFETY: a new private mapping at an address of the kernel's choice
        // aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .map_err(|error| format!("cannot map {bytes} bytes: {error}"))?;
        let region = Self {
            start: start.cast(),
            bytes,
        };
        // Pages are counted one by one; a kernel without huge pages refuses.
        let _ = region.advise(Advice::LinuxNoHugepage);
        Ok(region)
    }

    fn pages(&self) -> usize {
        self.bytes / PAGE
    }

    fn touch(&self, page: usize) {
        assert!(page < self.pages(), "the page lies in the region");
        // SAFETY: it lies in the mapping, which only this thread uses.
        unsafe { self.start.add(page * PAGE).write_volatile(1) };
    }

    /// Locks each page when it is touched (`mlock2(2)`, MLOCK_ONFAULT).
    fn lock(&self) -> std::io::Result<()> {
        // SAFETY: the range is our mapping; locking changes nothing in it.
        if unsafe { libc::mlock2(self.start.cast(), self.bytes, libc::MLOCK_ONFAULT) } == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    }

    /// Gives all pages back to the kernel.
    fn give_back(&self, locked: bool) -> std::io::Result<()> {
        let advice = if locked {
            libc::MADV_DONTNEED_LOCKED
        } else {
            libc::MADV_DONTNEED
        };
        // SAFETY: the range is our mapping, and nothing in it is kept across
        // this call.
        if unsafe { libc::madvise(self.start.cast(), self.bytes, advice) } == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    }

    fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is our mapping, and nothing in it is kept across
        // this call.
        unsafe { madvise(self.start.cast(), self.bytes, advice) }
    }
}

/// Takes memory from one node and holds it until told to stop.
pub fn anchor(part: &AnchorPart) -> Result<(), String> {
    avoid(&part.avoid);
    let stop = own_child::stop_flag();
    let region = Region::new(part.bytes)?;
    set_policy(Some(part.node))
        .map_err(|error| format!("cannot take memory from node {}: {error}", part.node))?;
    (0..region.pages()).for_each(|page| region.touch(page));
    // Without a policy of its own the task follows its cpuset.
    set_policy(None).map_err(|error| format!("cannot reset the memory policy: {error}"))?;
    own_child::say("ready");
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(())
}

/// `set_mempolicy(2)`: bind to one node, or the default policy.
fn set_policy(node: Option<u32>) -> std::io::Result<()> {
    const MPOL_DEFAULT: libc::c_long = 0;
    const MPOL_BIND: libc::c_long = 2;
    const BITS: u32 = 64;
    let (mode, mask) = match node {
        Some(node) if node < BITS => (MPOL_BIND, 1u64 << node),
        Some(_) => return Err(std::io::ErrorKind::InvalidInput.into()),
        None => (MPOL_DEFAULT, 0),
    };
    let pointer = if mask == 0 {
        std::ptr::null()
    } else {
        &raw const mask
    };
    // The kernel reads one bit less than it is told (mm/mempolicy.c, get_nodes).
    // SAFETY: `mask` outlives the call and holds as many bits as are named.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, BITS + 1) };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Pages after which a churner's batch is as it will be.
const READY_AFTER: usize = 100;

/// Touches memory and gives it back, over and over, without ever yielding. In
/// between it spins in user space, as a program that polls does: the pages it
/// touched last are in its CPU's batch then, and the kernel is not entered that
/// would empty it.
///
/// It has one thread, because a second one could find no CPU to run on, and
/// ends only by being killed.
pub fn churn(part: &ChurnPart) -> Result<(), String> {
    let outlives = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    outlives.map_err(|error| format!("cannot follow the agent's end: {error}"))?;
    let region = Region::new(part.bytes)?;
    if part.mlock {
        region
            .lock()
            .map_err(|error| format!("cannot lock memory: {error}"))?;
    }
    let place = || {
        pin(&BTreeSet::from([part.cpu]))
            .map_err(|error| format!("cannot use CPU {}: {error}", part.cpu))
    };
    if part.fill_first {
        place()?;
        (0..part.pages).for_each(|page| region.touch(page));
        own_child::say("filled");
        own_child::wait_for_go()?;
    }
    fifo(part.priority).map_err(|error| format!("no SCHED_FIFO: {error}"))?;
    place()?;
    let pause = microseconds(part.spin_us);
    let mut touched = 0;
    loop {
        for page in 0..region.pages() {
            region.touch(page);
            touched += 1;
            if touched % part.pages.max(1) == 0 {
                spin(pause, || false);
            }
            if touched == READY_AFTER {
                own_child::say("ready");
            }
        }
        region
            .give_back(part.mlock)
            .map_err(|error| format!("cannot give memory back: {error}"))?;
    }
}
