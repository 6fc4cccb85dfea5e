//! Keeps the agent's own memory out of NUMA balancing, so that counters of the
//! whole guest (`/proc/vmstat`) count the workload and not its observer.
//!
//! A task with a memory policy of its own is not scanned unless the policy asks
//! for it (`vma_policy_mof` in mm/mempolicy.c). `MPOL_LOCAL` is such a policy and
//! allocates as the default does. Policies pass to children, so a workload's
//! child goes back to the default before its program runs.

/// Gives the calling thread, and threads it starts, the local policy. A kernel
/// without NUMA refuses, and has nothing to keep out of.
pub fn keep_still() {
    set(libc::MPOL_LOCAL);
}

/// Goes back to the default policy. Async-signal-safe: one system call.
pub fn let_go() {
    set(libc::MPOL_DEFAULT);
}

fn set(mode: libc::c_int) {
    // SAFETY: both modes take no node mask; the call changes the calling task's
    // policy and reads no memory of ours.
    unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            mode,
            std::ptr::null::<libc::c_ulong>(),
            0,
        );
    }
}
