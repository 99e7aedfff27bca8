//! Bidirectional forwarding detection (RFC 5880, 5881, 5883).
