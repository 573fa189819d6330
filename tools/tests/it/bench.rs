//! `mqttshim bench` against a real mosquitto, and against a server that misbehaves.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::support::{Broker, Namespace, eventually, mqttshim, skip, stderr, stdout};
use serde_json::Value;

const SHORT: [&str; 6] = ["--duration", "0.6", "--warmup", "0.1", "--slice", "0.3"];

#[test]
fn a_fan_out_is_measured_and_reported_in_three_forms() {
    let (Some(one), Some(two)) = (Broker::start(None), Broker::start(None)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (json, html) = (folder.path().join("out.json"), folder.path().join("out.html"));
    let output = mqttshim()
        .args(["bench", "fanout", "--subscribers", "1,20", "--rate", "100", "--bare-send"])
        .args(["--target", &one.target("plain"), "--target", &two.target("other")])
        .args(SHORT)
        .arg("--json")
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let table = stdout(&output);
    for word in ["20 subscribers", "against plain", "other", "bare send loop", "mosquitto "] {
        assert!(table.contains(word), "{word:?} is missing in\n{table}");
    }
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert_eq!(row["latency"]["count"], 60, "{row}");
        assert_eq!(row["rounds"].as_array().unwrap().len(), 2);
        assert!(row["latency"]["p50_ns"].as_u64().unwrap() > 1_000, "{row}");
        assert!(row["processes"][0]["cpu_ns"].as_u64().unwrap() > 0, "{row}");
    }
    assert!(fs::read_to_string(&html).unwrap().contains("<svg"));
}

#[test]
fn qos_1_is_acknowledged_in_both_directions() {
    let Some(broker) = Broker::start(None) else { return };
    // More than mosquitto lets be under way unacknowledged: it would stop if PUBACKs were missing.
    let output = mqttshim()
        .args(["bench", "fanout", "--subscribers", "5", "--rate", "200", "--qos", "1"])
        .args(["--payload", "3000", "--target", &broker.target("plain")])
        .args(SHORT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn connections_one_after_another_are_measured() {
    let (Some(one), Some(two)) = (Broker::start(None), Broker::start(None)) else { return };
    let output = mqttshim()
        .args([
            "bench",
            "connect",
            "--target",
            &one.target("plain"),
            "--target",
            &two.target("other"),
        ])
        .args(SHORT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let table = stdout(&output);
    for word in ["1 client at a time", "connects/s", "against plain", "other", "mosquitto "] {
        assert!(table.contains(word), "{word:?} is missing in\n{table}");
    }
}

#[test]
fn a_server_that_greets_nobody_is_named() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let _ = stream.read(&mut [0; 64]);
        // CONNACK: not authorised.
        stream.write_all(&[0x20, 2, 0, 5]).unwrap();
    });
    let output = mqttshim()
        .args(["bench", "connect", "--target", &format!("strict={address}")])
        .args(SHORT)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(stderr(&output).contains("strict: refused: [20, 02, 00, 05]"), "{}", stderr(&output));
}

#[test]
fn an_echo_is_measured() {
    let Some(broker) = Broker::start(None) else { return };
    for qos in ["0", "1"] {
        let output = mqttshim()
            .args(["bench", "echo", "--connections", "1,8", "--qos", qos])
            .args(["--target", &broker.target("plain")])
            .args(SHORT)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains("8 connections"), "{}", stdout(&output));
        assert!(stdout(&output).contains("wake-ups per echo"));
    }
}

#[test]
fn frames_that_are_ready_are_measured_in_shared_memory() {
    let Some(broker) = Broker::start(None) else { return };
    let output = mqttshim()
        .args(["bench", "fanout", "--ready-frames", "mem", "--subscribers", "1,200"])
        .args(["--rate", "100", "--qos", "1", "--payload", "1300"])
        .args(["--target", &broker.target("plain")])
        .args(SHORT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let table = stdout(&output);
    assert!(table.contains("ready frames, mem") && table.contains(" 0 frames lost"), "{table}");
}

#[test]
fn frames_that_are_ready_are_measured_past_the_kernel() {
    let Some(namespace) = Namespace::new("ready") else {
        skip("AF_XDP and interfaces need root and iproute2");
        return;
    };
    let output = namespace
        .command(env!("CARGO_BIN_EXE_mqttshim"))
        .args(["bench", "fanout", "--client", "wire", "--ready-frames", "xdp"])
        .args(["--subscribers", "1,50", "--rate", "50"])
        .args(SHORT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let table = stdout(&output);
    assert!(table.contains("ready frames, xdp") && table.contains(" 0 frames lost"), "{table}");
}

#[test]
fn only_the_servers_kernel_is_measured_on_the_wire() {
    let Some(namespace) = Namespace::new("wire") else {
        skip("raw frames need root and iproute2");
        return;
    };
    let Some(broker) = Broker::start(Some(&namespace)) else { return };
    // The bare sender proves both ways of a large payload, beyond one segment.
    let output = namespace
        .command(env!("CARGO_BIN_EXE_mqttshim"))
        .args(["bench", "fanout", "--client", "wire", "--setup-veth", "--bare-send"])
        .args(["--subscribers", "1,50", "--rate", "50", "--payload", "5000", "--qos", "1"])
        .args(["--target", &broker.target("plain")])
        .args(SHORT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("0 frames lost"), "{}", stdout(&output));
    let output = namespace
        .command(env!("CARGO_BIN_EXE_mqttshim"))
        .args(["bench", "echo", "--client", "wire", "--setup-veth", "--connections", "4"])
        .args(["--target", &broker.target("plain")])
        .args(SHORT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_signal_removes_the_interfaces_that_were_made() {
    let Some(namespace) = Namespace::new("signal") else {
        skip("interfaces need root and iproute2");
        return;
    };
    let mut child = namespace
        .command(env!("CARGO_BIN_EXE_mqttshim"))
        .args(["bench", "fanout", "--client", "wire", "--setup-veth", "--bare-send"])
        .args(["--subscribers", "1", "--duration", "600"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let links = || {
        let output = namespace.command("ip").args(["-o", "link"]).output().unwrap();
        stdout(&output).matches("mqb").count()
    };
    assert!(eventually(|| links() > 0), "no interface was made");
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("stopped by a signal"), "{said}");
    assert_eq!(links(), 0);
}

#[test]
fn a_lost_message_fails_the_run() {
    let port = misbehaving(|sequence| if sequence == 7 { 0 } else { 1 });
    let said = measure_misbehaving(port);
    assert!(said.contains("got message 8 but never 7: lost"), "{said}");
}

#[test]
fn a_message_delivered_twice_fails_the_run() {
    let port = misbehaving(|sequence| if sequence == 7 { 2 } else { 1 });
    let said = measure_misbehaving(port);
    assert!(said.contains("got message 7 again"), "{said}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = mqttshim()
        .args(["bench", "fanout", "--target", &format!("gone={port}"), "--subscribers", "1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("gone") && said.contains("Connection refused"), "{said}");
}

fn measure_misbehaving(port: u16) -> String {
    let output = mqttshim()
        .args(["bench", "fanout", "--target", &format!("bad={port}"), "--subscribers", "1"])
        .args(["--rate", "100", "--warmup", "0", "--duration", "0.5"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    stderr(&output)
}

/// A server that writes the `n`-th PUBLISH to its one subscriber `copies(n)` times.
fn misbehaving(copies: fn(u64) -> usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut subscriber: Option<TcpStream> = None;
        let mut clients = Vec::new();
        for _ in 0..2 {
            let (mut client, _) = listener.accept().unwrap();
            assert_eq!(packet(&mut client).unwrap()[0] >> 4, 1);
            client.write_all(&[0x20, 2, 0, 0]).unwrap();
            clients.push(client);
        }
        // Which of the two subscribes: the one that speaks again first.
        for client in &clients {
            client.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
        }
        let mut publisher = None;
        for mut client in clients {
            match packet(&mut client) {
                Some(subscribe) => {
                    client.write_all(&[0x90, 3, subscribe[2], subscribe[3], 0]).unwrap();
                    subscriber = Some(client);
                }
                None => publisher = Some(client),
            }
        }
        let (mut publisher, mut subscriber) = (publisher.unwrap(), subscriber.unwrap());
        publisher.set_read_timeout(None).unwrap();
        let mut sequence = 0;
        while let Some(publish) = packet(&mut publisher) {
            for _ in 0..copies(sequence) {
                if subscriber.write_all(&publish).is_err() {
                    return;
                }
            }
            sequence += 1;
        }
    });
    port
}

/// One whole packet of less than 128 bytes.
fn packet(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    let mut whole = head.to_vec();
    whole.resize(2 + usize::from(head[1]), 0);
    stream.read_exact(&mut whole[2..]).ok()?;
    Some(whole)
}
