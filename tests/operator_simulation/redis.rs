//! A Redis server as a state machine: bytes and a time in, bytes out.
