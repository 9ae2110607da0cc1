//! The rules of OAuth: requests and addresses by tables, tokens in every order in which things can happen to them.

mod addresses;
mod clients;
mod documents;
mod logins;
mod orders;
mod people;
mod requests;
mod tokens;
mod world;
