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
    a_backlog_that_is_full_keeps_clients_waiting
    many_wait_in_a_long_backlog
    a_client_that_reset_is_told_by_every_way_of_accepting
    an_accepted_connection_may_outlive_its_listener
    a_port_in_use_by_connections_needs_reuseaddr
    two_addresses_of_one_port_are_two_listeners
    ports_below_the_first_free_one_are_roots
    names_of_sockets_that_are_none
    sockets_are_made_as_the_kernel_makes_them
    lingering_waits_until_all_was_sent

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
    empty_parts_without_an_address_are_left_out
    messages_carry_vectors_and_no_address
    recvfrom_has_no_address_and_sendto_needs_none
    nothing_may_be_read_and_written
    data_calls_need_a_connection
    a_socket_has_no_position
    a_closed_descriptor_is_bad
    a_large_answer_arrives_whole

    // messages.c
    every_flag_of_recv_with_nothing_there
    every_flag_of_recv_with_bytes_there
    every_flag_of_recvmsg_and_what_it_says_back
    every_flag_of_recvmsg_at_the_end
    every_flag_of_send
    every_flag_of_sendmsg
    recv_of_nothing_waits_as_recv_of_something
    peek_and_waitall_wait_for_all
    waitall_gives_what_came_when_its_time_is_up
    waitall_gives_what_came_before_a_reset
    trunc_and_peek_together_count
    more_is_held_back_and_then_sent
    a_cork_holds_back_until_it_is_pulled
    vectors_may_be_empty_or_too_many
    messages_may_have_no_parts_or_too_many
    lengths_beyond_what_a_call_can_return
    recvfrom_minds_its_address_arguments
    sendto_and_sendmsg_mind_their_names
    recvmsg_minds_its_name_length
    control_data_that_is_sent_is_checked
    recvmmsg_takes_what_there_is
    recvmmsg_looks_at_its_time_after_each_message
    sendmmsg_sends_until_one_fails
    a_partial_write_tells_how_much
    zerocopy_needs_its_option
    urgent_data_is_asked_for_in_vain

    // pointers.c
    pointers_to_nowhere_are_efault_on_data
    pointers_to_nowhere_are_efault_on_vectors
    pointers_to_nowhere_are_efault_on_names_and_options
    pointers_to_nowhere_cost_accept_its_connection
    a_vector_with_a_bad_part_moves_nothing

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

    // epoll.c
    an_edge_comes_for_every_arrival_while_others_wait_unread
    an_edge_registered_late_tells_what_is_there
    an_edge_for_both_directions_names_both
    an_edge_on_a_listener_comes_for_every_client
    a_level_on_a_listener_stays_until_all_are_accepted
    a_oneshot_on_a_listener_is_armed_again_and_again
    an_edge_and_one_shot_together
    a_oneshot_is_quiet_at_the_clients_end
    exclusive_registrations_mind_their_rules
    exclusive_waiters_all_serve
    what_is_watched_may_change_with_data_there
    errors_and_hang_ups_are_told_unasked
    names_of_readiness_come_in_pairs
    sets_may_be_nested_deeply
    an_edge_reaches_an_outer_set
    a_set_may_be_polled_and_selected
    a_set_that_is_copied_is_one_set
    a_set_is_shared_with_a_forked_child
    a_copied_descriptor_keeps_its_registration
    a_number_used_again_is_not_registered
    many_events_come_in_portions
    registrations_before_bind_keep_edges_and_one_shots
    a_registration_between_bind_and_listen_works
    a_set_closed_before_listen_is_forgotten
    an_accepted_connection_registers_at_once
    a_wakeup_flag_is_taken
    another_thread_may_read_what_a_set_told
    a_registration_wakes_whoever_waits_already
    an_edge_is_told_to_one_waiter
    a_listener_that_is_shut_down_keeps_its_registrations
    a_registration_made_before_listen_is_the_same_after
    a_registration_made_before_connect_is_the_same_after

    // endings.c
    options_outlive_the_connection
    bytes_after_both_ends_were_shut_reset_the_connection
    bytes_after_shutdown_of_reading_can_still_be_read
    an_error_waits_behind_what_was_read
    recvmmsg_looks_for_an_error_first
    vectors_of_nothing_ask_nobody
    a_timeout_set_through_a_duplicate_is_inherited
    a_connect_through_a_duplicate_counts_for_both
    shutdown_settles_a_connect_that_nobody_asked_again

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

    // mixtures.c
    the_cards_and_the_kernels_take_turns
    timers_signals_and_datagrams_wait_beside_the_card
    poll_and_select_mix_with_other_descriptors
    one_descriptor_twice_in_a_poll

    // waiting.c
    a_signal_ends_every_kind_of_read
    a_restarting_signal_ends_no_kind_of_read
    a_signal_ends_a_read_with_a_time_limit
    a_signal_ends_every_kind_of_write
    a_restarting_signal_ends_no_kind_of_write
    a_signal_ends_a_write_with_a_time_limit
    a_signal_in_the_middle_of_a_write_tells_how_much_went
    a_signal_ends_accept
    a_restarting_signal_does_not_end_accept
    a_signal_ends_accept_with_a_time_limit
    a_signal_ends_every_kind_of_wait
    a_restarting_signal_ends_every_kind_of_wait
    a_signal_mask_holds_during_a_wait
    waits_time_out_with_nothing_to_tell
    waits_refuse_what_the_kernel_refuses
    a_storm_of_signals_loses_no_byte
    a_storm_of_signals_loses_no_connection
    a_shutdown_ends_every_kind_of_read
    a_shutdown_of_writing_ends_no_read
    a_shutdown_ends_every_kind_of_write
    a_reset_ends_every_kind_of_read
    a_reset_ends_every_kind_of_write
    a_shutdown_ends_every_kind_of_wait
    a_shutdown_of_a_listener_ends_every_kind_of_wait
    closing_a_watched_descriptor_wakes_nobody
    a_file_is_sent_though_signals_come
    a_recv_of_nothing_waits_once

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

    // processes.c
    a_spawned_child_takes_nothing_from_its_parent
    a_vforked_child_that_closes_everything_takes_nothing
    a_vforked_child_that_execs_leaves_its_parent_all
    system_and_popen_run_beside_a_server
    an_exec_closes_what_is_to_be_closed
    an_exec_keeps_what_is_to_be_kept
    raw_clone_makes_a_child_that_serves
    a_child_writes_what_its_parent_reads
    many_children_serve_one_connection_each
    parent_and_child_both_accept
    a_child_that_crashes_ends_only_its_own
    an_orphan_serves_on
    daemon_serves_with_what_was_opened_before
    another_root_serves_as_before
    close_range_closes_the_cards_too
    closefrom_leaves_what_is_below
    a_spare_descriptor_gives_room_to_refuse
    without_descriptors_every_call_says_so
    high_numbers_serve_as_well
    a_chain_of_copies_is_one_socket
    copies_are_refused_as_the_kernel_refuses
    shared_modes_are_shared_with_a_child
    a_child_changes_the_users_of_its_own

    // threads.c
    a_thread_with_16_kib_of_stack_serves
    a_thread_with_64_kib_of_stack_serves
    a_thread_with_64_kib_of_stack_opens_a_listener
    threads_accept_and_answer_side_by_side
    small_writes_of_threads_do_not_mix
    cancelled_threads_harm_nobody

    // timeouts.c
    connections_have_the_time_outs_their_listener_has
    a_connection_has_the_time_outs_its_listener_had_when_it_came
    a_time_out_set_before_listen_and_changed_after_holds_for_who_came_before
    a_client_that_reset_leaves_a_connection_with_time_outs
    a_time_out_set_in_one_process_holds_in_the_other
    a_time_out_set_in_another_process_before_listen_holds
    whoever_waits_in_accept_keeps_the_time_out_it_began_with
    a_read_that_is_woken_for_nothing_ends_in_its_time
    a_listener_refuses_the_time_outs_the_kernel_refuses
    a_listener_s_time_outs_are_not_those_of_poll
    a_socket_that_connects_keeps_its_time_outs
    what_was_set_on_a_listener_stays_when_it_is_shut_down

    // files.c
    splice_moves_from_a_socket_to_a_pipe
    splice_moves_from_a_pipe_to_a_socket
    splice_waits_for_bytes_of_a_socket
    splice_refuses_what_the_kernel_refuses
    splice_through_a_pipe_carries_much
    sendfile_minds_offsets_and_ends
    a_large_file_is_sent_to_a_slow_reader
    vectors_with_offsets_are_for_files
    what_files_do_and_sockets_refuse
    locks_are_taken_on_sockets_as_on_files
    a_status_says_socket_and_nothing_else
    modes_of_a_descriptor_are_set_and_told
    owners_of_a_descriptor_are_set_and_told
    an_owner_gets_a_signal_at_each_arrival
    a_listeners_owner_gets_a_signal_for_a_client

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

    // values.c
    every_socket_option_is_told
    every_tcp_option_is_told
    every_ip_option_is_told
    every_level_is_told
    every_ipv6_option_is_told
    ip_options_of_an_ipv6_socket
    ipv6_options_of_an_ipv4_socket
    values_of_socket_options_on_a_listener
    values_of_socket_options_on_a_connection
    values_of_tcp_options_on_a_listener
    values_of_tcp_options_on_a_connection
    values_of_ip_options_on_a_listener
    values_of_ip_options_on_a_connection
    values_of_ipv6_options_on_a_listener
    values_of_ipv6_options_on_a_connection
    an_accepted_connection_inherits_socket_options
    an_accepted_connection_inherits_tcp_options
    an_accepted_connection_inherits_ip_options
    an_accepted_connection_inherits_ipv6_options
    odd_lengths_of_options_on_a_listener
    odd_lengths_of_options_on_a_connection
    buffer_sizes_are_doubled_and_bounded
    timeouts_are_told_as_they_were_set
    linger_is_bounded_and_inherited
    a_cookie_is_one_sockets_own
    a_device_may_be_asked_for_and_bound_to
    a_deferred_accept_waits_for_the_first_bytes
    a_congestion_control_is_chosen_by_name
    tcp_info_follows_the_connection
    requests_of_an_interface_work_on_any_socket

    // states.c
    every_call_on_an_unbound_socket
    every_call_on_a_bound_socket
    every_call_on_a_listener
    every_call_on_a_connection
    every_call_after_the_clients_end
    every_call_after_its_own_end
    every_call_after_it_reads_no_more
    every_call_after_both_ends
    every_call_after_a_reset_was_told
    a_reset_is_told_to_whoever_asks_first
    every_call_on_a_listener_that_was_shut_down
    a_listener_that_was_shut_down_listens_again
    a_listener_that_was_shut_down_connects
    every_call_on_a_refused_socket
    every_call_on_a_number_that_was_closed
    a_client_that_closed_with_data_leaves_it_readable
    a_reset_behind_an_end_is_told_to_a_writer

    // connecting.c
    a_blocking_connect_ends_connected
    a_nonblocking_connect_is_told_by_poll
    a_refused_connect_says_so
    a_refused_nonblocking_connect_is_told_by_the_next_connect
    a_bound_client_keeps_its_address
    connect_refuses_what_the_kernel_refuses
    epoll_tells_of_a_connect
    a_second_connect_is_told_to_the_epoll_set_of_the_first
    every_call_on_a_connecting_socket
    a_connecting_socket_may_be_shut_down
    a_connect_obeys_the_send_timeout
    a_signal_ends_a_connect_that_goes_on
    a_restarting_signal_does_not_end_a_connect
    a_shutdown_ends_a_blocked_connect
    a_connection_of_its_own_is_as_good_as_an_accepted_one
    a_connection_of_its_own_is_reset
    options_set_before_connect_reach_the_connection
    an_ipv6_socket_connects_to_a_mapped_address
    an_unspecified_family_dissolves_a_connect
    a_bound_socket_may_connect_to_itself
    a_refused_socket_may_listen_and_bind
    edges_tell_of_a_refused_connect

    // inheriting.c
    a_program_served_by_inetd_talks_on_its_standard_streams
    a_connection_is_served_by_the_program_that_inherits_it
    a_listener_is_served_by_the_program_that_inherits_it
    a_connection_may_be_sent_to_a_forked_child
    a_connection_may_be_sent_to_another_program
    a_copy_outlives_exec_fork_and_sending
    an_unrelated_pair_of_sockets_stays_what_it_is
    a_connection_in_an_epoll_set_is_told_of_in_the_program_that_inherits_it
    a_connection_in_an_epoll_set_is_told_of_in_a_program_that_was_spawned
    a_connection_in_an_epoll_set_is_told_of_where_it_is_sent
    an_epoll_set_may_be_sent_with_its_connection
}
