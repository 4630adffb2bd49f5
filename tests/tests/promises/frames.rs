//! Frames made by hand, on the private control socket.
