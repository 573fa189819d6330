"""paho-mqtt as a client of the broker at PORT: one line of JSON a feature.

usage: python paho_client.py PORT 3|4|5

Credentials, where a broker wants some: MQTT_USER and MQTT_PASSWORD.
"""

import hashlib
import json
import os
import queue
import socket
import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

PORT = int(sys.argv[1])
HOST = os.environ.get("TEST_HOST", "127.0.0.1")
VERSION = {"3": mqtt.MQTTv31, "4": mqtt.MQTTv311, "5": mqtt.MQTTv5}[sys.argv[2]]
PATIENCE_S = 20
PREFIX = f"paho{sys.argv[2]}"


class Guest:
    """A client whose calls return when the broker has answered."""

    def __init__(self, name, persistent=False, will=None):
        self.inbox = queue.Queue()
        self.answers = queue.Queue()
        options = {"client_id": f"{PREFIX}-{name}", "protocol": VERSION}
        if VERSION != mqtt.MQTTv5:
            options["clean_session"] = not persistent
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, **options)
        self.client.on_message = lambda client, data, message: self.inbox.put(message)
        self.client.on_subscribe = lambda client, data, mid, codes, properties: self.answers.put(codes)
        connected = threading.Event()
        self.client.on_connect = lambda client, data, flags, code, properties: (
            setattr(self, "flags", flags), setattr(self, "code", code), connected.set())
        if "MQTT_USER" in os.environ:
            self.client.username_pw_set(os.environ["MQTT_USER"], os.environ.get("MQTT_PASSWORD"))
        if will:
            self.client.will_set(*will)
        arguments = {}
        if VERSION == mqtt.MQTTv5:
            arguments["clean_start"] = not persistent
            if persistent:
                arguments["properties"] = Properties(PacketTypes.CONNECT)
                arguments["properties"].SessionExpiryInterval = 3600
        self.client.connect(HOST, PORT, **arguments)
        self.client.loop_start()
        assert connected.wait(PATIENCE_S), "no CONNACK"
        assert not self.code.is_failure, self.code

    def subscribe(self, topic, qos=0, **arguments):
        self.client.subscribe(topic, qos=qos, **arguments)
        codes = self.answers.get(timeout=PATIENCE_S)
        assert all(not code.is_failure for code in codes), codes

    def publish(self, topic, payload, qos=0, retain=False, properties=None):
        sent = self.client.publish(topic, payload, qos=qos, retain=retain, properties=properties)
        sent.wait_for_publish(PATIENCE_S)
        assert sent.is_published(), "not acknowledged"

    def message(self):
        return self.inbox.get(timeout=PATIENCE_S)

    def leave(self):
        self.client.disconnect()
        self.client.loop_stop()

    def vanish(self):
        self.client.socket().shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()


def publishes(qos):
    def run():
        receiver, sender = Guest(f"r{qos}"), Guest(f"s{qos}")
        topic = f"{PREFIX}/qos{qos}"
        receiver.subscribe(topic, qos)
        for number in range(50):
            sender.publish(topic, f"message {number}", qos)
        for number in range(50):
            message = receiver.message()
            assert message.payload == f"message {number}".encode(), (message.payload, number)
            assert message.qos == qos and not message.retain, (message.qos, message.retain)
        receiver.leave()
        sender.leave()
        return "50 in order"
    return run


def retained():
    sender, receiver = Guest("ret-s"), Guest("ret-r")
    topic = f"{PREFIX}/retained"
    sender.publish(topic, "kept", 1, True)
    receiver.subscribe(topic, 1)
    message = receiver.message()
    assert message.retain and message.payload == b"kept", message.payload
    sender.publish(topic, "", 1, True)
    assert receiver.message().payload == b""
    receiver.leave()
    late = Guest("ret-l")
    late.subscribe([(topic, 1), (f"{PREFIX}/retained-end", 1)] if VERSION != mqtt.MQTTv5 else
                   [(topic, SubscribeOptions(1)), (f"{PREFIX}/retained-end", SubscribeOptions(1))])
    sender.publish(f"{PREFIX}/retained-end", "end", 1)
    message = late.message()
    assert message.payload == b"end", message.payload
    late.leave()
    sender.leave()
    return "kept, then cleared"


def will():
    receiver = Guest("will-r")
    topic = f"{PREFIX}/will"
    receiver.subscribe(topic, 1)
    Guest("will-s", will=(topic, "gone", 1, False)).vanish()
    message = receiver.message()
    assert message.payload == b"gone" and message.qos == 1
    receiver.leave()
    return "published"


def persistent():
    topic = f"{PREFIX}/persistent"
    receiver, sender = Guest("keep", persistent=True), Guest("keep-s")
    receiver.subscribe(topic, 1)
    receiver.leave()
    for number in range(20):
        sender.publish(topic, f"queued {number}", 1)
    receiver = Guest("keep", persistent=True)
    assert receiver.flags.session_present or VERSION == mqtt.MQTTv31
    for number in range(20):
        assert receiver.message().payload == f"queued {number}".encode()
    sender.publish(topic, "live", 0)
    assert receiver.message().payload == b"live"
    receiver.leave()
    sender.leave()
    return "20 queued and one live"


def large():
    topic = f"{PREFIX}/large"
    receiver, sender = Guest("large-r"), Guest("large-s")
    receiver.subscribe(topic, 1)
    for qos in (0, 1):
        payload = os.urandom(5_000_000)
        sender.publish(topic, payload, qos)
        message = receiver.message()
        assert hashlib.sha256(message.payload).digest() == hashlib.sha256(payload).digest()
    receiver.leave()
    sender.leave()
    return "5 MB there and back, same hash"


def wildcards():
    sender = Guest("wild-s")
    seen = []
    for name, topic in (("plus", f"{PREFIX}/w/+/end"), ("hash", f"{PREFIX}/w/#"), ("all", f"{PREFIX}/#")):
        receiver = Guest(f"wild-{name}")
        receiver.subscribe(topic)
        for level in ("w/a/end", "w/a/b/end", "w", "end"):
            sender.publish(f"{PREFIX}/{level}", level)
        got = []
        while not got or got[-1] != "end-of-list":
            if not got:
                sender.publish(f"{PREFIX}/w/x/end", "end-of-list")
            got.append(receiver.message().payload.decode())
        seen.append(f"{name}:{','.join(got)}")
        receiver.leave()
    sender.leave()
    return " ".join(seen)


def properties():
    if VERSION != mqtt.MQTTv5:
        return "none in this version"
    topic = f"{PREFIX}/properties"
    receiver, sender = Guest("prop-r"), Guest("prop-s")
    receiver.subscribe(topic, 1)
    sent = Properties(PacketTypes.PUBLISH)
    sent.UserProperty = [("a", "1"), ("a", "2"), ("ü", "ß")]
    sent.ContentType = "text/plain"
    sent.ResponseTopic = "answer/here"
    sent.CorrelationData = b"\x00\x01\xff"
    sent.PayloadFormatIndicator = 1
    sent.MessageExpiryInterval = 1000
    for qos in (0, 1):
        sender.publish(topic, "with properties", qos, properties=sent)
        got = receiver.message().properties
        assert got.UserProperty == sent.UserProperty, got.UserProperty
        assert got.ContentType == "text/plain" and got.ResponseTopic == "answer/here"
        assert got.CorrelationData == b"\x00\x01\xff" and got.PayloadFormatIndicator == 1
        assert got.MessageExpiryInterval in (999, 1000), got.MessageExpiryInterval
    receiver.leave()
    sender.leave()
    return "all there"


FEATURES = {
    "qos0": publishes(0), "qos1": publishes(1), "qos2": publishes(2), "retained": retained, "will": will,
    "persistent": persistent, "large": large, "wildcards": wildcards, "properties": properties,
}

for feature, run in FEATURES.items():
    try:
        print(json.dumps({"feature": feature, "ok": True, "detail": run()}), flush=True)
    except Exception as error:  # Whatever went wrong is the report.
        print(json.dumps({"feature": feature, "ok": False, "detail": repr(error)}), flush=True)
# Threads of clients that failed half-way would keep the process.
os._exit(0)
