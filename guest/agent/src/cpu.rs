//! CPU affinity of threads.

/// Returns the affinity of this thread.
pub fn affinity() -> Option<libc::cpu_set_t> {
    // SAFETY: an all-zero set is a valid empty set.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid set of the given size.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus) };
    (result == 0).then_some(cpus)
}

/// Sets the affinity of this thread. Returns true on success.
pub fn set_affinity(cpus: &libc::cpu_set_t) -> bool {
    // SAFETY: a valid set of the given size.
    unsafe { libc::sched_setaffinity(0, size_of_val(cpus), cpus) == 0 }
}

/// Pins this thread to its current CPU. Threads and processes that it starts inherit the affinity,
/// so that a yield has to switch.
pub fn pin_to_current_cpu() -> Option<()> {
    // SAFETY: takes no arguments.
    let cpu = unsafe { libc::sched_getcpu() };
    let cpu = usize::try_from(cpu).ok()?;
    set_affinity(&only(cpu)).then_some(())
}

/// Returns the set of this CPU.
pub fn only(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: an all-zero set is a valid empty set.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `CPU_SET` ignores a CPU beyond the set's size.
    unsafe { libc::CPU_SET(cpu, &mut one) };
    one
}
