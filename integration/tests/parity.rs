//! The kernel's sockets and the card's behave the same, call by call.
//!
//! The cases are C programs in `parity/`, named as here. What differs by intent is listed in `docs/conformance.md`.

use std::collections::BTreeSet;

use mqttshim_integration::{needs, parity};

macro_rules! cases {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                needs!("cc");
                parity::assert_same(stringify!($name));
            }
        )*

        #[test]
        fn every_case_of_the_program_is_a_test_here() {
            needs!("cc");
            let here: BTreeSet<String> = [$(stringify!($name)),*].map(str::to_owned).into();
            let there: BTreeSet<String> = parity::names().into_iter().collect();
            assert_eq!(here, there);
        }
    };
}

cases! {
    // listening.c
    a_listener_on_any_address_serves_a_client
    a_listener_on_one_address_serves_that_address
    an_ipv6_listener_serves_an_ipv6_client
    a_dual_stack_listener_shows_mapped_addresses
    an_ipv6_only_listener_leaves_ipv4_to_others
    a_listener_may_be_bound_to_a_mapped_address
    port_zero_is_answered_at_bind
    listening_unbound_takes_a_port
    a_taken_port_fails_at_bind
    two_bound_sockets_with_reuseaddr_collide_at_listen
    reuseport_is_shared_by_one_user
    a_closed_listener_frees_its_port_at_once
    a_bound_socket_that_is_closed_frees_its_port_at_once
    bind_refuses_what_the_kernel_refuses
    listen_may_be_called_again
    accept_reports_no_connection_as_eagain
    accept4_sets_the_flags_it_is_given
    accept_writes_as_much_of_the_address_as_fits
    names_are_truncated_as_the_kernel_truncates
    the_peer_is_the_client_itself
    accept_waits_for_a_connection
    accept_obeys_the_receive_timeout
    connections_are_accepted_in_their_order
    a_client_that_left_is_accepted_all_the_same
    a_client_that_reset_is_accepted_all_the_same
    closing_a_listener_resets_who_waits
    accept_needs_a_listener
    without_descriptors_accept_keeps_the_connection

    // data.c
    reads_take_what_is_there
    waitall_waits_for_all
    trunc_discards_bytes
    a_nonblocking_read_of_nothing_is_eagain
    a_client_that_stops_sending_can_still_be_answered
    a_server_that_stops_sending_can_still_be_told
    shutdown_of_reading_ends_reads
    shutdown_of_both_ends_both
    shutdown_refuses_what_the_kernel_refuses
    a_reset_is_reported_once
    a_reset_may_be_met_by_a_write
    so_error_takes_the_reset
    a_reset_loses_what_was_not_read
    closing_with_linger_zero_resets_the_client
    closing_with_unread_bytes_resets_the_client
    closing_delivers_what_was_written
    writing_to_a_client_that_closed_ends_in_a_reset
    a_full_connection_is_writable_again_when_drained
    a_blocking_write_waits_for_room
    a_write_obeys_the_send_timeout
    vectors_are_gathered_and_scattered
    messages_carry_vectors_and_no_address
    recvfrom_has_no_address_and_sendto_needs_none
    nothing_may_be_read_and_written
    data_calls_need_a_connection
    a_socket_has_no_position
    a_closed_descriptor_is_bad
    a_large_answer_arrives_whole

    // readiness.c
    poll_tells_every_state
    poll_on_a_fresh_socket_hangs_up
    select_tells_the_same_as_poll
    level_triggered_epoll_repeats_itself
    edge_triggered_epoll_tells_every_arrival_once
    edge_triggered_epoll_tells_of_room
    a_oneshot_registration_must_be_armed_again
    a_registration_before_bind_works
    epoll_ctl_refuses_what_the_kernel_refuses
    an_epoll_set_inside_another_wakes_it
    a_socket_may_be_in_two_epoll_sets
    waiting_mixes_with_other_descriptors
    shutdown_wakes_a_thread_that_reads
    shutdown_wakes_a_thread_that_accepts
    two_threads_read_every_byte_once
    a_signal_interrupts_a_read_without_restart
    a_signal_does_not_end_a_read_with_restart
    a_signal_interrupts_accept_and_poll
    cancelling_a_thread_that_reads_harms_nobody

    // descriptors.c
    a_duplicate_keeps_the_connection_until_the_last_close
    duplicates_share_mode_and_bytes_but_not_flags
    dup2_replaces_what_was_there
    dup2_over_a_listener_closes_it
    a_duplicate_made_before_listen_listens_too
    a_number_is_free_for_another_file
    a_forked_child_serves_while_the_parent_waits
    a_child_forked_before_bind_listens_itself
    a_daemon_that_forks_twice_serves
    a_child_that_closes_takes_nothing_from_its_parent
    a_connection_lives_on_in_the_child
    parent_and_child_share_one_stream
    a_killed_child_ends_its_connection
    another_user_serves_as_before
    many_threads_accept_every_connection_once

    // options.c
    options_of_a_connection_are_set_and_told
    options_of_a_listener_are_set_and_told
    options_set_before_bind_reach_the_connection
    options_set_between_bind_and_listen_count
    what_cannot_be_set_is_refused_alike
    a_socket_tells_what_it_is
    option_lengths_are_minded
    linger_is_told_as_it_was_set
    tcp_info_tells_the_state
    fionread_counts_what_waits
    fionbio_sets_the_mode
    a_mode_set_before_listen_stays
    a_file_is_sent_whole

    // connecting.c
    a_blocking_connect_ends_connected
    a_nonblocking_connect_is_told_by_poll
    a_refused_connect_says_so
    a_refused_nonblocking_connect_is_told_by_the_next_connect
    a_bound_client_keeps_its_address
    connect_refuses_what_the_kernel_refuses
    epoll_tells_of_a_connect
    a_second_connect_is_told_to_the_epoll_set_of_the_first

    // stdio.c
    a_stream_on_a_socket_reads_and_writes
    fdopen_refuses_what_the_kernel_refuses
    buffers_of_a_stream_are_as_they_are_set
    two_streams_read_and_write_one_socket
    a_stream_writes_more_than_any_buffer_holds
    a_stream_tells_of_a_write_that_fails
    a_stream_in_nonblocking_mode_says_eagain
    a_stream_is_reopened_on_a_file
    dprintf_takes_arguments_of_every_kind
    a_stream_below_which_a_socket_was_put_takes_it_along

    // stale.c
    a_number_closed_by_syscall_serves_the_next_file
    a_number_closed_by_a_range_of_syscall_serves_the_next_file
    a_number_closed_past_libc_serves_the_next_open
    a_number_closed_past_libc_serves_the_next_stream
    a_number_closed_past_libc_serves_the_next_socket
    a_number_closed_past_libc_serves_every_kind_of_file
    closefrom_closes_connections_and_listeners
    calls_by_number_reach_the_socket
    a_spawned_child_that_closes_takes_nothing_from_its_parent
    a_daemon_leaves_its_standard_input_behind

    // userlevel.c
    readiness_lasts_until_everything_is_read
    a_wait_sleeps_until_something_comes
    interest_may_change_before_and_after_arrival
    many_registrations_may_change_between_two_waits
    everybody_has_a_turn_where_there_is_room_for_one
    ends_and_errors_come_with_what_can_be_read
    a_connection_of_the_set_can_be_polled_selected_and_waited_for
    poll_finds_at_once_what_the_set_was_told
    a_set_can_be_polled_and_nested
    a_copy_of_a_set_is_the_set
    a_set_that_is_closed_gives_its_connections_to_the_next
    a_copy_of_a_connection_keeps_its_registration
    a_forked_child_and_its_parent_see_the_same_set
    a_thread_that_waits_hears_of_what_another_registers
    two_threads_wait_for_one_set
    a_signal_ends_a_wait_and_the_next_goes_on
    a_wait_of_nanoseconds_is_a_wait
    registrations_that_only_the_kernel_can_keep_are_kept
}
