//! Operations of workload `populate`, and the memory that they need.

use trapline_abi::populate::{MemoryRequest, LARGE};
use trapline_abi::{Need, OpSet};

/// Returns the set of all operations of workload `populate`.
pub fn operations() -> OpSet {
    Need::Hotplug.operations()
}

/// Returns the operations of regions of these orders.
pub fn of_orders(orders: &[u8]) -> OpSet {
    set(|request| orders.contains(&request.order))
}

/// Returns the operations of large regions.
pub fn large() -> OpSet {
    set(|request| request.order > LARGE)
}

fn set(is_member: impl Fn(&MemoryRequest) -> bool) -> OpSet {
    let requests = MemoryRequest::ALL.iter().filter(|it| is_member(it));
    requests.map(operations_of).collect()
}

fn operations_of(request: &MemoryRequest) -> OpSet {
    request.attach_op() | request.touch_op()
}

/// Returns the hotplug window that `operations` need, in MiB. Only large regions need one.
pub fn window_mib(operations: OpSet) -> u32 {
    let requests = MemoryRequest::ALL.iter();
    let large = requests.filter(|it| it.order > LARGE && operations.intersects(operations_of(it)));
    large.map(|it| it.bytes() >> 20).max().unwrap_or(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;

    #[test]
    fn only_large_regions_need_a_window() {
        assert_eq!(of_orders(&[0, 3, 9, 18]), operations());
        assert_eq!(of_orders(&[18]), large());
        assert_eq!(large().len(), 8);
        assert_eq!(window_mib(operations()), 1024);
        assert_eq!(window_mib(operations() - large()), 0);
        assert_eq!(window_mib(Op::Touch18Huge | Op::Getpid), 1024);
    }
}
