//! AWS integration: instance identity, target group discovery, and the lifecycle of the target.

#![forbid(unsafe_code)]

pub mod account;
pub mod advice;
pub mod call;
mod connect;
pub mod doctor;
mod ec2;
mod elb;
pub mod failure;
pub mod group;
pub mod imds;
pub mod leader;
pub mod registration;
pub mod remote;
pub mod roles;
pub mod routes;
pub mod runner;
mod scaling;
mod services;
pub mod signed;
mod ssm;
pub mod types;
pub mod wait;
