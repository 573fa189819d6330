@0xd1c7a0f25b3e9a64;
# The messages between a host (the agent, and the preloaded library behind it) and a card.
#
# Compatibility rules
#  - A field or a union member is only ever added, with the next free number; none changes its type, its number or its
#    meaning, none is removed.
#  - A change that an older peer would misread raises `versionMax` in Hello; a peer supports N and N-1.
#  - The bytes of every released version are kept in schema/golden/ and decoded by a test.
#
# One message travels as one channel message: Cap'n Proto's flat form with a single segment, at most `maxMessageBytes`.

struct Message {
  union {
    hello @0 :Hello;
    bind @1 :Bind;
    listen @2 :Listen;
    accepted @3 :Accepted;
    connect @4 :Connect;
    connected @5 :Connected;
    data @6 :StreamData;
    eof @7 :Eof;
    reset @8 :Reset;
    credit @9 :Credit;
    blocked @10 :Blocked;
    shutdown @11 :Shutdown;
    close @12 :Close;
    option @13 :Option;
    notice @14 :Notice;
    reply @15 :Reply;
    heartbeat @16 :Heartbeat;
    policyChanged @17 :PolicyChanged;
  }
}

struct Address {
  # IPv4 addresses travel in the low 32 bits of `low` with `family` 4; IPv6 with `family` 6.
  family @0 :UInt8;
  port @1 :UInt16;
  scope @2 :UInt32;
  flow @3 :UInt32;
  high @4 :UInt64;
  low @5 :UInt64;
}

struct SocketOption {
  level @0 :Int32;
  name @1 :Int32;
  value @2 :Data;
}

struct Hello {
  versionMin @0 :UInt16;
  versionMax @1 :UInt16;
  maxMessageBytes @2 :UInt32;
  # Bytes of one socket that may be under way towards the sender of this Hello before it grants more.
  windowBytes @3 :UInt32;
  # Shared-memory layout versions the sender can use; 0 on a channel that carries no shared memory.
  layoutMin @4 :UInt16;
  layoutMax @5 :UInt16;
  # The program behind the sender, for logs.
  program @6 :Text;
}

struct Bind {
  request @0 :UInt32;
  session @1 :UInt32;
  socket @2 :UInt32;
  uid @3 :UInt32;
  address @4 :Address;
  options @5 :List(SocketOption);
}

struct Listen {
  request @0 :UInt32;
  socket @1 :UInt32;
  backlog @2 :Int32;
  # The file name, inside the session directory, of a listener's placeholder that outlived an agent; empty: make one.
  placeholder @3 :Text;
  options @4 :List(SocketOption);
}

struct Accepted {
  listener @0 :UInt32;
  socket @1 :UInt32;
  local @2 :Address;
  peer @3 :Address;
}

struct Connect {
  request @0 :UInt32;
  session @1 :UInt32;
  socket @2 :UInt32;
  uid @3 :UInt32;
  address @4 :Address;
  options @5 :List(SocketOption);
}

struct Connected {
  socket @0 :UInt32;
  errno @1 :Int32;
  local @2 :Address;
  peer @3 :Address;
}

# Not named Data: that would hide Cap'n Proto's own type of byte strings in this file.
struct StreamData {
  socket @0 :UInt32;
  stamp @1 :UInt64;
  read @2 :UInt64;
  bytes @3 :Data;
}

struct Eof { socket @0 :UInt32; stamp @1 :UInt64; }
struct Reset { socket @0 :UInt32; errno @1 :Int32; }
struct Credit { socket @0 :UInt32; bytes @1 :UInt32; }
struct Blocked { socket @0 :UInt32; stamp @1 :UInt64; }

struct Shutdown {
  socket @0 :UInt32;
  stamp @1 :UInt64;
  how @2 :How;
  enum How { read @0; write @1; both @2; }
}

struct Close {
  socket @0 :UInt32;
  stamp @1 :UInt64;
  # The program left received bytes unread: the card resets the connection, as the kernel does.
  unread @2 :Bool;
}

struct Option {
  request @0 :UInt32;
  socket @1 :UInt32;
  level @2 :Int32;
  name @3 :Int32;
  union {
    get @4 :UInt32;   # The length of the caller's buffer.
    set @5 :Data;
  }
}

struct Notice {
  session @0 :UInt32;
  stamp @1 :UInt64;
  what @2 :What;
  detail @3 :Text;
  enum What {
    sessionOpened @0;
    sessionEnded @1;
    listenerOutside @2;
    listenerOutsideGone @3;
    connectionOutside @4;
    connectionOutsideGone @5;
    libraryLoaded @6;
  }
}

struct Reply {
  request @0 :UInt32;
  errno @1 :Int32;
  address @2 :Address;
  value @3 :Data;
}

struct Heartbeat { sequence @0 :UInt64; }

# The program opened a file for reading, or loads a library: what it permits may be different from here on.
struct PolicyChanged {
  session @0 :UInt32;
  stamp @1 :UInt64;
  # How often that happened since the session began. 0 says that nothing did yet, and that every time will be told.
  epoch @2 :UInt64;
}
