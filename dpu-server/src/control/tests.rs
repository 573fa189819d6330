//! Requests, answers, and who gets none.

use std::io::{BufRead, BufReader};

use tempfile::tempdir;

use super::protocol::session_line;
use super::socket::refusal;
use super::*;
use crate::mqtt::SessionState;

fn listed(client_id: &str, state: SessionState) -> Listed {
    let session = SessionView {
        client_id: Some(client_id.into()),
        state,
        is_known: true,
        is_persistent: true,
        subscriptions: 2,
        expires_in: Some(Duration::from_millis(90_500)),
    };
    Listed { broker: 7, program: "mosquitto".to_owned(), session }
}

/// Sends a request to a server whose data plane answers with `reply`; the lines of the answer.
fn ask(request: &str, reply: impl Fn(Order) -> Reply + Send + 'static) -> Vec<String> {
    let folder = tempdir().unwrap();
    let path = path_beside(&folder.path().join("session.sock"));
    let (counter, desk) = counter().unwrap();
    let _served = serve(&path, counter).unwrap();
    let mut client = UnixStream::connect(path).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    std::thread::spawn(move || {
        while let Ok((order, sender)) = desk.orders.recv() {
            // Whoever asked may be gone.
            let _ = sender.try_send(reply(order));
        }
    });
    BufReader::new(client).lines().map(Result::unwrap).collect()
}

#[test]
fn a_list_is_asked_for_in_steps_and_ends_with_a_count() {
    let lines = ask("list-sessions broker=7\n", |order| match order {
        Order::List(Some(7), Place { session: 0, .. }) => {
            let next = Place { broker: 0, session: STEP };
            Reply::Sessions(vec![listed("a", SessionState::Offline)], Some(next))
        }
        Order::List(Some(7), Place { session: STEP, .. }) => {
            Reply::Sessions(vec![listed("b", SessionState::Connected)], None)
        }
        other => panic!("{other:?}"),
    });
    let first = session_line(&listed("a", SessionState::Offline));
    assert_eq!(
        first,
        "session broker=7 program=mosquitto state=offline known=yes persistent=yes subscriptions=2 client_id=a \
         expires_in_s=90\n"
    );
    let second = session_line(&listed("b", SessionState::Connected));
    assert_eq!(lines, [first.trim(), second.trim(), "done count=2"]);
}

#[test]
fn why_a_session_was_not_forgotten_is_said() {
    for (outcome, word) in [
        (Forgotten::Unknown, "not%20known"),
        (Forgotten::Connected, "connected"),
        (Forgotten::Unsettled, "try%20again"),
    ] {
        let request = "forget-session client_id=x\n";
        let lines = ask(request, move |_| Reply::Forgotten(vec![Forgotten::Unknown, outcome]));
        assert!(lines[0].starts_with("error text=") && lines[0].contains(word), "{lines:?}");
    }
    let request = "forget-session client_id=x\n";
    let lines = ask(request, |order| {
        assert_eq!(order, Order::Forget(None, "x".into()));
        Reply::Forgotten(vec![Forgotten::Done, Forgotten::Unknown])
    });
    assert_eq!(lines, ["done count=1"]);
}

#[test]
fn what_is_no_request_asks_nothing_of_the_data_plane() {
    for line in ["\n", "GET / HTTP/1.1\n", "stop\n"] {
        let lines = ask(line, |order| panic!("{order:?}"));
        assert!(lines.len() == 1 && lines[0].starts_with("error text=no%20request"), "{lines:?}");
    }
}

#[test]
fn only_root_and_the_servers_own_user_are_served() {
    let own = rustix::process::geteuid().as_raw();
    assert_eq!((refusal(0), refusal(own)), (None, None));
    let told = refusal(own + 4_321).unwrap();
    assert!(told.contains(&(own + 4_321).to_string()) && told.contains(&own.to_string()), "{told}");
}

#[test]
fn the_socket_is_its_owners_alone_and_a_name_that_is_left_over_is_taken() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempdir().unwrap();
    let path = folder.path().join("s.control");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let served = serve(&path, counter().unwrap().0).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let error = serve(&path, counter().unwrap().0).unwrap_err().to_string();
    assert!(error.contains("in use") && error.contains("--session"), "{error}");
    drop(served);
    assert!(!path.exists());
}
