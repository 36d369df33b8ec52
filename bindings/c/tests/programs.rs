//! C programs that misuse the library, that load it by hand, and that are notified of deliveries.

use crate::common::{Installed, Linking};

#[test]
fn bad_input_gives_a_code_and_a_message_and_writes_nothing() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("bad_input").run(2, &["--coherence", "minipages"], &[]);
    assert_eq!(output.matches("all refused").count(), 2, "{output}");
}

#[test]
fn a_library_that_is_loaded_late_serves_page_faults_of_threads_that_were_there_before() {
    let installed = Installed::get(Linking::Shared);
    let program = installed.compile_with("late", &["-ldl", "-pthread"]);
    let library = installed.path("lib/libmapwire.so.0");
    for faults in [&["--faults", "sigsegv"][..], &[]] {
        let output = program.run(2, faults, &[library.to_str().unwrap()]);
        assert_eq!(output.matches("counted right").count(), 2, "{output}");
    }
}

#[test]
fn notifications_come_until_their_export_is_revoked_and_not_after() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("notices").run(2, &[], &[]);
    assert_eq!(output.matches("told of all").count(), 2, "{output}");
}

#[test]
fn an_import_has_all_rights_that_the_export_gives_on_every_path() {
    let installed = Installed::get(Linking::Shared);
    let rights = installed.compile("rights");
    for options in [&[][..], &["--path", "ring"], &["--transport", "udp"]] {
        let output = rights.run(2, options, &[]);
        assert!(output.contains("as the export gives"), "{options:?}: {output}");
    }
}

#[test]
fn a_program_chooses_itself_what_is_unpinned() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("victims").run(2, &["--pin-limit", "256K"], &[]);
    assert_eq!(output.matches("chose ").count(), 2, "{output}");
}

#[test]
fn containers_of_cpp_lie_in_shared_memory_and_any_rank_lengthens_and_frees_them() {
    let installed = Installed::get(Linking::Shared);
    let program = installed.compile("containers");
    for options in [&[][..], &["--coherence", "minipages"]] {
        let output = program.run(2, options, &[]);
        assert_eq!(output.matches("containers are right").count(), 2, "{output}");
    }
}

#[test]
fn allocations_say_their_unit_rows_are_found_by_number_and_what_cannot_be_is_refused() {
    let installed = Installed::get(Linking::Shared);
    let program = installed.compile("units");
    for options in [
        &[][..],
        &["--coherence", "minipages"],
        &["--coherence", "minipages", "--faults", "sigsegv", "--views", "3"],
        &["--coherence", "hlrc"],
    ] {
        let output = program.run(2, options, &[]);
        assert_eq!(output.matches("rows are right").count(), 2, "{options:?}: {output}");
    }
}

#[test]
fn mutexes_conditions_semaphores_and_queues_work_between_ranks_and_their_children() {
    let installed = Installed::get(Linking::Shared);
    let program = installed.compile("sync");
    let output = program.run(2, &[], &[]);
    assert_eq!(output.matches("in step").count(), 2, "{output}");
    for coherence in ["minipages", "hlrc"] {
        for transport in [&[][..], &["--transport", "udp"]] {
            let options = [&["--coherence", coherence], transport].concat();
            let output = program.run(2, &options, &["alone"]);
            assert_eq!(output.matches("in step").count(), 2, "{options:?}: {output}");
        }
    }
}

#[test]
fn files_are_read_into_shared_memory_and_written_from_it_wherever_its_pages_are() {
    let installed = Installed::get(Linking::Shared);
    let program = installed.compile("files");
    for faults in ["sigsegv", "userfaultfd"] {
        let output = program.run(2, &["--coherence", "minipages", "--faults", faults], &[]);
        assert_eq!(output.matches("files are right").count(), 2, "{output}");
    }
}

#[test]
fn a_flush_says_what_was_not_stored_and_unmapped_memory_is_refused() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("flush").run(2, &[], &[]);
    assert_eq!(output.matches("flushed").count(), 2, "{output}");
}

#[test]
fn a_signal_handler_that_touches_shared_memory_interrupts_any_thread_and_hangs_none() {
    let installed = Installed::get(Linking::Shared);
    let program = installed.compile("alarms");
    for faults in ["userfaultfd", "sigsegv"] {
        let output = program.run(2, &["--coherence", "minipages", "--faults", faults], &[]);
        assert_eq!(output.matches("all counted").count(), 2, "{output}");
    }
}

#[test]
fn an_import_tells_where_it_is_mapped_and_a_thread_that_ends_polls_no_more() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("pointers").run(2, &[], &[]);
    assert_eq!(output.matches("pointed").count(), 2, "{output}");
}

#[test]
fn requests_own_memory_until_they_are_waited_for() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("requests").run(2, &[], &[]);
    assert_eq!(output.matches("requested").count(), 2, "{output}");
}

#[test]
fn parts_of_memory_and_rows_move_in_one_call() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("parts").run(2, &[], &[]);
    assert_eq!(output.matches("parted").count(), 2, "{output}");
}

#[test]
fn a_wait_for_any_of_several_signals_ends_with_the_first_that_comes() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("any").run(2, &[], &[]);
    assert_eq!(output.matches("any came").count(), 2, "{output}");
}

#[test]
fn ranks_meet_broadcast_gather_and_reduce() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("collective").run(3, &[], &[]);
    assert_eq!(output.matches("together").count(), 3, "{output}");
}

#[test]
fn a_program_sleeps_in_epoll_until_something_comes() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("events").run(2, &[], &[]);
    assert_eq!(output.matches("slept").count(), 2, "{output}");
}

#[test]
fn words_change_in_one_step_and_signals_add_up() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("atomics").run(2, &[], &[]);
    assert_eq!(output.matches("changed").count(), 2, "{output}");
}

#[test]
fn far_memory_is_allocated_mapped_counted_and_given_back() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("far").run(1, &[], &[]);
    if output.contains("skipped") {
        mapwire_testing::skip!("{}", output.trim());
        return;
    }
    assert!(output.contains("far and back"), "{output}");
}

/// As the programs of the SPLASH suites do: the processes of a rank are forked once the memory is open.
#[test]
fn forked_children_lock_meet_and_see_each_others_stores_on_one_host() {
    let installed = Installed::get(Linking::Shared);
    let program = installed.compile("splash");
    for (ranks, processes) in [(1, "1"), (1, "2"), (1, "4"), (2, "1"), (2, "2"), (3, "2")] {
        let output = program.run(ranks, &[], &[processes]);
        assert_eq!(output.matches("as one process").count(), 1, "{ranks} of {processes}: {output}");
    }
}

/// Over shared memory, over sealed datagrams, none of which may leave a child, and by libfabric, whose sockets the child has too.
#[test]
fn nothing_of_a_node_works_in_a_forked_child_and_its_parent_goes_on_unharmed() {
    let installed = Installed::get(Linking::Shared);
    let program = installed.compile("forks");
    for (options, arguments) in [
        (&["--coherence", "minipages"][..], &[][..]),
        (&["--coherence", "minipages", "--faults", "sigsegv"], &[]),
        (&["--transport", "udp"], &[]),
        (&["--transport", "ofi:tcp"], &["plain"]),
    ] {
        let output = program.run(2, options, arguments);
        assert_eq!(output.matches("is unharmed").count(), 2, "{output}");
    }
}

#[test]
fn far_memory_that_is_exported_keeps_its_bytes_and_takes_those_of_others() {
    let installed = Installed::get(Linking::Shared);
    let output = installed.compile("far").run(1, &[], &[]);
    if output.contains("skipped") {
        mapwire_testing::skip!("{}", output.trim());
        return;
    }
    let launcher = crate::common::launcher();
    let program = installed.compile("far_export");
    // By a library of its own beside the program's, and by the program itself.
    let preloaded = [launcher.to_str().unwrap(), "far", "--local", "2M", "--"];
    for output in [program.run_under(&preloaded, 2, &[], &[]), program.run(2, &[], &["open"])] {
        assert_eq!(output.matches("whole").count(), 2, "{output}");
    }
}

#[test]
fn they_do_so_on_hosts_of_their_own() {
    let installed = Installed::get(Linking::Shared);
    for (name, ranks, line) in [
        ("notices", 2, "told of all"),
        ("files", 2, "files are right"),
        ("flush", 2, "flushed"),
        ("alarms", 2, "all counted"),
        ("requests", 2, "requested"),
        ("parts", 2, "parted"),
        ("any", 2, "any came"),
        ("collective", 3, "together"),
        ("events", 2, "slept"),
        ("atomics", 2, "changed"),
    ] {
        let output = installed.compile(name).run(ranks, &["--transport", "udp", "-x", "MAPWIRE_TEST_LINKS=1"], &[]);
        assert_eq!(output.matches(line).count(), ranks as usize, "{output}");
    }
}
