"""A hundred subscribers of one topic, on plain sockets: one line of JSON a feature. MQTT 3.1.1, no library.

usage: python crowd_client.py PORT [FEATURE…]     all features, unless some are named

Credentials, where a broker wants some: MQTT_USER and MQTT_PASSWORD.
"""

import json
import os
import selectors
import socket
import struct
import sys
import time

PORT = int(sys.argv[1])
HOST = os.environ.get("TEST_HOST", "127.0.0.1")
CROWD = 100
MESSAGES = 60
PATIENCE_S = 20


def text(value):
    raw = value.encode()
    return struct.pack("!H", len(raw)) + raw


def packet(first, body):
    length, head = len(body), bytes([first])
    while True:
        length, digit = divmod(length, 128)
        head += bytes([digit | (128 if length else 0)])
        if not length:
            return head + body


class Guest:
    """One connection. Packets are cut out of its bytes; QoS 1 is acknowledged at once."""

    def __init__(self, name):
        self.stream = socket.create_connection((HOST, PORT), PATIENCE_S)
        self.bytes, self.inbox, self.answers = b"", [], []
        user, password = os.environ.get("MQTT_USER", ""), os.environ.get("MQTT_PASSWORD", "")
        flags, tail = (0xC2, text(user) + text(password)) if user else (0x02, b"")
        self.send(packet(0x10, text("MQTT") + bytes([4, flags, 0, 60]) + text(name) + tail))
        assert self.answer(0x20)[1] == 0, "CONNECT was refused"

    def send(self, raw):
        self.stream.sendall(raw)

    def answer(self, first):
        """Waits for a packet that is no PUBLISH."""
        while not self.answers:
            self.take()
        kind, body = self.answers.pop(0)
        assert kind & 0xF0 == first, f"{kind:#x} instead of {first:#x}"
        return body

    def take(self):
        """Reads once."""
        more = self.stream.recv(65536)
        assert more, "the broker hung up"
        self.bytes += more
        while True:
            length, shift, at = 0, 0, 1
            while True:
                if at >= len(self.bytes):
                    return
                digit = self.bytes[at]
                length |= (digit & 127) << shift
                shift, at = shift + 7, at + 1
                if digit < 128:
                    break
            if len(self.bytes) < at + length:
                return
            self.packet(self.bytes[0], self.bytes[at:at + length])
            self.bytes = self.bytes[at + length:]

    def packet(self, first, body):
        if first & 0xF0 != 0x30:
            self.answers.append((first, body))
            return
        at = 2 + struct.unpack("!H", body[:2])[0]
        if first & 0x06:
            self.send(b"\x40\x02" + body[at:at + 2])
            at += 2
        self.inbox.append((body[at:].decode(), (first >> 1) & 3))

    def subscribe(self, topic, qos):
        self.send(packet(0x82, b"\0\1" + text(topic) + bytes([qos])))
        assert self.answer(0x90)[2] == qos, "not granted"

    def ping(self):
        self.send(b"\xc0\0")
        self.answer(0xD0)

    def publish(self, topic, number, qos, retain=0):
        identifier = struct.pack("!H", number + 1) if qos else b""
        self.send(packet(0x30 | qos << 1 | retain, text(topic) + identifier + str(number).encode()))


def crowd(feature, qos):
    topic = f"crowd/{feature}"
    guests = [Guest(f"{feature}-{number}") for number in range(CROWD)]
    for guest in guests:
        guest.subscribe(topic, qos)
    for guest in guests:
        guest.ping()
    return topic, guests, Guest(f"{feature}-sender")


def collect(guests, count):
    """Until each has `count` messages."""
    selector = selectors.DefaultSelector()
    for guest in guests:
        selector.register(guest.stream, selectors.EVENT_READ, guest)
    deadline = time.monotonic() + PATIENCE_S
    while any(len(guest.inbox) < count for guest in guests):
        assert time.monotonic() < deadline, f"in time only {sorted({len(guest.inbox) for guest in guests})} of {count}"
        for key, _ in selector.select(1):
            key.data.take()


def compare(guests, qos):
    want = [(str(number), qos) for number in range(MESSAGES)]
    for number, guest in enumerate(guests):
        assert guest.inbox == want, f"subscriber {number} got {[got for got, _ in guest.inbox]}"
        guest.stream.close()
    return f"{CROWD} subscribers, {MESSAGES} messages each, in order"


def delivers(qos):
    def run():
        topic, guests, sender = crowd(f"crowd{qos}", qos)
        for number in range(MESSAGES):
            sender.publish(topic, number, qos)
        collect(guests, MESSAGES)
        if qos:
            for _ in range(MESSAGES):
                sender.answer(0x40)
        return compare(guests, qos)
    return run


def order():
    """One topic, one publisher, one QoS: as it was sent [MQTT-4.6.0-6], also where who distributes changes all the time."""
    topic, guests, sender = crowd("order", 0)
    for number in range(MESSAGES):
        # The card takes no retained message, and then no other until the broker has answered something behind it.
        sender.publish(topic, number, 0, retain=int(number % 6 == 1))
        if number % 6 == 2:
            sender.ping()
    collect(guests, MESSAGES)
    sender.send(packet(0x31, text(topic)))
    return compare(guests, 0)


def short_lived():
    """Clients that come, subscribe, get one message and go."""
    for number in range(CROWD):
        guest = Guest(f"short-{number}")
        guest.subscribe(f"crowd/short/{number}", 0)
        guest.publish(f"crowd/short/{number}", number, 0)
        collect([guest], 1)
        assert guest.inbox == [(str(number), 0)], guest.inbox
        guest.send(b"\xe0\0")
        guest.stream.close()
    return f"{CROWD}, one after the other"


FEATURES = {"crowd0": delivers(0), "crowd1": delivers(1), "order": order, "short_lived": short_lived}

for feature in sys.argv[2:] or FEATURES:
    try:
        print(json.dumps({"feature": feature, "ok": True, "detail": FEATURES[feature]()}), flush=True)
    except Exception as error:  # Whatever went wrong is the report.
        print(json.dumps({"feature": feature, "ok": False, "detail": repr(error)[:600]}), flush=True)
