use super::super::pool::tests::with_pool;
use super::*;
use std::boxed::Box;

/// Runs `test` as process 1 of a table.
fn with_table(test: impl FnOnce(&mut ProcessTable)) {
    with_pool(|pool| {
        let mut table = Box::new(ProcessTable::new());
        core::mem::swap(&mut table.pool, pool);
        table.clear();
        let space = AddressSpace::new(0, &mut table.pool).unwrap();
        assert_eq!(table.add(space).ok(), Some(1));
        assert!(table.begin_wait::<()>(Event::Child(1)));
        table.select(1);
        test(&mut table);
        for process in 0..PROCESSES {
            if let Some(space) = table.process(process).space.take() {
                space.free(&mut table.pool);
            }
        }
        core::mem::swap(&mut table.pool, pool);
    });
}

fn end(table: &mut ProcessTable, status: u64) {
    let space = table.end::<()>(status).unwrap();
    space.free(&mut table.pool);
}

#[test]
fn a_parent_reads_the_status_of_its_child_once() {
    with_table(|table| {
        let child = table.fork::<()>().unwrap();
        assert_eq!(table.reap(child), Child::Alive);
        assert!(table.begin_wait::<()>(Event::Child(child)));
        assert_eq!(table.next(), Some(child));
        table.select(child);
        assert_eq!(table.current(), child);
        assert_eq!(table.reap(child), Child::None, "not its own child");
        assert_eq!(table.reap(1), Child::None);
        end(table, 7);
        assert_eq!(table.next(), Some(1), "woken");
        table.select(1);
        assert!(table.end_wait());
        assert_eq!(table.reap(child), Child::Ended(7));
        assert_eq!(table.reap(child), Child::None);
        assert_eq!(table.switches(), 1);
        for number in [0, PROCESSES, usize::MAX] {
            assert_eq!(table.reap(number), Child::None);
        }
    });
}

#[test]
fn a_full_table_forks_nothing() {
    with_table(|table| {
        let pipe = table.create_pipe().unwrap();
        let forks = std::iter::from_fn(|| table.fork::<()>()).count();
        assert_eq!(forks, PROCESSES - 2);
        assert_eq!(table.pipe(pipe).unwrap().users(), PROCESSES - 1);
    });
}

#[test]
fn a_pipe_is_open_until_its_last_process_ends() {
    with_table(|table| {
        let pipe = table.create_pipe().unwrap();
        let child = table.fork::<()>().unwrap();
        assert!(table.begin_wait::<()>(Event::Pipe(pipe)));
        table.select(child);
        table.pipe(pipe).unwrap().push(3);
        assert!(table.pipe(pipe + 1).is_none() && table.pipe(99).is_none());
        end(table, 0);
        table.select(1);
        assert_eq!(table.next(), Some(1), "woken by the close");
        assert_eq!(table.pipe(pipe).unwrap().pop(), 3);
        assert_eq!(table.pipe(pipe).unwrap().users(), 1);
        table.close(pipe).unwrap();
        assert_eq!(table.close(pipe), None);
        assert_eq!(table.create_pipe(), Some(pipe));
    });
}

#[test]
fn a_wait_that_no_process_can_end_fails() {
    with_table(|table| {
        assert!(!table.begin_wait::<()>(Event::Pipe(0)), "nothing else runs");
        let child = table.fork::<()>().unwrap();
        assert!(table.begin_wait::<()>(Event::Pipe(0)));
        table.select(child);
        end(table, 0);
        assert_eq!(table.next(), None);
        table.interrupt_all();
        assert_eq!(table.next(), Some(KERNEL));
        table.select(1);
        assert!(!table.end_wait());
        assert!(table.end_wait(), "once");
    });
}

#[test]
fn children_of_an_ended_process_are_not_its_parents() {
    with_table(|table| {
        let child = table.fork::<()>().unwrap();
        table.select(child);
        let grandchild = table.fork::<()>().unwrap();
        end(table, 0);
        table.select(1);
        assert_eq!(table.reap(grandchild), Child::None);
        table.select(KERNEL);
        assert_eq!(table.reap(grandchild), Child::Alive);
    });
}
