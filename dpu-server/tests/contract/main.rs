//! What the card asks of a stack: one suite, every stack.
//!
//! | | the stack | its clients |
//! |---|---|---|
//! | `kernel` | the machine's sockets, one call a send | the kernel's, over the loopback |
//! | `kernel_in_batches` | the same with an io_uring | the same |
//! | `smoltcp` | TCP/IP of our own on a TAP device (as root) | the kernel's, at the device's other end |
//! | `smoltcp_on_xdp` | the same past the kernel's own at the end of a veth pair (as root) | the kernel's, at the pair's other end |
//! | `memory` | no network; what it can | its own |
//!
//! The cases are written once, over [`world::World`]. What a stack does beyond the contract is tested beside it.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

mod connecting;
mod endings;
mod in_memory;
mod listening;
mod on_kernel;
mod options;
mod streams;
mod waiting;
mod world;

macro_rules! suite {
    ([$($stack:ident: $world:path),*] $cases:tt) => {
        $(suite! { @$stack: $world; $cases })*
    };
    (@$stack:ident: $world:path; { $($file:ident::$case:ident)* }) => {
        mod $stack {
            $(
                #[test]
                fn $case() {
                    if let Some(mut world) = $world() {
                        crate::$file::$case(&mut world);
                    }
                }
            )*
        }
    };
}

suite! {
    [
        kernel: crate::on_kernel::plain,
        kernel_in_batches: crate::on_kernel::in_batches,
        smoltcp: crate::on_kernel::over_tap,
        smoltcp_on_xdp: crate::on_kernel::over_veth,
        memory: crate::in_memory::memory
    ] {
        listening::port_zero_is_answered_with_a_port_of_its_own
        listening::an_address_in_use_is_refused_until_it_is_free
        listening::a_listener_may_listen_again
        listening::nobody_waiting_is_told_as_empty
        listening::connections_are_accepted_in_their_order_with_both_their_ends
        listening::a_client_that_left_is_accepted_all_the_same
        listening::a_port_nobody_listens_at_refuses
        listening::a_key_that_is_not_open_is_a_bad_descriptor
        connecting::a_connect_tells_both_ends_and_carries_bytes
        connecting::a_connect_that_nobody_takes_is_refused
        streams::bytes_arrive_whole_and_in_order_both_ways
        streams::a_batch_reaches_everybody_in_the_order_of_its_parts
        streams::deliveries_arrive_or_are_refused_and_none_overtakes_another
        streams::a_delivery_of_any_length_arrives_whole_or_is_refused_whole
        streams::who_does_not_read_fills_only_its_own_connection_and_is_told_of_room
        streams::nothing_there_is_empty_and_an_end_comes_after_the_bytes
        streams::a_half_closed_connection_carries_bytes_the_other_way
        streams::nothing_is_sent_after_the_end_of_sending
        endings::a_client_that_resets_is_gone_and_takes_no_more
        endings::a_reset_reaches_the_client_as_one
        endings::a_close_with_unread_bytes_resets
        endings::a_close_delivers_what_was_sent_and_then_an_end
        endings::a_number_that_is_free_again_names_the_next_connection
    }
}

suite! {
    [
        kernel_network: crate::on_kernel::plain,
        smoltcp_network: crate::on_kernel::over_tap,
        smoltcp_on_xdp_network: crate::on_kernel::over_veth
    ] {
        listening::a_port_is_shared_by_equal_users_only
        listening::two_users_who_may_both_reuse_an_address_meet_at_listen
        listening::a_listener_of_both_versions_of_ip_tells_mapped_addresses
        listening::a_client_that_reset_is_accepted_all_the_same
        listening::a_full_backlog_lets_the_next_in_when_somebody_was_accepted
        listening::a_listener_that_is_closed_resets_who_waits
        listening::a_port_with_connections_is_bound_again_by_who_reuses_addresses
        connecting::a_connect_from_a_bound_socket_comes_from_its_name
        connecting::a_refused_connect_leaves_a_bound_socket_its_name
        connecting::a_connect_that_nobody_answers_is_under_way_until_its_time_is_up
        connecting::a_socket_that_is_connected_does_not_connect_again
        connecting::a_connect_goes_by_ipv6
        streams::a_read_half_that_is_shut_is_at_its_end
        streams::shutdown_needs_a_connection
        endings::a_close_with_zero_linger_resets
        endings::bytes_for_who_has_closed_end_in_a_reset
        endings::bytes_for_a_client_behind_its_end_are_told_to_have_no_taker
        options::an_option_is_told_as_it_was_set
        options::values_and_errors_are_the_kernels
        options::an_option_is_cut_to_the_room_there_is
        options::options_that_mean_something_else_in_the_cards_process_do_not_travel
        options::a_connection_has_the_options_of_its_listener
        options::a_refused_option_leaves_no_socket
        options::an_error_is_told_once
        waiting::a_watched_descriptor_wakes_the_wait
        waiting::a_watch_may_ask_for_room_instead
        waiting::a_watch_that_ended_wakes_nobody
        waiting::a_wait_lasts_as_long_as_it_is_told
        waiting::a_wait_without_a_limit_ends_with_news
    }
}
