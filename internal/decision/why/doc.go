// Package why says in words why a request was not warmer: for a candidate, what ends its
// match (End), and for the request, where more of it is cached and what to do (Answer).
//
// The causes and the places are closed sets, and docs/explain.md has a row for each. An
// answer has numbers, times, addresses of replicas and names of models, but no text of a
// prompt, no salt and no token ids. Package decision finds the causes; nothing here has
// state.
//
// Units: tokens.
package why
