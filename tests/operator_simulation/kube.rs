//! The API server and the cluster as state machines: requests and a time in, answers and news out.
