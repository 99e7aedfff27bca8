//! Real packets, as scapy builds them.
